"""One tenant does its worst, and the others are answered meanwhile: each attack on a real gateway."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.gateway import bounded_http, server
from tests.gateway.conftest import Serve, define, refused, start_run
from tests.gateway.serving import PATIENCE_S, Gateway, gateways

# Of a million ways to write a schema that never ends, those that were tried.
DOUBLING = 60


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """One that all attacks are tried on, one after the other."""
    with gateways() as start:
        served = start("memory://")
        assert httpx.get(f"{served.url}/readyz").status_code == 200
        yield served


@pytest.fixture
def mortal() -> Iterator[Gateway]:
    """One that is stopped."""
    with gateways() as start:
        yield start("memory://")


def doubling() -> dict[str, Any]:
    """Each definition asks for the next one twice."""
    defs: dict[str, Any] = {
        f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}] * 2} for number in range(DOUBLING)
    }
    return {"$defs": {**defs, f"d{DOUBLING}": {"type": "object"}}, "$ref": "#/$defs/d0"}


def by_depth() -> dict[str, Any]:
    """At each level of the input everything is asked twice."""
    below = {"properties": {"c": {"$ref": "#/$defs/node"}}}
    return {"$defs": {"node": {"allOf": [below, {**below, "title": "again"}]}}, "$ref": "#/$defs/node"}


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"c": value}
    return value


SCHEMAS: dict[str, tuple[Any, Any]] = {
    "a pattern that backtracks": (
        {"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 10_000 + "!"}
    ),
    "a pattern in names": ({"patternProperties": {"^(a|aa)+$": {"type": "null"}}}, {"a" * 10_000 + "!": 1}),
    "unique objects": (
        {"properties": {"a": {"uniqueItems": True}}}, {"a": [{"n": number} for number in range(6_000)]}
    ),
    "references that double": (doubling(), {}),
    "levels that double": (by_depth(), nested(60)),
    "a large enumeration": (
        {"properties": {"a": {"items": {"enum": [{"n": number} for number in range(3_000)]}}}},
        {"a": [{"n": -1 - number} for number in range(3_000)]},
    ),
}  # fmt: skip


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[Callable[[], bool]]:
    """The work goes on beside the block; what it is called with says whether it still does."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield thread.is_alive
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert failures == []


def answered_meanwhile(gateway: Gateway, still: Callable[[], bool]) -> None:
    """Probes and another tenant are answered until the attack is over, and at least some times."""
    with (
        httpx.Client(base_url=gateway.url, timeout=PATIENCE_S) as probe,
        httpx.Client(base_url=gateway.url, headers={"X-Tenant-ID": "other"}, timeout=PATIENCE_S) as other,
    ):
        rounds = 0
        while still() or rounds < 3:
            assert probe.get("/healthz").status_code == 200
            assert other.get("/api/v1/runs").status_code == 200
            rounds += 1


@pytest.mark.full
@pytest.mark.parametrize(("schema", "value"), SCHEMAS.values(), ids=SCHEMAS.keys())
def test_whatever_a_schema_asks_for_others_are_answered_meanwhile(
    gateway: Gateway, schema: Any, value: Any
) -> None:
    client = gateway.client(X_Tenant_ID="worst")

    def attack() -> None:
        put = client.put("/api/v1/workflows/hello", json={"steps": [], "input_schema": schema})
        assert put.status_code in (200, 400), put.text
        if put.status_code == 200:
            assert start_run(client, value).status_code in (200, 400)

    with meanwhile(attack) as still:
        answered_meanwhile(gateway, still)


@pytest.mark.full
def test_a_stop_does_not_wait_for_a_schema_without_an_end(mortal: Gateway) -> None:
    client = mortal.client(X_Tenant_ID="worst")
    define(client, input_schema=by_depth())

    def attack() -> None:
        # On a busy machine the stop may be over before the two seconds of a processor that the schema has.
        with suppress(httpx.TransportError):
            refused(start_run(client, nested(60)), 400, "input_invalid")

    with meanwhile(attack):
        answered_meanwhile(mortal, lambda: False)
        assert mortal.stop() == 0


