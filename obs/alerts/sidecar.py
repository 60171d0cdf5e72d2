"""What only the sidecar sees: models that failed to load, frozen engines, signals that are withheld, known holes."""

from __future__ import annotations

from obs.alerts.thresholds import known_servers
from obs.catalog.scaling import PRIMARY
from obs.config import Config
from obs.engines import BY_NAME as ENGINES
from obs.model.rule import Alert, Group, NoData
from obs.promql import by, call, duration, on, one_of, quote, selector
from obs.recordings.beside import suspect, vulnerable
from obs.recordings.names import labels
from obs.recordings.rules import EngineRules

#: Triton's word in the repository index for a model that somebody unloaded: no failure.
UNLOADED = "unloaded"
#: Why the signal to scale on may lack although the engine is well; other reasons are other alerts' or nobody's.
_LACKING = ("invalid", "missing_metric", "no_capacity", "no_history")
SCALE_ON = PRIMARY.metric

_NO_PROBE = "Without the sidecar, or with --probe none, nobody asks Triton for its repository."
_INDEX = "A new version directory of a loaded model is in Triton's index only once it is loaded or polled."
_VERSION = "{{ with $labels.version }} version {{ . }}{{ end }}"


def group(config: Config) -> Group | None:
    if "sidecar" not in config.engines:
        return None
    L = labels(config)
    own = EngineRules(ENGINES["sidecar"], config)
    instance = on(L.instance)
    repository = by((*L.model, "state", "reason"))

    def named(inner: str) -> str:
        """The sidecar's series with ``model`` in place of ``model_name``."""
        return call("label_replace", inner, '"model"', '"$1"', '"model_name"', '"(.+)"')

    def model(*matchers: str) -> str:
        return own.select("triton_model_info", *matchers)

    failed = model('state="UNAVAILABLE"', f"reason!={quote(UNLOADED)}")
    serves = f"{on((*L.instance, 'model'))}\n  {model(one_of('state', ['READY']))}"
    halfway = model(one_of("state", ["LOADING", "UNLOADING"]))
    unheard = model('state="UNKNOWN"', one_of("model", config.idle_exclude, negate=True))
    failing, stale = (own.select("llm_engine_up", one_of("reason", ["stale"], negate=fails)) for fails in (True, False))
    up, startup = own.select("llm_engine_up"), duration(config.window("startup"))
    known = duration(config.window("known"))
    # The engine's own target tells it too: then it is InferenceTargetDown's, which names the target.
    watched = one_of("job", config.jobs)
    told = f"{selector('up', watched, config.pod + '!=' + quote(''))} == 0"
    if not config.jobs:
        told += f"\n  and {instance}\n  {known_servers(config)}"
    signal = f"signal={quote(SCALE_ON)}"
    alerts = (
        Alert(
            "InferenceModelLoadFailed",
            f"count {repository} (\n  {failed}\n  unless {serves}\n)", "1m", "critical",
            "{{ $labels.model }} failed to load: {{ $labels.reason }}",
            f"Model {{{{ $labels.model }}}}{_VERSION} is {{{{ $labels.state }}}} on {{{{ $value }}}} servers of "
            "{{ $labels.job }}, and no other version serves there. Triton's reason: {{ with $labels.reason }}{{ . }}"
            "{{ else }}none given{{ end }}. It does not try again by itself.",
            NoData("silent", _NO_PROBE, "InferenceModelVanished"),
            blind_spots=(
                "Triton that exits when a model fails at start (--exit-on-error, the default) is gone before anybody can "
                "ask it: InferenceTargetDown tells.",
                "The sidecar follows the first 64 lines of the repository index.",
            ),
            dashboard="obs-fleet",
        ),
        Alert(
            "InferenceModelVersionNotLoaded",
            f"count {repository} (\n  {failed}\n  and {serves}\n  or\n  {halfway}\n)",
            "15m", "warning",
            "{{ $labels.model }} is {{ $labels.state }} and stays so",
            f"Model {{{{ $labels.model }}}}{_VERSION} is {{{{ $labels.state }}}} on {{{{ $value }}}} servers of "
            "{{ $labels.job }}: another version may serve in its place, and this one does not come. "
            "{{ with $labels.reason }}Triton's reason: {{ . }}.{{ end }}",
            NoData("silent", _NO_PROBE, "InferenceModelMissingOnReplica"),
            blind_spots=(_INDEX,),
            dashboard="obs-fleet",
        ),
        Alert(
            "InferenceModelNotLoaded",
            f"count {by(L.model)} ({unheard})", "1h", "info",
            "{{ $labels.model }} is in the repository and was never loaded",
            f"Model {{{{ $labels.model }}}}{_VERSION} lies in the model repository of {{{{ $value }}}} servers of "
            "{{ $labels.job }} and none of them was told to load it: with --model-control-mode=explicit a model needs "
            "--load-model or a load request, with none a restart. Meant so: name it under idle_exclude.",
            NoData("silent", _NO_PROBE, "InferenceModelVanished"),
            blind_spots=(_INDEX,),
            dashboard="obs-fleet",
        ),
        Alert(
            "LLMEngineStalled",
            f"max {by((*L.instance, 'model', 'engine'))} ({suspect(config)})",
            "1m", "critical",
            "{{ $labels.model }} on {{ $labels.instance }} has requests and makes no progress",
            "The sidecar of {{ $labels.instance }} saw {{ $labels.model }} ({{ $labels.engine }}) with requests and "
            "without one token or step for many samples in a row (suspect = {{ $value }}): the engine hangs. Its gauges "
            "are frozen, so that its signals are withheld and the autoscaler holds.",
            NoData("silent", "Suspect needs a sidecar that answers.", "InferenceTargetDown"),
            blind_spots=(
                "Engines that count tokens when a request ends (SGLang, trtllm-serve) are given ten times as long.",
            ),
            dashboard="obs-llm",
        ),
        Alert(
            "LLMScalingSignalUnavailable",
            f"count {by((*L.model_name, 'engine', 'reason'))} (\n  "
            + named(
                f"{own.select('llm_signal_info', signal, one_of('reason', _LACKING))}\n"
                f"and {on((*L.instance, 'engine', 'model_name', 'signal'))}\n"
                f"{own.select('llm_signal_available', signal)} == 0\nand {instance}\n{up} == 1"
            ).replace("\n", "\n  ")
            + "\n)",
            "15m", "warning",
            "{{ $labels.model }} has no signal to scale on: {{ $labels.reason }}",
            f"{{{{ $value }}}} sidecars of {{{{ $labels.job }}}} withhold {SCALE_ON} of {{{{ $labels.model }}}} "
            "({{ $labels.engine }}) although the engine is up, reason {{ $labels.reason }}: an autoscaler on it holds and "
            "does not scale out.",
            NoData("silent", "An engine that is down, or a sidecar that is gone, is another alert's.",
                   "InferenceEngineDown"),
            blind_spots=(
                "With a KV axis alone (no decode capacity) the signal is there and misses decode-bound load: see "
                "llm_signal_info for llm_scaling_decode_demand_ratio.",
            ),
            dashboard="obs-llm",
        ),
        Alert(
            "InferenceEngineDown",
            f"{failing} == 0\nand {instance}\n(\n"
            f"  max {by(L.instance)} (max_over_time({up}[{known}])) == 1\n  or\n"
            f"  group {by(L.instance)} (present_over_time({up}[{duration(config.window('rate'))}] offset {startup}))\n)\n"
            f"unless {on((config.cluster, config.namespace, config.pod))}\n(\n  {told}\n)",
            "2m", "critical",
            "The sidecar of {{ $labels.instance }} cannot read its engine: {{ $labels.reason }}",
            "The sidecar of {{ $labels.instance }} (job {{ $labels.job }}) answers, and its engine ({{ $labels.engine }}) "
            "does not (up = {{ $value }}), reason {{ $labels.reason }}. Its signals are withheld: the autoscaler holds.",
            NoData("silent", "A sidecar that is gone tells nothing; its own target is watched.", "InferenceTargetDown"),
            limits=("windows.startup", "windows.known"),
            blind_spots=(
                f"An engine that was never up is given {startup} to load.",
                "Each reason waits its own two minutes: an engine that changes it all the time is told later.",
                "Silent where the engine's own target is down in the same pod; without a pod label both alerts fire.",
            ),
            dashboard="obs-fleet",
        ),
        Alert(
            "InferenceSidecarStale",
            f"{stale} == 0", "2m", "warning",
            "The sidecar of {{ $labels.instance }} has stopped sampling",
            "The sidecar of {{ $labels.instance }} (job {{ $labels.job }}) answers Prometheus and has taken no sample of "
            "its engine for longer than its max age (up = {{ $value }}, reason stale): a fault of the sidecar, or one "
            "starved of CPU. The engine may be well; its signals are withheld.",
            NoData("silent", "A sidecar that does not answer is a target that is down.", "InferenceTargetDown"),
            dashboard="obs-fleet",
        ),
        Alert(
            "InferenceServerVulnerable",
            vulnerable(config),
            "15m", "warning",
            "{{ $labels.job }} runs a server with {{ $labels.id }}",
            "{{ $value }} servers of {{ $labels.job }} run a version ({{ with $labels.version }}{{ . }}{{ else }}not to be "
            "read{{ end }}) that {{ if eq $labels.status \"affected\" }}has{{ else }}cannot rule out{{ end }} "
            "{{ $labels.id }}. Upgrade, and keep its HTTP and gRPC ports off untrusted networks meanwhile.",
            NoData("silent", "Without the sidecar's probe the version is not known; nothing says then that it is safe.",
                   "InferenceTargetDown"),
            blind_spots=("Only the few holes of the table in obs/sidecar/readiness.py, told by the version alone.",),
            dashboard="obs-fleet",
        ),
    )
    return Group("obs-sidecar", "sidecar", "What only the sidecar beside an engine sees.", alerts)
