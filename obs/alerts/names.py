from obs.recordings.names import *  # noqa: F403 - moved
from obs.recordings.names import DERIVED, OPERATIONS, Labels, labels, series  # noqa: F401
