"""`Prefer: wait=S`: a start waits for a slot, first come, first served, and leaves nothing if it gives up."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.flow import slot_queue
from semel.flow.bus import open_bus
from semel.gateway import preferences
from semel.gateway.server import embedded
from semel.gateway.settings import GatewaySettings
from semel.kernel.clock import SYSTEM
from semel.stores.base import Query
from semel.stores.documents import Commit
from semel.stores.memory import MemoryStore
from semel.testing import FlakyStore, WrappedStore
from tests.gateway.conftest import Serve, Served, define, limit, new_tenant, refused, start_run
from tests.gateway.serving import PATIENCE_S, complete, run_ids, until
from tests.nats_server import NatsServer
from tests.stores import KINDS, Kind

# Nobody is refused only because the machine is busy.
ATOMIC = {"admission": "atomic"}
LOCK = {"admission": "lock", "lock_wait_us": 60_000_000, "lock_ttl_us": 60_000_000}

COMBINATIONS = [(kind, how) for kind in KINDS for how in (ATOMIC, LOCK)]

# As long as the gateway waits for anybody. What is answered at once is answered in less, however busy it is.
LONG, AT_ONCE_S = "wait=30", 20.0

RUNS = "/api/v1/workflows/hello/runs"


@pytest.fixture(params=COMBINATIONS, ids=lambda how: f"{how[0].name}-{how[1]['admission']}")
def served(request: pytest.FixtureRequest, serve: Serve, tmp_path: Path) -> Served:
    kind, how = request.param
    return serve(kind.open(tmp_path, SYSTEM, True), dev=True, **how)


@pytest.fixture(params=[ATOMIC, LOCK], ids=lambda how: how["admission"])
def memory(request: pytest.FixtureRequest, serve: Serve) -> Served:
    return serve(dev=True, **request.param)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as threads:
        yield threads


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at the store by itself: only a message wakes."""
    monkeypatch.setattr(slot_queue, "_LOOK_S", 10 * PATIENCE_S)
    monkeypatch.setattr(slot_queue, "_LOOK_MAX_S", 10 * PATIENCE_S)


def client_of(served: Served, slots: int = 1) -> httpx.Client:
    client = served.client(X_Tenant_ID=new_tenant())
    define(client)
    limit(client, slots)
    return client


def start(
    client: httpx.Client, key: str, prefer: str = LONG, body: Any = None, name: str = "hello"
) -> httpx.Response:
    headers = {"Idempotency-Key": key, "Prefer": prefer}
    return client.post(f"/api/v1/workflows/{name}/runs", json=body or {}, headers=headers)


def at_once(client: httpx.Client, key: str, body: Any = None, name: str = "hello") -> httpx.Response:
    """A start that would wait for long, and has its answer much sooner."""
    headers = {"Idempotency-Key": key, "Prefer": LONG}
    path = f"/api/v1/workflows/{name}/runs"
    return client.post(path, json=body or {}, headers=headers, timeout=AT_ONCE_S)


def wait_for_waiters(served: Served, number: int) -> None:
    until(lambda: len(served.services.flow.slots) == number, f"{number} wait")


def wake(served: Served, client: httpx.Client) -> None:
    """As if a run of the tenant had ended."""
    loop = loop_of(served, client)
    loop.call_soon_threadsafe(served.services.flow.slots.freed, client.headers["x-tenant-id"])


def loop_of(served: Served, client: httpx.Client) -> asyncio.AbstractEventLoop:
    """The gateway's, while somebody of the tenant waits."""
    task = served.services.flow.slots._lines[client.headers["x-tenant-id"]].task
    assert task is not None
    return task.get_loop()


def begun(
    served: Served, pool: ThreadPoolExecutor, client: httpx.Client, key: str, **more: Any
) -> Future[httpx.Response]:
    """A start that waits by now."""
    before = len(served.services.flow.slots)
    pending = pool.submit(start, client, key, **more)
    wait_for_waiters(served, before + 1)
    return pending


def occupied(client: httpx.Client, name: str = "hello") -> str:
    """The id of the run that has the slot."""
    first = start_run(client, key=f"first of {name}", name=name)
    assert first.status_code == 200, first.text
    run_id: str = first.json()["run_id"]
    return run_id


# --- first come, first served ---------------------------------------------------------------------------


