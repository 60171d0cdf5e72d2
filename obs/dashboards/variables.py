"""The variables at the top of each dashboard, each one narrowing the next: cluster, namespace, job, model, version.

Every query reads one series of ours: ``label_values(model)`` alone would offer whatever any exporter calls a
model. "All" is sent as ``.*``, which also matches a label that is not there: native vLLM has no ``version``, and a
Prometheus without external labels no ``cluster``.
"""

from __future__ import annotations

from collections.abc import Container

from obs.config import Config
from obs.model.dashboard import Variable
from obs.promql import selector

#: Variable -> its title. The name is fixed; the label it asks for is the configuration's.
TITLES = {"cluster": "Cluster", "namespace": "Namespace", "job": "Job", "model": "Model", "version": "Version"}
NAMES = tuple(TITLES)


def label_of(config: Config, variable: str) -> str:
    """The label whose values the variable holds."""
    return {"cluster": config.cluster, "namespace": config.namespace, "gpu": "gpu_uuid"}.get(variable, variable)


def matchers(config: Config, *names: str, absent: bool = False, single: Container[str] = ()) -> str:
    """Matchers of the variables' values. ``absent`` lets series pass that lack the label, whatever is chosen.

    The ``single`` hold one value and no "All": those Grafana does not escape for a regex, so they are compared as they
    are (https://grafana.com/docs/grafana/latest/dashboards/variables/variable-syntax/), and ``absent`` is not for them.
    """
    return ",".join(matcher(label_of(config, name), name, absent=absent, single=single) for name in names)


def matcher(label: str, name: str, *, absent: bool = False, single: Container[str] = ()) -> str:
    """As ``matchers``, of one variable, for a label that is called otherwise."""
    if name in single:
        return f'{label}="${name}"'
    return f'{label}=~"${name}{"|" if absent else ""}"'


def chain(
    config: Config, metric: str, *names: str, above: tuple[str, ...] = (), single: Container[str] = ()
) -> tuple[Variable, ...]:
    """Query variables over one metric, each narrowed by those before it and by those ``above``."""
    found: list[Variable] = []
    for place, name in enumerate(names):
        narrowed = selector(metric, matchers(config, *above, *names[:place], single=single))
        query = f"label_values({narrowed}, {label_of(config, name)})"
        several = name not in single
        found.append(Variable(name, TITLES.get(name, name.upper()), query, multi=several, include_all=several))
    return tuple(found)
