"""LLM engines: saturation, waste, hangs and disaggregated serving."""

from __future__ import annotations

import math

from obs.alerts.texts import NUMBER
from obs.config import Config
from obs.engines import BY_NAME as ENGINES
from obs.model.metric import Missing
from obs.model.rule import Alert, Group, NoData
from obs.promql import block, by, duration, indent, number, on, one_of, selector
from obs.recordings.beside import suspect
from obs.recordings.names import labels, series
from obs.recordings.rules import recorded


def group(config: Config) -> Group | None:
    if not recorded(config, "generation_tokens"):
        return None
    L = labels(config)
    keep = (*L.model, "engine")
    window, growth = duration(config.window("rate")), duration(config.window("growth"))
    stuck = duration(config.window("stuck"))
    kv, ranks = series("model", "kv_cache_usage", "max"), series("rank", "kv_cache_usage", "max")
    waiting, running = series("model", "requests_waiting", "sum"), series("model", "requests_running", "sum")
    queued, paused = (series("instance_model", f"requests_{what}", "sum") for what in ("waiting", "paused"))
    tokens = series("model", "generation_tokens", "rate")
    preemptions = series("instance_model", "preemptions", "rate")
    no_gauge = NoData(
        "silent", "Triton's vLLM backend exports no such gauge; the obs sidecar estimates it.", "LLMStatsStuck",
    )
    #: Triton's vLLM backend hides these gauges; what the sidecar derives in their place says so.
    estimate = (
        '{{ if eq $labels.source "estimate" }} The obs sidecar estimates these figures, for the engine hides them: see '
        "llm_signal_info.{{ end }}"
    ) if "sidecar" in config.engines else ""
    demand_floor = number(config.limit("waiting_demand"))
    instance = (*L.instance_model, "engine")
    steps = f"max_over_time({series('instance_model', 'engine_steps', 'changes')}[{stuck}])"
    #: A hung engine's gauges stand still: what they say is LLMStatsStuck's to tell.
    hung = f"unless {on(keep)}\nmax {by(keep)} ({steps}) == 0" if recorded(config, "engine_steps") else ""
    hung_here = f"\nunless {on(instance)}\n{steps} == 0" if recorded(config, "engine_steps") else ""
    alerts: list[Alert] = []

    def alert(name: str, expr: str, for_: str, severity: str, summary: str, description: str, no_data: NoData,
              limits: tuple[str, ...], blind: tuple[str, ...] = (), keep_firing_for: str = "") -> None:
        alerts.append(Alert(name, expr, for_, severity, summary, description, no_data,  # type: ignore[arg-type]
                            keep_firing_for=keep_firing_for, limits=limits, blind_spots=blind, dashboard="obs-llm"))

    if recorded(config, "kv_cache_usage"):
        pressure = []
        if recorded(config, "requests_waiting"):
            pressure.append(f"avg_over_time({queued}[{window}]) >= {demand_floor}")
        if recorded(config, "preemptions"):
            pressure.append(f"{preemptions} > 0")
        if recorded(config, "requests_paused"):
            pressure.append(f"avg_over_time({paused}[{window}]) > 0")
        demand = "\nor\n".join(pressure)
        # The sidecar's `source` stays to be named in the text.
        source = ("source",) if "sidecar" in config.engines else ()
        full = f"max {by((*instance, *source))} (avg_over_time({ranks}[{window}])) > {number(config.limit('kv_usage'))}"
        saturated = f"{full}\nand {on(instance)}\n(\n{indent(demand)}\n){hung_here}"
        # Without a sign of demand a full cache is no saturation, and there is nothing to say.
        if pressure:
            alert(
                "LLMKVCacheSaturated",
                # On one and the same server: a full one that nobody waits for and a queue elsewhere are no saturation.
                f"max {by((*keep, *source))} {block(saturated)}",
                "5m", "warning",
                "{{ $labels.model }} has its KV cache full and requests waiting",
                "The KV cache of {{ $labels.model }} is {{ $value | humanizePercentage }} full (fullest rank) while "
                "requests wait or are preempted: more load only lengthens the queue. Add replicas, or lower "
                f"concurrency or context length.{estimate}",
                no_gauge, ("limits.kv_usage", "limits.waiting_demand"),
                (
                    "A full cache without waiting requests is a healthy full batch and does not fire.",
                    "A data-parallel server is judged as one: a full rank, and requests that wait for another.",
                    "TensorRT-LLM before 0.18 has no waiting gauge: only paused requests show its pressure.",
                ),
                keep_firing_for="2m",
            )
    if recorded(config, "preemptions"):
        alert(
            # The worst replica, not the sum: a few preemptions on each of a hundred are no want of memory.
            "LLMPreempting", f"max {by(keep)} ({preemptions}) > {number(config.limit('preemption_rate'))}", "5m", "warning",
            "A replica of {{ $labels.model }} preempts " + NUMBER + " requests/s",
            "The worst replica of {{ $labels.model }} pushes out " + NUMBER + " running requests/s for lack of KV "
            "blocks and computes their prompts again: throughput is lost. Lower max_num_seqs or the context length, or "
            "add replicas.",
            NoData("silent", "Engines that queue before the pool is full (TensorRT-LLM guaranteed_no_evict) never "
                   "preempt.", "LLMKVCacheSaturated"),
            ("limits.preemption_rate",),
        )
    if recorded(config, "requests_waiting") and recorded(config, "kv_cache_usage"):
        half = float(math.ceil(config.window("rate") / config.evaluation_interval / 2))
        there = f"count_over_time({queued}[{window}] offset {growth}) >= {number(half)}"
        alert(
            "LLMPrefillSaturated",
            f"avg_over_time({waiting}[{window}]) > {number(config.limit('waiting_floor'))}\nand {on(keep)}\n"
            # Growth of the servers that were there: one that comes back brings its queue along.
            f"(\n  sum {by(keep)} (\n    avg_over_time({queued}[{window}])\n    and\n    {there}\n  )\n"
            f"  > {number(config.limit('pending_growth'))} *\n"
            f"  sum {by(keep)} (avg_over_time({queued}[{window}] offset {growth}))\n"
            # A queue that has outgrown the batch does not have to grow by half to be one.
            f"  or\n  min_over_time({waiting}[{growth}]) > {running}\n)\nand {on(keep)}\n"
            f"avg_over_time({kv}[{window}]) < {number(config.limit('kv_low'))}",
            "5m", "warning",
            "{{ $labels.model }} has " + NUMBER + " requests waiting although its KV cache has room",
            NUMBER + " requests wait for {{ $labels.model }}, and more each minute or more than it runs, while "
            "the KV cache is "
            f"below {config.limit('kv_low'):.0%}: prefill (long prompts) or the number of batch slots is the limit, "
            f"not memory.{estimate}",
            no_gauge, ("limits.waiting_floor", "limits.pending_growth", "limits.kv_low", "windows.growth"),
            (
                "TensorRT-LLM before 0.18 has no waiting gauge: its queue is not judged.",
                f"Growth on a server that is new or just back counts only when it is {growth} old.",
            ),
        )
    if recorded(config, "engine_steps"):
        mine = series("instance_model", "requests_running", "sum")
        awake = ""
        if "vllm" in config.engines:
            awake = f"\nunless {on(L.instance_model)}\n{series('instance_model', 'sleeping', 'present')}"
        if "sidecar" in config.engines:  # told sooner, by LLMEngineStalled
            awake += f"\nunless {on((config.cluster, config.namespace, config.pod, 'model'))}\n{suspect(config)}"
        alert(
            "LLMStatsStuck",
            f"min_over_time({mine}[{stuck}]) > 0\nand\nchanges({mine}[{stuck}]) == 0\nand {on(instance)}\n"
            f"{steps} == 0\nand\npresent_over_time({mine}[{window}] offset {stuck}){awake}",
            "0s", "critical",
            "{{ $labels.model }} on {{ $labels.instance }} claims {{ $value }} running requests and does nothing",
            "{{ $labels.model }} on {{ $labels.instance }} has shown {{ $value }} running requests without change and "
            f"without one step of its engine for {stuck}: the engine hangs, or its gauges froze when every request was "
            "aborted. Its KV and queue gauges cannot be trusted.",
            NoData("silent", "Without a running gauge or a count of steps a hang shows only as missing traffic.",
                   "InferenceTrafficDrop"),
            ("windows.stuck",),
            (f"A step in the rate window counts: it fires up to {duration(config.window('stuck') + config.window('rate'))} "
             "after the last one.",),
        )
    if recorded(config, "kv_cache_usage"):
        gap = series("instance_model", "rank_imbalance", "range")
        demanded = ""
        if recorded(config, "requests_waiting"):
            demanded = f"\nand {on(instance)}\navg_over_time({queued}[{window}]) >= {demand_floor}"
        alert(
            "LLMDataParallelImbalance",
            f"avg_over_time({gap}[{window}]) > {number(config.limit('rank_imbalance'))}{demanded}{hung_here}",
            "15m", "warning",
            "The data-parallel ranks of {{ $labels.model }} are unevenly loaded",
            "On {{ $labels.instance }} the fullest and the emptiest data-parallel rank of {{ $labels.model }} differ by "
            "{{ $value | humanizePercentage }} of KV use: requests are not spread; one rank queues while another idles.",
            NoData("silent", "A server with one rank has no gap.", "LLMKVCacheSaturated"),
            ("limits.rank_imbalance", "limits.waiting_demand"),
        )
    if recorded(config, "requests_running"):
        before, load = (series("model", name, "baseline") for name in ("generation_tokens", "requests_running"))

        def collapse(match: str = "") -> str:
            return (
                f"{selector(tokens, match)} < {number(config.limit('decode_collapse'))} * "
                f"({selector(before, match)} > {number(config.limit('decode_floor'))})"
            )

        def same_load(*match: str) -> str:
            return f"avg_over_time({selector(running, *match)}[{window}]) >= 0.8 * ({selector(load, *match)} > 0)"

        collapsed = f"{collapse()}\nand {on(keep)}\n{same_load()}"
        # An engine that hides its running requests: the sidecar beside it, a target of its own, estimates them.
        hiding = [name for name in config.engines
                  if isinstance(ENGINES[name].signals["requests_running"], Missing)
                  and not isinstance(ENGINES[name].signals["generation_tokens"], Missing)]
        if hiding and "sidecar" in config.engines:
            beside = same_load('engine="sidecar"', 'source="estimate"')
            collapsed = block(
                f"{collapsed}\nor\n{collapse(one_of('engine', hiding))}\n"
                f"and {on((config.cluster, config.namespace, 'model'))}\n{beside}"
            )
        alert(
            "LLMDecodeThroughputCollapse", f"{collapsed}\n{hung}".strip(),
            "10m", "warning",
            "{{ $labels.model }} decodes only " + NUMBER + " tokens/s at the same load",
            "{{ $labels.model }} generates " + NUMBER + " tokens/s, less than "
            f"{config.limit('decode_collapse'):.0%} of the {duration(config.window('baseline'))} before, with as many "
            "requests running: GPU throttling, a slow rank, preemption, or much longer contexts.",
            NoData("silent", "A young engine has no baseline.", "LLMStatsStuck"),
            ("limits.decode_collapse", "limits.decode_floor", "windows.baseline"),
            (
                "A lasting drop becomes its own baseline and the alert ends.",
                "TensorRT-LLM counts tokens when a request ends: very long generations read as a collapse.",
            ),
        )
    if recorded(config, "prefix_cache_queries"):
        hit = series("model", "prefix_cache_hit", "ratio")
        alert(
            "LLMPrefixCacheHitDrop",
            f"{hit} < {number(config.limit('prefix_hit_drop'))} * ({series('model', 'prefix_cache_hit', 'baseline')} > "
            f"{number(config.limit('prefix_hit_floor'))})\nand {on(keep)}\n"
            f"{series('model', 'prefix_cache_queries', 'rate')} > {number(config.limit('prefix_query_floor'))}",
            "15m", "warning",
            "The prefix-cache hit ratio of {{ $labels.model }} fell to {{ $value | humanizePercentage }}",
            "Only {{ $value | humanizePercentage }} of the prompt tokens of {{ $labels.model }} are found in the prefix "
            f"cache, less than {config.limit('prefix_hit_drop'):.0%} of what it was: the router lost affinity, the system "
            "prompt changed, or the cache is evicted. Prefill work and TTFT grow.",
            NoData("silent", "Without prompts, or with the cache off, there is no ratio.", "InferenceTrafficDrop"),
            ("limits.prefix_hit_drop", "limits.prefix_hit_floor", "limits.prefix_query_floor"),
            ("A lasting drop becomes its own baseline and the alert ends.",),
        )
    if recorded(config, "kv_transfer_seconds"):
        moved = NoData("silent", "Only disaggregated servers export it, and only while they transfer.",
                       "InferenceTrafficDrop")
        alert(
            "LLMKVTransferSlow",
            f"{series('model', 'kv_transfer_seconds', 'mean')} > {number(config.limit('kv_transfer_time'))}",
            "10m", "warning",
            "KV transfers of {{ $labels.model }} take {{ $value | humanizeDuration }}",
            "Moving one request's KV cache between prefill and decode servers of {{ $labels.model }} takes "
            "{{ $value | humanizeDuration }} on average; it adds to every time to first token. Check the network "
            "(RDMA, NIXL/UCX fallback to TCP).",
            moved, ("limits.kv_transfer_time",),
        )
    if recorded(config, "kv_transfer_failures"):
        failures = series("model", "kv_transfer_failures", "ratio")
        alert(
            "LLMKVTransferFailing", f"{failures} > {number(config.limit('kv_transfer_failures'))}", "5m", "critical",
            "{{ $value | humanizePercentage }} of the KV transfers of {{ $labels.model }} fail",
            "{{ $value | humanizePercentage }} of the KV transfers of {{ $labels.model }} between prefill and decode "
            "servers fail: the requests are recomputed or lost.",
            NoData("silent", "Only servers with a KV connector export it, and only while they transfer.",
                   "LLMKVTransferSlow"),
            ("limits.kv_transfer_failures",),
        )
    return Group("obs-llm", "llm", "LLM engines saturate, waste work or hang.", tuple(alerts))
