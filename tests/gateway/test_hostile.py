"""Whatever a client sends: an answer that clients know how to read, never a 500, never a silence."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semel.gateway.problems import STATUS
from tests.faults.places import PLACES
from tests.gateway.conftest import define, limit, new_tenant, refused, start_run
from tests.gateway.serving import PATIENCE_S, Gateway, Park, run_ids

STORES = [place.name for place in PLACES]

TENANT = "hostile"
PATH = b"/api/v1/workflows/hello/runs"

# Statuses of a request that never became one: the server underneath refuses it without a word of ours.
NOT_HTTP = {400, 413, 414, 431, 501, 505}


@pytest.fixture(scope="module")
def gateway(park: Park) -> Gateway:
    found = park.one("sqlite")
    client = found.client(X_Tenant_ID=TENANT)
    define(client)
    limit(client, 1_000_000)
    return found


@pytest.fixture(autouse=True)
def _it_serves_on(gateway: Gateway) -> Iterator[None]:
    yield
    assert gateway.client().get("/readyz").status_code == 200
    said = gateway.said()
    assert "internal error" not in said
    assert "Traceback" not in said


@dataclass
class Answer:
    status: int
    media: str
    body: bytes


def exchange(gateway: Gateway, request: bytes, *, hangs_up: bool = False) -> Answer | None:
    """The first answer to these bytes; None if the connection was closed without one.

    A client that hangs up says that nothing more will come.
    """
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=PATIENCE_S) as connection:
        try:
            connection.sendall(request)
            if hangs_up:
                connection.shutdown(socket.SHUT_WR)
            response = http.client.HTTPResponse(connection)
            with response:
                response.begin()
                media = response.getheader("content-type") or ""
                return Answer(response.status, media, response.read())
        except TimeoutError:
            raise AssertionError(f"no answer to {request[:200]!r}") from None
        except (http.client.HTTPException, ConnectionError):
            return None


def post(
    body: bytes = b"{}", *headers: tuple[bytes, bytes], path: bytes = PATH, method: bytes = b"POST"
) -> bytes:
    told = {b"Host": b"localhost", b"X-Tenant-ID": TENANT.encode(), b"Connection": b"close"}
    lines = [method + b" " + path + b" HTTP/1.1", *(name + b": " + value for name, value in told.items())]
    lines += [name + b": " + value for name, value in headers]
    if not any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in headers):
        lines.append(b"Content-Length: " + str(len(body)).encode())
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def check_known(answer: Answer | None) -> None:
    """A success, or a problem with a code that exists; 503 is for stores that are away, and none is."""
    assert answer is not None
    assert answer.status < 500, answer
    if answer.status == 200:
        assert answer.media == "application/json"
        return
    assert answer.media == "application/problem+json", answer
    problem = json.loads(answer.body)
    assert problem["status"] == answer.status == STATUS[problem["code"]]


def code_of(answer: Answer | None) -> str:
    check_known(answer)
    assert answer is not None
    return str(json.loads(answer.body).get("code", "started"))


# --- bodies -------------------------------------------------------------------------------------------

BODIES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "body_not_json"),
    "blank": (b" \r\n\t", "body_not_json"),
    "no JSON": (b"hello", "body_not_json"),
    "half": (b'{"a": ', "body_not_json"),
    "two": (b"{}{}", "body_not_json"),
    "a comma too many": (b'{"a": 1,}', "body_not_json"),
    "single quotes": (b"{'a': 1}", "body_not_json"),
    "not a number": (b'{"a": NaN}', "body_not_json"),
    "infinity": (b'{"a": -Infinity}', "body_not_json"),
    "no UTF-8": (b'{"a": "\xff"}', "body_not_json"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "body_not_json"),
    "a raw control character": (b'{"a": "\x00"}', "body_not_json"),
    "half a surrogate": (b'{"a": "\\ud800"}', "body_not_json"),
    "XML": (b"<run/>", "body_not_json"),
    "a name twice": (b'{"a": 1, "a": 2}', "body_not_json"),
    "a list": (b"[]", "request_invalid"),
    "a text": (b'"{}"', "request_invalid"),
    "null": (b"null", "request_invalid"),
    "65 levels": (b'{"a":' * 65 + b"1" + b"}" * 65, "body_too_deep"),
    "a million levels": (b"[" * 1_000_000, "body_too_deep"),
    "a million levels of objects": (b'{"":' * 250_000, "body_too_deep"),
    "too large": (b'{"a": "' + b"x" * (2 << 20) + b'"}', "body_too_large"),
    "the largest": (b'{"a": "' + b"x" * ((2 << 20) - 9) + b'"}', "started"),
    "64 levels": (b'{"a":' * 64 + b"1" + b"}" * 64, "started"),
    "a zero character": (b'{"a": "\\u0000"}', "request_invalid"),
    "a zero character in a name": (b'{"\\u0000": 1}', "request_invalid"),
    "every sort of text": ('{"é\u202e\U0001f600": "\\ud83d\\ude00\\"\\\\"}'.encode(), "started"),
    "ten thousand names": (json.dumps({str(n): n for n in range(10_000)}).encode(), "started"),
    "names of the inside": (b'{"__proto__": {}, "run_id": "run_1", "status": "failed"}', "started"),
}


@pytest.mark.parametrize(("body", "code"), BODIES.values(), ids=BODIES.keys())
def test_a_hostile_body_is_refused_by_name_or_kept(body: bytes, code: str, gateway: Gateway) -> None:
    assert code_of(exchange(gateway, post(body))) == code


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    "value",
    [
        "\x7f\x9f\ufeff\ufffe",
        "\u202e\U0001f600",
        "'; DROP TABLE semel; --",
        "%s {0} \\x00",
        -0.0,
        2**63 - 1,
        -(2**63),
        1e308,
        5e-324,
        {"": {"": [[], {}]}},
        "x" * 100_000,
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_json_can_say_is_kept_as_it_is_on_every_store(store: str, value: Any, park: Park) -> None:
    client = park.one(store).client(X_Tenant_ID=new_tenant())
    define(client)
    sent = {"value": value, "names": {str(value)[:100]: value}}
    started = start_run(client, sent, "key")
    assert started.status_code == 200, started.text
    assert client.get(f"/api/v1/runs/{started.json()['run_id']}").json()["input"] == sent
    again = start_run(client, sent, "key")
    assert (again.content, again.headers["idempotent-replayed"]) == (started.content, "true")


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    "key",
    [
        "a'b",
        "a b",
        "ключ",
        "\U0001f600",
        "%00",
        "a/../b",
        "{tag}",
        "a:b:*",
        '"; DROP',
        "\\",
        "x" * 255,
        "\xa0",
    ],
)
def test_a_strange_key_is_one_key_on_every_store(store: str, key: str, park: Park) -> None:
    client = park.one(store).client(X_Tenant_ID=new_tenant())
    define(client)
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')
    params = {"idempotency_key": f'"{quoted}"'}
    first = client.post(PATH.decode(), json={}, params=params)
    assert first.status_code == 200, first.text
    again = client.post(PATH.decode(), json={}, params=params)
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    found = client.get("/api/v1/records", params={"scope": "run", "key": key}).json()["items"]
    assert [record["run_id"] for record in found] == [first.json()["run_id"]]


# --- headers, paths, methods --------------------------------------------------------------------------

HEADERS: dict[str, tuple[tuple[bytes, bytes], ...]] = {
    "a key of bytes": ((b"Idempotency-Key", bytes(range(128, 256))),),
    "a long key": ((b"Idempotency-Key", b"k" * 8_000),),
    "a thousand keys": ((b"Idempotency-Key", b"k"),) * 1_000,
    "a thousand different keys": tuple((b"Idempotency-Key", str(n).encode()) for n in range(1_000)),
    "half a quoted key": ((b"Idempotency-Key", b'"abc'),),
    "a list of keys": ((b"Idempotency-Key", b"a, b"),),
    "a tenant above": ((b"X-Tenant-ID", b"../other"),),
    "a tenant of the inside": ((b"X-Tenant-ID", b".semel"),),
    "an empty tenant": ((b"X-Tenant-ID", b""),),
    "a long tenant": ((b"X-Tenant-ID", b"t" * 10_000),),
    "a tenant of bytes": ((b"X-Tenant-ID", b"\xff\xfe"),),
    "a person of bytes": ((b"X-Principal-Id", b"\xff\xfe"),),
    "a long person": ((b"X-Principal-Id", b"p" * 10_000),),
    "a person that steers terminals": ((b"X-Principal-Id", b"\xc2\x9b2J"),),
    "credentials without sense": ((b"Authorization", b"Bearer \xff"), (b"X-API-Key", b"semel__")),
    "another method within": ((b"X-HTTP-Method-Override", b"DELETE"),),
    "another media": ((b"Content-Type", b"application/xml; charset=utf-7"),),
    "a compressed body": ((b"Content-Encoding", b"gzip"),),
    "an upgrade": (
        (b"Upgrade", b"websocket"),
        (b"Sec-WebSocket-Key", b"x"),
        (b"Sec-WebSocket-Version", b"13"),
    ),
    "an expectation": ((b"Expect", b"a miracle"),),
    "a range": ((b"Range", b"bytes=0-,1-,2-"),),
    "somebody in front": ((b"X-Forwarded-For", b"1.2.3.4"), (b"Forwarded", b"for=_x")),
    "three hundred headers": tuple((b"X-H%d" % n, b"v") for n in range(300)),
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS.keys())
def test_hostile_headers_are_answered(headers: tuple[tuple[bytes, bytes], ...], gateway: Gateway) -> None:
    check_known(exchange(gateway, post(b"{}", *headers)))


PATHS = [
    b"//",
    b"/api/v1/workflows//runs",
    b"/api/v1/workflows/%00/runs",
    b"/api/v1/workflows/%2e%2e/runs",
    b"/api/v1/workflows/../runs",
    b"/api/v1/workflows/%ff%fe/runs",
    b"/api/v1/workflows/a%2Fb/runs",
    b"/api/v1/workflows/" + b"w" * 5_000 + b"/runs",
    b"/api/v1/workflows/hello%0a/runs",
    b"/api/v1/runs/run_" + b"0" * 31 + b"%0a/cancel",
    b"/api/v1/runs/rec_00000000000000000000000000000000/cancel",
    b"/api/v1/jobs/lock/heartbeat",
    PATH + b"?",
    PATH + b"?idempotency_key=%ff",
    PATH + b"?idempotency_key=%ed%a0%80",
    PATH + b"?idempotency_key",
    PATH + b"?unknown=1",
    PATH + b"?a=1&" * 2_000,
    PATH + b"?%00=%00",
    PATH + b"?idempotency_key=a;b=c",
    b"/api/v1/runs?limit=0",
    b"/api/v1/runs?limit=-1",
    b"/api/v1/runs?limit=1e9",
    b"/api/v1/runs?limit=%D9%A3",
    b"/api/v1/runs?limit=" + b"9" * 5_000,
    b"/api/v1/runs?limit=1&limit=1",
    b"/api/v1/runs?cursor=%00",
    b"/api/v1/runs?cursor=" + b"A" * 5_000,
    b"/api/v1/runs?status=%00",
    b"/api/v1/runs?workflow_id=../x",
    b"/api/v1/records?scope=run&key=%00",
    b"/api/v1/records?key=" + b"k" * 5_000,
    b"/api/v1/approvals?status=no",
]


@pytest.mark.parametrize("method", [b"GET", b"POST"])
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.decode()[:60])
def test_hostile_addresses_are_answered(path: bytes, method: bytes, gateway: Gateway) -> None:
    check_known(exchange(gateway, post(path=path, method=method)))


@pytest.mark.parametrize("method", [b"DELETE", b"OPTIONS", b"PATCH", b"PUT", b"TRACE", b"PROPFIND"])
def test_a_method_that_an_address_does_not_take_is_refused(method: bytes, gateway: Gateway) -> None:
    assert code_of(exchange(gateway, post(method=method))) == "method_not_allowed"


NO_REQUESTS: dict[str, bytes] = {
    "noise": bytes(range(256)) * 8,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64,
    "another protocol": b"SSH-2.0-x\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an unknown method": b"BREW " + PATH + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a method in small letters": b"post " + PATH + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
    "a zero in a header": post(b"{}", (b"Idempotency-Key", b"a\0b")),
    "a header that steers terminals": post(b"{}", (b"X-Principal-Id", b"\x1b[2J")),
    "a new line in a header": post(b"{}", (b"Idempotency-Key", b"a\nb")),
    "a length below nothing": post(b"{}", (b"Content-Length", b"-1")),
    "a length in words": post(b"{}", (b"Content-Length", b"two")),
    "an endless length": post(b"{}", (b"Content-Length", b"9" * 40)),
    "two lengths": post(b"{}", (b"Content-Length", b"2"), (b"Content-Length", b"3")),
    "a length and chunks": post(b"0\r\n\r\n", (b"Content-Length", b"2"), (b"Transfer-Encoding", b"chunked")),
    "chunks that are none": post(b"zz\r\n{}\r\n0\r\n\r\n", (b"Transfer-Encoding", b"chunked")),
    "an endless chunk": post(b"f" * 40 + b"\r\n", (b"Transfer-Encoding", b"chunked")),
    "an unknown coding": post(b"{}", (b"Transfer-Encoding", b"sideways")),
    "less than was promised": post(b"{", (b"Content-Length", b"100")),
}


@pytest.mark.parametrize("request_", NO_REQUESTS.values(), ids=NO_REQUESTS.keys())
def test_what_is_no_request_starts_nothing(request_: bytes, gateway: Gateway) -> None:
    client = gateway.client(X_Tenant_ID=TENANT)
    before = run_ids(client)
    answer = exchange(gateway, request_, hangs_up=True)
    assert answer is None or answer.status in {*NOT_HTTP, 405}, answer
    assert run_ids(client) == before


def test_a_second_request_is_not_smuggled_in_with_the_first(gateway: Gateway) -> None:
    """What follows a body belongs to nobody's key but its own: lengths that disagree are refused."""
    tenant = new_tenant()
    client = gateway.client(X_Tenant_ID=tenant)
    define(client)
    inner = b"POST " + PATH + b" HTTP/1.1\r\nHost: x\r\nX-Tenant-ID: " + tenant.encode() + b"\r\n"
    inner += b"Content-Length: 2\r\n\r\n{}"
    for headers in (
        ((b"Content-Length", b"4"), (b"Transfer-Encoding", b"chunked")),
        ((b"Transfer-Encoding", b"chunked"), (b"Content-Length", str(5 + len(inner)).encode())),
        ((b"Content-Length", b"0"), (b"Content-Length", str(len(inner)).encode())),
    ):
        exchange(gateway, post(b"0\r\n\r\n" + inner, *headers), hangs_up=True)
    assert run_ids(client) == []


