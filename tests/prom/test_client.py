"""The typed client: against a real Prometheus, and against servers that misbehave."""

from __future__ import annotations

import math
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from obs.errors import InputError, ServerError
from obs.prom.client import Client, Connection, QueryError, Sample, TooMuchError
from obs.prom.remote_write import Point, Writer, make_labels
from obs.prom.server import PrivatePrometheus, free_port
from tests.stubserver import StubServer

T0 = 1_796_022_962_344


@contextmanager
def answering(
    reply: Callable[[BaseHTTPRequestHandler], None], tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[str]]]:
    """A server that answers everything with ``reply``; yields its address and the paths asked so far."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply(self)

        do_POST = do_GET

        def log_message(self, *unused: object) -> None: ...

    server = StubServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def text(status: int, body: str, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def reply(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body.encode())

    return reply


def test_samples_of_the_future_are_explained() -> None:
    """Prometheus 3 says "out of bounds" of them as well, but no fresh server would take them."""
    refusal = text(400, "out of bounds: timestamp is too far in the future")
    wanted = pytest.raises(ServerError, match=r"too far in the future; .* set the clock")
    with answering(refusal) as (url, _), Writer(url) as writer, wanted:
        writer.write([Point(T0, make_labels([("__name__", "x")]), 1.0)])


@pytest.mark.prometheus
def test_values_are_floats_whatever_the_type(server: PrivatePrometheus) -> None:
    series = make_labels([("__name__", "cl_x"), ("m", 'it\'s "quoted"')])
    server.writer.write([Point(T0, series, math.nan), Point(T0 + 1000, series, math.inf)])
    client, at = server.client, (T0 + 1000) / 1000
    assert client.query("1.5", at) == [Sample((), at, 1.5)]
    assert client.query("cl_x", at) == [Sample(series, at, math.inf)]
    (sample,) = client.query("cl_x", T0 / 1000)
    assert math.isnan(sample.value)
    (one,) = client.query_range("cl_x", T0 / 1000, at, 1)
    assert one.labels == series
    assert [when for when, _ in one.points] == [T0 / 1000, at]
    assert math.isnan(one.points[0][1])
    assert client.query("cl_nothing", at) == []
    (scalar,) = client.query_range("2", at, at + 2, 1)
    assert [value for _, value in scalar.points] == [2.0, 2.0, 2.0]


@pytest.mark.prometheus
def test_long_ranges_come_in_pieces_without_overlap(server: PrivatePrometheus) -> None:
    series = make_labels([("__name__", "cl_long")])
    server.writer.write(Point(T0 + step * 1000, series, float(step)) for step in range(25_000))
    (one,) = server.client.query_range("cl_long", T0 / 1000, T0 / 1000 + 24_999, 1)
    assert [value for _, value in one.points] == [float(step) for step in range(25_000)]


@pytest.mark.prometheus
def test_wrong_expressions_are_told_apart_from_wrong_servers(server: PrivatePrometheus) -> None:
    with pytest.raises(QueryError, match="unexpected end of input; correct the expression: x >"):
        server.client.query("x >")
    with pytest.raises(QueryError, match="gives a matrix, not a vector"):
        server.client.query("cl_x[5m]", T0 / 1000)
    with pytest.raises(QueryError, match=r": 1:4: parse error: unexpected .*; correct the expression$"):
        server.client.label_values("job", match="up =")


@pytest.mark.prometheus
def test_label_values_through_the_library(server: PrivatePrometheus) -> None:
    server.writer.write([Point(T0, make_labels([("__name__", "cl_named")]), 1.0)])
    assert "cl_named" in server.client.label_values("__name__")
    assert server.client.metadata("cl_named") == []


def test_one_request_for_a_503_and_no_waiting() -> None:
    begun = time.monotonic()
    with answering(text(503, "try later")) as (url, asked), Client(url) as client:
        with pytest.raises(ServerError, match="answered 503 with no Prometheus JSON: 'try later'"):
            client.query("x")
        with pytest.raises(ServerError):
            client.label_values("job")
    assert len(asked) == 2
    assert time.monotonic() - begun < 2


def test_redirect_to_a_login_page() -> None:
    with (
        answering(text(302, "", Location="https://login.example/")) as (url, _),
        Client(url) as client,
        pytest.raises(ServerError, match=r"redirects to https://login.example/ .a login page"),
    ):
        client.query("x")


def test_no_access() -> None:
    with (
        answering(text(401, "no")) as (url, _),
        Client(url) as client,
        pytest.raises(ServerError, match=r"refuses us .401.: no; give a token file"),
    ):
        client.query("x")


@pytest.mark.parametrize(
    "body",
    ["<html>", "[]", '{"status":"success"}', '{"status":"success","data":{"resultType":"vector","result":[{}, 3]}}'],
)
def test_nonsense(body: str) -> None:
    with answering(text(200, body)) as (url, _), Client(url) as client:
        with pytest.raises(ServerError, match="is that a Prometheus") as caught:
            client.query("x")
        assert "\n" not in str(caught.value)


def test_the_deadline_is_for_the_whole_answer() -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(100):
                handler.wfile.write(b" " * 70_000)
                time.sleep(0.1)
        except OSError:
            pass

    begun = time.monotonic()
    with (
        answering(drip) as (url, _),
        Client(url, deadline=0.5) as client,
        pytest.raises(ServerError, match=r"no whole answer within 0\.5 s"),
    ):
        client.query("x")
    assert time.monotonic() - begun < 3


def test_silent_and_absent_servers() -> None:
    with (
        answering(lambda handler: time.sleep(2)) as (url, _),
        Client(url, deadline=0.3) as client,
        pytest.raises(ServerError, match=r"no whole answer within 0\.3 s"),
    ):
        client.query("x")
    with Client(f"http://127.0.0.1:{free_port()}") as client, pytest.raises(ServerError, match="cannot be reached"):
        client.rules()


def test_token_is_sent(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    got = []

    def reply(handler: BaseHTTPRequestHandler) -> None:
        got.append(handler.headers["Authorization"])
        text(200, '{"status":"success","data":{"resultType":"vector","result":[]}}')(handler)

    with answering(reply) as (url, _), Client(url, token_file=token) as client:
        assert client.query("x") == []
    assert got == ["Bearer s3cret"]


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no Prometheus address"):
        Client("localhost:9090")
    with pytest.raises(InputError, match="token file cannot be read"):
        Client("http://x", token_file=tmp_path / "none")
    with pytest.raises(InputError, match="no such CA file"):
        Client("http://x", ca_file=tmp_path / "none")
    with Client("http://127.0.0.1:1") as client, pytest.raises(InputError, match="is empty"):
        client.query_range("x", 2, 1, 1)


def test_a_long_expression_goes_in_a_form_to_an_address_with_a_path() -> None:
    got = []

    def reply(handler: BaseHTTPRequestHandler) -> None:
        got.append((handler.command, handler.path, handler.headers["Content-Type"]))
        vector('[{"metric":{},"value":[1,"2"]}]')(handler)

    with answering(reply) as (url, _), Client(f"{url}/tenant/prometheus/") as client:
        assert client.query("x or " * 2000 + "x")[0].value == 2
    assert got == [("POST", "/tenant/prometheus/api/v1/query", "application/x-www-form-urlencoded")]


def vector(result: str, more: str = "") -> Callable[[BaseHTTPRequestHandler], None]:
    return text(200, f'{{"status":"success",{more}"data":{{"resultType":"vector","result":{result}}}}}')


def test_warnings_are_kept() -> None:
    with answering(vector("[]", '"warnings":["store  a:1\\nis away"],')) as (url, _), Client(url) as client:
        assert client.ask("x").warnings == ("store a:1 is away",)
        assert client.query("x") == []
        assert client.warnings == ["store a:1 is away"]
    with answering(vector("[]", '"isPartial":true,')) as (url, _), Client(url) as client:
        assert client.ask("x").warnings == ("the answer is partial: some of the storage did not answer",)


def test_hints_about_style_are_no_warnings() -> None:
    hint = 'PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \\"nv_x\\" (1:6)'
    reply = vector("[]", f'"warnings":["{hint}","store b is away"],"infos":["{hint}"],')
    with answering(reply) as (url, _), Client(url) as client:
        assert client.ask("rate(nv_x[5m])").warnings == ("store b is away",)
        assert client.warnings == ["store b is away"]


def test_a_query_that_takes_too_long_is_the_query_and_is_not_sent_again() -> None:
    body = '{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}'
    with answering(text(503, body)) as (url, asked), Client(Connection(url, retries=3)) as client:
        with pytest.raises(TooMuchError, match="query timed out in expression evaluation; ask for less"):
            client.query("x")
        assert len(asked) == 1


def test_certificates_are_always_checked() -> None:
    with Client("https://127.0.0.1:1") as client:
        assert client._session.verify is True
    ours = Path(__file__).parents[2] / "obs"
    for source in (one for folder in ("prom", "cli", "evaluate") for one in (ours / folder).rglob("*.py")):
        assert not re.search(r"verify\s*=\s*False|disable_ssl\s*=\s*True|CERT_NONE", source.read_text(encoding="utf-8")), source


def test_basic_auth_headers_and_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (tmp_path / "password").write_text("p: ä\n")
    got = []

    def reply(handler: BaseHTTPRequestHandler) -> None:
        got.append((handler.headers["Authorization"], handler.headers["X-Scope-OrgID"]))
        vector("[]")(handler)

    with answering(reply) as (url, _):
        to = Connection(url, user="me", password_file=tmp_path / "password", headers={"X-Scope-OrgID": "team"})
        with Client(to) as client:
            client.query("x")
        with Client(url.replace("//", "//you:s%40cret@")) as client:
            client.query("x")
            assert client.url == url
    assert got == [("Basic bWU6cDogw6Q=", "team"), ("Basic eW91OnNAY3JldA==", None)]


SECRETS = ("s3cret-token", "s3cret-password", "s3cret-header")


def connections(url: str, tmp_path: Path) -> list[Connection]:
    (tmp_path / "token").write_text(f"{SECRETS[0]}\n")
    return [
        Connection(url, token_file=tmp_path / "token"),
        Connection(url, user="me", password=SECRETS[1]),
        Connection(url.replace("//", f"//me:{SECRETS[1]}@")),
        Connection(url, headers={"X-Api-Key": SECRETS[2]}),
        Connection(url, headers={"Authorization": f"Bearer {SECRETS[0]}"}),
    ]


@pytest.mark.parametrize("status", [200, 302, 401, 403, 500, 503, 422])
def test_no_secret_is_ever_shown(tmp_path: Path, status: int) -> None:
    """The server sends everything it was sent back, in every place that we show."""

    def echo(handler: BaseHTTPRequestHandler) -> None:
        all_of_it = " ".join((*handler.headers.values(), *SECRETS))
        body = f'{{"status":"error","errorType":"bad_data","error":"{all_of_it}"}}' if status == 422 else all_of_it
        text(status, body, Location=f"https://me:{SECRETS[1]}@login.example/?t={SECRETS[0]}")(handler)

    with answering(echo) as (url, _):
        for to in connections(url, tmp_path):
            assert not any(secret in repr(to).replace(to.url, "") for secret in SECRETS)
            with Client(to) as client:
                own = client.clean(" ".join(SECRETS))
                for call in (partial(client.query, "x"), client.rules, partial(client.label_values, "job")):
                    with pytest.raises(ServerError) as caught:
                        call()
                    said = f"{caught.value} {caught.value.__cause__} {client.url}"
                    assert not any(secret in said for secret in SECRETS if secret not in own)
                    assert "bWU6" not in said  # base64 of me:


def test_secrets_in_a_wrong_address(tmp_path: Path) -> None:
    for url in ("ftp://me:s3cret@host", "http://me:s3cret@", "http://me:s3cret@host:port", "http://me:s3cret@host?x"):
        with pytest.raises(InputError) as caught:
            Client(url)
        assert "s3cret" not in str(caught.value)
    (tmp_path / "token").write_text("a b s3cret")
    with pytest.raises(InputError) as caught:
        Client("http://x", token_file=tmp_path / "token")
    assert "s3cret" not in str(caught.value)
    with pytest.raises(InputError) as caught:
        Client(Connection("http://x", headers={"X-Key": "s3cret\nX-Other: 1"}))
    assert "s3cret" not in str(caught.value)


def test_retries_are_bounded_and_inside_the_deadline() -> None:
    answers = [text(503, "later"), text(502, "later"), vector("[]")]

    def flaky(handler: BaseHTTPRequestHandler) -> None:
        answers.pop(0)(handler)

    with answering(flaky) as (url, asked), Client(Connection(url, retries=3)) as client:
        assert client.query("x") == []
        assert len(asked) == 3
    with answering(text(503, "later")) as (url, asked), Client(Connection(url, retries=2)) as client:
        with pytest.raises(ServerError, match="503"):
            client.query("x")
        assert len(asked) == 3
    begun = time.monotonic()
    busy = text(429, "slow down", **{"Retry-After": "60"})
    with answering(busy) as (url, asked), Client(Connection(url, retries=5, timeout=2)) as client:
        with pytest.raises(ServerError, match="429"):
            client.query("x")
        assert len(asked) == 1
    assert time.monotonic() - begun < 2
    with answering(text(400, '{"status":"error","errorType":"bad_data","error":"no"}')) as (url, asked):
        with Client(Connection(url, retries=5)) as client, pytest.raises(QueryError):
            client.query("x")
        assert len(asked) == 1


def test_one_deadline_for_all_calls() -> None:
    def slow(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(0.3)
        vector("[]")(handler)

    with answering(slow) as (url, asked), Client(Connection(url, deadline=0.5)) as client:
        client.query("x")
        with pytest.raises(ServerError, match=r"no whole answer within|not done within"):
            client.query("x")
        with pytest.raises(ServerError, match=r"not done within|no whole answer"):
            client.query("x")
    assert len(asked) <= 3


def test_a_body_that_drips_in_small_pieces() -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(100):
                handler.wfile.write(b" ")
                handler.wfile.flush()
                time.sleep(0.1)
        except OSError:
            pass

    begun = time.monotonic()
    with answering(drip) as (url, _), Client(url, deadline=0.5) as client, pytest.raises(ServerError, match="no whole answer"):
        client.query("x")
    assert time.monotonic() - begun < 3


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (text(200, "<html><title>Sign in</title>"), "answered 200 with a web page: .*a login page or a proxy's error"),
        (text(401, "no org id"), r"refuses us .401.: no org id; give the tenant: --header X-Scope-OrgID:TENANT"),
        (
            text(422, '{"status":"error","errorType":"execution","error":"query processing would load too many samples"}'),
            "too many samples.*; ask for less",
        ),
    ],
)
def test_what_it_may_be(reply: Callable[[BaseHTTPRequestHandler], None], says: str) -> None:
    with answering(reply) as (url, _), Client(url) as client, pytest.raises(ServerError, match=says) as caught:
        client.query("x")
    assert "\n" not in str(caught.value)


def test_client_certificates_and_a_ca(tmp_path: Path) -> None:
    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=tmp_path)

    san = "-addext", "subjectAltName=IP:127.0.0.1"
    for name, more in (("server", san), ("client", ())):
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem",
                "-subj", f"/CN={name}", *more)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    context.load_verify_locations(tmp_path / "client.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with answering(vector("[]"), context) as (url, _):
        full = Connection(
            url, ca_file=tmp_path / "server.pem", cert_file=tmp_path / "client.pem", key_file=tmp_path / "client.key"
        )
        with Client(full) as client:
            assert client.query("x") == []
        with Client(url) as client, pytest.raises(ServerError, match="no trusted connection"):
            client.query("x")
        with Client(url, ca_file=tmp_path / "server.pem") as client, pytest.raises(ServerError):
            client.query("x")
    with pytest.raises(InputError, match="key without its certificate"):
        Client(Connection(url, key_file=tmp_path / "client.key"))
    with pytest.raises(InputError, match="no such file"):
        Client(Connection(url, cert_file=tmp_path / "none"))
