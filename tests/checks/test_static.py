"""Each static check: what it must find, with the place and the mend, and the near miss that it must pass."""

from __future__ import annotations

import dataclasses

import pytest

from obs.checks import registry

TTFT = "vllm:time_to_first_token_seconds_bucket"
E2E = "vllm:e2e_request_latency_seconds_bucket"
QUEUE = "rate(nv_inference_queue_duration_us[5m])"
SERVED = "rate(nv_inference_request_success[5m])"

#: check, expression, place, a part of the reason, a part of the mend
BAD = [
    ("promql-syntax", "rate(up) > 1", "", "expected type matrix", "mend"),
    # --- names ------------------------------------------------------------------------------------------
    ("unknown-metric", "rate(nv_inference_request_duration_us_bucket[5m])", "nv_inference_request_duration_us_bucket",
     "a counter of cumulative microseconds, without buckets", "nv_inference_first_response_histogram_ms_bucket"),
    ("unknown-metric", "nv_inference_queue_duration_us_sum", "nv_inference_queue_duration_us_sum", "is a counter",
     'nv_inference_queue_summary_us{quantile="0.99"}'),
    ("unknown-metric", "vllm:iteration_tokens_total > 1", "vllm:iteration_tokens_total", "is a histogram of vLLM",
     "vllm:iteration_tokens_total_sum"),
    ("unknown-metric", "rate(nv_inference_request_success_total[5m])", "nv_inference_request_success_total",
     "does not exist", "write nv_inference_request_success"),
    ("unknown-metric", "rate(vllm:generation_tokens[5m])", "vllm:generation_tokens", "does not exist",
     "write vllm:generation_tokens_total"),
    ("unknown-metric", "vllm_num_requests_waiting > 3", "vllm_num_requests_waiting", "not how the engine spells it",
     "did you mean vllm:num_requests_waiting?"),
    ("unknown-metric", "vllm:num_request_waiting > 3", "vllm:num_request_waiting", "served by no engine",
     "did you mean vllm:num_requests_waiting?"),
    ("unknown-metric", "nv_gpu_memory_used > 3", "nv_gpu_memory_used", "served by no engine",
     "did you mean nv_gpu_memory_used_bytes?"),
    ("unknown-metric", "vllm:num_requests_waiting_sum", "vllm:num_requests_waiting_sum", "is a gauge",
     "write vllm:num_requests_waiting"),
    ("unknown-metric", '{__name__="nv_gpu_temperature"} > 90', "nv_gpu_temperature", "served by no engine", ""),
    ("unknown-metric", '{__name__=~"vllm:gpu_cache_usage_percent|up"} > 0', "", "served by no engine",
     "vllm:kv_cache_usage_perc"),
    ("unknown-metric", "model:queue_time_seconds:p95 > 1", "model:queue_time_seconds:p95", "recorded by no rule",
     "did you mean model:queue_time_seconds:p99?"),
    ("renamed-metric", "vllm:gpu_cache_usage_perc > 0.9", "vllm:gpu_cache_usage_perc", "up to 0.10.2 only",
     "use vllm:kv_cache_usage_perc"),
    ("renamed-metric", 'rate(vllm:time_per_output_token_seconds_bucket{model_name="m"}[5m])',
     "vllm:time_per_output_token_seconds_bucket", "its name is now vllm:inter_token_latency_seconds",
     "vllm:inter_token_latency_seconds_bucket"),
    # --- labels -----------------------------------------------------------------------------------------
    ("unknown-label", 'nv_inference_pending_request_count{model_name="m"} > 3', 'model_name="m"', "has no label model_name",
     "did you mean model?"),
    ("unknown-label", 'vllm:num_requests_waiting{model=~"llama.*"} > 3', 'model=~"llama.*"', "has no label model",
     "did you mean model_name?"),
    ("unknown-label", f"sum by (model_name) ({SERVED}) > 3", f"sum by (model_name) ({SERVED})",
     "names model_name", "did you mean model?"),
    ("unknown-label", "nv_gpu_utilization > 0.9 and on (UUID) DCGM_FI_DEV_GPU_UTIL > 90", "nv_gpu_utilization > 0.9",
     "names UUID", "did you mean gpu_uuid?"),
    ("unknown-label", 'rate(vllm:e2e_request_latency_seconds_count{le="5.0"}[5m])', 'le="5.0"', "has no label le", ""),
    ("unknown-label", 'model:requests:rate{instance="a"} > 1', 'instance="a"', "keeps only the labels", "drop"),
    ("unknown-label", 'nv_inference_request_failure{reasons="OTHER"} > 1', 'reasons="OTHER"', "has no label",
     "did you mean reason?"),
    ("unknown-label-value", 'rate(nv_inference_request_failure{reason="CANCELLED"}[5m]) > 0', 'reason="CANCELLED"',
     "never occurs", "did you mean CANCELED?"),
    ("unknown-label-value", 'rate(nv_inference_request_failure{reason!~"cancelled|OTHER"}[5m]) > 0',
     'reason!~"cancelled|OTHER"', "excluded in vain", "did you mean CANCELED?"),
    ("unknown-label-value", 'vllm:engine_sleep_state{sleep_state="asleep"} == 1', 'sleep_state="asleep"',
     "never occurs", "awake"),
    ("unknown-label-value", f'rate({E2E}{{le="3.0"}}[5m])', 'le="3.0"', "has no bucket 3.0", "nearest is 2.5"),
    ("integer-bound", f'rate({E2E}{{le="30"}}[5m])', 'le="30"', 'Prometheus 3 "30.0"', 'write le=~"30|30[.]0"'),
    ("integer-bound", f'rate({E2E}{{le="30.0"}}[5m])', 'le="30.0"', 'Prometheus 2 stores "30"', 'le=~"30|30[.]0"'),
    ("integer-bound", f'rate({E2E}{{le=~"0.5|1"}}[5m])', 'le=~"0.5|1"', "one of them only", 'le=~"0.5|1|1[.]0"'),
    ("integer-bound", 'x{quantile="1"} > 3', 'quantile="1"', "one of them only", 'quantile=~"1|1[.]0"'),
    # --- kinds ------------------------------------------------------------------------------------------
    ("metric-type", "rate(vllm:num_requests_waiting[5m]) > 1", "rate(vllm:num_requests_waiting[5m])", "is a gauge",
     "deriv()"),
    ("metric-type", "increase(DCGM_FI_DEV_XID_ERRORS[5m]) > 0", "increase(DCGM_FI_DEV_XID_ERRORS[5m])", "is a gauge",
     "delta()"),
    ("metric-type", "delta(nv_inference_request_success[5m]) < 10", "delta(nv_inference_request_success[5m])",
     "is a counter", "use increase()"),
    ("metric-type", "avg_over_time(vllm:generation_tokens_total[5m]) > 1",
     "avg_over_time(vllm:generation_tokens_total[5m])", "is a counter", "use rate()"),
    ("metric-type", "rate(model:requests:rate[5m]) > 1", "rate(model:requests:rate[5m])", "is a rate already", "deriv()"),
    ("metric-type", 'rate(nv_inference_request_summary_us{quantile="0.99"}[5m]) > 1',
     'rate(nv_inference_request_summary_us{quantile="0.99"}[5m])', "is a quantile", ""),
    ("metric-type", "rate(sum(nv_inference_request_success)[10m:1m]) < 1",
     "rate(sum(nv_inference_request_success)[10m:1m])", "rate of a sum", "take the rate first"),
    ("counter-raw", "nv_inference_queue_duration_us > 100000", "nv_inference_queue_duration_us > 100000",
     "the microseconds since the server started", "compare rate()"),
    ("counter-raw", "sum by (model) (nv_inference_request_failure) > 0",
     "sum by (model) (nv_inference_request_failure) > 0", "is a counter", "increase()"),
    ("counter-raw", "100 < vllm:num_preemptions_total", "100 < vllm:num_preemptions_total", "is a counter", "rate()"),
    ("counter-raw", "nv_inference_queue_duration_us / nv_inference_request_success > 1e5",
     "nv_inference_queue_duration_us / nv_inference_request_success", "average since the server started",
     "divide their rates"),
    # --- quantiles --------------------------------------------------------------------------------------
    ("quantile-aggregated", 'avg(nv_inference_request_summary_us{quantile="0.99"}) > 5e5',
     'avg(nv_inference_request_summary_us{quantile="0.99"})', "averages quantiles", "use max"),
    ("quantile-aggregated", f"avg by (pod) (histogram_quantile(0.99, rate({E2E}[5m]))) > 30",
     f"avg by (pod) (histogram_quantile(0.99, rate({E2E}[5m])))", "averages quantiles", "sum the buckets"),
    ("quantile-aggregated", "sum(model:request_latency_seconds:p99) > 30", "sum(model:request_latency_seconds:p99)",
     "sums quantiles", "max"),
    ("quantile-aggregated", "avg(job:latency_seconds:p95) > 30", "avg(job:latency_seconds:p95)", "averages", "max"),
    ("quantile-aggregated", "avg_over_time(model:request_latency_seconds:p99[1h]) > 30",
     "avg_over_time(model:request_latency_seconds:p99[1h])", "averages over time a quantile", "max_over_time()"),
    ("quantile-aggregated", 'nv_inference_queue_summary_us{quantile="0.99"} + nv_inference_compute_infer_summary_us'
     '{quantile="0.99"} > 1e6', "", "adds two quantiles", "of the whole"),
    ("quantile-without-le", f"histogram_quantile(0.99, sum by (model_name) (rate({TTFT}[5m]))) > 2.5",
     f"sum by (model_name) (rate({TTFT}[5m]))", "drops `le`", "write sum by (le, model_name) (…)"),
    ("quantile-without-le", f"histogram_quantile(0.99, sum(rate({TTFT}[5m]))) > 2.5", f"sum(rate({TTFT}[5m]))",
     "drops `le`", "write sum by (le) (…)"),
    ("quantile-without-le", f"histogram_quantile(0.99, sum without (pod, le) (rate({TTFT}[5m]))) > 2.5",
     f"sum without (pod, le) (rate({TTFT}[5m]))", "drops `le`", "take le out"),
    ("quantile-without-le", "histogram_quantile(0.99, model:requests:rate) > 2", "model:requests:rate", "has no `le`", ""),
    ("quantile-input", "histogram_quantile(0.99, rate(nv_inference_request_duration_us[5m])) > 1e6",
     "histogram_quantile(0.99, rate(nv_inference_request_duration_us[5m]))", "has no buckets", "the mean"),
    ("quantile-input", "histogram_quantile(0.9, rate(vllm:time_to_first_token_seconds_sum[5m])) > 1",
     "histogram_quantile(0.9, rate(vllm:time_to_first_token_seconds_sum[5m]))", "has no buckets",
     f"use {TTFT}"),
    ("quantile-input", f"histogram_quantile(0.99, sum by (le) ({E2E})) > 30",
     f"histogram_quantile(0.99, sum by (le) ({E2E}))", "since the server started", "rate("),
    # --- arithmetic -------------------------------------------------------------------------------------
    ("mean-divisor", "rate(nv_inference_request_duration_us[5m]) / rate(nv_inference_exec_count[5m]) > 5e5",
     "rate(nv_inference_request_duration_us[5m]) / rate(nv_inference_exec_count[5m])", "executions (batches)",
     "nv_inference_request_success"),
    ("mean-divisor", f"sum({QUEUE}) / sum(rate(nv_inference_count[5m])) > 5e5",
     f"sum({QUEUE}) / sum(rate(nv_inference_count[5m]))", "inferences", "nv_inference_request_success"),
    ("mean-divisor", f"{QUEUE} / clamp_min({SERVED}, 1) > 1e5", f"clamp_min({SERVED}, 1)", "never below 1", "> 0"),
    ("mean-divisor", f"{QUEUE} / (1 + {SERVED}) > 1e5", f"1 + {SERVED}", "never below 1", "> 0"),
    ("division-unguarded", f"{QUEUE} / {SERVED} > 1e5", SERVED, "can be 0", f"write ({SERVED} > 0)"),
    ("division-unguarded", "nv_gpu_memory_used_bytes / nv_gpu_memory_total_bytes > 0.9", "nv_gpu_memory_total_bytes",
     "can be 0", "write (nv_gpu_memory_total_bytes > 0)"),
    ("division-unguarded", f"sum({QUEUE}) / sum({SERVED}) > 0", f"sum({SERVED})", "can be 0", ""),
    ("or-unfiltered", "vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc > 0.9", "vllm:kv_cache_usage_perc",
     "is not compared: `or` binds more loosely", "write (… or …) > 0.9"),
    ("or-unfiltered", "up == 0 or sum by (job) (rate(vllm:generation_tokens_total[5m]))",
     "sum by (job) (rate(vllm:generation_tokens_total[5m]))", "fires whenever this exists", ""),
    # --- limits -----------------------------------------------------------------------------------------
    ("threshold-unit", "vllm:kv_cache_usage_perc > 90", "vllm:kv_cache_usage_perc > 90",
     "never true: vllm:kv_cache_usage_perc is a ratio, at most 1", "write 0.9"),
    ("threshold-unit", "max by (model_name) (avg_over_time(vllm:kv_cache_usage_perc[5m])) < 20", "", "always true",
     "write 0.2"),
    ("threshold-unit", "1 - vllm:kv_cache_usage_perc > 10", "1 - vllm:kv_cache_usage_perc > 10", "never true", ""),
    ("threshold-unit", "vllm:kv_cache_usage_perc * 100 > 0.9", "vllm:kv_cache_usage_perc * 100 > 0.9",
     "the value is a percentage", "write 90"),
    ("threshold-unit", "avg_over_time(DCGM_FI_DEV_GPU_UTIL[10m]) > 0.95", "", "DCGM_FI_DEV_GPU_UTIL is a percentage",
     "write 95"),
    ("threshold-unit", "nv_gpu_utilization > 95", "nv_gpu_utilization > 95", "is a ratio", "write 0.95"),
    ("threshold-unit", f"{QUEUE} / ({SERVED} > 0) > 0.1", f"{QUEUE} / ({SERVED} > 0) > 0.1",
     "compares microseconds of nv_inference_queue_duration_us with 0.1", "divide by 1e6"),
    ("threshold-unit", 'nv_inference_request_summary_us{quantile="0.99"} > 2',
     'nv_inference_request_summary_us{quantile="0.99"} > 2', "compares microseconds", "write 2e+06"),
    ("threshold-unit", f"{QUEUE} / ({SERVED} > 0) / 1e6 > 100000", "", "1e+05 s cannot be meant", "write 100"),
    ("threshold-unit", "rate(vllm:e2e_request_latency_seconds_sum[5m]) / rate(vllm:e2e_request_latency_seconds_count"
     "[5m]) > 30000", "", "cannot be meant", "write 30"),
    ("threshold-unit", "DCGM_FI_DEV_FB_USED > 8e10", "DCGM_FI_DEV_FB_USED > 8e10", "in MiB", "write 76293.9"),
    ("threshold-unit", "DCGM_FI_DEV_FB_USED > 0.9", "DCGM_FI_DEV_FB_USED > 0.9", "cannot be meant", "by the total"),
    ("threshold-unit", "nv_gpu_memory_used_bytes > 70000", "nv_gpu_memory_used_bytes > 70000", "7e+04 bytes",
     "correct the unit"),
    ("threshold-unit", "nv_gpu_memory_used_bytes / (nv_gpu_memory_total_bytes > 0) > 90", "", "the quotient is a ratio",
     "write 0.9"),
    ("threshold-unit", "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE > 0) > 95", "", "a ratio",
     "write 0.95"),
    ("threshold-unit", "model:kv_cache_usage:max > 90", "model:kv_cache_usage:max > 90", "never true", "write 0.9"),
    ("threshold-unit", "gpu:gpu_memory_usage:ratio > 90", "gpu:gpu_memory_usage:ratio > 90", "never true", "write 0.9"),
    ("threshold-bucket", f"histogram_quantile(0.99, sum by (le) (rate({E2E}[5m]))) > 9000", "", "never fires",
     "take a lower bound"),
    ("threshold-bucket", f"histogram_quantile(0.99, sum by (le) (rate({E2E}{{model_name=\"m\"}}[5m]))) > 7680", "",
     "never fires", "such as 1920"),
    ("threshold-bucket", f"histogram_quantile(0.99, sum by (le) (rate({E2E}{{model_name=\"m\"}}[5m]))) > 0.1", "",
     "below 0.3", "take 0.3"),
    ("threshold-bucket", f"histogram_quantile(0.99, sum by (le) (rate({TTFT}[5m]))) > 2", "", "no bucket bound",
     "take 2.5"),
    ("threshold-bucket",
     "histogram_quantile(0.9, sum by (le) (rate(nv_inference_first_response_histogram_ms_bucket[5m]))) / 1000 > 1", "",
     "no bucket bound of nv_inference_first_response_histogram_ms", "take 0.5"),
    ("threshold-bucket", 'model:time_to_first_token_seconds:p99{engine="vllm"} > 3',
     'model:time_to_first_token_seconds:p99{engine="vllm"} > 3', "no bucket bound", "take 2.5"),
    ("range-too-short", "rate(nv_inference_request_success[1m]) > 1", "rate(nv_inference_request_success[1m])",
     "spans 2 scrapes of 30s", "at least [2m]"),
    ("range-too-short", "changes(up[30s]) > 1", "changes(up[30s])", "spans 1 scrapes", "[2m]"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "expr", "place", "what", "mend"), BAD)
