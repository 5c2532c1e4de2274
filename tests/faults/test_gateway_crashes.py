"""A gateway dies by SIGKILL, freezes or is left by its client, anywhere between request and answer.

Every test gives its tenant one slot. A slot that leaked, or a key that was poisoned, then shows at once: the
same key on another gateway would be told 429 or 409 for ever instead of starting the one run.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import httpx
import pytest

from semel.gateway.bodies import WAIT_S_MAX
from tests.faults.places import PLACES
from tests.gateway.conftest import define, limit, new_tenant, refused, start_run
from tests.gateway.serving import (
    ATOMIC_POINTS,
    CLEANUP_POINTS,
    LOCK_POINTS,
    Gateway,
    Gateways,
    Park,
    complete,
    crowd,
    one_crowd,
    persistent_start,
    run_ids,
    until,
)

STORES = [place.name for place in PLACES]
ATOMIC = ("--admission=atomic",)
# Short lives, so that what a dead process held is soon given up; longer than an admission takes.
LOCK = ("--admission=lock", "--lock-ttl=300ms", "--lock-wait=700ms")
STRATEGIES = {"atomic": ATOMIC, "lock": LOCK}

KEY = "order-1"


def everywhere(points: Iterable[str]) -> list[tuple[str, str]]:
    """Every point on every store."""
    return [(point, store) for point in points for store in STORES]


# From these points on the run exists.
CREATED = {
    "after create",
    "before release",
    "after release",
    "before answer",
    "within answer",
    "after answer",
}


def client_of(gateway: Gateway, tenant: str) -> httpx.Client:
    return gateway.client(X_Tenant_ID=tenant)


def one_slot(survivor: Gateway) -> httpx.Client:
    """A client of the gateway that lives on; its tenant has one slot."""
    client = client_of(survivor, new_tenant())
    define(client)
    limit(client, 1)
    return client


def lose(gateway: Gateway, tenant: str) -> httpx.Response | None:
    """The start that the gateway dies over; its answer if there was one."""
    try:
        return start_run(client_of(gateway, tenant), key=KEY)
    except httpx.TransportError:
        return None


def check_all_is_well(client: httpx.Client, run_id: str) -> None:
    """One run, the key repeats it, and its slot is free for another as soon as it has ended."""
    assert run_ids(client) == [run_id]
    refused(persistent_start(client, "order-2"), 429, "max_concurrent_runs_reached")
    complete(client, run_id)
    assert persistent_start(client, "order-2").status_code == 200
    again = persistent_start(client, KEY)
    assert (again.status_code, again.json()["run_id"]) == (200, run_id)
    assert again.headers["idempotent-replayed"] == "true"


# --- kill -9 -----------------------------------------------------------------------------------------


def killed_at(point: str, strategy: str, store: str, park: Park, begin: Gateways) -> None:
    flags = STRATEGIES[strategy]
    doomed = begin(park.store(store), *flags, fate=(point, "KILL"))
    client = one_slot(park.one(store, *flags))
    answered = lose(doomed, client.headers["x-tenant-id"])
    assert doomed.wait() == -signal.SIGKILL

    again = persistent_start(client, KEY)
    assert again.status_code == 200, again.text
    assert ("idempotent-replayed" in again.headers) == (point in CREATED)
    if answered is not None:
        assert (answered.status_code, answered.content) == (200, again.content)
    check_all_is_well(client, again.json()["run_id"])


@pytest.mark.parametrize(("point", "store"), everywhere(ATOMIC_POINTS))
def test_a_gateway_killed_anywhere_leaves_a_key_that_works(
    point: str, store: str, park: Park, begin: Gateways
) -> None:
    killed_at(point, "atomic", store, park, begin)


@pytest.mark.full
@pytest.mark.parametrize(("point", "store"), everywhere(LOCK_POINTS))
def test_a_gateway_killed_anywhere_around_its_lock_leaves_a_key_that_works(
    point: str, store: str, park: Park, begin: Gateways
) -> None:
    killed_at(point, "lock", store, park, begin)


@pytest.mark.parametrize(("point", "store"), everywhere(CLEANUP_POINTS))
def test_a_gateway_killed_over_a_refusal_leaves_a_key_that_works(
    point: str, store: str, park: Park, begin: Gateways
) -> None:
    doomed = begin(park.store(store), *LOCK, fate=(point, "KILL"))
    client = one_slot(park.one(store, *LOCK))
    first = persistent_start(client, "fills the slot").json()["run_id"]
    assert lose(doomed, client.headers["x-tenant-id"]) is None
    assert doomed.wait() == -signal.SIGKILL
    refused(persistent_start(client, KEY), 429, "max_concurrent_runs_reached")
    complete(client, first)
    again = persistent_start(client, KEY)
    assert again.status_code == 200, again.text
    assert set(run_ids(client)) == {first, again.json()["run_id"]}


# --- frozen ------------------------------------------------------------------------------------------


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.mark.full
@pytest.mark.parametrize(("slots", "store"), [(1, "sqlite"), *((2, store) for store in STORES)])
def test_a_lock_holder_frozen_past_its_lock_is_refused_when_it_wakes(
    slots: int, store: str, park: Park, begin: Gateways, pool: ThreadPoolExecutor
) -> None:
    """With room for both it is the lost lock that refuses it, with room for one the limit may too."""
    frozen = begin(park.store(store), *LOCK, fate=("before create", "STOP"))
    client = one_slot(park.one(store, *LOCK))
    limit(client, slots)
    late = client_of(frozen, client.headers["x-tenant-id"])
    pending = pool.submit(start_run, late, None, KEY)
    until(frozen.frozen, "the holder is frozen")

    # Whoever waits gets the lock once its life is over; nobody before.
    other = persistent_start(client, "order-2")
    assert other.status_code == 200, other.text
    frozen.send(signal.SIGCONT)
    refused(pending.result(), 503, "admission_gate_unavailable")
    assert run_ids(client) == [other.json()["run_id"]]

    complete(client, other.json()["run_id"])
    again = persistent_start(late, KEY)
    assert (again.status_code, "idempotent-replayed" in again.headers) == (200, False)
    assert run_ids(client, status="running") == [again.json()["run_id"]]


@pytest.mark.parametrize("store", STORES)
def test_a_key_whose_reserver_is_frozen_starts_one_run(
    store: str, park: Park, begin: Gateways, pool: ThreadPoolExecutor
) -> None:
    """The same key elsewhere is told to come back while the reservation lives, then starts the run."""
    frozen = begin(park.store(store), *LOCK, fate=("before create", "STOP"))
    client = one_slot(park.one(store, *LOCK))
    limit(client, 2)
    late = client_of(frozen, client.headers["x-tenant-id"])
    pending = pool.submit(start_run, late, None, KEY)
    until(frozen.frozen, "the holder is frozen")

    again = persistent_start(client, KEY)
    assert (again.status_code, "idempotent-replayed" in again.headers) == (200, False)
    frozen.send(signal.SIGCONT)
    refused(pending.result(), 503, "admission_gate_unavailable")
    assert run_ids(client) == [again.json()["run_id"]]
    # Its cleanup took nothing away that belongs to the other.
    repeated = persistent_start(late, KEY)
    assert (repeated.content, repeated.headers["idempotent-replayed"]) == (again.content, "true")


@pytest.mark.parametrize("store", STORES)
def test_an_atomic_gateway_frozen_before_its_commit_does_not_exceed_the_limit(
    store: str, park: Park, begin: Gateways, pool: ThreadPoolExecutor
) -> None:
    frozen = begin(park.store(store), *ATOMIC, fate=("before create", "STOP"))
    client = one_slot(park.one(store, *ATOMIC))
    pending = pool.submit(start_run, client_of(frozen, client.headers["x-tenant-id"]), None, "order-2")
    until(frozen.frozen, "the gateway is frozen")
    other = start_run(client, key=KEY)  # nobody waits for the frozen one
    assert other.status_code == 200, other.text
    frozen.send(signal.SIGCONT)
    refused(pending.result(), 429, "max_concurrent_runs_reached")
    check_all_is_well(client, other.json()["run_id"])


def test_while_a_lock_is_held_only_its_own_tenant_waits(
    park: Park, begin: Gateways, pool: ThreadPoolExecutor
) -> None:
    flags = ("--admission=lock", "--lock-ttl=10m", "--lock-wait=200ms")
    holder = begin(park.store("sqlite"), *flags, fate=("before create", "STOP"))
    survivor = park.one("sqlite", *flags)
    client, other = one_slot(survivor), one_slot(survivor)
    before = start_run(client, key="before")
    complete(client, before.json()["run_id"])
    pending = pool.submit(start_run, client_of(holder, client.headers["x-tenant-id"]), None, KEY)
    until(holder.frozen, "the lock is held")

    assert start_run(other, key=KEY).status_code == 200
    replay = start_run(client, key="before")
    assert (replay.content, replay.headers["idempotent-replayed"]) == (before.content, "true")
    problem = start_run(client, key="order-2")
    refused(problem, 503, "admission_gate_unavailable")
    assert int(problem.headers["retry-after"]) >= 1
    assert run_ids(client, status="running") == []

    holder.send(signal.SIGCONT)
    admitted = pending.result()
    assert admitted.status_code == 200, admitted.text
    complete(client, admitted.json()["run_id"])
    assert start_run(client, key="order-2").status_code == 200  # nothing was kept of the refusal


# --- clients that leave ------------------------------------------------------------------------------


def request_bytes(tenant: str, body: bytes, announced: int) -> bytes:
    return (
        f"POST /api/v1/workflows/hello/runs HTTP/1.1\r\nHost: localhost\r\nX-Tenant-ID: {tenant}\r\n"
        f"Idempotency-Key: {KEY}\r\nContent-Length: {announced}\r\n\r\n"
    ).encode() + body


BODY = b'{"order": 1}'


def leave_at_once(connection: socket.socket, sent: bytes) -> None:
    connection.sendall(sent)
    connection.close()


def leave_with_a_reset(connection: socket.socket, sent: bytes) -> None:
    connection.sendall(sent)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def leave_after_half_the_answer(connection: socket.socket, sent: bytes) -> None:
    connection.sendall(sent)
    connection.recv(10)
    connection.close()


def leave_without_listening_on(connection: socket.socket, sent: bytes) -> None:
    connection.sendall(sent)
    connection.shutdown(socket.SHUT_RDWR)
    connection.close()


WAYS_TO_LEAVE = [leave_at_once, leave_with_a_reset, leave_after_half_the_answer, leave_without_listening_on]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("leave", "store"),
    [*((leave, "sqlite") for leave in WAYS_TO_LEAVE), (leave_at_once, "redis"), (leave_at_once, "postgres")],
)
def test_a_client_that_leaves_finds_its_one_run_when_it_comes_back(
    leave, store: str, strategy: str, park: Park
) -> None:
    gateway, elsewhere = park.some(2, store, *STRATEGIES[strategy])
    for _ in range(3):
        client = one_slot(gateway)
        tenant = client.headers["x-tenant-id"]
        with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
            leave(connection, request_bytes(tenant, BODY, len(BODY)))
        again = persistent_start(client_of(elsewhere, tenant), KEY, {"order": 1})
        assert again.status_code == 200, again.text
        assert run_ids(client) == [again.json()["run_id"]]
        complete(client, again.json()["run_id"])
        assert persistent_start(client, "order-2").status_code == 200


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("part", [b"", BODY[:1], BODY[:-1], BODY])
def test_half_a_request_starts_nothing_and_spends_no_key(part: bytes, strategy: str, park: Park) -> None:
    gateway = park.one("sqlite", *STRATEGIES[strategy])
    client = one_slot(gateway)
    tenant = client.headers["x-tenant-id"]
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        # Longer by a byte than all of the body: even what reads as a whole one is not what was announced.
        connection.sendall(request_bytes(tenant, part, len(BODY) + 1))
    for _ in range(5):
        assert run_ids(client) == []
    # Another payload than the half one: a key that was kept would be 422 for it.
    started = start_run(client, {"order": 2}, KEY)
    assert (started.status_code, "idempotent-replayed" in started.headers) == (200, False)
    assert run_ids(client) == [started.json()["run_id"]]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_clients_that_come_and_go_by_the_dozen_leave_one_run_per_key_and_no_slot(
    strategy: str, park: Park
) -> None:
    gateway = park.one("sqlite", *STRATEGIES[strategy])
    client = client_of(gateway, new_tenant())
    define(client)
    limit(client, 3)
    tenant = client.headers["x-tenant-id"]
    for number in range(24):
        body = str(number).encode()
        request = request_bytes(tenant, b'{"n":' + body + b"}", 6 + len(body)).replace(b"order-1", body)
        with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
            WAYS_TO_LEAVE[number % len(WAYS_TO_LEAVE)](connection, request)
    admitted = {}
    for number in range(24):
        answer = persistent_start(client, str(number), {"n": number})
        if answer.status_code == 200:
            admitted[number] = answer.json()["run_id"]
    assert len(set(admitted.values())) == 3
    assert set(run_ids(client)) == set(admitted.values())


# --- SIGTERM -----------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    ("strategy", "store"), [("lock", "sqlite"), *(("atomic", store) for store in STORES)]
)
def test_a_stop_under_load_loses_no_answer_and_leaves_no_half_run(
    strategy: str, store: str, park: Park, begin: Gateways
) -> None:
    """All that was answered is there, and every key that was not answered works on the next gateway."""
    stopped = begin(park.store(store), *STRATEGIES[strategy])
    tenant = new_tenant()
    client = client_of(park.one(store, *STRATEGIES[strategy]), tenant)
    define(client)
    limit(client, 100_000)
    answers: dict[str, str] = {}
    unanswered: set[str] = set()
    asyncio.run(_load_until_gone(stopped, tenant, answers, unanswered))
    assert stopped.wait() == 0, stopped.said()
    assert "Stopped; everything that was answered is kept." in stopped.said()

    assert len(answers) >= _BEFORE_THE_STOP
    assert set(answers.values()) <= set(run_ids(client))
    for key in unanswered:
        answers[key] = persistent_start(client, key).json()["run_id"]
    assert sorted(run_ids(client)) == sorted(answers.values())


_BEFORE_THE_STOP = 30


async def _load_until_gone(
    gateway: Gateway, tenant: str, answers: dict[str, str], unanswered: set[str]
) -> None:
    """Eight callers start runs; once there are enough the gateway is asked to stop, and they go on."""
    numbers = count()
    path = f"{gateway.url}/api/v1/workflows/hello/runs"

    async def caller(client: httpx.AsyncClient) -> None:
        while True:
            key = f"load-{next(numbers)}"
            unanswered.add(key)
            try:
                answer = await client.post(path, json={}, headers={"Idempotency-Key": key})
            except httpx.TransportError:
                return
            if answer.status_code == 200:
                answers[key] = answer.json()["run_id"]
                unanswered.discard(key)
            if len(answers) == _BEFORE_THE_STOP:
                gateway.send(signal.SIGTERM)

    async with crowd(tenant) as client:
        await asyncio.gather(*(caller(client) for _ in range(8)))


def test_a_stop_answers_the_request_that_is_under_way(begin: Gateways, park: Park) -> None:
    """A worker that waits for jobs is answered early: its wait would outlast the patience of a stop."""
    gateway = begin(park.store("sqlite"), fate=("on request", "TERM"))
    body = {"topics": ["none"], "max": 1, "lease_s": 10, "wait_s": WAIT_S_MAX}
    answer = client_of(gateway, new_tenant()).post("/api/v1/leases", json=body, timeout=WAIT_S_MAX)
    assert (answer.status_code, answer.json()) == (200, {"jobs": []})
    assert gateway.wait() == 0


def test_a_stop_is_not_held_up_by_clients_that_only_hold_connections_open(
    begin: Gateways, park: Park
) -> None:
    gateway = begin(park.store("sqlite"))
    with socket.create_connection(("127.0.0.1", gateway.port)) as silent:
        silent.sendall(b"POST /api/v1/workflows/hello/runs HTTP/1.1\r\nHost: local")
        assert gateway.stop() == 0


# --- two at once -------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    ("strategy", "store"), [("atomic", "sqlite"), *(("lock", store) for store in STORES)]
)
def test_a_crowd_on_two_gateways_of_which_one_is_killed_keeps_the_limit(
    strategy: str, store: str, park: Park, begin: Gateways
) -> None:
    """Whatever the dead one admitted is found by its key; the rest of the slots goes to others, no more."""
    point = "after create" if strategy == "atomic" else "after lock"
    doomed = begin(park.store(store), *STRATEGIES[strategy], fate=(point, "KILL"))
    survivor = park.one(store, *STRATEGIES[strategy])
    client = one_slot(survivor)
    limit(client, 2)
    tenant = client.headers["x-tenant-id"]
    keys = [uuid.uuid4().hex for _ in range(10)]
    with pytest.raises(httpx.TransportError):
        one_crowd([doomed.url, survivor.url], keys, tenant)
    assert doomed.wait() == -signal.SIGKILL
    decided = [persistent_start(client, key) for key in keys]
    admitted = {answer.json()["run_id"] for answer in decided if answer.status_code == 200}
    assert {answer.status_code for answer in decided} == {200, 429}
    assert len(admitted) == 2
    assert set(run_ids(client)) == admitted