def test_clients_that_never_finish_their_requests_hinder_nobody(gateway: Gateway) -> None:
    client = gateway.client(X_Tenant_ID=TENANT)
    with ExitStack() as stack:
        for part in range(200):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
            slow.sendall(post(b'{"a": 1}')[: -1 - part % 100])
        before = len(run_ids(client))
        assert start_run(client, {}).status_code == 200
        assert len(run_ids(client)) == before + 1


# --- made up ------------------------------------------------------------------------------------------

_FUZZ = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])

_header_bytes = st.binary(max_size=300).filter(lambda value: not set(value) & {0, 10, 13})
_json_bytes = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
).map(lambda value: json.dumps(value).encode())


@_FUZZ
@given(name=st.sampled_from([b"Idempotency-Key", b"X-Tenant-ID", b"X-Principal-Id"]), value=_header_bytes)
def test_no_bytes_in_a_header_break_anything(gateway: Gateway, name: bytes, value: bytes) -> None:
    answer = exchange(gateway, post(b"{}", (name, value)))
    if answer is not None and answer.media.startswith("text/plain"):
        assert answer.status in NOT_HTTP  # control characters end at the parser of HTTP
        return
    check_known(answer)


@_FUZZ
@given(body=st.binary(max_size=300) | _json_bytes)
def test_no_bytes_in_a_body_break_anything(gateway: Gateway, body: bytes) -> None:
    assert code_of(exchange(gateway, post(body))) in {
        "started",
        "body_not_json",
        "request_invalid",
        "body_too_deep",
    }