def test_twenty_waiters_for_one_slot_are_admitted_in_the_order_of_their_arrival(
    served: Served, pool: ThreadPoolExecutor
) -> None:
    client = client_of(served)
    first, order, active, most = occupied(client), list[int](), [1], [1]

    def one(number: int) -> int:
        answer = start(client, f"order-{number}")
        if answer.status_code == 200:
            order.append(number)
            active[0] += 1
            most[0] = max(most[0], active[0])
            active[0] -= 1
            complete(client, answer.json()["run_id"])
        return answer.status_code

    pending = []
    for number in range(20):
        pending.append(pool.submit(one, number))
        wait_for_waiters(served, number + 1)
    active[0] -= 1
    complete(client, first)
    assert [each.result(PATIENCE_S) for each in pending] == [200] * 20
    assert (order, most[0]) == (list(range(20)), 1)
    assert len(run_ids(client, status="succeeded")) == 21
    assert len(served.services.flow.slots) == 0


def test_several_slots_that_come_free_go_to_those_who_came_first(
    served: Served, pool: ThreadPoolExecutor
) -> None:
    client = client_of(served, 2)
    held = [start_run(client, key=f"held-{number}").json()["run_id"] for number in range(2)]
    pending = [begun(served, pool, client, f"order-{number}") for number in range(3)]
    for run_id in held:
        complete(client, run_id)
    assert [each.result(PATIENCE_S).status_code for each in pending[:2]] == [200, 200]
    assert not pending[2].done()
    assert len(run_ids(client, status="running")) == 2
    complete(client, pending[0].result().json()["run_id"])
    assert pending[2].result(PATIENCE_S).status_code == 200


def test_who_comes_later_and_does_not_wait_does_not_overtake(
    memory: Served, pool: ThreadPoolExecutor, deaf: None
) -> None:
    client, other = client_of(memory), client_of(memory)
    first = occupied(client)
    pending = begun(memory, pool, client, "order-1")
    memory.services.bus.run_ended = lambda _: None  # who waits does not hear that the slot is free
    complete(client, first)
    problem = refused(start_run(client, key="order-2"), 429, "max_concurrent_runs_reached")
    assert "The next slot is for a request that waits." in problem["detail"]
    assert start_run(other, key="order-2").status_code == 200  # another tenant is no concern of theirs
    wake(memory, client)
    assert pending.result(PATIENCE_S).status_code == 200


def test_waiters_of_a_full_workflow_are_passed_by_those_of_others(
    served: Served, pool: ThreadPoolExecutor
) -> None:
    client = client_of(served, 2)
    define(client, "narrow", max_concurrent_runs=1)
    narrow = occupied(client, "narrow")
    waits_for_workflow = begun(served, pool, client, "narrow-2", name="narrow")
    wide = at_once(client, "wide-1")  # the tenant has a slot, and the workflow has no limit
    assert wide.status_code == 200, wide.text
    refused(start_run(client, key="narrow-3", name="narrow"), 429, "max_concurrent_runs_reached")
    waits_for_tenant = begun(served, pool, client, "wide-2")
    complete(client, wide.json()["run_id"])
    assert waits_for_tenant.result(PATIENCE_S).status_code == 200
    assert not waits_for_workflow.done()
    complete(client, narrow)
    assert waits_for_workflow.result(PATIENCE_S).status_code == 200


def test_a_rerun_waits_as_well(memory: Served, pool: ThreadPoolExecutor) -> None:
    client = client_of(memory)
    define(client, "steps", {"id": "pay", "topic": "pay"})
    run_id = occupied(client, "steps")
    assert client.post(f"/api/v1/runs/{run_id}/cancel").status_code == 200
    other = occupied(client)
    pending = pool.submit(
        client.post, f"/api/v1/runs/{run_id}/rerun", json={"from_step": "pay"}, headers={"Prefer": LONG}
    )
    wait_for_waiters(memory, 1)
    complete(client, other)
    again = pending.result(PATIENCE_S)
    assert (again.status_code, again.headers["preference-applied"]) == (200, LONG)


# --- what needs no slot is not kept waiting -------------------------------------------------------------


