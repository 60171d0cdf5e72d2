"""LLM engines: saturation, waste, hangs and disaggregated serving."""

from __future__ import annotations

from obs.config import Config
from obs.model.rule import Alert, Group, NoData
from obs.promql import duration, number, on
from obs.recordings.names import labels, series
from obs.recordings.rules import recorded


def group(config: Config) -> Group | None:
    if not recorded(config, "generation_tokens"):
        return None
    L = labels(config)
    keep = (*L.model, "engine")
    window, growth = duration(config.window("rate")), duration(config.window("growth"))
    stuck = duration(config.window("stuck"))
    kv = series("model", "kv_cache_usage", "max")
    waiting, running = series("model", "requests_waiting", "sum"), series("model", "requests_running", "sum")
    paused = series("model", "requests_paused", "sum")
    tokens = series("model", "generation_tokens", "rate")
    preemptions = series("model", "preemptions", "rate")
    no_gauge = NoData(
        "silent", "Triton's vLLM backend exports no such gauge; the obs sidecar estimates it.", "LLMStatsStuck",
    )
    alerts: list[Alert] = []

    def alert(name: str, expr: str, for_: str, severity: str, summary: str, description: str, no_data: NoData,
              limits: tuple[str, ...], blind: tuple[str, ...] = (), keep_firing_for: str = "") -> None:
        alerts.append(Alert(name, expr, for_, severity, summary, description, no_data,  # type: ignore[arg-type]
                            keep_firing_for=keep_firing_for, limits=limits, blind_spots=blind, dashboard="obs-llm"))

    if recorded(config, "kv_cache_usage"):
        pressure = []
        if recorded(config, "requests_waiting"):
            pressure.append(f"avg_over_time({waiting}[{window}]) > 0")
        if recorded(config, "preemptions"):
            pressure.append(f"{preemptions} > 0")
        if recorded(config, "requests_paused"):
            pressure.append(f"avg_over_time({paused}[{window}]) > 0")
        demand = "\n  or\n  ".join(pressure)
        # Without a sign of demand a full cache is no saturation, and there is nothing to say.
        if pressure:
            alert(
                "LLMKVCacheSaturated",
                f"avg_over_time({kv}[{window}]) > {number(config.limit('kv_usage'))}\nand {on(keep)}\n(\n  {demand}\n)\n"
                # A hung engine's gauges stand still: that is LLMStatsStuck's to tell.
                f"unless {on(keep)}\nmax_over_time({tokens}[{stuck}]) == 0",
                "5m", "warning",
                "{{ $labels.model }} has its KV cache full and requests waiting",
                "The KV cache of {{ $labels.model }} is {{ $value | humanizePercentage }} full (fullest rank) while "
                "requests wait or are preempted: more load only lengthens the queue. Add replicas, or lower "
                "concurrency or context length.",
                no_gauge, ("limits.kv_usage",),
                ("A full cache without waiting requests is a healthy full batch and does not fire.",),
                keep_firing_for="2m",
            )
    if recorded(config, "preemptions"):
        alert(
            "LLMPreempting", f"{preemptions} > {number(config.limit('preemption_rate'))}", "5m", "warning",
            "{{ $labels.model }} preempts {{ $value | humanize }} requests/s",
            "{{ $labels.model }} pushes out {{ $value | humanize }} running requests/s for lack of KV blocks and computes "
            "their prompts again: throughput is lost. Lower max_num_seqs or the context length, or add replicas.",
            NoData("silent", "Engines that queue before the pool is full (TensorRT-LLM guaranteed_no_evict) never "
                   "preempt.", "LLMKVCacheSaturated"),
            ("limits.preemption_rate",),
        )
    if recorded(config, "requests_waiting") and recorded(config, "kv_cache_usage"):
        alert(
            "LLMPrefillSaturated",
            f"avg_over_time({waiting}[{window}]) > {number(config.limit('waiting_floor'))}\nand {on(keep)}\n"
            f"avg_over_time({waiting}[{window}])\n  > {number(config.limit('pending_growth'))} * "
            f"avg_over_time({waiting}[{window}] offset {growth})\nand {on(keep)}\n"
            f"avg_over_time({kv}[{window}]) < {number(config.limit('kv_low'))}",
            "5m", "warning",
            "{{ $labels.model }} has {{ $value | humanize }} requests waiting although its KV cache has room",
            "{{ $value | humanize }} requests wait for {{ $labels.model }} and the number grows while the KV cache is "
            f"below {config.limit('kv_low'):.0%}: prefill (long prompts) or the number of batch slots is the limit, "
            "not memory.",
            no_gauge, ("limits.waiting_floor", "limits.pending_growth", "limits.kv_low", "windows.growth"),
        )
    if recorded(config, "requests_running"):
        alert(
            "LLMStatsStuck",
            f"min_over_time({running}[{stuck}]) > 0\nand\nchanges({running}[{stuck}]) == 0\nand {on(keep)}\n"
            f"max_over_time({tokens}[{stuck}]) == 0\nand\npresent_over_time({running}[{window}] offset {stuck})",
            "0s", "critical",
            "{{ $labels.model }} claims {{ $value }} running requests and makes no token",
            f"{{{{ $labels.model }}}} has shown {{{{ $value }}}} running requests without change and without one token "
            f"for {stuck}: the engine hangs, or its gauges froze when every request was aborted. Its KV and queue "
            "gauges cannot be trusted.",
            NoData("silent", "Without a running gauge a hang shows only as missing traffic.", "InferenceTrafficDrop"),
            ("windows.stuck",),
        )
    if recorded(config, "kv_cache_usage"):
        gap = series("instance_model", "rank_imbalance", "range")
        alert(
            "LLMDataParallelImbalance",
            f"avg_over_time({gap}[{window}]) > {number(config.limit('rank_imbalance'))}", "15m", "warning",
            "The data-parallel ranks of {{ $labels.model }} are unevenly loaded",
            "On {{ $labels.instance }} the fullest and the emptiest data-parallel rank of {{ $labels.model }} differ by "
            "{{ $value | humanizePercentage }} of KV use: requests are not spread; one rank queues while another idles.",
            NoData("silent", "A server with one rank has no gap.", "LLMKVCacheSaturated"),
            ("limits.rank_imbalance",),
        )
    if recorded(config, "requests_running"):
        before = series("model", "generation_tokens", "baseline")
        load = series("model", "requests_running", "baseline")
        alert(
            "LLMDecodeThroughputCollapse",
            f"{tokens} < {number(config.limit('decode_collapse'))} * ({before} > {number(config.limit('decode_floor'))})\n"
            f"and {on(keep)}\navg_over_time({running}[{window}]) >= 0.8 * ({load} > 0)",
            "10m", "warning",
            "{{ $labels.model }} decodes only {{ $value | humanize }} tokens/s at the same load",
            "{{ $labels.model }} generates {{ $value | humanize }} tokens/s, less than "
            f"{config.limit('decode_collapse'):.0%} of the {duration(config.window('baseline'))} before, with as many "
            "requests running: GPU throttling, a slow rank, preemption, or much longer contexts.",
            NoData("silent", "A young engine has no baseline.", "LLMStatsStuck"),
            ("limits.decode_collapse", "limits.decode_floor", "windows.baseline"),
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
        failures = series("model", "kv_transfer_failures", "rate")
        alert(
            "LLMKVTransferFailing", f"{failures} > 0", "5m", "critical",
            "KV transfers of {{ $labels.model }} fail",
            "{{ $value | humanize }} KV transfers/s of {{ $labels.model }} fail between prefill and decode servers: the "
            "requests are recomputed or lost.",
            NoData("silent", "Only servers with a KV connector export it.", "LLMKVTransferSlow"), (),
        )
    return Group("obs-llm", "llm", "LLM engines saturate, waste work or hang.", tuple(alerts))