@_FUZZ
@given(query=st.binary(max_size=100).map(lambda raw: "".join(f"%{byte:02x}" for byte in raw).encode()))
def test_no_bytes_in_a_query_break_anything(gateway: Gateway, query: bytes) -> None:
    assert code_of(exchange(gateway, post(path=PATH + b"?idempotency_key=" + query))) in {
        "started",
        "idempotency_key_invalid",
        "request_invalid",
    }


@_FUZZ
@given(body=_json_bytes, path=st.sampled_from(["/api/v1/workflows/w", "/api/v1/jobs", "/api/v1/leases"]))
def test_no_json_breaks_a_route_that_expects_its_own(gateway: Gateway, body: bytes, path: str) -> None:
    method = b"PUT" if "workflows" in path else b"POST"
    check_known(exchange(gateway, post(body, path=path.encode(), method=method)))


def test_a_schema_that_is_wrong_or_refers_elsewhere_breaks_no_start(gateway: Gateway) -> None:
    client: httpx.Client = gateway.client(X_Tenant_ID=new_tenant())
    for schema in (
        {"type": "nothing"},
        {"pattern": "("},
        {"$ref": 5},
        {"required": "all"},
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$ref": "#/nowhere"},
        {"$ref": "file:///etc/passwd"},
    ):
        answer = client.put("/api/v1/workflows/hello", json={"steps": [], "input_schema": schema})
        refused(answer, 400, "request_invalid")
    define(client, input_schema={"$ref": "#"})
    assert start_run(client, {"a": 1}).status_code < 500
