"""Every row of the table "starting a run", over HTTP, on every store, with both strategies."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.faults.places import PLACES
from tests.gateway.conftest import define, limit, new_tenant, refused, start_run
from tests.gateway.serving import (
    PATIENCE_S,
    Gateway,
    Gateways,
    Park,
    complete,
    persistent_start,
    run_ids,
    until,
)
from tests.proxy import Proxy

STORES = [place.name for place in PLACES]

# A holder of the lock that is frozen keeps it for longer than the test lasts; nobody waits long for it.
HELD = ("--admission=lock", "--lock-ttl=10m", "--lock-wait=200ms")
# Nobody is refused only because the machine is busy.
PATIENT = ("--admission=lock", "--lock-wait=30s", "--lock-ttl=30s")

COMBINATIONS = [(store, flags) for store in STORES for flags in (("--admission=atomic",), PATIENT)]

KEY = "order-1"


@pytest.fixture(params=COMBINATIONS, ids=lambda how: f"{how[0]}-{how[1][0].rpartition('=')[2]}")
def gateway(request: pytest.FixtureRequest, park: Park) -> Gateway:
    store, flags = request.param
    return park.one(store, *flags)


@pytest.fixture
def client(gateway: Gateway) -> httpx.Client:
    """A tenant of its own with the workflow `hello`."""
    return client_of(gateway)


def client_of(gateway: Gateway, tenant: str | None = None) -> httpx.Client:
    client = gateway.client(X_Tenant_ID=tenant or new_tenant())
    define(client)
    return client


def records(client: httpx.Client, key: str) -> list[Any]:
    found = client.get("/api/v1/records", params={"scope": "run", "key": key})
    assert found.status_code == 200, found.text
    items: list[Any] = found.json()["items"]
    return items


def check_replay(answer: httpx.Response, first: httpx.Response) -> None:
    assert (answer.status_code, answer.content) == (200, first.content)
    assert answer.headers["idempotent-replayed"] == "true"


def check_nothing_was_kept(client: httpx.Client, key: str) -> None:
    """Not even a fingerprint: a new payload may have the key."""
    assert records(client, key) == []
    started = persistent_start(client, key, {"another": "payload"})
    assert (started.status_code, "idempotent-replayed" in started.headers) == (200, False)


# --- admitted -----------------------------------------------------------------------------------------


def test_an_admitted_start_is_answered_with_the_run(client: httpx.Client) -> None:
    started = start_run(client, {"order": 1}, KEY)
    assert started.status_code == 200
    assert started.headers["content-type"] == "application/json"
    assert "idempotent-replayed" not in started.headers
    run_id = started.json()["run_id"]
    assert started.json() == {"run_id": run_id, "workflow_id": "hello", "status": "running"}
    run = client.get(f"/api/v1/runs/{run_id}").json()
    assert (run["status"], run["input"]) == ("running", {"order": 1})
    (record,) = records(client, KEY)
    assert (record["run_id"], record["state"]) == (run_id, "done")


def test_without_a_key_each_start_is_a_run(client: httpx.Client) -> None:
    first, second = start_run(client), start_run(client)
    assert (first.status_code, second.status_code) == (200, 200)
    assert set(run_ids(client)) == {first.json()["run_id"], second.json()["run_id"]}
    assert len(run_ids(client)) == 2


# --- same key, same payload ---------------------------------------------------------------------------


def the_run_ends(client: httpx.Client, run_id: str) -> None:
    complete(client, run_id)


def the_run_is_cancelled(client: httpx.Client, run_id: str) -> None:
    assert client.post(f"/api/v1/runs/{run_id}/cancel").status_code == 200


def the_tenant_is_full(client: httpx.Client, run_id: str) -> None:
    limit(client, 1)
    refused(start_run(client, key="another"), 429, "max_concurrent_runs_reached")


def the_schema_changes(client: httpx.Client, run_id: str) -> None:
    define(client, input_schema={"type": "object", "required": ["never"]})
    refused(start_run(client, {"order": 2}, "another"), 400, "input_invalid")


def the_workflow_is_deleted(client: httpx.Client, run_id: str) -> None:
    assert client.delete("/api/v1/workflows/hello").status_code == 200
    refused(start_run(client, key="another"), 404, "workflow_not_found")


def all_of_it(client: httpx.Client, run_id: str) -> None:
    the_tenant_is_full(client, run_id)
    the_run_ends(client, run_id)
    the_schema_changes(client, run_id)
    the_workflow_is_deleted(client, run_id)


@pytest.mark.parametrize(
    "happens",
    [
        lambda client, run_id: None,
        the_run_ends,
        the_run_is_cancelled,
        the_tenant_is_full,
        the_schema_changes,
        the_workflow_is_deleted,
        all_of_it,
    ],
)
def test_the_same_request_is_answered_to_the_byte_whatever_happened_since(
    happens: Callable[[httpx.Client, str], None], client: httpx.Client
) -> None:
    first = start_run(client, {"order": 1}, KEY)
    happens(client, first.json()["run_id"])
    check_replay(start_run(client, {"order": 1}, KEY), first)
    assert run_ids(client) == [first.json()["run_id"]]


def test_the_payload_is_compared_as_a_value_not_as_text(client: httpx.Client) -> None:
    path, headers = "/api/v1/workflows/hello/runs", {"Idempotency-Key": KEY}
    first = client.post(path, content=b'{"a":1,"b":[true,"\\u00e9"]}', headers=headers)
    again = client.post(path, content=' { "b": [true, "é"], "a": 1 } '.encode(), headers=headers)
    check_replay(again, first)


@pytest.mark.parametrize("store", STORES)
def test_a_replay_on_another_gateway_with_the_other_strategy_is_the_same_to_the_byte(
    store: str, park: Park
) -> None:
    client = client_of(park.one(store, "--admission=atomic"))
    tenant = client.headers["x-tenant-id"]
    elsewhere = park.one(store, *PATIENT).client(X_Tenant_ID=tenant)
    first, second = start_run(client, key=KEY), start_run(elsewhere, key="order-2")
    check_replay(start_run(elsewhere, key=KEY), first)
    check_replay(start_run(client, key="order-2"), second)


# --- same key, other payload; other tenant ------------------------------------------------------------


def test_another_payload_or_workflow_is_refused_and_told_nothing(client: httpx.Client) -> None:
    define(client, "other")
    first = start_run(client, {"order": 1}, KEY)
    for answer in (
        start_run(client, {"order": 2}, KEY),
        start_run(client, {}, KEY),
        start_run(client, {"order": "1"}, KEY),
        start_run(client, {"order": 1}, KEY, "other"),
    ):
        problem = refused(answer, 422, "idempotency_key_reused")
        assert problem["retriable"] is False
        assert first.json()["run_id"] not in answer.text
        assert "idempotent-replayed" not in answer.headers
    assert run_ids(client) == [first.json()["run_id"]]


def test_reuse_is_told_before_workflow_schema_and_slot(client: httpx.Client) -> None:
    first = start_run(client, {"order": 1}, KEY)
    all_of_it(client, first.json()["run_id"])
    refused(start_run(client, {"order": 2}, KEY), 422, "idempotency_key_reused")


def test_the_same_key_in_another_tenant_is_unrelated(gateway: Gateway) -> None:
    one, two = client_of(gateway), client_of(gateway)
    limit(one, 1)
    limit(two, 1)
    first, second = start_run(one, {"of": "one"}, KEY), start_run(two, {"of": "two"}, KEY)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["run_id"] != second.json()["run_id"]
    check_replay(start_run(one, {"of": "one"}, KEY), first)
    check_replay(start_run(two, {"of": "two"}, KEY), second)
    assert (run_ids(one), run_ids(two)) == ([first.json()["run_id"]], [second.json()["run_id"]])
    assert two.get(f"/api/v1/runs/{first.json()['run_id']}").status_code == 404


# --- being admitted right now -------------------------------------------------------------------------


@contextmanager
def frozen_over_a_start(
    begin: Gateways, park: Park, store: str, tenant: str, point: str
) -> Iterator[Callable[[], httpx.Response]]:
    """A start with KEY is under way on a frozen gateway; what is given thaws it and has its answer."""
    frozen = begin(park.store(store), *HELD, fate=(point, "STOP"))
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(start_run, frozen.client(X_Tenant_ID=tenant), {"order": 1}, KEY)
        until(frozen.frozen, "the start is under way")

        def thaw() -> httpx.Response:
            frozen.send(signal.SIGCONT)
            answer: httpx.Response = pending.result(PATIENCE_S)
            return answer

        try:
            yield thaw
        finally:
            frozen.send(signal.SIGCONT)


@pytest.mark.parametrize("store", STORES)
def test_a_key_that_is_being_admitted_is_in_flight(store: str, park: Park, begin: Gateways) -> None:
    client = client_of(park.one(store, *HELD))
    tenant = client.headers["x-tenant-id"]
    with frozen_over_a_start(begin, park, store, tenant, "after reserve") as thaw:
        answer = start_run(client, {"order": 1}, KEY)
        assert refused(answer, 409, "idempotency_in_flight")["retriable"] is True
        assert int(answer.headers["retry-after"]) >= 1
        refused(start_run(client, {"order": 2}, KEY), 422, "idempotency_key_reused")
        assert run_ids(client) == []
        first = thaw()
        assert first.status_code == 200, first.text
        check_replay(start_run(client, {"order": 1}, KEY), first)


# --- no gate, no store --------------------------------------------------------------------------------


@pytest.mark.parametrize("store", STORES)
def test_without_the_gate_nothing_is_kept(store: str, park: Park, begin: Gateways) -> None:
    client = client_of(park.one(store, *HELD))
    tenant = client.headers["x-tenant-id"]
    before = start_run(client, {"order": 0}, "before")
    with frozen_over_a_start(begin, park, store, tenant, "before create") as thaw:
        answer = start_run(client, {"order": 2}, "order-2")
        assert refused(answer, 503, "admission_gate_unavailable")["retriable"] is True
        assert int(answer.headers["retry-after"]) >= 1
        assert records(client, "order-2") == []
        check_replay(start_run(client, {"order": 0}, "before"), before)  # needs no gate
        assert thaw().status_code == 200
    check_nothing_was_kept(client, "order-2")


@contextmanager
def away(
    park: Park, begin: Gateways, store: str, flags: tuple[str, ...]
) -> Iterator[tuple[Gateway, Any, Any]]:
    """A gateway whose store can be taken away, and given back."""
    url = park.store(store)
    if store == "sqlite":
        gateway = begin(url, *flags)
        blocker = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        yield gateway, lambda: blocker.execute("BEGIN IMMEDIATE"), lambda: blocker.execute("ROLLBACK")
        blocker.close()
        return
    port = url.partition("127.0.0.1:")[2].partition("?")[0].partition("/")[0]
    proxy = Proxy(int(port))

    def take() -> None:
        proxy.refuses = True
        proxy.cut()

    yield begin(url.replace(port, str(proxy.port), 1), *flags), take, proxy.restore
    proxy.close()


@pytest.mark.full
@pytest.mark.parametrize(
    ("store", "flags"),
    [("sqlite", PATIENT), ("redis", ("--admission=atomic",)), ("postgres", ("--admission=atomic",))],
)
def test_without_the_store_nothing_is_kept_and_service_resumes(
    store: str, flags: tuple[str, ...], park: Park, begin: Gateways
) -> None:
    with away(park, begin, store, flags) as (gateway, take, give_back):
        client = client_of(gateway)
        assert start_run(client, key="before").status_code == 200
        take()
        answer = start_run(client, {"order": 1}, KEY)
        assert refused(answer, 503, "store_unavailable")["retriable"] is True
        assert int(answer.headers["retry-after"]) >= 1
        give_back()
        check_nothing_was_kept(client, KEY)
        assert len(run_ids(client)) == 2


# --- no slot ------------------------------------------------------------------------------------------


def test_without_a_slot_nothing_is_kept(client: httpx.Client) -> None:
    limit(client, 1)
    first = start_run(client, key="first").json()["run_id"]
    answer = start_run(client, {"order": 1}, KEY)
    problem = refused(answer, 429, "max_concurrent_runs_reached")
    assert (problem["current"], problem["limit"], problem["scope"]) == (1, 1, "tenant")
    assert problem["retriable"] is True
    assert int(answer.headers["retry-after"]) >= 1
    assert records(client, KEY) == []
    complete(client, first)
    check_nothing_was_kept(client, KEY)


def test_after_a_refusal_the_same_request_starts_once_a_slot_is_free(client: httpx.Client) -> None:
    limit(client, 1)
    first = start_run(client, key="first").json()["run_id"]
    for _ in range(3):
        refused(start_run(client, {"order": 1}, KEY), 429, "max_concurrent_runs_reached")
    complete(client, first)
    started = start_run(client, {"order": 1}, KEY)
    assert (started.status_code, "idempotent-replayed" in started.headers) == (200, False)
    check_replay(start_run(client, {"order": 1}, KEY), started)
    assert set(run_ids(client)) == {first, started.json()["run_id"]}


def test_a_workflow_has_slots_of_its_own(client: httpx.Client) -> None:
    define(client, "narrow", max_concurrent_runs=1)
    first = start_run(client, key="first", name="narrow").json()["run_id"]
    problem = refused(start_run(client, key=KEY, name="narrow"), 429, "max_concurrent_runs_reached")
    assert (problem["current"], problem["limit"], problem["scope"]) == (1, 1, "workflow")
    assert start_run(client, key="elsewhere").status_code == 200
    complete(client, first)
    assert start_run(client, key=KEY, name="narrow").status_code == 200


def test_a_run_that_waits_for_a_person_holds_its_slot(client: httpx.Client) -> None:
    define(client, "gated", {"id": "pay", "topic": "pay", "approval": True})
    limit(client, 1)
    waiting = start_run(client, key="first", name="gated").json()
    assert waiting["status"] == "waiting"
    refused(start_run(client, key=KEY), 429, "max_concurrent_runs_reached")
    assert client.post(f"/api/v1/runs/{waiting['run_id']}/cancel").status_code == 200
    assert start_run(client, key=KEY).status_code == 200


def test_a_wrong_input_is_told_before_the_missing_slot(client: httpx.Client) -> None:
    define(client, "strict", input_schema={"type": "object", "required": ["order"]})
    limit(client, 1)
    start_run(client, key="first")
    refused(start_run(client, {}, KEY, "strict"), 400, "input_invalid")
    refused(start_run(client, {"order": 1}, KEY, "strict"), 429, "max_concurrent_runs_reached")
    refused(start_run(client, {}, KEY, "absent"), 404, "workflow_not_found")
    assert records(client, KEY) == []


# --- keys that cannot be used -------------------------------------------------------------------------

WRONG_KEYS: dict[str, list[tuple[bytes, bytes]]] = {
    "empty": [(b"Idempotency-Key", b"")],
    "empty quotes": [(b"Idempotency-Key", b'""')],
    "256 bytes": [(b"Idempotency-Key", b"k" * 256)],
    "256 bytes of UTF-8": [(b"Idempotency-Key", "é".encode() * 128)],
    "a tab inside": [(b"Idempotency-Key", b"a\tb")],
    "no UTF-8": [(b"Idempotency-Key", b"\xff\xfe")],
    "two headers": [(b"Idempotency-Key", b"a"), (b"Idempotency-Key", b"b")],
    "two names": [(b"Idempotency-Key", b"a"), (b"X-Idempotency-Key", b"b")],
    "one of two is empty": [(b"Idempotency-Key", b"a"), (b"X-Idempotency-Key", b"")],
}


@pytest.mark.parametrize("headers", WRONG_KEYS.values(), ids=WRONG_KEYS.keys())
def test_a_key_that_cannot_be_used_is_refused(
    headers: list[tuple[bytes, bytes]], client: httpx.Client
) -> None:
    answer = client.post("/api/v1/workflows/hello/runs", json={}, headers=headers)
    assert refused(answer, 400, "idempotency_key_invalid")["retriable"] is False
    assert run_ids(client) == []


@pytest.mark.parametrize("query", ["", "%20", "%00", "a%0Ab", "a%C2%85b", "k" * 256, "a&idempotency_key=b"])
def test_a_key_in_the_query_that_cannot_be_used_is_refused(query: str, client: httpx.Client) -> None:
    answer = client.post(f"/api/v1/workflows/hello/runs?idempotency_key={query}", json={})
    refused(answer, 400, "idempotency_key_invalid")
    assert run_ids(client) == []


def test_a_key_of_255_bytes_works_in_every_place(client: httpx.Client) -> None:
    key = "k" * 255
    path = "/api/v1/workflows/hello/runs"
    first = client.post(path, json={}, headers={"Idempotency-Key": key})
    assert first.status_code == 200, first.text
    check_replay(client.post(path, json={}, headers={"X-Idempotency-Key": f'"{key}"'}), first)
    check_replay(client.post(path, json={}, params={"idempotency_key": key}), first)