def test_what_is_no_matter_of_slots_is_answered_at_once(served: Served, pool: ThreadPoolExecutor) -> None:
    client = client_of(served)
    define(client, "strict", input_schema={"type": "object", "required": ["order"]})
    first = start_run(client, {"order": 1}, "known")
    for somebody_waits in (False, True):
        if somebody_waits:
            pending = begun(served, pool, client, "waits")
        replayed = at_once(client, "known", {"order": 1})
        assert (replayed.content, replayed.headers["idempotent-replayed"]) == (first.content, "true")
        refused(at_once(client, "known", {"order": 2}), 422, "idempotency_key_reused")
        refused(at_once(client, "new", name="absent"), 404, "workflow_not_found")
        refused(at_once(client, "new", name="strict"), 400, "input_invalid")
    complete(client, first.json()["run_id"])
    assert pending.result(PATIENCE_S).status_code == 200


def test_two_requests_of_one_key_that_wait_are_one_run(served: Served, pool: ThreadPoolExecutor) -> None:
    client = client_of(served)
    first = occupied(client)
    one = begun(served, pool, client, "same")
    between = begun(served, pool, client, "between")
    other = begun(served, pool, client, "same")
    reused = begun(served, pool, client, "same", body={"another": "payload"})
    complete(client, first)
    admitted, replayed = one.result(PATIENCE_S), other.result(PATIENCE_S)
    assert (admitted.status_code, replayed.content) == (200, admitted.content)
    assert replayed.headers["idempotent-replayed"] == "true"
    refused(reused.result(PATIENCE_S), 422, "idempotency_key_reused")
    assert not between.done()
    complete(client, admitted.json()["run_id"])
    assert between.result(PATIENCE_S).status_code == 200


def test_a_slot_that_is_free_is_not_waited_for(served: Served) -> None:
    answer = at_once(client_of(served), "order-1")
    assert (answer.status_code, answer.headers["preference-applied"]) == (200, LONG)


# --- giving up ------------------------------------------------------------------------------------------


def test_when_time_is_up_nothing_is_kept(served: Served) -> None:
    client = client_of(served)
    first = occupied(client)
    answer = start(client, "order-1", "wait=1")
    problem = refused(answer, 429, "max_concurrent_runs_reached")
    assert (problem["current"], problem["limit"], problem["scope"]) == (1, 1, "tenant")
    assert answer.headers["preference-applied"] == "wait=1"
    assert int(answer.headers["retry-after"]) >= problem["retry_after_s"] > 0
    assert len(served.services.flow.slots) == 0
    complete(client, first)
    later = start(client, "order-1", body={"another": "payload"})
    assert (later.status_code, "idempotent-replayed" in later.headers) == (200, False)


def sent(served: Served, client: httpx.Client, key: str) -> socket.socket:
    """The connection on which a start waits."""
    connection = socket.create_connection(("127.0.0.1", int(served.url.rpartition(":")[2])))
    tenant = client.headers["x-tenant-id"]
    connection.sendall(
        f"POST {RUNS} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Tenant-ID: {tenant}\r\nIdempotency-Key: {key}\r\n"
        f"Prefer: wait=999999\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    )
    return connection


def test_a_client_that_goes_away_leaves_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preferences, "WAIT_MAX_S", 10 * PATIENCE_S)  # it is not its time that is up
    client = client_of(served)
    first = occupied(client)
    with sent(served, client, "order-1"):
        wait_for_waiters(served, 1)
    wait_for_waiters(served, 0)
    complete(client, first)
    assert run_ids(client) == [first]
    assert client.get("/api/v1/records", params={"scope": "run", "key": "order-1"}).json()["items"] == []
    later = start_run(client, {"another": "payload"}, "order-1")
    assert (later.status_code, "idempotent-replayed" in later.headers) == (200, False)


