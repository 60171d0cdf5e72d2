"""Targets and replicas: down, empty, flapping, or unlike their peers."""

from __future__ import annotations

from obs.alerts.thresholds import known_servers
from obs.config import Config
from obs.model.rule import Alert, Group, NoData
from obs.promql import by, duration, number, on, one_of, selector
from obs.recordings.names import labels, series


def group(config: Config) -> Group:
    L = labels(config)
    server, loaded = series("instance", "server", "present"), series("instance_model", "model_loaded", "present")
    known = known_servers(config)
    jobs = one_of("job", config.jobs)
    up = selector("up", jobs)
    ours = "" if config.jobs else f"\nand {on(L.instance)}\n{known}"
    if config.jobs:
        job_gone = "\nor\n".join(f"absent({selector('up', one_of('job', [job]))})" for job in config.jobs)
    else:
        # The targets' own job, not that of their series: an exporter that honours labels serves other namespaces.
        # A target that is down and known is InferenceTargetDown's.
        job_gone = (
            f"present_over_time({series('job', 'server', 'present')}[{duration(config.window('known'))}])\n"
            f"unless {on(L.job)}\nup == 1\nunless {on(L.job)}\n(\n  up == 0\n  and {on(L.instance)}\n  {known}\n)"
        )
    flap = duration(config.window("flap"))
    share = number(config.limit("replica_majority"))
    # A native vLLM server serves one model: its peers in a job may well serve others. A sidecar serves none.
    alone = one_of("engine", ["vllm", "dcgm", "sidecar"], negate=True)
    peers = f"count {by(L.job)} (count {by(L.instance)} ({selector(server, alone)}))"
    holders = f"count {by(L.model_name)} (count {by((*L.instance, 'model'))} ({selector(loaded, alone)}))"
    remembered = f"A server is remembered for {duration(config.window('known'))} after its last good scrape"
    alerts = (
        Alert(
            "InferenceTargetDown", f"{up} == 0{ours}", "2m", "critical",
            "{{ $labels.instance }} of {{ $labels.job }} cannot be scraped",
            "Prometheus cannot scrape {{ $labels.instance }} (up = {{ $value }}): the server is down, restarting or "
            "unreachable. Everything else about it is unknown.",
            NoData("silent", "A target that left service discovery has no up series.", "InferenceJobAbsent"),
            limits=("windows.known",),
            blind_spots=() if config.jobs else (f"{remembered}; name the job under jobs to watch it for ever.",),
            dashboard="obs-fleet",
        ),
        Alert(
            "InferenceJobAbsent", job_gone, "10m", "critical",
            "No target of {{ $labels.job }} is left",
            "Job {{ $labels.job }} has no scrape target that answers (value {{ $value }}: its absence): scaled to zero, "
            "deleted, replaced by pods that do not start, or no longer selected by its ServiceMonitor.",
            NoData("fires", "The absence of every target is what it reports.", ""),
            limits=("windows.known",),
            blind_spots=() if config.jobs else (
                f"{remembered}; a job removed on purpose fires that long.",
                "A target whose exporter overwrites its instance label is not recognised; name its job under jobs.",
            ),
            dashboard="obs-fleet",
        ),
        Alert(
            "InferenceMetricsEmpty",
            f"{up} == 1{ours}\nunless {on(L.instance)}\n{server}", "5m", "warning",
            "{{ $labels.instance }} is up but serves no engine metrics",
            "{{ $labels.instance }} answers its scrape (up = {{ $value }}) without one series of an engine: metrics were "
            "switched off (vLLM --disable-log-stats, Triton without metrics), or something else answers on the port. "
            "Every other alert is blind to it.",
            NoData("fires", "The absence of the engine's series is what it reports.", "InferenceTargetDown"),
            limits=("windows.known",), dashboard="obs-fleet",
        ),
        Alert(
            "InferenceTargetFlapping",
            f"changes({up}[{flap}]) >= {number(config.limit('target_changes'))}\nand\n{up}{ours}", "0s", "warning",
            "{{ $labels.instance }} keeps going up and down",
            f"The scrape of {{{{ $labels.instance }}}} changed between up and down {{{{ $value }}}} times in {flap}: a "
            "crash loop, or scrapes that time out.",
            NoData("silent", "Without an up series there is no target.", "InferenceJobAbsent"),
            limits=("limits.target_changes", "windows.flap"), dashboard="obs-fleet",
        ),
        Alert(
            "InferenceModelMissingOnReplica",
            f"(\n  {holders}\n  / {on(L.job)} group_left ()\n  {peers}\n) > {share} < 1", "15m", "warning",
            "{{ $labels.model }} is missing on some servers of {{ $labels.job }}",
            "Only {{ $value | humanizePercentage }} of the servers of job {{ $labels.job }} serve model "
            "{{ $labels.model }}: it failed to load on the others, or they run another model repository.",
            NoData("silent", "A model on no server at all is another alert's.", "InferenceModelVanished"),
            needs=("model_loaded",),
            limits=("limits.replica_majority",),
            blind_spots=(
                f"A model that {config.limit('replica_majority'):.0%} of a job's servers or fewer hold is taken as meant so; "
                "of two servers, that is one.",
            ),
            dashboard="obs-fleet",
        ),
    )
    return Group("obs-availability", "availability", "Servers are down, empty or unlike their peers.", alerts)
