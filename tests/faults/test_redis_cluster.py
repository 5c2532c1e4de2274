"""A store that is spread over three servers: lanes side by side, each with its own order and chain."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.audit.duplicate_report import find_duplicates
from semel.audit.events import GENESIS, Event, chain, fold, new_event, told_by
from semel.audit.verify import verify
from semel.errors import StoreCorrupt, StoreUnavailable
from semel.kernel.clock import SYSTEM, Clock
from semel.kernel.record import Address, State
from semel.stores.base import (
    AppendEvents,
    CountRecords,
    FindRecord,
    ListRecords,
    Query,
    ReadEvents,
    ReadSeals,
    Sweep,
)
from semel.stores.redis.nodes import slot_of
from semel.stores.redis.packing import digest_of
from semel.stores.urls import open_store
from tests.commands import LEASE, SECOND, WINDOW, A, B, claim, look, settle
from tests.fake_clock import PATIENCE_S, FakeClock
from tests.faults.bank import Bank
from tests.faults.caller import call
from tests.faults.checks import assert_history_holds, until
from tests.faults.payment import LONG_LEASE, payment
from tests.handles import AsyncStoreHandle, StoreHandle
from tests.patience import HURRIED
from tests.redis_server import RedisCluster, RedisServer, ReplicatedCluster, shared_cluster_url

KEYS = 200


def open_redis(url: str, clock: Clock = SYSTEM) -> Any:
    """Any, because these tests look into the store."""
    return open_store(url, clock)


def place(number: int, tenant: str = "acme") -> Address:
    return Address(tenant, "tool", f"place-{number}")


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return f"c_{abs(hash(str(tmp_path))):x}"


@pytest.fixture(params=[StoreHandle, AsyncStoreHandle], ids=["sync", "async"])
def handle(request: pytest.FixtureRequest, prefix: str, clock: FakeClock) -> Iterator[StoreHandle]:
    handle: StoreHandle = request.param(open_redis(shared_cluster_url(prefix), clock))
    yield handle
    handle.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def all_events(handle: StoreHandle) -> list[Event]:
    return [
        event
        for lane in range(handle.store.lanes)
        for event in handle.ask(ReadEvents(lane=lane, limit=10_000))
    ]


def sweep_all(handle: StoreHandle, limit: int = 50) -> tuple[int, int]:
    lapsed = closed = 0
    more = True
    while more:
        swept = handle.ask(Sweep(limit))
        assert max(swept.lapsed, swept.closed) <= limit
        lapsed, closed, more = lapsed + swept.lapsed, closed + swept.closed, swept.more
    return lapsed, closed


def test_records_of_one_tenant_are_spread_over_all_servers(handle):
    for number in range(KEYS):
        handle.perform(claim(A, place(number)))
    homes = Counter(
        handle.store._nodes.home(handle.store._translator.lane_of(digest_of(place(n))).number)
        for n in range(KEYS)
    )
    assert len(homes) == 3
    assert len({event.at for event in all_events(handle)}) == KEYS


def test_lists_counts_and_finds_go_over_all_lanes(handle, clock):
    for number in range(KEYS):
        clock.advance(1)
        handle.perform(claim(A, place(number)))
    assert handle.ask(CountRecords()) == {State.PENDING: KEYS}
    pages, before = [], None
    while page := handle.ask(ListRecords("acme", before=before, limit=30)):
        pages += page
        before = (page[-1].created_at, page[-1].request.id)
    assert [record.request.at for record in pages] == [place(number) for number in reversed(range(KEYS))]
    for record in pages[::20]:
        assert handle.ask(FindRecord("acme", record.request.id)) == record
        assert handle.ask(FindRecord("globex", record.request.id)) is None


def test_sweeps_and_seals_reach_every_lane_and_every_chain_holds(handle, clock):
    for number in range(KEYS):
        handle.perform(claim(A, place(number)))
        if number % 2:
            handle.perform(settle(A, place(number)))
    clock.advance(LEASE / SECOND)
    assert sweep_all(handle) == (KEYS // 2, 0)
    clock.advance(WINDOW / SECOND)
    assert sweep_all(handle) == (0, KEYS // 2)
    assert handle.ask(CountRecords()) == {State.IN_DOUBT: KEYS // 2}
    sealed = semel.Ledger(handle.store).sweeper.run_once().sealed
    assert sealed == len(all_events(handle)) == 5 * KEYS // 2
    for lane in range(handle.store.lanes):
        link, events = GENESIS, handle.ask(ReadEvents(lane=lane, limit=10_000))
        for seal in handle.ask(ReadSeals(lane=lane)):
            link = chain(link, seal.number, [e for e in events if seal.first_seq <= e.seq <= seal.last_seq])
            assert seal.hash == link


def test_an_audit_goes_through_every_lane_and_finds_what_was_changed_in_one(handle, prefix):
    for number in range(KEYS):
        handle.perform(claim(A, place(number)))
        handle.perform(settle(A, place(number)))
    semel.Ledger(handle.store).sweeper.run_once()
    report = verify(handle.store, tenants=["acme"])
    assert report.whole
    assert (report.events, report.compared, report.unsealed) == (2 * KEYS, KEYS, 0)
    assert find_duplicates(handle.store, "acme").calls == KEYS
    lane = handle.store._translator.lane_of(digest_of(place(7)))
    handle.store._calls.to_node(handle.store._nodes.home(lane.number), b"XDEL", lane.events, b"0-1")
    assert [found.wrong for found in verify(handle.store).breaks] == ["missing"]


def test_every_records_events_are_found_and_fold_to_it(handle, clock):
    for number in range(20):
        record = handle.perform(claim(A, place(number))).record
        handle.ask(AppendEvents([new_event("dedup_hit", record, clock.now_us())]))
        record = handle.perform(settle(A, place(number))).record
        events = handle.ask(ReadEvents(record_id=record.request.id))
        assert [event.kind for event in events] == ["claimed", "dedup_hit", "settled"]
        assert fold(events) == told_by(record)


def test_a_waiter_is_woken_whichever_server_has_the_record(prefix):
    one, other = (open_redis(shared_cluster_url(prefix)) for _ in range(2))
    for number in range(6):
        at = place(number)
        one.perform(claim(A, at))
        waiter = other.waiters.add(at)
        other.watch()
        one.perform(settle(A, at))
        assert waiter.wait(SYSTEM, PATIENCE_S)
        other.waiters.remove(at, waiter)
    one.close()
    other.close()


def test_a_tool_is_guarded_on_a_cluster_as_anywhere(prefix, tmp_path):
    bank = Bank(tmp_path / "bank.jsonl")
    with semel.open(shared_cluster_url(prefix)) as ledger:
        first = [call(ledger, payment(bank, "park"), account=f"acc-{n}", note="first") for n in range(10)]
    with semel.open(shared_cluster_url(prefix)) as ledger:
        again = [call(ledger, payment(bank, "park"), account=f"acc-{n}", note="again") for n in range(10)]
        assert_history_holds(ledger)
    assert first == again
    assert len(bank.entries()) == 10


def test_the_slot_of_a_key_is_the_one_that_the_cluster_says(prefix):
    from tests.redis_server import _own_cluster

    for key in ("plain", "a{tag}b", "{}x", "a{b", "{semel.07}:r:00"):
        assert _own_cluster().nodes[0].ask("CLUSTER", "KEYSLOT", key) == slot_of(key.encode())


# --- a cluster that changes ----------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    cluster = RedisCluster()
    cluster.start()
    yield cluster
    cluster.remove()


def node_id(node: RedisServer) -> str:
    told = node.ask("CLUSTER", "MYID")
    assert isinstance(told, bytes)
    return told.decode()


def test_a_lane_that_moves_to_another_server_is_followed_also_while_it_moves(cluster):
    store = open_redis(cluster.url())
    lane = store._translator.lane_of(digest_of(place(0)))
    slot = slot_of(lane.lane)
    source = next(node for node in cluster.nodes if node.port == store._nodes.home(lane.number).port)
    target = next(node for node in cluster.nodes if node is not source)
    store.perform(claim(A, place(0)))

    target.ask("CLUSTER", "SETSLOT", str(slot), "IMPORTING", node_id(source))
    source.ask("CLUSTER", "SETSLOT", str(slot), "MIGRATING", node_id(target))
    keys: Any = source.ask("CLUSTER", "GETKEYSINSLOT", str(slot), "100")
    assert len(keys) >= 5
    source.ask("MIGRATE", "127.0.0.1", str(target.port), "", "0", "5000", "KEYS", *keys)
    # All keys are there by now, and the slot is not yet: every request is sent on by ASK.
    assert store.perform(look(place(0))).record.token == A
    assert asyncio.run(store.aperform(look(place(0)))).record.token == A
    for node in cluster.nodes:
        node.ask("CLUSTER", "SETSLOT", str(slot), "NODE", node_id(target))
    assert store.perform(settle(A, place(0))).applied
    assert store._nodes.home(lane.number).port == target.port
    assert asyncio.run(store.aperform(look(place(0)))).record.state is State.DONE
    store.close()


def test_a_server_that_is_away_refuses_its_lanes_and_service_resumes(cluster):
    store = open_redis(cluster.url(timeout=HURRIED))
    lost = cluster.nodes[1]

    def lives_there(number: int) -> bool:
        return store._nodes.home(store._translator.lane_of(digest_of(place(number))).number).port == lost.port

    there = next(number for number in range(100) if lives_there(number))
    store.perform(claim(A, place(there)))
    lost.freeze()
    with pytest.raises(StoreUnavailable):
        store.perform(settle(A, place(there)))
    lost.thaw()
    assert until(lambda: settled(store, place(there)), "the server is back")
    store.close()


def settled(store: Any, at: Address) -> bool:
    try:
        return bool(store.perform(settle(A, at)).record.state is State.DONE)
    except StoreUnavailable:
        return False


def test_a_part_that_came_back_empty_is_noticed_by_those_who_knew_it_and_by_newcomers(cluster):
    store = open_redis(cluster.url())
    for number in range(KEYS):
        store.perform(claim(A, place(number)))
    cluster.nodes[2].ask("FLUSHALL")
    gone = next(number for number in range(KEYS) if refused(store, place(number)))
    with pytest.raises(StoreCorrupt):
        store.perform(look(place(gone)))
    with pytest.raises(StoreCorrupt, match="missing or belongs to another store"):
        open_redis(cluster.url())
    store.close()


def refused(store: Any, at: Address) -> bool:
    try:
        store.perform(claim(B, at))
    except StoreCorrupt:
        return True
    return False


# --- failover --------------------------------------------------------------------------------------------


def places(pair: ReplicatedCluster, store: Any, count: int) -> list[Address]:
    """Addresses whose records the primary has."""

    def there(at: Address) -> bool:
        home = store._nodes.home(store._translator.lane_of(digest_of(at)).number)
        return bool(home.port == pair.primary.port)

    return list(itertools.islice(filter(there, map(place, itertools.count())), count))


@pytest.fixture
def pair() -> Iterator[ReplicatedCluster]:
    cluster = ReplicatedCluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.remove()


def in_the_end(handle: StoreHandle, command: Any) -> Any:
    """The reply to a command or query, once somebody gives one."""

    def ask() -> Any:
        try:
            return handle.ask(command) if isinstance(command, Query) else handle.perform(command)
        except StoreUnavailable:
            return None

    return until(ask, "the cluster answers")


@pytest.mark.parametrize("manner", [StoreHandle, AsyncStoreHandle], ids=["sync", "async"])
def test_when_a_server_dies_its_replica_takes_over_and_service_resumes_by_itself(pair, manner):
    handle = manner(open_redis(pair.url(timeout=HURRIED)))
    assert "A failover to a replica may take back" in handle.store.durability
    ends = places(pair, handle.store, 20)
    for at in ends:
        handle.perform(claim(A, at))
    until(pair.caught_up, "the replica has everything")
    pair.primary.kill()
    for at in ends:
        assert in_the_end(handle, settle(A, at)).record.state is State.DONE
        asked = in_the_end(handle, look(at)).record.request
        events = in_the_end(handle, ReadEvents(record_id=asked.id))
        assert [event.kind for event in events] == ["claimed", "settled"]
    assert handle.store._nodes.home(handle.store._translator.lane_of(digest_of(ends[0])).number).port == (
        pair.replica.port
    )
    handle.close()


@pytest.mark.parametrize("manner", [StoreHandle, AsyncStoreHandle], ids=["sync", "async"])
def test_writes_that_a_failover_took_back_are_noticed_and_nothing_is_trusted(pair, manner):
    handle = manner(open_redis(pair.url(timeout=HURRIED)))
    kept, lost = places(pair, handle.store, 2)
    handle.perform(claim(A, kept))
    until(pair.caught_up, "the replica has everything")
    pair.sever()
    assert handle.perform(claim(A, lost)).applied
    pair.primary.kill()

    def noticed() -> bool:
        try:
            handle.perform(claim(B, lost))
        except StoreUnavailable:
            return False
        except StoreCorrupt:
            return True
        raise AssertionError("a forgotten key was claimed again")

    until(noticed, "the loss is noticed")
    for at in (kept, lost):
        with pytest.raises(StoreCorrupt, match="older data"):
            handle.perform(look(at))
    handle.close()


def insist(ledger: semel.Ledger, tool: Any, account: str) -> None:
    until(lambda: call(ledger, tool, account=account).receipt, "the cluster answers")


def test_tools_are_called_once_through_a_failover(pair, tmp_path):
    bank = Bank(tmp_path / "bank.jsonl")
    accounts = [f"acc-{number}" for number in range(30)]
    with semel.open(pair.url(timeout=HURRIED)) as ledger:
        tool = payment(bank, "park", lease=LONG_LEASE)
        for account in accounts[:10]:
            assert call(ledger, tool, account=account).receipt
        until(pair.caught_up, "the replica has everything")
        pair.primary.kill()
        for account in accounts:
            insist(ledger, tool, account)
        assert_history_holds(ledger)
    assert sorted(entry.account for entry in bank.entries()) == sorted(accounts)