class Held(WrappedStore):
    """A store that holds the admission of one run back until it is told to go on."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.holds = False
        self.held, self.go_on = threading.Event(), threading.Event()

    async def aask(self, query: Query[Any]) -> Any:
        if self.holds and isinstance(query, Commit) and query.capacity:
            self.holds = False
            self.held.set()
            await asyncio.to_thread(self.go_on.wait, PATIENCE_S)
        return await super().aask(query)


@pytest.mark.parametrize("how", [ATOMIC, LOCK], ids=lambda how: how["admission"])
def test_a_client_that_goes_away_while_its_run_is_committed_finds_it_by_its_key(
    how: dict[str, Any], serve: Serve
) -> None:
    store = Held()
    served = serve(store, dev=True, **how)
    client = client_of(served)
    first = occupied(client)
    with sent(served, client, "order-1"):
        wait_for_waiters(served, 1)
        store.holds = True
        complete(client, first)
        assert store.held.wait(PATIENCE_S)
    store.go_on.set()
    wait_for_waiters(served, 0)
    (run_id,) = set(until(lambda: run_ids(client, status="running"), "it runs"))
    replayed = start_run(client, key="order-1")
    assert (replayed.json()["run_id"], replayed.headers["idempotent-replayed"]) == (run_id, "true")


@pytest.mark.parametrize("how", [ATOMIC, LOCK], ids=lambda how: how["admission"])
def test_who_gives_up_while_its_run_is_committed_is_told_of_the_run(
    how: dict[str, Any], serve: Serve, pool: ThreadPoolExecutor
) -> None:
    store = Held()
    served = serve(store, dev=True, **how)
    client = client_of(served)
    first = occupied(client)
    pending = begun(served, pool, client, "order-1")
    store.holds = True
    complete(client, first)
    assert store.held.wait(PATIENCE_S)
    loop_of(served, client).call_soon_threadsafe(served.services.stopping.set)
    assert client.get("/healthz").status_code == 200  # by now it has heard of the stop
    store.go_on.set()
    answer = pending.result(PATIENCE_S)
    assert (answer.status_code, [answer.json().get("run_id")]) == (200, run_ids(client, status="running"))


@pytest.mark.parametrize("how", [ATOMIC, LOCK], ids=lambda how: how["admission"])
def test_a_gateway_that_stops_sends_those_who_wait_elsewhere(
    how: dict[str, Any], pool: ThreadPoolExecutor
) -> None:
    with embedded(GatewaySettings(url="memory://", dev=True, **how), MemoryStore()) as (url, services):
        served = Served(url, services)
        client = client_of(served)
        occupied(client)
        pending = [begun(served, pool, client, f"order-{number}") for number in range(3)]
    for each in pending:
        answer = each.result(PATIENCE_S)
        refused(answer, 503, "gateway_stopping")
        assert int(answer.headers["retry-after"]) >= 1
    served.clients.close()


def test_a_store_that_goes_away_refuses_whoever_has_its_turn(serve: Serve, pool: ThreadPoolExecutor) -> None:
    store = FlakyStore(MemoryStore())
    served = serve(store, dev=True)
    client = client_of(served)
    first = occupied(client)
    one, two = begun(served, pool, client, "order-1"), begun(served, pool, client, "order-2")
    complete(client, first)
    run_id = one.result(PATIENCE_S).json()["run_id"]
    store.down = True
    wake(served, client)
    refused(two.result(PATIENCE_S), 503, "store_unavailable")
    store.down = False
    complete(client, run_id)


# --- bounds ---------------------------------------------------------------------------------------------


def test_who_would_be_one_too_many_is_refused_at_once(
    memory: Served, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_queue, "TENANT_WAITERS_MAX", 2)
    monkeypatch.setattr(slot_queue, "WAITERS_MAX", 3)
    one, two = client_of(memory), client_of(memory)
    first, second = occupied(one), occupied(two)
    pending = [begun(memory, pool, one, f"order-{number}") for number in range(2)]
    crowded = at_once(one, "order-2")
    refused(crowded, 429, "max_concurrent_runs_reached")
    assert "preference-applied" not in crowded.headers
    pending.append(begun(memory, pool, two, "order-0"))  # another tenant has a share of its own
    refused(at_once(two, "order-1"), 429, "max_concurrent_runs_reached")
    for client, run_id in ((one, first), (two, second)):
        complete(client, run_id)
    assert pending[0].result(PATIENCE_S).status_code == pending[2].result(PATIENCE_S).status_code == 200
    complete(one, pending[0].result().json()["run_id"])
    assert pending[1].result(PATIENCE_S).status_code == 200


def test_a_large_body_does_not_wait_since_others_wait_for_it(memory: Served) -> None:
    client = client_of(memory)
    occupied(client)
    answer = at_once(client, "order-1", {"text": "x" * 100_000})
    refused(answer, 429, "max_concurrent_runs_reached")
    assert "preference-applied" not in answer.headers


class Counting(WrappedStore):
    """A store that knows which commands of a tenant it is at, or has a transaction open for."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.under_way: list[str] = []
        self.asked = 0

    async def aask(self, query: Query[Any]) -> Any:
        tenant = getattr(query, "tenant", "")
        self.under_way.append(tenant)
        self.asked += tenant.startswith("t-")
        try:
            return await super().aask(query)
        finally:
            self.under_way.remove(tenant)


