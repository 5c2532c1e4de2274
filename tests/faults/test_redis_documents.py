"""What a network, a Redis server and whoever runs it can do to documents: a commit is whole, or nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from semel.audit.events import APPROVED, EXPIRED, WAITING, Event, fold, new_event, told_by
from semel.audit.verify import verify
from semel.errors import StoreCorrupt, StoreUnavailable
from semel.kernel.clock import SYSTEM, Clock
from semel.kernel.record import Address, Record
from semel.stores.base import AppendEvents, FindRecord, ReadEvents, SealEvents, Store, Sweep
from semel.stores.documents import Capacity, Commit, Count, Document, Draft, Entry, Fetch, Scan, Tenants
from semel.stores.redis.commands import lane
from semel.stores.redis.nodes import slot_of
from semel.stores.redis.packed_documents import document_digest, tenant_digest
from semel.stores.redis.packing import digest_of
from semel.stores.urls import open_store
from tests.commands import AT, SECOND, A, claim, look, settle
from tests.fake_clock import FakeClock
from tests.faults.checks import until
from tests.handles import AsyncStoreHandle, StoreHandle
from tests.patience import HURRIED
from tests.proxy import Proxy
from tests.redis_server import DURABLE, RedisCluster, RedisServer, shared_port, url_of

LANE = "semel:{semel.00}:"

READING = [Fetch("acme", ("run",)), Scan("acme", "runs", 10), Count("acme", "runs"), Tenants("runs")]


def commit(
    *put: Draft,
    tenant: str = "acme",
    expect: Mapping[str, str | None] | None = None,
    drop: tuple[str, ...] = (),
    capacity: tuple[Capacity, ...] = (),
    events: tuple[Event, ...] = (),
) -> Commit:
    return Commit(tenant, SYSTEM.token().hex(), expect or {}, put, drop, capacity, events)


def run(id_: str = "run", body: bytes = b"body", index: str = "runs", score: int = 1) -> Draft:
    return Draft(id_, body, (Entry(index, score),))


def told(id_: str = "job", kind: str = WAITING, tenant: str = "acme") -> Event:
    """A line of audit about a job."""
    return Event(
        0, SYSTEM.now_us(), tenant, "approval", id_, id_, kind, kind, 0, "pay", "1", b"d" * 32, None,
        "", "[]", "ada", "seen", 1,
    )  # fmt: skip


def heard(handle: StoreHandle | Store, **wanted: Any) -> list[Event]:
    """Events as they were given to the store."""
    return [event._replace(seq=0) for event in handle.ask(ReadEvents(**wanted))]


def documents(handle: StoreHandle | Store, *ids: str, tenant: str = "acme") -> dict[str, Document]:
    return dict(handle.ask(Fetch(tenant, ids)).documents)


def in_the_end(handle: StoreHandle | Store, query: Any) -> Any:
    """The answer, once the way is free: asked again and again, as an owner may."""

    def ask() -> Any:
        try:
            return handle.ask(query)
        except StoreUnavailable:
            return None

    return until(ask, "the store answers again")


def open_redis(url: str, clock: Clock = SYSTEM) -> Any:
    """Any, because these tests look into the store."""
    return open_store(url, clock)


@pytest.fixture
def begin() -> Iterator[Callable[..., RedisServer]]:
    """Starts servers with settings of their own."""
    servers: list[RedisServer] = []

    def start(**settings: str) -> RedisServer:
        servers.append(RedisServer(**{name.replace("_", "-"): value for name, value in settings.items()}))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.remove()


@pytest.fixture
def server(begin: Callable[..., RedisServer]) -> RedisServer:
    return begin(**DURABLE)


@pytest.fixture
def opened() -> Iterator[Callable[[str], Any]]:
    stores: list[Store] = []

    def open_one(url: str) -> Any:
        stores.append(open_redis(url))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(server: RedisServer, opened: Callable[[str], Any]) -> Any:
    return opened(server.url(timeout=HURRIED))


@pytest.fixture(params=[StoreHandle, AsyncStoreHandle], ids=["sync", "async"])
def manner(request: pytest.FixtureRequest) -> type[StoreHandle]:
    manner: type[StoreHandle] = request.param
    return manner


# --- the network -----------------------------------------------------------------------------------------


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy(shared_port())
    yield proxy
    proxy.close()


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    return f"d_{abs(hash(str(tmp_path))):x}"


@pytest.fixture
def near(prefix: str) -> Iterator[Any]:
    """The store by the direct way: what it says is so."""
    store = open_redis(url_of(f"redis://127.0.0.1:{shared_port()}", prefix, {}))
    yield store
    store.close()


@pytest.fixture
def far(manner: type[StoreHandle], proxy: Proxy, prefix: str, near: Any) -> Iterator[StoreHandle]:
    """The store behind the proxy, with little patience; its connection is there already."""
    handle = manner(open_redis(url_of(f"redis://127.0.0.1:{proxy.port}", prefix, {"timeout": HURRIED})))
    handle.ask(Count("acme", "runs"))
    yield handle
    proxy.restore()
    handle.close()


def commits(store: Any) -> int:
    """How many there were, as the lane counts them."""
    (lane,) = store._translator.lanes
    told = store._calls.to_node(store._nodes.home(0), b"HGET", lane.lane, b"commits")
    return int(told or 0)


def test_a_commit_whose_reply_is_lost_is_done_once_and_asked_again_it_is_done(far, proxy, near):
    events = (told("job"), told("two"))
    asked = commit(run(), run("two"), expect={"run": None}, capacity=(Capacity("runs", 1),), events=events)
    proxy.drops_replies = True
    with pytest.raises(StoreUnavailable, match="did not answer in time"):
        far.ask(asked)
    first = documents(near, "run", "two")
    assert {document.tag for document in first.values()} == {asked.tag}
    proxy.restore()
    assert in_the_end(far, asked).done
    assert documents(near, "run", "two") == first
    assert commits(near) == 1
    assert heard(near) == [*events]


@pytest.mark.parametrize("length", [0, 1, 5, 20])
def test_a_reply_cut_in_the_middle_is_asked_for_again_by_the_store_itself(far, proxy, near, length):
    proxy.cuts_after = length
    event = told()
    assert far.ask(commit(run(), expect={"run": None}, capacity=(Capacity("runs", 1),), events=(event,))).done
    assert commits(near) == 1
    assert heard(near) == [event]


def test_a_removal_whose_reply_is_cut_is_never_answered_as_if_somebody_else_had_removed_it(far, proxy, near):
    """Its repeat finds nothing, whoever removed it: so the store says that it does not know."""
    first = commit(run())
    assert far.ask(first).done
    # A thread asks the server for a sign of life before what it must not repeat.
    proxy.cuts_after = len(b"+PONG\r\n") if type(far) is StoreHandle else 0
    with pytest.raises(StoreUnavailable):
        far.ask(commit(expect={"run": first.tag}, drop=("run",), events=(told(),)))
    assert documents(near, "run") == {}
    assert commits(near) == 2
    assert len(heard(near)) == 1


def test_replies_that_arrive_twice_are_never_taken_for_others(far, proxy, near):
    proxy.doubles_replies = True
    for number in range(20):
        assert in_the_end(far, commit(run(f"run-{number}", b"%d" % number))).done
    for number in range(20):
        found = in_the_end(far, Fetch("acme", (f"run-{number}",))).documents
        assert found[f"run-{number}"].body == b"%d" % number
    proxy.restore()
    assert near.ask(Count("acme", "runs")) == 20


def test_a_reply_that_arrives_late_again_is_not_the_answer_to_the_next_question(far, proxy, near):
    proxy.repeats_replies = True
    assert far.ask(Count("acme", "runs")) == 0
    until(lambda: proxy.repeated, "the reply arrives again")
    proxy.restore()
    assert near.ask(commit(run())).done
    assert far.ask(Count("acme", "runs")) == 1


# --- kill -9 and what comes back -------------------------------------------------------------------------


def test_nothing_acknowledged_is_lost_and_no_slot_too_many_is_taken_when_the_server_is_killed(server, store):
    acknowledged: dict[str, str] = {}
    stopping = threading.Event()

    def work(worker: int) -> None:
        number = 0
        while not stopping.is_set():
            number += 1
            asked = admission(f"run-{worker}-{number}", slots=10)
            try:
                if store.ask(asked).done or store.ask(asked := admission(asked.put[0].id)).done:
                    acknowledged[asked.put[0].id] = asked.tag
            except StoreUnavailable:
                stopping.wait(0.01)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        enough = len(acknowledged) + 50
        until(lambda enough=enough: len(acknowledged) >= enough, "commits get through")  # type: ignore[misc]
        server.kill()
        server.start()
    stopping.set()
    for thread in threads:
        thread.join()
    found = documents(store, *acknowledged)
    assert {id_: document.tag for id_, document in found.items()} == acknowledged
    assert store.ask(Count("acme", "slots")) == 10
    runs, jobs = (store.ask(Scan("acme", index, 100_000)).documents for index in ("runs", "jobs"))
    assert [f"{document.id}-job" for document in runs] == [document.id for document in jobs]
    assert sorted(event.record_id for event in heard(store, limit=100_000)) == [
        document.id for document in runs
    ]


def admission(id_: str, slots: int | None = None) -> Commit:
    """A run, its job and a line of audit, together; the run holds a slot, if there are any."""
    entries = (Entry("runs", 1), *(() if slots is None else (Entry("slots", 1),)))
    capacity = () if slots is None else (Capacity("slots", slots),)
    drafts = Draft(id_, b"", entries), run(f"{id_}-job", index="jobs")
    return commit(*drafts, expect={id_: None}, capacity=capacity, events=(told(id_),))


def test_a_server_that_lost_acknowledged_commits_is_noticed_and_not_trusted(begin, opened):
    server = begin()  # as it is installed: snapshots now and then
    store = opened(server.url())
    assert store.ask(commit(run("one"))).done
    server.ask("SAVE")
    assert store.ask(commit(run("two"))).done
    server.kill()
    server.start()
    for query in (Fetch("acme", ("two",)), commit(run("two"), expect={"two": None})):
        with pytest.raises(StoreCorrupt, match="lost writes that it had acknowledged"):
            store.ask(query)
    assert list(documents(opened(server.url()), "one", "two")) == ["one"]


def test_events_that_a_commit_told_and_the_server_lost_are_missed_by_calls_of_tools_too(begin, opened):
    server = begin()
    store = opened(server.url())
    assert store.perform(claim(A)).applied
    server.ask("SAVE")
    assert store.ask(commit(run(), events=(told(), told()))).done
    server.kill()
    server.start()
    with pytest.raises(StoreCorrupt, match="lost writes that it had acknowledged"):
        store.perform(settle(A))


def test_a_log_that_lost_events_of_records_takes_none_of_commits(begin, opened):
    server = begin()
    store = opened(server.url())
    server.ask("SAVE")
    assert store.perform(claim(A)).applied
    server.kill()
    server.start()
    with pytest.raises(StoreCorrupt, match="lost writes that it had acknowledged"):
        store.ask(commit(run(), events=(told(),)))
    assert documents(opened(server.url()), "run") == {}


@pytest.mark.parametrize("query", [commit(run("two")), *READING], ids=lambda query: type(query).__name__)
def test_missing_data_is_noticed_by_everyone_who_knew_it(server, store, manner, query):
    assert store.ask(commit(run())).done
    server.ask("FLUSHALL")
    handle = manner(store)
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match="without its data"):
            handle.ask(query)
    assert server.ask("KEYS", "*") == []
    handle.leave()


def test_a_server_that_forgot_the_steps_is_told_them_again(server, store, manner):
    handle = manner(store)
    server.ask("FUNCTION", "FLUSH")
    assert handle.ask(commit(run())).done
    server.ask("FUNCTION", "FLUSH")
    assert handle.ask(commit(expect={"run": None})).unexpected.keys() == {"run"}
    server.ask("FUNCTION", "FLUSH")
    assert handle.ask(Tenants("runs")) == ["acme"]
    handle.leave()


# --- a server that does not do what it is asked ----------------------------------------------------------


def test_a_server_without_memory_refuses_and_nothing_is_half_written(begin, opened):
    server = begin(save="", maxmemory_policy="noeviction")
    store = opened(server.url())
    first = commit(run(), capacity=(Capacity("runs", 1),))
    assert store.ask(first).done
    before = contents(server)
    server.ask("CONFIG", "SET", "maxmemory", "1mb")
    telling = commit(run(score=9), events=(told(),))
    for refused in (commit(run("two"), drop=("run",)), commit(drop=("run",)), commit(run(score=9)), telling):
        with pytest.raises(StoreUnavailable, match="out of memory"):
            store.ask(refused)
    assert contents(server) == before
    assert documents(store, "run")["run"].tag == first.tag
    assert [document.id for document in store.ask(Scan("acme", "runs", 9)).documents] == ["run"]
    assert (store.ask(Count("acme", "runs")), store.ask(Tenants("runs"))) == (1, ["acme"])
    server.ask("CONFIG", "SET", "maxmemory", "0")
    assert store.ask(commit(run("two"), drop=("run",))).done
    assert store.ask(telling).done
    assert heard(store) == [*telling.events]


def test_filling_a_server_up_with_commits_ends_in_refusals_of_whole_commits(begin, opened):
    server = begin(save="", maxmemory_policy="noeviction")
    store = opened(server.url())
    used = next(
        int(line.split(":")[1])
        for line in server.ask("INFO", "memory").decode().splitlines()
        if line.startswith("used_memory:")
    )
    server.ask("CONFIG", "SET", "maxmemory", str(used + (4 << 20)))
    taken = 0

    def fill() -> None:
        nonlocal taken
        for number in range(10_000):
            pair = [run(f"{number}-{half}", b"x" * 20_000, score=number) for half in "ab"]
            assert store.ask(commit(*pair, events=(told(str(number)), told(str(number))))).done
            taken += 1

    with pytest.raises(StoreUnavailable, match="out of memory"):
        fill()
    assert taken > 10
    ids = [document.id for document in store.ask(Scan("acme", "runs", 20_000)).documents]
    assert ids == [f"{number}-{half}" for number in range(taken) for half in "ab"]
    assert store.ask(Count("acme", "runs")) == 2 * taken
    events = heard(store, limit=20_000)
    assert [event.record_id for event in events] == [str(number) for number in range(taken) for _ in "ab"]


def contents(server: RedisServer) -> dict[Any, Any]:
    keys: Any = server.ask("KEYS", "*")
    return {key: server.ask("DUMP", key) for key in keys}


def test_a_server_that_became_a_replica_is_a_refusal(server, store):
    server.ask("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(StoreUnavailable, match="read-only replica"):
        store.ask(commit(run()))
    server.ask("REPLICAOF", "NO", "ONE")
    assert store.ask(commit(run())).done


# --- damage ----------------------------------------------------------------------------------------------


def document_key(id_: str = "run") -> str:
    return f"{LANE}d:{document_digest('acme', id_).hex()}"


def bytes_of(server: RedisServer, id_: str = "run") -> bytes:
    data = server.ask("GET", document_key(id_))
    assert isinstance(data, bytes)
    return data


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "one byte more": lambda data: data + b"x",
    "another format": lambda data: b"\x02" + data[1:],
    "a longer head": lambda data: data[:5] + b"\xff\xff\xff\xff" + data[9:],
    "noise": lambda data: bytes(range(256)) * 2,
}

# What the steps cannot tell, because only who reads the body reckons its checksum.
HIDDEN_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "another body": lambda data: data.replace(b"body", b"BODY"),
    "another place": lambda data: data.replace(b"runs", b"rums"),
    "another tenant": lambda data: data.replace(b"acme", b"acne"),
}


@pytest.mark.parametrize("damage", (DAMAGES | HIDDEN_DAMAGES).values(), ids=DAMAGES | HIDDEN_DAMAGES)
def test_a_damaged_document_is_not_an_absent_one(server, store, damage):
    assert store.ask(commit(run())).done
    server.ask("SET", document_key(), damage(bytes_of(server)))
    for query in (Fetch("acme", ("run",)), Scan("acme", "runs", 10), commit(expect={"run": None})):
        with pytest.raises(StoreCorrupt, match="damaged"):
            store.ask(query)
    assert store.ask(commit(run("two"))).done


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_document_is_not_written_over(server, store, damage):
    assert store.ask(commit(run())).done
    server.ask("SET", document_key(), damage(bytes_of(server)))
    before = contents(server)
    for query in (commit(run()), commit(run("two"), drop=("run",))):
        with pytest.raises(StoreCorrupt, match="A document is damaged"):
            store.ask(query)
    assert contents(server) == before


def test_a_document_under_another_ones_key_is_damage(server, store):
    assert store.ask(commit(run(), run("two"))).done
    server.ask("SET", document_key("two"), bytes_of(server))
    with pytest.raises(StoreCorrupt):
        documents(store, "two")


@pytest.mark.parametrize("name", ["document", "indexes", "heads"])
def test_something_else_under_a_key_is_damage_and_nothing_is_half_written(server, store, name):
    keys = {
        "document": document_key(),
        "indexes": f"{LANE}s:{tenant_digest('acme').hex()}",
        "heads": f"{LANE}heads",
    }
    server.ask("LPUSH", keys[name], "x")
    before = contents(server)
    with pytest.raises(StoreCorrupt, match="Something else wrote"):
        store.ask(commit(run("two"), run()))
    assert contents(server) == before


@pytest.mark.parametrize("name", ["ids", "events", "record"])
def test_something_else_under_a_key_of_the_log_is_damage_and_nothing_is_half_written(server, store, name):
    record = store.perform(claim(A)).record
    key = record_key() if name == "record" else f"{LANE}{name}"
    server.ask("RENAME", key, "elsewhere")
    server.ask("LPUSH", key, "x")
    if name == "record":
        assert server.ask("HEXISTS", f"{LANE}ids", record.request.id) == 1
    before = contents(server)
    with pytest.raises(StoreCorrupt, match="Something else wrote"):
        store.ask(commit(run(), events=(told(), about(record))))
    assert contents(server) == before
    assert store.ask(commit(run())).done  # without events it does not look there


@pytest.mark.parametrize("length", [0, 1, 66])
def test_an_event_about_a_damaged_record_is_refused_and_its_commit_with_it(server, store, length):
    record = store.perform(claim(A)).record
    data: Any = server.ask("GET", record_key())
    server.ask("SET", record_key(), data[:length])
    before = contents(server)
    for query in (commit(run(), events=(told(), about(record))), AppendEvents([about(record)])):
        with pytest.raises(StoreCorrupt, match="damaged"):
            store.ask(query)
    assert contents(server) == before


def test_a_log_that_is_ahead_of_its_lane_takes_nothing_and_no_document_is_written(server, store):
    assert store.ask(commit(run("one"), events=(told(),))).done
    server.ask("XADD", f"{LANE}events", "0-9", "e", "x")
    before = contents(server)
    with pytest.raises(StoreUnavailable, match="refused"):
        store.ask(commit(run(), events=(told(),)))
    assert contents(server) == before


def record_key(at: Address = AT) -> bytes:
    return lane(0, "semel").record(digest_of(at))


# --- the log ---------------------------------------------------------------------------------------------


def about(record: Record, kind: str = APPROVED) -> Event:
    """A line of audit about a record, which has no part in the commit."""
    return new_event(kind, record, SYSTEM.now_us())


def test_the_events_of_an_id_are_one_story_however_many_commits_told_it(store, manner):
    handle = manner(store)
    first, second, third, other = told(), told(kind="approved"), told(kind="expired"), told("other")
    assert handle.ask(commit(run(), events=(first, other, second))).done
    assert handle.ask(commit(run(), events=(other,))).done
    assert handle.ask(commit(run(), events=(third,))).done
    assert heard(handle, record_id="job") == [first, second, third]
    assert heard(handle, record_id="other") == [other, other]
    assert [event.seq for event in handle.ask(ReadEvents())] == [1, 2, 3, 4, 5]
    assert heard(handle, record_id="job", tenant="umbrella") == []
    assert handle.ask(FindRecord("acme", "job")) is None
    handle.leave()


def test_an_event_about_a_record_joins_its_story_and_leaves_the_record_as_it_is(store, manner):
    handle = manner(store)
    record = handle.perform(claim(A)).record
    assert record is not None
    assert handle.ask(commit(run(), events=(about(record, WAITING), about(record), told(kind=APPROVED)))).done
    assert handle.perform(look()).record == handle.ask(FindRecord("acme", record.request.id)) == record
    record = handle.perform(settle(A)).record
    assert record is not None
    assert handle.ask(commit(run(), events=(about(record, EXPIRED),))).done
    events = handle.ask(ReadEvents(record_id=record.request.id))
    assert [event.kind for event in events] == ["claimed", "waiting", "approved", "settled", "expired"]
    assert fold(events) == told_by(record)
    assert handle.ask(SealEvents()).events == 6
    assert verify(store, tenants=("acme",)).whole
    handle.leave()


def test_old_events_of_commits_are_dropped_and_nothing_is_left_by_which_they_were_found(server, clocked):
    store, clock = clocked
    late = told()._replace(at_us=clock.now_us())
    assert store.ask(commit(run(), events=(late, told("two")._replace(at_us=clock.now_us())))).done
    store.ask(SealEvents())
    clock.advance(store.audit_kept_us / SECOND + 1)
    assert store.ask(commit(run(), events=(late._replace(at_us=clock.now_us()),))).done
    store.ask(Sweep())
    assert [event.seq for event in store.ask(ReadEvents())] == [3]
    assert [event.seq for event in store.ask(ReadEvents(record_id="job"))] == [3]
    assert server.ask("HKEYS", f"{LANE}ids") == [b"job"]


@pytest.fixture
def clocked(server: RedisServer) -> Iterator[tuple[Any, FakeClock]]:
    clock = FakeClock()
    store = open_redis(server.url(), clock)
    yield store, clock
    store.close()


# --- what is kept ----------------------------------------------------------------------------------------


def test_nothing_has_a_time_to_live_and_nothing_is_left_of_what_was_removed(server, store):
    before = set(contents(server))
    entries = tuple(Entry(f"{'index' * 40}-{number}", number) for number in range(40))
    assert store.ask(commit(Draft("run", b"x" * 5_000, entries), run("two"))).done
    keys: Any = server.ask("KEYS", "*")
    assert [server.ask("PTTL", key) for key in keys] == [-1] * len(keys)
    assert store.ask(commit(Draft("run", b"", entries[:3]), drop=("two",))).done
    assert [store.ask(Count("acme", place.index_name)) for place in entries] == [1] * 3 + [0] * 37
    assert store.ask(commit(drop=("run",))).done
    assert set(contents(server)) == before


def test_a_scan_passes_over_what_leaves_its_place_meanwhile_and_reads_on(store, opened, server):
    """Between the index and its documents one is removed and one moves: the page is full all the same."""
    other = opened(server.url())
    assert store.ask(commit(*(run(f"run-{number}", score=number) for number in range(9)))).done
    fetch, scenes = store._calls.call_all, iter([commit(run("run-2", score=20), drop=("run-0",))])

    def call_all(requests: Any, asked: Any = None) -> Any:
        if requests[0].script.name.endswith(b"_fetch"):
            for scene in scenes:
                # By another thread: this one is in the middle of a store.
                with ThreadPoolExecutor(1) as elsewhere:
                    assert elsewhere.submit(other.ask, scene).result().done
        return fetch(requests, asked)

    store._calls.call_all = call_all
    found = store.ask(Scan("acme", "runs", 4)).documents
    assert [document.id for document in found] == ["run-1", "run-3", "run-4", "run-5"]


def test_a_commit_that_its_task_no_longer_waits_for_is_carried_out(server, store):
    async def scene() -> None:
        await store.aask(Count("acme", "runs"))
        task = asyncio.create_task(store.aask(commit(run())))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await store.aask(Count("acme", "runs"))) == 1
        await store.aclose()

    asyncio.run(scene())


# --- a cluster -------------------------------------------------------------------------------------------

TENANTS = [f"tenant-{number}" for number in range(60)]


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    cluster = RedisCluster()
    cluster.start()
    yield cluster
    cluster.remove()


def lane_of(store: Any, tenant: str) -> Any:
    return store._translator.lane_of(tenant_digest(tenant))


def port_of(store: Any, tenant: str) -> int:
    port: int = store._nodes.home(lane_of(store, tenant).number).port
    return port


def test_tenants_are_spread_over_all_servers_and_each_has_its_own_documents(cluster, opened, manner):
    handle = manner(opened(cluster.url()))
    for number, tenant in enumerate(TENANTS):
        drafts = (run("run", tenant.encode(), score=number), run("job", index="due", score=-number))
        answer = handle.ask(
            commit(*drafts, tenant=tenant, expect={"run": None}, capacity=(Capacity("runs", 1),))
        )
        assert answer.done
        assert handle.ask(commit(run("late"), tenant=tenant, capacity=(Capacity("runs", 1),))).count == 1
    assert len({port_of(handle.store, tenant) for tenant in TENANTS}) == 3
    assert {documents(handle, "run", tenant=tenant)["run"].body for tenant in TENANTS} == {
        tenant.encode() for tenant in TENANTS
    }
    assert sorted(handle.ask(Tenants("runs"))) == sorted(TENANTS)
    assert sorted(handle.ask(Tenants("runs", 29))) == sorted(TENANTS[:30])
    assert sorted(handle.ask(Tenants("due", -30))) == sorted(TENANTS[30:])
    handle.leave()


def test_each_tenants_events_are_in_its_lane_and_found_by_their_id_from_anywhere(cluster, opened, manner):
    handle = manner(opened(cluster.url()))
    for tenant in TENANTS:
        pair = told(f"job-{tenant}", tenant=tenant), told(f"job-{tenant}", "approved", tenant)
        assert handle.ask(commit(run(), tenant=tenant, events=pair)).done
        assert heard(handle, record_id=f"job-{tenant}") == [*pair]
        assert heard(handle, tenant=tenant, lane=lane_of(handle.store, tenant).number) == [*pair]
    for number in range(handle.store.lanes):
        handle.ask(SealEvents(lane=number))
    report = verify(handle.store, tenants=TENANTS)
    assert report.whole
    assert (report.events, report.unsealed) == (2 * len(TENANTS), 0)
    handle.leave()


def test_an_event_about_a_record_of_another_lane_is_told_in_the_lane_of_its_tenant(cluster, opened):
    store = opened(cluster.url())
    home = lane_of(store, "acme")
    entries = (Address("acme", "tool", f"key-{number}") for number in range(1_000))
    far = next(at for at in entries if store._translator.lane_of(digest_of(at)) != home)
    record = store.perform(claim(A, far)).record
    event = about(record)
    assert store.ask(commit(run(), events=(event,))).done
    assert heard(store, lane=home.number) == [event]
    assert {line.kind for line in heard(store, record_id=record.request.id)} == {"claimed", "approved"}
    assert store.ask(FindRecord("acme", record.request.id)) == record


def test_a_server_of_a_cluster_that_came_back_empty_is_noticed_by_its_tenants(cluster, opened):
    store, lost = opened(cluster.url()), cluster.nodes[2]
    theirs = next(tenant for tenant in TENANTS if port_of(store, tenant) == lost.port)
    others = next(tenant for tenant in TENANTS if port_of(store, tenant) != lost.port)
    for tenant in (theirs, others):
        assert store.ask(commit(run(), tenant=tenant)).done
    lost.ask("FLUSHALL")
    assert documents(store, "run", tenant=others)
    with pytest.raises(StoreCorrupt, match="without its data"):
        store.ask(commit(run(), tenant=theirs, expect={"run": None}))
    assert lost.ask("DBSIZE") == 0


def test_a_server_of_a_cluster_that_is_away_refuses_its_tenants_and_service_resumes(cluster, opened):
    store, away = opened(cluster.url(timeout=HURRIED)), cluster.nodes[1]
    theirs = next(tenant for tenant in TENANTS if port_of(store, tenant) == away.port)
    asked = commit(run(), tenant=theirs, expect={"run": None})
    away.freeze()
    try:
        with pytest.raises(StoreUnavailable):
            store.ask(asked)
    finally:
        away.thaw()
    assert in_the_end(store, asked).done


def test_a_tenant_whose_slot_moves_is_followed_and_half_moved_never_taken_for_absent(cluster, opened, manner):
    handle = manner(opened(cluster.url()))
    store = handle.store
    lane = lane_of(store, "acme")
    slot = slot_of(lane.lane)
    source = next(node for node in cluster.nodes if node.port == store._nodes.home(lane.number).port)
    target = next(node for node in cluster.nodes if node is not source)
    first = commit(run(), events=(told(),))
    assert handle.ask(first).done
    target.ask("CLUSTER", "SETSLOT", str(slot), "IMPORTING", node_id(source))
    source.ask("CLUSTER", "SETSLOT", str(slot), "MIGRATING", node_id(target))

    move(source, target, lane.document(document_digest("acme", "run")))
    for query in (Fetch("acme", ("run",)), commit(run(), expect={"run": None}), Scan("acme", "runs", 9)):
        with pytest.raises(StoreUnavailable, match="is moving these keys"):
            handle.ask(query)
    rest: Any = source.ask("CLUSTER", "GETKEYSINSLOT", str(slot), "100")
    move(source, target, *rest)
    assert documents(handle, "run")["run"].tag == first.tag
    for node in cluster.nodes:
        node.ask("CLUSTER", "SETSLOT", str(slot), "NODE", node_id(target))
    assert handle.ask(commit(run(score=2), expect={"run": first.tag}, events=(told(kind="approved"),))).done
    assert [event.kind for event in heard(handle, record_id="job")] == ["waiting", "approved"]
    assert store._nodes.home(lane.number).port == target.port
    handle.leave()


def node_id(node: RedisServer) -> str:
    told = node.ask("CLUSTER", "MYID")
    assert isinstance(told, bytes)
    return told.decode()


def move(source: RedisServer, target: RedisServer, *keys: bytes) -> None:
    said = source.ask("MIGRATE", "127.0.0.1", str(target.port), "", "0", "5000", "KEYS", *keys)
    assert said == b"OK"