@pytest.mark.parametrize("pattern", ["^(a)\\1$", "^(?=a)b", "a{1000}{1000}{1000}", "("])
def test_a_pattern_that_has_no_linear_form_is_refused_when_the_workflow_is_put(
    gateway: Gateway, pattern: str
) -> None:
    client = gateway.client(X_Tenant_ID="patterns")
    for schema in ({"pattern": pattern}, {"patternProperties": {pattern: True}}):
        answer = client.put("/api/v1/workflows/hello", json={"steps": [], "input_schema": schema})
        assert "linear time" in refused(answer, 400, "request_invalid")["detail"]
    refused(start_run(client), 404, "workflow_not_found")


# --- headers ------------------------------------------------------------------------------------------


def dialled(url: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=PATIENCE_S)


def problem_on(connection: socket.socket) -> tuple[int, str]:
    """Status and code of the problem that arrives."""
    with http.client.HTTPResponse(connection) as answer:
        answer.begin()
        assert answer.getheader("content-type") == "application/problem+json"
        problem = json.loads(answer.read())
    assert problem["status"] == answer.status
    return answer.status, problem["code"]


def most_bytes(gateway: Gateway) -> int:
    """Resident at once, so far."""
    text = Path(f"/proc/{gateway.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", text)[0]) << 10