@pytest.mark.parametrize("how", [ATOMIC, LOCK], ids=lambda how: how["admission"])
def test_who_waits_holds_nothing_of_the_store(
    how: dict[str, Any], serve: Serve, pool: ThreadPoolExecutor, deaf: None
) -> None:
    store = Counting()
    served = serve(store, dev=True, **how)
    client = client_of(served)
    first = occupied(client)
    pending = [begun(served, pool, client, f"order-{number}") for number in range(5)]
    until(lambda: client.headers["x-tenant-id"] not in store.under_way, "nothing is asked any more")
    asked = store.asked
    assert client.get("/healthz").status_code == 200
    assert store.asked == asked
    for each in pending:
        complete(client, first)
        first = each.result(PATIENCE_S).json()["run_id"]


# --- what wakes -----------------------------------------------------------------------------------------


def test_a_run_that_ends_wakes_who_waits_without_a_look_at_the_store(
    served: Served, pool: ThreadPoolExecutor, deaf: None
) -> None:
    client = client_of(served)
    first = occupied(client)
    pending = begun(served, pool, client, "order-1")
    complete(client, first)
    assert pending.result(PATIENCE_S).status_code == 200


def a_run_ends_there(client: httpx.Client, run_id: str) -> None:
    complete(client, run_id)


def the_limit_is_raised_there(client: httpx.Client, run_id: str) -> None:
    limit(client, 2)


@pytest.mark.parametrize("happens", [a_run_ends_there, the_limit_is_raised_there])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.shared], ids=lambda kind: kind.name)
def test_what_happens_at_another_gateway_of_the_store_is_noticed(
    kind: Kind,
    happens: Callable[[httpx.Client, str], None],
    serve: Serve,
    tmp_path: Path,
    pool: ThreadPoolExecutor,
) -> None:
    one, other = (serve(kind.open(tmp_path, SYSTEM, True), dev=True) for _ in range(2))
    client = client_of(one)
    there = other.client(X_Tenant_ID=client.headers["x-tenant-id"])
    first = occupied(client)
    pending = begun(one, pool, client, "order-1")
    happens(there, first)
    assert pending.result(PATIENCE_S).status_code == 200


@pytest.mark.full
def test_another_gateway_tells_over_the_bus(
    serve: Serve, tmp_path: Path, pool: ThreadPoolExecutor, deaf: None
) -> None:
    nats, sqlite = NatsServer(), next(kind for kind in KINDS if kind.name == "sqlite")
    try:
        nats.start()
        one, other = (
            serve(sqlite.open(tmp_path, SYSTEM, True), bus=open_bus(nats.url(), SYSTEM), dev=True)
            for _ in range(2)
        )
        client = client_of(one)
        there = other.client(X_Tenant_ID=client.headers["x-tenant-id"])
        first = occupied(client)
        pending = begun(one, pool, client, "order-1")
        complete(there, first)
        assert pending.result(PATIENCE_S).status_code == 200
    finally:
        nats.remove()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.shared], ids=lambda kind: kind.name)
def test_waiters_at_two_gateways_are_never_more_than_the_limit(
    kind: Kind, serve: Serve, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    both = [serve(kind.open(tmp_path, SYSTEM, True), dev=True) for _ in range(2)]
    client = client_of(both[0])
    tenant = client.headers["x-tenant-id"]
    clients = [each.client(X_Tenant_ID=tenant) for each in both]
    first, lock, active, most = occupied(client), threading.Lock(), [0], [0]

    def one(number: int) -> int:
        answer = start(clients[number % 2], f"order-{number}")
        if answer.status_code == 200:
            with lock:
                active[0] += 1
                most[0] = max(most[0], active[0])
            with lock:
                active[0] -= 1
            complete(clients[number % 2], answer.json()["run_id"])
        return answer.status_code

    pending = [pool.submit(one, number) for number in range(10)]
    until(lambda: sum(len(each.services.flow.slots) for each in both) == 10, "all wait")
    complete(client, first)
    assert [each.result(PATIENCE_S) for each in pending] == [200] * 10
    assert most[0] == 1
