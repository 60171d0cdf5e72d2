"""`obs gate` as a user or a controller meets it: exit codes, text, JSON, watching, serving, the example manifests."""

from __future__ import annotations

import argparse
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from obs.cli import main as cli
from obs.cli.gate_server import make_server
from obs.config import load_config
from obs.errors import InputError, ServerError
from obs.evaluate import gate as package
from obs.evaluate.gate import Gate, Side
from obs.prom.remote_write import Point, make_labels
from obs.prom.server import PrivatePrometheus, free_port

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "gate"
TRITON = ROOT / "tests" / "data" / "recordings" / "triton-2.51-incident.tar.gz"
T0 = 1_796_022_960


def obs_gate(*words: str) -> int:
    return cli.main(["gate", *map(str, words)])


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PROMETHEUS_URL", "OBS_PROMETHEUS_TOKEN", "OBS_PROMETHEUS_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Version 1 and 2 are equal, version 3 fails 1 in 10."""
    with PrivatePrometheus() as server:
        points = []
        for at in range(0, 901, 15):
            for version, failing in (("1", 0.0), ("2", 0.0), ("3", 0.1)):
                own = [("job", "j"), ("instance", "a"), ("model", "m"), ("version", version)]
                for name, value, more in (
                    ("nv_inference_request_success", at * (1 - failing), ()),
                    ("nv_inference_request_failure", at * failing, (("reason", "BACKEND"),)),
                    ("nv_inference_queue_duration_us", at * 3000.0, ()),
                ):
                    points.append(Point((T0 + at) * 1000, make_labels([("__name__", name), *own, *more]), value))
        server.writer.write(points)
        yield server.url


def at_the_end(url: str, canary: str) -> tuple[str, ...]:
    return ("--prometheus", url, "--baseline", 'version="1"', "--canary", f'version="{canary}"', "--at", str(T0 + 900))


@pytest.mark.prometheus
def test_text_and_exit_codes(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert obs_gate(*at_the_end(url, "2")) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out  # no terminal, no colour
    assert out.splitlines()[:5] == [
        'PASS: canary version="2" against baseline version="1" of model m (triton), 15m up to 2026-11-30T07:31:00Z',
        "                          baseline  canary  limit                  source",
        "  requests                     900     900",
        "  error ratio                   0%      0%  <= 0.1%  pass",
        "  mean queue time              3ms     3ms  <= 10ms  pass",
    ]
    assert obs_gate(*at_the_end(url, "3")) == 1
    assert "fail: error ratio: 10% over 0.1% (gate.error_ratio_floor): 90 of 900 against 0 of 900" in capsys.readouterr().out
    assert obs_gate(*at_the_end(url, "4")) == 4
    out = capsys.readouterr().out
    assert out.startswith("INCONCLUSIVE: ")
    assert "baseline  canary" not in out  # nothing was compared


@pytest.mark.prometheus
def test_json(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert obs_gate(*at_the_end(url, "3"), "--format", "json") == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["verdict"], document["canary"]["failed"], document["baseline"]["requests"]) == ("fail", 90, 900)
    by_name = {one["name"]: one for one in document["criteria"]}
    assert by_name["error_ratio"]["state"] == "fail"
    assert (by_name["ttft_p99"]["state"], by_name["ttft_p99"]["canary"]) == ("not measured", None)
    assert document["reasons"] == [f"error ratio: {by_name['error_ratio']['why']}"]


@pytest.mark.prometheus
def test_the_limits_come_from_the_configuration(url: str, tmp_path: Path) -> None:
    (tmp_path / "obs.yaml").write_text("gate: {error_ratio_floor: 20%, error_ratio_max: 20%}\n")
    assert obs_gate(*at_the_end(url, "3")) == 0
    (tmp_path / "obs.yaml").write_text("gate: {queue_time_floor: 1ms, queue_time_max: 2ms}\n")
    assert obs_gate(*at_the_end(url, "2")) == 1


@pytest.mark.prometheus
def test_on_a_recording(capsys: pytest.CaptureFixture[str]) -> None:
    sides = ("--baseline", 'model="tokens"', "--canary", 'model="doubler"', "--since", "60s", "--at", "1796023200")
    assert obs_gate("--recording", str(TRITON), *sides) == 1
    out = capsys.readouterr().out
    assert "mean queue time" in out
    assert "summary" in out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert obs_gate(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("obs: ")
    return captured.err


def test_wrong_arguments(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sides = ("--baseline", 'a="1"', "--canary", 'a="2"')
    here = (*sides, "--prometheus", "http://127.0.0.1:1", "--retries", "0")
    assert "nothing to judge" in refused(capsys, *sides)
    assert "'15' is not a duration" in refused(capsys, *here, "--since", "15")
    assert "leave one out" in refused(capsys, *here, "--recording", "x")
    assert "leave one out" in refused(capsys, *here, "--watch", "--at", "1796023200")
    assert "is no list of matchers" in refused(capsys, *here, "--canary", "version=2")
    assert "cannot be reached" in refused(capsys, *here)
    assert "is no HOST:PORT" in refused(capsys, *here, "--serve", "9099")
    (tmp_path / "obs.yaml").write_text("gate: {min_request: 5}\n")
    assert "gate.min_request: unknown key; did you mean 'min_requests'?" in refused(capsys, *here)
    (tmp_path / "obs.yaml").write_text("gate: {require: [latency]}\n")
    assert "did you mean 'latency_p99'?" in refused(capsys, *here)
    with pytest.raises(SystemExit):
        obs_gate("--canary", 'a="1"')


def test_a_bug_of_ours_is_3(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*unused: object, **unused_too: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(package, "gate", broken)
    assert obs_gate(*at_the_end("http://127.0.0.1:1", "2")) == 3
    assert "a bug of obs: ZeroDivisionError: oops" in capsys.readouterr().err


def made(verdict: str) -> Gate:
    reasons = () if verdict == "pass" else ("because",)
    return Gate(verdict, T0, 900, Side('version="1"'), Side('version="2"'), reasons=reasons)  # type: ignore[arg-type]


def watching(monkeypatch: pytest.MonkeyPatch, *verdicts: object) -> tuple[str, ...]:
    answers = iter(verdicts)

    def look(*unused: object, **unused_too: object) -> Gate:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return made(str(found))

    monkeypatch.setattr(package, "gate", look)
    sides = ("--baseline", 'version="1"', "--canary", 'version="2"')
    return ("--prometheus", "http://127.0.0.1:1", *sides, "--watch", "--every", "1ms", "--until", "1ms", "--format", "json")


def test_watch_tells_each_look_and_ends(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = watching(monkeypatch, "inconclusive", "fail", "pass")
    assert obs_gate(*words, "--until", "1h") == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["verdict"] == "fail"  # one document, at the end
    assert captured.err.splitlines() == [
        "look 1 at 2026-11-30T07:16:00Z: inconclusive: because",
        "look 2 at 2026-11-30T07:16:00Z: fail: because",
    ]


def test_watch_ends_as_its_last_look(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    many = ["inconclusive"] * 500
    assert obs_gate(*watching(monkeypatch, *many)) == 4
    assert obs_gate(*watching(monkeypatch, *["pass"] * 500)) == 0
    capsys.readouterr()
    assert obs_gate(*watching(monkeypatch, *[ServerError("away")] * 500)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[0] == "look 1: no answer: away"
    assert captured.err.splitlines()[-1] == "obs: away"


# --- served ------------------------------------------------------------------------------------------------------


@contextmanager
def served(*answers: object, every: float = 0.0) -> Iterator[tuple[str, list[object]]]:
    left = list(answers)

    def look() -> Gate:
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return made(str(found))

    server = make_server("127.0.0.1:0", look, every)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", left
    finally:
        server.shutdown()
        server.server_close()


def ask(url: str, body: bytes | None = None) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize(
    ("verdict", "status"),
    [("pass", (200, 200, 409)), ("fail", (200, 409, 200)), ("inconclusive", (200, 409, 409))],
)
def test_served_verdicts(verdict: str, status: tuple[int, ...]) -> None:
    with served(verdict, verdict, verdict) as (url, _):
        found = [ask(f"{url}/{path}", b'{"name":"x"}' if path == "pass" else None) for path in ("verdict", "pass", "fail")]
    assert tuple(one[0] for one in found) == status
    assert {one[1]["verdict"] for one in found} == {verdict}


def test_served_faults_and_rest() -> None:
    with served("pass", every=3600) as (url, left):
        assert [ask(f"{url}/verdict")[0] for _ in range(5)] == [200] * 5  # one look for all
        assert left == []
        assert ask(f"{url}/")[0] == 404
        assert ask(f"{url}/verdict?query=up")[1]["verdict"] == "pass"  # nothing of a request is used but its path
    with served(ServerError("away"), "pass", every=3600) as (url, _):
        assert ask(f"{url}/pass") == (503, {"error": "away"})
        assert ask(f"{url}/pass")[0] == 200  # an error is not kept
    with served(ZeroDivisionError("oops")) as (url, _):
        assert ask(f"{url}/pass") == (500, {"error": "a bug of obs: ZeroDivisionError: oops"})
    taken = f"127.0.0.1:{free_port()}"
    with make_server(taken, lambda: made("pass"), 1), pytest.raises(InputError, match="cannot be bound"):
        make_server(taken, lambda: made("pass"), 1)


# --- the examples --------------------------------------------------------------------------------------------------


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text(encoding="utf-8")))


def parsed(container: dict[str, Any]) -> argparse.Namespace:
    assert container["command"] == ["obs", "gate"]
    return cli.parser_for("gate").parse_args(["gate", *container["args"]])


def test_every_example_is_looked_at() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == {
        "argo-job.yaml", "argo-web.yaml", "flagger-canary.yaml", "obs.yaml", "serve.yaml",
    }
    assert load_config(EXAMPLES / "obs.yaml").gate("min_requests") == 200


def test_argo_examples() -> None:
    """Fields as in the CRD AnalysisTemplate of Argo Rollouts (docs/analysis/{job,web}.md, docs/features/analysis.md)."""
    (job,) = documents("argo-job.yaml")
    (web,) = documents("argo-web.yaml")
    for one in (job, web):
        assert (one["apiVersion"], one["kind"]) == ("argoproj.io/v1alpha1", "AnalysisTemplate")
        for metric in one["spec"]["metrics"]:
            assert set(metric) <= {
                "name", "interval", "initialDelay", "count", "successCondition", "failureCondition", "failureLimit",
                "inconclusiveLimit", "consecutiveErrorLimit", "consecutiveSuccessLimit", "provider",
            }
    (metric,) = job["spec"]["metrics"]
    spec = metric["provider"]["job"]["spec"]
    kubernetes_validate.validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": spec}, "1.30",
                                 strict=True)
    args = parsed(spec["template"]["spec"]["containers"][0])
    assert args.watch
    assert spec["activeDeadlineSeconds"] > 30 * 60  # longer than --until
    given = {one["name"] for one in job["spec"]["args"]}
    text = (EXAMPLES / "argo-job.yaml").read_text(encoding="utf-8")
    assert all(f"{{{{args.{name}}}}}" in text for name in given)
    (metric,) = web["spec"]["metrics"]
    asked = metric["provider"]["web"]
    assert set(asked) <= {"url", "method", "headers", "body", "timeoutSeconds", "jsonPath", "insecure"}
    assert asked["jsonPath"] == "{$.verdict}"
    assert asked["url"].endswith(":9099/verdict")
    words = {metric["successCondition"], metric["failureCondition"]}
    assert words == {'result == "pass"', 'result == "fail"'}


def test_flagger_example_and_the_served_gate() -> None:
    """Fields as in the CRD Canary of Flagger (docs/gitbook/usage/webhooks.md)."""
    (canary,) = documents("flagger-canary.yaml")
    assert (canary["apiVersion"], canary["kind"]) == ("flagger.app/v1beta1", "Canary")
    assert {"targetRef", "service", "analysis"} <= set(canary["spec"])
    hooks = {hook["type"]: hook["url"].rsplit("/", 1)[1] for hook in canary["spec"]["analysis"]["webhooks"]}
    assert hooks == {"rollback": "fail", "rollout": "pass", "confirm-promotion": "pass"}
    deployment, service = documents("serve.yaml")
    for one in (deployment, service):
        kubernetes_validate.validate(one, "1.30", strict=True)
    args = parsed(deployment["spec"]["template"]["spec"]["containers"][0])
    port = service["spec"]["ports"][0]["port"]
    assert args.serve.endswith(f":{port}")
    for hook in canary["spec"]["analysis"]["webhooks"]:
        assert f"obs-gate.monitoring:{port}/" in hook["url"]
        assert int(hook["timeout"].rstrip("s")) > int(args.timeout.rstrip("s"))
    config = deployment["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]
    assert config == documents("argo-job.yaml")[0]["spec"]["metrics"][0]["provider"]["job"]["spec"]["template"]["spec"][
        "volumes"][0]["configMap"]["name"]
