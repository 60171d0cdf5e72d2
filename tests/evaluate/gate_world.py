"""Two sides of a canary as real servers expose them: names, labels and buckets of Triton 2.51 and vLLM 0.32.

Every target is written as text in the exposition format, one text per scrape, and read by the pack's own reader: a
name or bucket that no server has would be found by the reading of the catalogue in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from obs.evaluate import exposition
from obs.evaluate.recording import Recording, Scrape, Target
from obs.prom.remote_write import Point

T0 = 1_796_022_960  # unix seconds
STEP = 15
SPAN = 900
END = T0 + SPAN
TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
E2E = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0)


@dataclass(frozen=True)
class Load:
    """What a model's server does: requests/s, failed part, seconds per request waiting and computing, slow part.

    ``slow``: part of the requests that take ``late`` seconds instead of ``wait + compute``.
    """

    rate: float = 2.0
    failed: float = 0.0
    wait: float = 0.004
    compute: float = 0.02
    slow: float = 0.0
    late: float = 0.4
    begins: float = 0.0
    reset_at: float | None = None
    stops: float | None = None

    def seen(self, second: float) -> float:
        """Requests so far; from 0 again after a restart."""
        until = second if self.stops is None else min(second, self.stops)
        since = self.begins
        if self.reset_at is not None and second >= self.reset_at:
            since = self.reset_at
        return max(0.0, until - since) * self.rate


def family(name: str, kind: str, lines: Iterable[str]) -> str:
    return "\n".join((f"# HELP {name} .", f"# TYPE {name} {kind}", *lines, ""))


def histogram(name: str, labels: str, bounds: Iterable[float], values: Mapping[float, float]) -> str:
    """``values``: latency → how many."""
    lines = []
    for bound in (*bounds, float("inf")):
        count = sum(many for value, many in values.items() if value <= bound)
        lines.append(f'{name}_bucket{{{labels},le="{"+Inf" if bound == float("inf") else bound}"}} {round(count)}')
    lines.append(f"{name}_sum{{{labels}}} {sum(value * many for value, many in values.items())}")
    lines.append(f"{name}_count{{{labels}}} {round(sum(values.values()))}")
    return family(name, "histogram", lines)


def triton(versions: Mapping[str, Load], second: float, *, model: str = "resnet", histograms: Iterable[str] = (),
           summaries: Iterable[str] = ()) -> str:
    """One scrape of a Triton that serves versions of a model; which of them export histograms or summaries."""
    parts: dict[str, list[str]] = {}
    text = []
    for version, load in versions.items():
        labels = f'model="{model}",version="{version}"'
        seen = load.seen(second)
        good = seen * (1 - load.failed)
        whole = load.wait + load.compute
        parts.setdefault("nv_inference_request_success", []).append(f"{{{labels}}} {round(good)}")
        for reason in ("REJECTED", "CANCELED", "BACKEND", "OTHER"):
            bad = seen * load.failed if reason == "BACKEND" else (seen if reason == "CANCELED" and load.late == 99 else 0)
            parts.setdefault("nv_inference_request_failure", []).append(f'{{{labels},reason="{reason}"}} {round(bad)}')
        parts.setdefault("nv_inference_count", []).append(f"{{{labels}}} {round(good)}")
        parts.setdefault("nv_inference_exec_count", []).append(f"{{{labels}}} {round(good)}")
        for name, one in (("request", whole), ("queue", load.wait), ("compute_input", 0.0),
                          ("compute_infer", load.compute), ("compute_output", 0.0)):
            parts.setdefault(f"nv_inference_{name}_duration_us", []).append(f"{{{labels}}} {round(good * one * 1e6)}")
        values = {whole: seen * (1 - load.slow), load.late: seen * load.slow}
        if version in histograms:
            milliseconds = {value * 1e3: many for value, many in values.items()}
            text.append(histogram("nv_inference_first_response_histogram_ms", labels, (100, 500, 2000, 5000), milliseconds))
        if version in summaries:
            p99 = "Nan" if load.rate == 0 else round((load.late if load.slow >= 0.01 else whole) * 1e6)
            text.append(family("nv_inference_request_summary_us", "summary", (
                f"nv_inference_request_summary_us_count{{{labels}}} {round(seen)}",
                f"nv_inference_request_summary_us_sum{{{labels}}} {round(seen * whole * 1e6)}",
                f'nv_inference_request_summary_us{{{labels},quantile="0.99"}} {p99}',
            )))
    head = [family(name, "counter", (f"{name}{one}" for one in lines)) for name, lines in parts.items()]
    return "".join((*head, *text, family("nv_cpu_utilization", "gauge", ["nv_cpu_utilization 0.5"])))


def vllm(load: Load, second: float, *, model: str = "llama", inside_triton: bool = False, version: str = "1",
         tokens: float = 100.0) -> str:
    """One scrape of a vLLM (0.32), or of Triton's vLLM backend: ``tokens`` generated per request."""
    labels = f'model="{model}",version="{version}"' if inside_triton else f'engine="0",model_name="{model}"'
    seen = load.seen(second)
    good = seen * (1 - load.failed)
    whole = load.wait + load.compute

    def values(scale: float) -> dict[float, float]:
        return {whole * scale: good * (1 - load.slow), load.late * scale: good * load.slow}

    text = [
        family("vllm:generation_tokens", "counter", [f"vllm:generation_tokens_total{{{labels}}} {round(good * tokens)}"]),
        histogram("vllm:time_to_first_token_seconds", labels, TTFT[:16] if inside_triton else TTFT, values(0.1)),
        histogram("vllm:e2e_request_latency_seconds", labels, (1.0, 2.5, 5.0, 10.0, 60.0) if inside_triton else E2E,
                  values(1.0)),
    ]
    itl = "vllm:time_per_output_token_seconds" if inside_triton else "vllm:inter_token_latency_seconds"
    text.append(histogram(itl, labels, (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
                          {value: many * tokens for value, many in values(1 / tokens).items()}))
    if inside_triton:
        return triton({version: load}, second, model=model) + "".join(text)
    text += [
        family("vllm:num_requests_running", "gauge", [f"vllm:num_requests_running{{{labels}}} {load.rate * whole}"]),
        family("vllm:request_success", "counter", (
            f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {round(count)}'
            for reason, count in (("stop", good), ("length", 0), ("abort", 0), ("error", seen * load.failed))
        )),
        histogram("vllm:request_queue_time_seconds", labels, E2E, {load.wait: good}),
    ]
    return "".join(text)


def target(labels: Mapping[str, str], scrape: Callable[[float], str], *, begins: int = 0, ends: int = SPAN) -> Target:
    """A target scraped every STEP seconds from ``begins`` to ``ends`` (seconds after T0)."""
    heads: exposition.Heads = {}
    return Target(labels, tuple(
        Scrape((T0 + second) * 1000, tuple(exposition.parse(scrape(second), "made", heads).samples))
        for second in range(begins, ends + 1, STEP)
    ))


def played(*targets: Target) -> Iterator[Point]:
    """What Prometheus would have stored, up to END; a target that ends before is down."""
    return Recording("made", tuple(targets)).points(end_ms=END * 1000)