def test_finds(say, check: str, expr: str, place: str, what: str, mend: str) -> None:
    (problem,) = say(check, expr)
    assert (problem.check, problem.path, problem.line, problem.subject) == (check, "rules.yaml", 6, "A0")
    assert what in problem.what
    assert mend in problem.mend
    if place:
        assert problem.place == place


#: check, expressions of which it says nothing
GOOD = [
    ("promql-syntax", ["up", "sum(rate(x[5m])) by (a)", "{job='a' or job='b'}"]),
    ("unknown-metric", [
        "node_load1 > 3", "http_request_total", "my_app_requests_total", "kube_pod_info", "up", "ALERTS",
        "rate(nv_inference_request_success[5m])", "ray_vllm_num_requests_waiting > 1", "job:http:rate5m",
        "vllm:time_to_first_token_seconds_count", "model:queue_time_seconds:p99", '{__name__=~"nv_.*"}',
        "nv_inference_request_summary_us_count", "vllm:generation_tokens_created", '{job="x"}',
    ]),
    ("renamed-metric", [
        "(vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc) > 0.9", "vllm:kv_cache_usage_perc > 0.9",
        'rate(vllm:time_per_output_token_seconds_bucket{version!=""}[5m])', "vllm:num_requests_swapped",
    ]),
    ("unknown-label", [
        'nv_inference_pending_request_count{model="m",pod="p",team="x",exported_pod="y"} > 3',
        'vllm:num_requests_waiting{model_name="m",engine="0",version="v2",revision="3"} > 3',
        'vllm:e2e_request_latency_seconds_bucket{model="m",version="1"}', f"sum by (model, pod) ({SERVED}) > 3",
        'sum by (model) (label_replace(vllm:num_requests_waiting, "model", "$1", "model_name", "(.+)")) > 3',
        'nv_inference_request_success{model_name=""}', 'my_metric{model_name="x"}', 'x{le="3"}',
        'model:requests:rate{engine="vllm",model="m"} > 1', "sum by (job, team) (vllm:num_requests_waiting)",
        "vllm:num_requests_waiting * on (pod) group_left (node) kube_pod_info > 1",
    ]),
    ("unknown-label-value", [
        'rate(nv_inference_request_failure{reason!="CANCELED"}[5m]) > 0', f'rate({E2E}{{le="2.5"}}[5m])',
        'rate(vllm:request_success_total{finished_reason=~"stop|length"}[5m])', f'{E2E}{{le="+Inf"}}',
        'rate(nv_inference_request_failure{reason=~"C.*"}[5m])', 'nv_inference_request_failure{model="CANCELLED"}',
        'nv_inference_request_failure{reason=""}', f'rate({E2E}{{le=~"30|30[.]0"}}[5m])',
    ]),
    ("integer-bound", [
        f'rate({E2E}{{le=~"30|30[.]0"}}[5m])', f'rate({E2E}{{le=~"30|30.0"}}[5m])', f'rate({E2E}{{le="2.5"}}[5m])',
        f'rate({E2E}{{le="+Inf"}}[5m])', 'x{model="1"}', 'x{le=~"30([.]0)?"}', 'x{quantile="0.99"}',
    ]),
    ("metric-type", [
        "rate(nv_inference_request_success[5m])", "deriv(vllm:num_requests_waiting[5m])", "rate(nv_cache_num_hits[5m])",
        "delta(vllm:kv_cache_usage_perc[5m])", "max_over_time(nv_inference_request_success[5m])",
        "changes(DCGM_FI_DEV_XID_ERRORS[5m])", "rate(something_unknown[5m])", "increase(vllm:iteration_tokens_total_sum[5m])",
        "avg_over_time(model:requests:rate[5m])", "max_over_time(rate(nv_inference_request_success[5m])[1h:])",
        "rate(dynamo_component_requests_total[5m])", "delta(sum(rate(nv_inference_request_success[5m]))[10m:])",
    ]),
    ("counter-raw", [
        f"{SERVED} > 3", "increase(nv_inference_request_failure[10m]) > 0", "nv_inference_request_success == 0",
        "up == 0 and nv_inference_request_success > 0", "vllm:num_requests_waiting > 10", "some_total > 3",
        f"{QUEUE} / ({SERVED} > 0)", "nv_inference_request_success - nv_inference_request_success offset 5m > 10",
        "dynamo_frontend_queued_requests_total > 5", "time() - vllm:generation_tokens_created > 3600",
    ]),
    ("quantile-aggregated", [
        'max by (model) (nv_inference_request_summary_us{quantile="0.99"}) > 5e5',
        "sum(rate(nv_inference_request_summary_us_sum[5m]))", "max(model:request_latency_seconds:p99) > 30",
        f"histogram_quantile(0.99, sum by (le) (rate({E2E}[5m]))) > 30", "avg(model:request_latency_seconds:mean)",
        "max_over_time(model:request_latency_seconds:p99[1h]) > 30", "avg(http_p99_experiment_enabled)",
        "count(model:request_latency_seconds:p99 > 30) > 1",
    ]),
    ("quantile-without-le", [
        f"histogram_quantile(0.99, sum by (le, model_name) (rate({TTFT}[5m]))) > 2.5",
        f"histogram_quantile(0.99, sum without (pod) (rate({TTFT}[5m]))) > 2.5", f"histogram_quantile(0.9, rate({TTFT}[5m]))",
        f"histogram_quantile(0.9, sum by (le) (rate({TTFT}[5m])) and on () (sum(up) > 3))",
        "histogram_quantile(0.9, model:request_latency_seconds:bucket_rate)", "histogram_quantile(0.9, native_histogram)",
    ]),
    ("quantile-input", [
        f"histogram_quantile(0.9, rate({TTFT}[5m]))", f"histogram_quantile(0.9, increase({TTFT}[1h]))",
        "histogram_quantile(0.9, model:request_latency_seconds:bucket_rate)", "histogram_quantile(0.9, rate(other[5m]))",
    ]),
    ("mean-divisor", [
        f"{QUEUE} / ({SERVED} > 0)", "rate(nv_inference_count[5m]) / (rate(nv_inference_exec_count[5m]) > 0)",
        "rate(vllm:e2e_request_latency_seconds_sum[5m]) / (rate(vllm:e2e_request_latency_seconds_count[5m]) > 0)",
        "vllm:num_requests_waiting / clamp_min(vllm:num_requests_running, 1)", "a / (1 + b)",
        "rate(nv_cache_hit_duration_per_model[5m]) / (rate(nv_cache_num_hits_per_model[5m]) > 0)",
    ]),
    ("division-unguarded", [
        f"{QUEUE} / ({SERVED} > 0)", f"{QUEUE} / 1e6", f"sum({QUEUE}) / sum({SERVED} > 0)", "node_a / node_b > 1",
        f"{QUEUE} / {SERVED} > 1e5 and {SERVED} > 0.01", f"{QUEUE} / ({SERVED} != 0)",
        f"{QUEUE} / {SERVED} unless {SERVED} == 0",
        "count(vllm:num_requests_running) / count(up)", f"{QUEUE} / clamp_min({SERVED}, 0.001)",
        f"{QUEUE} / (0 < {SERVED})", "vllm:num_requests_running / scalar(count(up))",
        'sum(x) / sum_over_time(model:requests:rate[1h]) and sum_over_time(model:requests:rate[1h]) >= 1',
    ]),
    ("or-unfiltered", [
        "(vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc) > 0.9", "absent(up) or up == 0",
        "vllm:kv_cache_usage_perc > 0.9 or vllm:num_requests_waiting > 3", "vllm:kv_cache_usage_perc or up",
        "up == 0 or (vllm:num_requests_waiting unless up)", "up == 0 or something_else",
    ]),
    ("threshold-unit", [
        "vllm:kv_cache_usage_perc > 0.9", "vllm:kv_cache_usage_perc * 100 > 90", "vllm:kv_cache_usage_perc >= 1",
        "vllm:kv_cache_usage_perc < 1", "sum(vllm:kv_cache_usage_perc) > 3", "DCGM_FI_DEV_GPU_UTIL > 90",
        "DCGM_FI_DEV_GPU_UTIL < 1", "DCGM_FI_DEV_GPU_UTIL > 0", "DCGM_FI_DEV_GPU_UTIL / 100 > 0.9",
        "DCGM_FI_DEV_FB_USED > 70000", "DCGM_FI_DEV_FB_USED * 1024 * 1024 > 8e10", "nv_gpu_memory_used_bytes > 7e10",
        "nv_gpu_memory_used_bytes / (nv_gpu_memory_total_bytes > 0) * 100 > 90", "nv_gpu_memory_total_bytes == 0",
        f"{QUEUE} / ({SERVED} > 0) > 100000", f"{QUEUE} / ({SERVED} > 0) / 1e6 > 0.1", f"{QUEUE} / ({SERVED} > 0) / 1000 > 100",
        'nv_inference_request_summary_us{quantile="0.99"} > 500', "vllm:num_requests_waiting > 100",
        "vllm:num_requests_running / (vllm:num_requests_waiting > 0) > 20",
        "rate(nv_inference_request_failure[5m]) / (rate(nv_inference_request_success[5m]) > 0) > 1.5",
        "nv_inference_request_failure > 1e9", "time() - vllm:generation_tokens_created > 86400", "other_ratio > 90",
        "vllm:kv_cache_usage_perc > bool 0.5 > 0", "vllm:kv_cache_usage_perc - vllm:kv_cache_usage_perc offset 5m > 0.2",
        "delta(vllm:kv_cache_usage_perc[5m]) > -2", "rate(vllm:nixl_bytes_transferred_sum[5m]) > 1e16",
    ]),
    ("threshold-bucket", [
        f"histogram_quantile(0.99, sum by (le) (rate({E2E}[5m]))) > 30",
        f"histogram_quantile(0.99, sum by (le) (rate({TTFT}[5m]))) * 1000 > 2500",
        "histogram_quantile(0.9, sum by (le) (rate(nv_inference_first_response_histogram_ms_bucket[5m]))) / 1000 > 0.5",
        "model:time_to_first_token_seconds:p99 > 2.5", f"histogram_quantile(0.99, rate({TTFT}[5m])) >= 0",
        "histogram_quantile(0.9, rate(other_bucket[5m])) > 3", "model:queue_time_seconds:mean > 0.123",
        'histogram_quantile(0.9, rate(dynamo_frontend_time_to_first_token_seconds_bucket[5m])) > 3.3',
    ]),
    ("range-too-short", [
        "rate(nv_inference_request_success[2m]) > 1", "avg_over_time(vllm:kv_cache_usage_perc[30s])",
        "rate(other_metric[1m])", "rate(nv_inference_request_success[5m])[1h:1m]",
    ]),
    ("value-in-labels", ["up == 0"]),
]  # fmt: skip


