"""What a request may say: sizes, names, values."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from semel.flow.problems import Refused
from semel.gateway.incoming import BODY_BYTES_MAX, Disconnected, Incoming
from tests.gateway.conftest import define, refused, start_run


class Wire:
    """A client's bytes as a server hands them over, piece by piece."""

    def __init__(self, *pieces: bytes, whole: bool = True) -> None:
        self.taken = 0
        last = len(pieces) - 1
        self._messages: list[dict[str, Any]] = [
            {"type": "http.request", "body": piece, "more_body": number < last or not whole}
            for number, piece in enumerate(pieces)
        ]

    async def receive(self) -> dict[str, Any]:
        self.taken += 1
        return self._messages.pop(0) if self._messages else {"type": "http.disconnect"}

    def request(self, **headers: str) -> Incoming:
        sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        return Incoming({"method": "POST", "headers": sent, "query_string": b""}, self.receive)


def with_headers(*headers: tuple[bytes, bytes]) -> Incoming:
    return Incoming({"method": "POST", "headers": list(headers), "query_string": b""}, Wire().receive)


def test_a_header_that_is_given_twice_has_two_values_and_a_first_one() -> None:
    request = with_headers((b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
    assert request.header(b"a") == b"1"
    assert list(request.header_values(b"a")) == [b"1", b"3"]
    assert list(request.header_values(b"b")) == [b"2"]
    assert list(request.header_values(b"c")) == []


def test_one_key_in_two_headers_of_the_same_name_is_one_and_two_are_refused() -> None:
    name = b"idempotency-key"
    assert with_headers((name, b"k"), (b"x-" + name, b"k"), (name, b'"k"')).idempotency_key() == "k"
    with pytest.raises(Refused, match="twice"):
        with_headers((name, b"k"), (name, b"l")).idempotency_key()


def test_a_body_is_put_together_from_its_pieces() -> None:
    assert asyncio.run(Wire(b"ab", b"", b"c").request().body()) == b"abc"


def test_a_body_that_announces_too_much_is_not_read_at_all() -> None:
    wire = Wire(b"x")
    with pytest.raises(Refused) as refusal:
        asyncio.run(wire.request(content_length=str(BODY_BYTES_MAX + 1)).body())
    assert (refusal.value.code, wire.taken) == ("body_too_large", 0)


def test_a_body_without_an_announcement_is_read_up_to_the_bound_and_no_further() -> None:
    piece = b"x" * (1 << 20)
    wire = Wire(*[piece] * 100)
    with pytest.raises(Refused) as refusal:
        asyncio.run(wire.request().body())
    assert (refusal.value.code, wire.taken) == ("body_too_large", 3)


def test_a_body_of_exactly_the_bound_is_read() -> None:
    assert len(asyncio.run(Wire(b"x" * BODY_BYTES_MAX).request().body())) == BODY_BYTES_MAX


def test_a_client_that_leaves_in_the_middle_has_asked_for_nothing() -> None:
    with pytest.raises(Disconnected):
        asyncio.run(Wire(b'{"a":', whole=False).request().body())


def test_a_large_body_is_refused_over_http_announced_or_not(dev: httpx.Client) -> None:
    define(dev)
    large = b'{"a": "' + b"x" * BODY_BYTES_MAX + b'"}'
    refused(dev.post("/api/v1/workflows/hello/runs", content=large), 413, "body_too_large")
    chunked = (large[at : at + 65_536] for at in range(0, len(large), 65_536))
    refused(dev.post("/api/v1/workflows/hello/runs", content=chunked), 413, "body_too_large")
    assert dev.get("/api/v1/runs").json()["items"] == []


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "body_not_json"),
        (b"no", 400, "body_not_json"),
        (b'{"a": NaN}', 400, "body_not_json"),
        (b'{"a": 1, "a": 2}', 400, "body_not_json"),
        (b"[" * 65 + b"]" * 65, 400, "body_too_deep"),
        (b"[]", 400, "request_invalid"),
        (b'"text"', 400, "request_invalid"),
        (b"null", 400, "request_invalid"),
    ],
)
def test_a_body_that_is_no_object_starts_nothing(
    dev: httpx.Client, body: bytes, status: int, code: str
) -> None:
    define(dev)
    refused(dev.post("/api/v1/workflows/hello/runs", content=body), status, code)
    assert dev.get("/api/v1/runs").json()["items"] == []


