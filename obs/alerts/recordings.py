from obs.recordings.rules import *  # noqa: F403 - moved