@pytest.mark.parametrize(("check", "expr"), [(check, expr) for check, exprs in GOOD for expr in exprs])
def test_passes(say, check: str, expr: str) -> None:
    assert say(check, expr) == []


def test_every_static_check_has_both_sides() -> None:
    ids = {check.ID for check in registry.STATIC}
    assert {row[0] for row in GOOD} == ids
    assert {row[0] for row in BAD} | {"value-in-labels"} == ids


def test_scrape_interval_comes_from_the_configuration(say) -> None:
    expr = "rate(nv_inference_request_success[2m]) > 1"
    assert say("range-too-short", expr) == []
    (problem,) = say("range-too-short", expr, config="interval: {scrape: 1m}")
    assert "2 scrapes of 60s" in problem.what.replace("1m", "60s")


def test_the_pack_is_held_to_more(say) -> None:
    (own,) = say("division-unguarded", "up / up", own=True)
    (theirs,) = say("division-unguarded", "up / up")
    assert (own.level, theirs.level) == ("error", "warning")
    assert [p.subject for p in say("unknown-metric", "node_load1 > 3", own=True)] == ["A0"]


def test_unit_is_followed_through_recorded_series(say) -> None:
    from tests.checks.conftest import world_of

    world = world_of("x")
    rule = dataclasses.replace(
        world.rules[0], kind="record", name="my:queue",
        expr=dataclasses.replace(world.rules[0].expr, value=f"sum by (model) ({QUEUE}) / (sum by (model) ({SERVED}) > 0)"),
    )
    user = dataclasses.replace(
        world.rules[0], expr=dataclasses.replace(world.rules[0].expr, value="my:queue > 0.5")
    )
    file = dataclasses.replace(world.rule_files[0], rules=(rule, user))
    from obs.checks.world import build

    found = list(registry.run(build(world.config, [file], {}), registry.STATIC))
    assert [(p.check, p.place) for p in found] == [("threshold-unit", "my:queue > 0.5")]