def test_sixty_four_levels_of_input_are_kept_as_they_are(client: httpx.Client) -> None:
    define(client)
    deep: Any = {}
    for _ in range(63):
        deep = {"a": deep}
    run_id = start_run(client, deep, "deep").json()["run_id"]
    assert client.get(f"/api/v1/runs/{run_id}").json()["input"] == deep


@pytest.mark.parametrize(
    ("method", "path", "body", "name"),
    [
        ("GET", "/api/v1/runs?colour=red", None, "colour"),
        ("GET", "/api/v1/runs?limit=1&limit=2", None, "limit"),
        ("GET", "/api/v1/runs?limit=0", None, "limit"),
        ("GET", "/api/v1/runs?limit=201", None, "limit"),
        ("GET", "/api/v1/runs?limit=many", None, "limit"),
        ("GET", "/api/v1/runs?status=asleep", None, "status"),
        ("GET", "/api/v1/runs?workflow_id=.x", None, "workflow_id"),
        ("GET", "/api/v1/runs?idempotency_key=a", None, "idempotency_key"),
        ("GET", "/api/v1/records?scope=all", None, "scope"),
        ("POST", "/api/v1/workflows/hello/runs?colour=red", {}, "colour"),
        ("PUT", "/api/v1/workflows/hello", {"steps": [], "colour": "red"}, "colour"),
        ("PUT", "/api/v1/workflows/hello", {}, "steps"),
        ("PUT", "/api/v1/workflows/hello", {"steps": [{"id": "a", "topic": "t", "x": 1}]}, "steps.0.x"),
        ("PUT", "/api/v1/workflows/hello", {"steps": [{"id": "a b", "topic": "t"}]}, "steps.0.id"),
        ("PUT", "/api/v1/workflows/hello", {"steps": [], "max_concurrent_runs": "5"}, "max_concurrent_runs"),
        ("PUT", "/api/v1/workflows/hello", {"steps": [], "max_concurrent_runs": 0}, "max_concurrent_runs"),
        ("PUT", "/api/v1/workflows/-hello", {"steps": []}, "workflow_id"),
        ("PUT", "/api/v1/tenants/a%20b", {"max_concurrent_runs": 1}, "tenant"),
        ("PUT", "/api/v1/tenants/default", {"max_concurrent_runs": True}, "max_concurrent_runs"),
        ("POST", "/api/v1/leases", {"topics": [], "max": 1, "lease_s": 1}, "topics"),
        ("POST", "/api/v1/leases", {"topics": ["t"], "max": 0, "lease_s": 1}, "max"),
        ("POST", "/api/v1/leases", {"topics": ["t"], "max": 1, "lease_s": -1}, "lease_s"),
        ("POST", "/api/v1/jobs", {"topic": "t"}, "input"),
        ("POST", "/api/v1/jobs", {"topic": "t", "input": 1, "labels": {"a": 1}}, "labels.a"),
    ],
)  # fmt: skip
def test_what_a_route_does_not_take_is_refused_by_name(dev: httpx.Client, method, path, body, name) -> None:
    problem = refused(dev.request(method, path, json=body), 400, "request_invalid")
    assert name in problem["names"] or name in problem["detail"]


def test_a_wrong_duration_of_an_approval_is_refused(dev: httpx.Client) -> None:
    step = {"id": "a", "topic": "t", "approval": {"expires_in": "soon"}}
    refused(dev.put("/api/v1/workflows/hello", json={"steps": [step]}), 400, "request_invalid")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/v1/runs/run_x", "run_not_found"),
        ("/api/v1/runs/job_" + "0" * 32, "run_not_found"),
        ("/api/v1/runs/run_" + "0" * 32, "run_not_found"),
        ("/api/v1/runs/" + "x" * 2000, "run_not_found"),
        ("/api/v1/jobs/run_" + "0" * 32, "job_not_found"),
        ("/api/v1/approvals/%00", "job_not_found"),
        ("/api/v1/records/rec_" + "0" * 32, "record_not_found"),
        ("/api/v1/workflows/unheard-of", "workflow_not_found"),
    ],
)
def test_an_id_that_nothing_can_have_is_an_unknown_one(dev: httpx.Client, path: str, code: str) -> None:
    refused(dev.get(path), 404, code)


def test_the_refusal_of_a_value_does_not_repeat_it(dev: httpx.Client) -> None:
    body = {"steps": [], "max_concurrent_runs": "canary-4711"}
    assert "canary-4711" not in dev.put("/api/v1/workflows/hello", json=body).text