def endless(gateway: Gateway, head: bytes, unit: bytes, megabytes: int = 60) -> None:
    """As much as the gateway takes, up to so much."""
    with dialled(gateway.url) as connection, suppress(ConnectionError):
        connection.sendall(head)
        for _ in range(megabytes):
            connection.sendall(unit * ((1 << 20) // len(unit)))


GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = (
    b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
)


@pytest.mark.parametrize(
    ("head", "unit"),
    [
        (GET, b"X-Many: headers\r\n"),
        (GET + b"X-One: ", b"long"),
        (b"", b"\r\n"),
        (b"GET /", b"path"),
        (CHUNKED, b"X-Trailer: many\r\n"),
        (CHUNKED + b"X-Trailer: ", b"long"),
    ],
    ids=["many headers", "one header", "blank lines", "a path", "many trailers", "one trailer"],
)
def test_headers_without_an_end_take_no_memory_and_others_are_answered(
    gateway: Gateway, head: bytes, unit: bytes
) -> None:
    before = most_bytes(gateway)
    with meanwhile(lambda: endless(gateway, head, unit)) as still:
        answered_meanwhile(gateway, still)
    # Twice as much arrived, and a Python without that bound keeps nine times as much.
    assert most_bytes(gateway) - before < 30 << 20


def test_a_header_is_read_up_to_its_bound_and_no_further(gateway: Gateway) -> None:
    def status(padding: int) -> int:
        with dialled(gateway.url) as connection:
            connection.sendall(GET + b"X: " + b"x" * padding + b"\r\n\r\n")
            return int(connection.makefile("rb").readline().split()[1])

    most = bounded_http.HEAD_BYTES_MAX - len(GET + b"X: \r\n\r\n")
    assert status(most) == 200
    assert status(most + 1) == 431
    with dialled(gateway.url) as connection:
        connection.sendall(GET + b"X: " + b"x" * most + b"xx\r\n\r\n")
        assert problem_on(connection) == (431, "headers_too_large")


@pytest.mark.parametrize("request_", [b"hello\r\n\r\n", b"\x16\x03\x01", b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_no_http_is_answered_with_a_problem(gateway: Gateway, request_: bytes) -> None:
    with dialled(gateway.url) as connection:
        connection.sendall(request_)
        assert problem_on(connection) == (400, "request_invalid")


def test_a_body_that_is_no_http_is_answered_with_a_problem(gateway: Gateway) -> None:
    with dialled(gateway.url) as connection:
        connection.sendall(CHUNKED[:-3])
        answered_meanwhile(gateway, lambda: False)  # whoever came first is listened to by now
        connection.sendall(b"zz\r\n")
        assert problem_on(connection) == (400, "request_invalid")


@pytest.mark.parametrize("header", [b"", b"Expect: 100-continue\r\n"])
def test_a_body_that_is_no_http_is_answered_also_where_it_comes_with_its_header(
    gateway: Gateway, header: bytes
) -> None:
    with dialled(gateway.url) as connection:
        connection.sendall(CHUNKED.replace(b"Host:", header + b"Host:")[:-3] + b"zz\r\n")
        assert problem_on(connection) == (400, "request_invalid")


def test_a_body_that_is_no_http_is_answered_after_the_request_before_it(gateway: Gateway) -> None:
    with dialled(gateway.url) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + CHUNKED[:-3] + b"zz\r\n")
        first, _, second = connection.makefile("rb").read().partition(b'{"status":"alive"}')
    assert first.startswith(b"HTTP/1.1 200")
    assert second.startswith(b"HTTP/1.1 400")
    assert b"request_invalid" in second


NAMED = b"X-Request-Id: mine\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        GET + NAMED + b"X: " + b"x" * bounded_http.HEAD_BYTES_MAX,
        CHUNKED.replace(b"Host:", NAMED + b"Host:")[:-3] + b"zz\r\n",
    ],
    ids=["too long", "no body"],
)
def test_a_refusal_before_anybody_is_known_says_which_request_it_is_to(
    gateway: Gateway, request_: bytes
) -> None:
    with dialled(gateway.url) as connection:
        connection.sendall(request_)
        assert b"\r\nx-request-id: mine\r\n" in connection.makefile("rb").read()


def test_such_a_refusal_is_never_named_after_the_request_before_it(gateway: Gateway) -> None:
    with dialled(gateway.url) as connection, connection.makefile("rb") as answers:
        connection.sendall(GET + NAMED + b"\r\n")
        first = b"".join(iter(answers.readline, b"\r\n")) + answers.read(len(b'{"status":"alive"}'))
        connection.sendall(b"hello\r\n\r\n")
        second = answers.read()
    assert b"x-request-id: mine" in first
    assert b"request_invalid" in second
    assert b"x-request-id" not in second


def test_what_stands_behind_a_body_is_no_header(serve: Serve) -> None:
    """Read as one, it would count or not count as the network cuts the request."""
    served = serve(dev=True)
    client = served.client()
    define(client)
    start = b"POST /api/v1/workflows/hello/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    body = b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nIdempotency-Key: k\r\n\r\n"
    for _ in range(2):
        with dialled(served.url) as connection:
            connection.sendall(start + body)
            assert connection.makefile("rb").read().startswith(b"HTTP/1.1 200")
    assert len(client.get("/api/v1/runs").json()["items"]) == 2
    assert client.get("/api/v1/records?scope=run").json()["items"] == []


# As curl and the HTTP client of Java send it with every request.
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


@pytest.mark.parametrize("apart", [False, True])
def test_a_body_behind_an_offer_to_speak_another_protocol_is_read(serve: Serve, apart: bool) -> None:
    body = b'{"steps": [{"id": "a", "topic": "GET /healthz HTTP/1.1"}]}'
    head = b"PUT /api/v1/workflows/w HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % len(body)
    after = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    served = serve(dev=True)
    with dialled(served.url) as connection:
        connection.sendall(head + OFFER + b"\r\n" + (b"" if apart else body + after))
        if apart:
            httpx.get(f"{served.url}/healthz")  # whoever came first was read first
            connection.sendall(body + after)
        first, _, second = connection.makefile("rb").read().partition(b"HTTP/1.1 200 OK")
    assert b"request_invalid" in first
    assert b"steps.0.topic" in first
    assert second.endswith(b'{"status":"alive"}')


@pytest.mark.parametrize(
    "head",
    [b"GET /healthz HTTP/1.0\r\n" + OFFER, (GET + OFFER).replace(b"Upgrade,", b"close, Upgrade,")],
    ids=["1.0", "close"],
)
def test_the_last_request_of_a_connection_is_answered_with_such_an_offer_too(
    gateway: Gateway, head: bytes
) -> None:
    with dialled(gateway.url) as connection:
        connection.sendall(head + b"\r\n")
        assert b" 200 OK\r\n" in connection.makefile("rb").readline()


def test_a_decision_with_such_an_offer_is_bound_to_what_was_seen(serve: Serve) -> None:
    """Its body is optional: one that was lost would be a decision on whatever is there."""
    served = serve(dev=True)
    job = {"topic": "pay", "input": 1, "approval": True}
    job_id = served.client().post("/api/v1/jobs", json=job).json()["job_id"]
    head = b"POST /api/v1/approvals/%s/approve HTTP/1.1\r\nHost: localhost\r\n" % job_id.encode()
    body = b'{"revision": 99}'
    sent = b"X-Principal-Id: boss\r\nContent-Length: %d\r\n" % len(body) + OFFER + b"\r\n" + body
    with dialled(served.url) as connection:
        connection.sendall(head + sent)
        assert problem_on(connection) == (409, "approval_stale_request")


@pytest.mark.parametrize("target", [b"/", b"*", b"http://localhost/", b"localhost:443"])
def test_who_asks_for_a_tunnel_is_refused_and_keeps_nobody_waiting(serve: Serve, target: bytes) -> None:
    served = serve(dev=True)
    with dialled(served.url) as connection:
        connection.sendall(b"CONNECT %s HTTP/1.1\r\nHost: localhost\r\n\r\nhello" % target)
        assert problem_on(connection) == (400, "request_invalid")
    assert httpx.get(f"{served.url}/healthz").status_code == 200


def test_who_is_refused_before_the_body_matters_is_told_that(serve: Serve) -> None:
    with dialled(serve(dev=False).url) as connection:
        connection.sendall(CHUNKED[:-3] + b"zz\r\n")
        assert problem_on(connection) == (401, "unauthenticated")


def test_garbage_behind_a_request_is_never_taken_for_its_answer(serve: Serve) -> None:
    served = serve(dev=True)
    body = b'{"topics": ["mail"], "max": 1, "wait_s": 60}'
    head = b"POST /api/v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    with dialled(served.url) as connection:
        connection.sendall(head + body)
        httpx.get(f"{served.url}/healthz")
        connection.sendall(b"hello\r\n\r\n")
        assert connection.makefile("rb").read() == b""


# --- time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [b"", b"GET", GET, GET + b"X-Slow: "])
def test_a_header_that_is_not_on_its_way_is_waited_for_no_longer(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(bounded_http, "HEAD_S", 0.1)
    with dialled(serve(dev=True).url) as connection:
        connection.sendall(begun)
        assert problem_on(connection) == (408, "request_timeout")


HALF = b'POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"topic": '


def test_a_body_that_is_not_on_its_way_is_waited_for_no_longer(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http, "BODY_S", 0.1)
    with dialled(serve(dev=True).url) as connection:
        connection.sendall(HALF)
        assert problem_on(connection) == (408, "request_timeout")


@pytest.mark.parametrize("begun", [GET + b"X-Slow: ", HALF])
def test_what_begins_behind_a_request_is_waited_for_no_longer_either(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    """It comes together with the end of another request, which is answered."""
    with dialled(serve(dev=True).url) as connection:
        connection.sendall(GET + b"\r\n")
        assert connection.recv(1) == b"H"  # it is connected, which has its own time
        monkeypatch.setattr(bounded_http, "HEAD_S", 0.1)
        monkeypatch.setattr(bounded_http, "BODY_S", 0.1)
        connection.sendall(GET + b"\r\n" + begun)
        answers = connection.makefile("rb").read()
    assert re.findall(rb"TTP/1.1 ([0-9]+)", answers) == [b"200", b"200", b"408"]


def test_a_stop_drops_what_has_not_arrived_and_says_so(mortal: Gateway) -> None:
    with dialled(mortal.url) as half, dialled(mortal.url) as silent, dialled(mortal.url) as begun:
        half.sendall(HALF)
        begun.sendall(GET)
        answered_meanwhile(mortal, lambda: False)  # whoever came first was read first
        assert mortal.stop() == 0
        assert problem_on(half) == (503, "gateway_stopping")
        assert silent.recv(1) == b""
        assert begun.recv(1) == b""


@pytest.mark.full
def test_a_stop_does_not_wait_for_a_client_that_does_not_read(mortal: Gateway) -> None:
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", int(mortal.url.rpartition(":")[2])))
        deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 200)
        answered_meanwhile(mortal, lambda: False)
        began = time.monotonic()
        assert mortal.stop() == 0
        # Less than what running requests are given: nobody ends them, so it was not waited for.
        assert time.monotonic() - began < server._GRACE_S
