"""Documents in PostgreSQL when replies get lost, the server dies, others meddle, or a disk is full."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from semel.audit.events import Event
from semel.audit.verify import verify
from semel.errors import StoreCorrupt, StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.stores.base import ReadEvents, SealEvents
from semel.stores.documents import (
    Capacity,
    Commit,
    Committed,
    Count,
    Document,
    Draft,
    Entry,
    Fetch,
    Scan,
    Tenants,
)
from semel.stores.memory import MemoryStore
from semel.stores.urls import open_store
from tests.commands import A, claim, look
from tests.faults.checks import PATIENCE_S, until
from tests.faults.disk import fill, free, small_disk
from tests.missing import library
from tests.patience import HURRIED
from tests.postgres_server import DATABASE, USER, PostgresServer
from tests.proxy import Proxy

psycopg = library("psycopg")

# A new cluster takes 40 MB, half of it for its log.
_DISK_BYTES = 96 << 20

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def schema(request: pytest.FixtureRequest) -> str:
    return f"s{abs(hash(request.node.name)):x}"


@pytest.fixture
def stores() -> Iterator[list[Any]]:
    opened: list[Any] = []
    yield opened
    for store in opened:
        store.close()


@pytest.fixture
def store(server: PostgresServer, schema: str, stores: list[Any]) -> Any:
    stores.append(open_store(server.url(schema, timeout=HURRIED)))
    return stores[-1]


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def far(server: PostgresServer, proxy: Proxy, schema: str, stores: list[Any]) -> Any:
    """The store behind the proxy; its connection knows the statement, so that each reply is one piece."""
    url = server.url(schema, timeout=HURRIED).replace(f":{server.port}/", f":{proxy.port}/")
    stores.append(open_store(url))
    stores[-1].ask(commit())
    return stores[-1]


@contextmanager
def other(server: PostgresServer, schema: str) -> Iterator[Any]:
    """Somebody else's connection to the same tables, in a transaction, who is patient with deadlocks."""
    options = f"-c search_path={schema} -c deadlock_timeout=30s"
    connection = psycopg.connect(
        host="127.0.0.1", port=server.port, user=USER, dbname=DATABASE, options=options
    )
    try:
        yield connection
    finally:
        connection.close()


def meddle(server: PostgresServer, schema: str, *orders: str) -> None:
    with other(server, schema) as connection:
        for order in orders:
            connection.execute(order)
        connection.commit()


def blocked(server: PostgresServer, schema: str) -> bool:
    with other(server, schema) as eye:
        (count,) = eye.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
        return bool(count)


def deadlocks(server: PostgresServer) -> int:
    """How often somebody gave way so far."""
    return (server.directory / "log").read_text(errors="replace").count("deadlock detected")


def on(index: str, score: int = 0) -> tuple[Entry, ...]:
    return (Entry(index, score),)


def commit(
    *put: Draft,
    tenant: str = "acme",
    expect: Mapping[str, str | None] | None = None,
    drop: tuple[str, ...] = (),
    capacity: tuple[Capacity, ...] = (),
    events: tuple[Event, ...] = (),
) -> Commit:
    return Commit(tenant, SYSTEM.token().hex(), expect or {}, put, drop, capacity, events)


def told(key: str, tenant: str = "acme", note: str = "") -> Event:
    """An event as a flow tells it of one of its documents."""
    return Event(
        0, 1, tenant, "approval", key, key, "approved", "approved", 0, "pay", "1", b"", None, "", "", "ada",
        note, 1,
    )  # fmt: skip


def heard(store: Any, tenant: str | None = None) -> list[str]:
    """The keys of a tenant's events, or of all, in the order of their numbers."""
    return [event.key for event in store.ask(ReadEvents(tenant=tenant, limit=100_000))]


def chain(store: Any) -> tuple[bool, int, int]:
    """Whether it is whole once everything is sealed; how many events it has, and how many are left out."""
    while store.ask(SealEvents()) is not None:
        pass
    report = verify(store)
    return report.whole, report.events, report.unsealed


def document(asked: Commit) -> Document:
    """The first that it writes, as it is found afterwards."""
    draft = asked.put[0]
    return Document(draft.id, draft.body, asked.tag, draft.entries)


def found(store: Any, id_: str, tenant: str = "acme") -> Document | None:
    documents: Mapping[str, Document] = store.ask(Fetch(tenant, (id_,))).documents
    return documents.get(id_)


def all_at_once(store: Any, commits: list[Commit]) -> list[Committed]:
    async def gather() -> list[Committed]:
        return await asyncio.gather(*(store.aask(each) for each in commits))

    return asyncio.run(gather())


# --- lost replies ----------------------------------------------------------------------------------------


def entry() -> Commit:
    """One that can be carried out once: afterwards the key is there, and the house is full."""
    return commit(Draft("key", b"1", on("slots")), expect={"key": None}, capacity=(Capacity("slots", 1),))


def test_a_commit_whose_reply_was_lost_is_refused_and_found_done_when_asked_again(proxy, store, far):
    asked = entry()
    proxy.drops_replies = True
    with pytest.raises(StoreUnavailable, match="in time"):
        far.ask(asked)
    proxy.restore()
    until(lambda: found(store, "key"), "the server has carried it out")
    assert far.ask(asked).done
    assert far.ask(entry()).unexpected == {"key": document(asked)}
    assert store.ask(Count("acme", "slots")) == 1


@pytest.mark.parametrize("count", [0, 1, 20, 100])
def test_a_reply_cut_in_the_middle_is_asked_for_again_and_found_done(count, proxy, store, far):
    asked = entry()
    proxy.cuts_after = count
    assert far.ask(asked).done
    assert found(store, "key") == document(asked)


def test_events_of_a_commit_whose_reply_was_lost_are_told_once_when_it_is_asked_again(proxy, store, far):
    asked = commit(Draft("job", b"1"), expect={"job": None}, events=(told("one"), told("two")))
    proxy.drops_replies = True
    with pytest.raises(StoreUnavailable, match="in time"):
        far.ask(asked)
    proxy.restore()
    until(lambda: found(store, "job"), "the server has carried it out")
    assert heard(store) == ["one", "two"]
    assert far.ask(asked).done
    assert heard(store) == ["one", "two"]


@pytest.mark.parametrize("count", [0, 1, 20, 100])
def test_events_are_told_once_where_a_cut_reply_is_asked_for_again(count, proxy, store, far):
    asked = [commit(Draft(f"job-{number}", b""), events=(told(f"{number}"),)) for number in range(3)]
    proxy.cuts_after = count
    assert all(answer.done for answer in all_at_once(far, asked))
    assert heard(store) == ["0", "1", "2"]


def test_events_without_a_document_to_know_them_by_are_not_asked_for_again(proxy, store, far):
    proxy.cuts_after = 0
    with pytest.raises(StoreUnavailable):
        far.ask(commit(drop=("job",), events=(told("one"),)))
    until(lambda: heard(store), "the server has carried it out")
    assert far.ask(commit(drop=("job",), events=(told("two"),))).done
    assert heard(store) == ["one", "two"]


def test_what_was_asked_together_is_asked_again_together(proxy, store, far):
    entering = [
        commit(Draft(f"run-{n}", b"", on("slots")), capacity=(Capacity("slots", 3),)) for n in range(5)
    ]
    proxy.cuts_after = 0
    assert [answer.done for answer in all_at_once(far, entering)] == [True] * 3 + [False] * 2
    assert store.ask(Count("acme", "slots")) == 3


def test_a_reply_that_comes_again_late_is_no_acknowledgement_of_the_next_commit(proxy, server, schema, far):
    before = proxy.repeated
    proxy.repeats_replies = True
    assert far.ask(commit(Draft("one", b"1"))).done
    until(lambda: proxy.repeated > before, "it came again")
    proxy.restore()
    with other(server, schema) as connection:
        connection.execute("LOCK TABLE documents")
        with pytest.raises(StoreUnavailable):
            far.ask(commit(Draft("two", b"2")))
    assert found(far, "two") is None


STRANGER = """
    CREATE FUNCTION commit_documents_6(
        bigint, text[], text[], bigint[], text[], text[], bigint[], text[], bytea[], text[], bigint[], text[],
        bigint[], text[], bigint[], bigint[], text[]
    ) RETURNS TABLE (
        answer_to bigint, whose_tag text, now_us bigint, done boolean, newest_commit bigint, full_room bigint,
        standing bigint, found_id text, found_tag text, found_body bytea, found_places text
    ) LANGUAGE sql AS $$
        SELECT 1::bigint, 'another', 1::bigint, true, 1::bigint, NULL::bigint, NULL::bigint, NULL::text,
            NULL::text, NULL::bytea, NULL::text
    $$
"""


def test_an_acknowledgement_of_another_commit_is_none_of_this_one(server, schema, store):
    meddle(server, schema, "ALTER FUNCTION commit_documents_6 RENAME TO genuine", STRANGER)
    with pytest.raises(StoreUnavailable, match="another question"):
        store.ask(commit(Draft("run", b"1")))
    meddle(
        server,
        schema,
        "DROP FUNCTION commit_documents_6",
        "ALTER FUNCTION genuine RENAME TO commit_documents_6",
    )
    assert store.ask(commit(Draft("run", b"1"), expect={"run": None})).done


# --- the server dies -------------------------------------------------------------------------------------

SEATS = 3


class Crowd:
    """Threads and tasks that take one of few seats and leave it, and remember what was acknowledged."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._stop = threading.Event()
        self.left: list[Commit] = []
        self.refused = self.full = self.most = 0
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(4)]
        self._threads.append(threading.Thread(target=lambda: asyncio.run(self._tasks())))
        for thread in self._threads:
            thread.start()

    def _run(self, worker: int) -> None:
        for number in itertools.takewhile(lambda _: not self._stop.is_set(), itertools.count()):
            scene = self._sit_and_leave(f"{worker}-{number}")
            query = next(scene)
            while query is not None:
                try:
                    query = scene.send(self._store.ask(query))
                except StoreUnavailable as refusal:
                    query = scene.throw(refusal)
                    SYSTEM.sleep(0.01)

    async def _tasks(self) -> None:
        await asyncio.gather(*(self._task(worker) for worker in range(8)))

    async def _task(self, worker: int) -> None:
        for number in itertools.takewhile(lambda _: not self._stop.is_set(), itertools.count()):
            scene = self._sit_and_leave(f"task-{worker}-{number}")
            query = next(scene)
            while query is not None:
                try:
                    query = scene.send(await self._store.aask(query))
                except StoreUnavailable as refusal:
                    query = scene.throw(refusal)
                    await asyncio.sleep(0.01)

    def _sit_and_leave(self, id_: str) -> Generator[Any, Any, None]:
        """Each commit is asked until it is answered, as its owner may."""
        sit = commit(
            Draft(id_, b"sits", on("seats")),
            expect={id_: None},
            capacity=(Capacity("seats", SEATS),),
            events=(told(f"{id_} sits"),),
        )
        answer = yield from self._insist(sit)
        self.most = max(self.most, (yield from self._insist(Count("acme", "seats"))))
        if not answer.done:
            assert answer.full == sit.capacity[0]
            self.full += 1
        else:
            leave = commit(
                Draft(id_, b"left", on("doors")), expect={id_: sit.tag}, events=(told(f"{id_} leaves"),)
            )
            assert (yield from self._insist(leave)).done
            self.left.append(leave)
        yield None

    def _insist(self, query: Any) -> Generator[Any, Any, Any]:
        while True:
            try:
                return (yield query)
            except StoreUnavailable:
                self.refused += 1

    def until(self, count: int) -> None:
        until(lambda: len(self.left) >= count, f"{count} have left")

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize(
    "end", [PostgresServer.kill, PostgresServer.stop], ids=["kill -9", "immediate shutdown"]
)
def test_nothing_acknowledged_is_lost_taken_or_told_twice_when_the_server_dies_under_load(
    end: Callable[[PostgresServer], None], server: PostgresServer, store: Any
) -> None:
    crowd = Crowd(store)
    try:
        crowd.until(100)
        end(server)
        until(lambda: crowd.refused > 5, "they are refused")
        server.start()
        crowd.until(len(crowd.left) + 100)
    finally:
        crowd.end()
    assert crowd.full > 0, "there were never too many of them"
    assert 1 <= crowd.most <= SEATS
    assert store.ask(Count("acme", "seats")) == 0
    assert [found(store, leave.put[0].id) for leave in crowd.left] == [
        document(leave) for leave in crowd.left
    ]
    assert store.ask(Count("acme", "doors")) == len(crowd.left)
    ids = [leave.put[0].id for leave in crowd.left]
    assert sorted(heard(store)) == sorted(f"{id_} {what}" for id_ in ids for what in ("sits", "leaves"))
    assert chain(store) == (True, 2 * len(ids), 0)


@pytest.mark.parametrize(
    "write",
    [
        lambda number: commit(Draft("run", b"%d" % number)),
        lambda number: commit(events=(told(f"{number}"),)),
    ],
    ids=["documents", "events"],
)
def test_an_older_state_is_noticed_also_where_only_commits_were_written(write, server, store, tmp_path):
    store.ask(commit(Draft("run", b"0")))
    server.stop()
    shutil.copytree(server.data, tmp_path / "backup", symlinks=True)
    server.start()
    assert store.ask(commit()).done  # over a new connection, so that what follows has nothing to repeat
    for number in range(100):
        assert store.ask(write(number)).done
    server.stop()
    server.restore(tmp_path / "backup")
    server.start()
    for query in (Fetch("acme", ("run",)), commit(Draft("run", b"again"))):
        with pytest.raises(StoreCorrupt, match="older state"):
            store.ask(query)


def test_a_read_only_server_refuses_commits_answers_reads_and_resumes(server, store):
    asked = commit(Draft("run", b"1", on("runs")))
    assert store.ask(asked).done
    server.stop()
    server.start(default_transaction_read_only="on")
    try:
        with pytest.raises(StoreUnavailable, match="read-only"):
            store.ask(commit(Draft("run", b"2")))
        assert found(store, "run") == document(asked)
        assert store.ask(Scan("acme", "runs", 1)).documents == [document(asked)]
        refused = commit(expect={"run": None}, events=(told("job"),))
        assert store.ask(refused).unexpected == {"run": document(asked)}
    finally:
        server.stop()
        server.start()
    assert store.ask(commit(Draft("run", b"2"), expect={"run": asked.tag})).done


@pytest.fixture
def tight() -> Iterator[tuple[PostgresServer, Path]]:
    """A server whose data directory is on a small disk of its own."""
    folder = Path(tempfile.mkdtemp(prefix="semel-postgres-disk-"))
    folder.chmod(0o755)  # the server runs as somebody else
    try:
        with small_disk(folder / "disk", _DISK_BYTES) as disk:
            # Nobody tidies up in between: what is full stays full until the test makes room.
            server = PostgresServer(disk / "data", autovacuum="off")
            try:
                server.start()
                yield server, disk
            finally:
                server.remove()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_full_disk_refuses_commits_keeps_those_acknowledged_and_resumes(tight, stores):
    server, disk = tight
    stores.append(open_store(server.url()))
    store, done = stores[0], list[Commit]()
    assert store.ask(commit(Draft("first", b"", on("runs")))).done
    fill(disk)

    def write_on() -> None:
        for number in range(1_000):
            asked = commit(Draft(f"run-{number}", os.urandom(100_000), on("runs", number)))
            assert store.ask(asked).done
            done.append(asked)

    with pytest.raises(StoreUnavailable, match="Free some space"):
        write_on()
    free(disk)
    last = commit(Draft("last", b"1"))
    until(lambda: answered(store, last), "service resumes by itself")
    assert [found(store, each.put[0].id) for each in done] == [document(each) for each in done]


def answered(store: Any, query: Any) -> Any:
    try:
        return store.ask(query)
    except StoreUnavailable:
        return None


# --- many at once ----------------------------------------------------------------------------------------

RACERS, TURNS = 4, 50


def take_seats(url: str, name: str, start: Barrier, told: Queue[list[bool]]) -> None:
    """In a process of its own: each turn all try for the only seat of an index. Tells which it got."""
    store, got = open_store(url), []
    for turn in range(TURNS):
        asked = commit(
            Draft(f"{name}-{turn}", b"", on(f"seat-{turn}")), capacity=(Capacity(f"seat-{turn}", 1),)
        )
        start.wait(PATIENCE_S)
        got.append(store.ask(asked).done)
    store.close()
    told.put(got)


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_of_processes_that_want_the_last_seat_one_gets_it_whatever_isolation_is_the_servers_default(
    isolation, server, schema, stores
):
    server.stop()
    server.start(default_transaction_isolation=isolation, synchronous_commit="off")
    try:
        stores.append(open_store(server.url(schema)))
        spawn = multiprocessing.get_context("spawn")
        start, told = spawn.Barrier(RACERS), spawn.Queue()
        names = [f"racer-{number}" for number in range(RACERS)]
        racers = [
            spawn.Process(target=take_seats, args=(server.url(schema), name, start, told)) for name in names
        ]
        for racer in racers:
            racer.start()
        got = [told.get(timeout=2 * PATIENCE_S) for _ in racers]
        for racer in racers:
            racer.join()
        told.close()
        assert [sum(turn) for turn in zip(*got, strict=True)] == [1] * TURNS
        assert {stores[0].ask(Count("acme", f"seat-{turn}")) for turn in range(TURNS)} == {1}
    finally:
        server.stop()
        server.start()


# Commits of no document: what they do is to take the tenant's lock until their transaction ends. The second
# one also tells an event.
HOLD_3 = """
    SELECT commit_documents_3(
        NULL, '{acme}', '{tag}', '{0}', '{}', '{}', '{0}', '{}', '{}', '{}', '{0}', '{}', '{0}', '{}', '{}'
    )
"""
HOLD_4 = """
    SELECT commit_documents_4(
        NULL, '{acme}', '{tag}', '{0}', '{}', '{}', '{0}', '{}', '{}', '{}', '{0}', '{}', '{0}', '{}', '{}',
        '{1}', ARRAY['{"at_us": 1, "tenant": "acme", "scope": "approval", "key": "held", "record_id": "held",
            "kind": "approved", "state": "approved", "fence": 0, "tool": "pay", "version": "1", "digest": "",
            "expires_at": null, "conversation": "", "step": "", "by_whom": "ada", "note": "", "times": 1}']
    )
"""
HOLD_6 = HOLD_4.replace("commit_documents_4", "commit_documents_6")
HOLDS = pytest.mark.parametrize(
    "hold", [HOLD_3, HOLD_4, HOLD_6], ids=["of schema 3", "of the release before", "of this one"]
)


@HOLDS
def test_a_transaction_whose_snapshot_is_older_than_the_lock_is_refused(hold, server, schema, store):
    """It would count what was there before the one who held the lock wrote."""
    with other(server, schema) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.errors.InvalidTransactionState, match="READ COMMITTED"):
            connection.execute(hold)


def test_what_one_statement_has_counted_stays_right_from_commit_to_commit(store):
    """Each index is counted once for a tenant; each answer is as if the commits had come one by one."""
    chance, names = random.Random(5), ("slots", "slots/w", "runs")

    def some_commit() -> Commit:
        drafts = tuple(
            Draft(
                f"run-{chance.randrange(12)}",
                b"",
                tuple(Entry(name, chance.randrange(3)) for name in names if chance.random() < 0.5),
            )
            for _ in range(chance.randrange(3))
        )
        drop = tuple({f"run-{chance.randrange(12)}" for _ in range(chance.randrange(3))})
        capacity = tuple(Capacity(name, chance.choice((3, 6, 1_000))) for name in names)
        return Commit(chance.choice(("acme", "globex")), SYSTEM.token().hex(), {}, drafts, drop, capacity)

    commits = [some_commit() for _ in range(300)]

    async def all_at_once() -> list[Committed]:
        return await asyncio.gather(*(store.aask(each) for each in commits))

    with closing(MemoryStore()) as one_by_one:
        expected = [one_by_one.ask(each) for each in commits]
    answers = asyncio.run(all_at_once())
    assert [(each.done, each.full, each.count) for each in answers] == [
        (each.done, each.full, each.count) for each in expected
    ]
    assert 0 < sum(each.done for each in answers) < 300


def test_what_tasks_commit_in_one_tick_goes_out_together_each_with_its_own_answer(store):
    tenants = ["acme", "globex", "initech"]
    store.ask(commit())
    before = store.statements
    asked = [
        commit(
            Draft(f"run-{number}", b"%d" % number, on("slots")),
            tenant=tenants[number % 3],
            capacity=(Capacity("slots", 5),),
        )
        for number in range(60)
    ]
    answers = all_at_once(store, asked)
    assert store.statements == before + 1
    assert [answer.done for answer in answers] == [True] * 15 + [False] * 45
    assert {answer.count for answer in answers[15:]} == {5}
    for each in asked[:15]:
        assert found(store, each.put[0].id, each.tenant) == document(each)


def test_of_one_tick_the_later_commit_of_a_tenant_sees_the_earlier_one(store):
    first = commit(Draft("run", b"1", on("runs", 1)), expect={"run": None})
    second = commit(Draft("run", b"2", on("runs", 2)), expect={"run": first.tag})
    third = commit(drop=("run",), expect={"run": second.tag})
    fourth = commit(expect={"run": second.tag})
    answers = all_at_once(store, [first, second, third, fourth])
    assert [answer.done for answer in answers] == [True, True, True, False]
    assert answers[3].unexpected == {"run": None}
    assert store.ask(Count("acme", "runs")) == 0


def test_large_bodies_of_one_tick_do_not_share_a_transaction(store):
    bodies = [os.urandom(4 * MEBIBYTE) for _ in range(4)]
    asked = [commit(Draft(f"run-{number}", body)) for number, body in enumerate(bodies)]
    before = store.statements
    assert all(answer.done for answer in all_at_once(store, asked))
    assert store.statements == before + 4
    assert [found(store, each.put[0].id) for each in asked] == [document(each) for each in asked]


def test_a_commit_is_carried_out_also_if_its_task_is_cancelled(store):
    asked = commit(Draft("run", b"1"))

    async def ask_and_leave() -> None:
        task = asyncio.ensure_future(store.aask(asked))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask_and_leave())
    until(lambda: found(store, "run") == document(asked), "it is carried out")


def test_transactions_over_the_same_tenants_never_wait_for_each_other_in_a_ring(server, schema, stores):
    stores += [open_store(server.url(schema)) for _ in range(4)]
    before = deadlocks(server)
    tenants = [f"tenant-{number}" for number in range(12)]
    start = threading.Barrier(len(stores))

    def write_all(number: int) -> None:
        order = tenants if number % 2 else tenants[::-1]
        start.wait(PATIENCE_S)
        for _ in range(25):
            asked = [commit(Draft("run", b"%d" % number), tenant=tenant) for tenant in order]
            assert all(answer.done for answer in all_at_once(stores[number], asked))

    with ThreadPoolExecutor(len(stores)) as pool:
        list(pool.map(write_all, range(len(stores))))
    assert deadlocks(server) == before


# --- events ------------------------------------------------------------------------------------------------


def test_of_one_tick_each_commit_tells_its_own_events_and_a_refused_one_none(store):
    tenants = ["acme", "globex", "initech"]
    store.ask(commit())
    before = store.statements
    asked = [
        commit(
            Draft(f"job-{number}", b"", on("slots")),
            tenant=tenants[number % 3],
            capacity=(Capacity("slots", 5),),
            events=tuple(told(f"{number}.{part}", tenants[number % 3]) for part in range(number % 4)),
        )
        for number in range(60)
    ]
    assert [answer.done for answer in all_at_once(store, asked)] == [True] * 15 + [False] * 45
    assert store.statements == before + 1
    # In the order of the calls, whatever order the tenants' locks have.
    assert heard(store) == [event.key for each in asked[:15] for event in each.events]


@pytest.mark.parametrize(
    "hostile",
    ["\x00\x01\x010\x7f \"'\\ {}[],NULL \\u0000 \ufffd\U0010ffff\u2028", "\x00", "\x01", "\\u0001"],
    ids=["everything", "nul", "what nul is written with", "its spelling"],
)
def test_an_event_comes_back_as_it_was_told_whatever_is_in_it(hostile, store):
    first = Event(
        0, -1, hostile, hostile, hostile, hostile, hostile, hostile, 2**63 - 1, hostile, hostile,
        bytes(range(256)), -1, hostile, hostile, hostile, hostile, 2**53 + 1,
    )  # fmt: skip
    events = (first, first._replace(digest=b"", expires_at=None, note="", by=""))
    assert store.ask(commit(Draft("job", b""), tenant=hostile, events=events)).done
    assert [event._replace(seq=0) for event in store.ask(ReadEvents(tenant=hostile))] == [*events]
    assert chain(store) == (True, 2, 0)


def test_a_commit_that_is_asked_twice_in_one_tick_tells_its_events_once(store):
    asked = commit(Draft("job", b"1"), expect={"job": None}, events=(told("one"),))
    other = commit(Draft("job", b"2"), expect={"job": asked.tag}, events=(told("two"),))
    assert [answer.done for answer in all_at_once(store, [asked, asked, other])] == [True, True, True]
    assert heard(store) == ["one", "two"]


def test_an_event_that_cannot_be_written_takes_its_document_with_it_and_nobody_elses(server, schema, store):
    meddle(server, schema, "ALTER TABLE events ADD CHECK (note <> 'poison')")
    well = [commit(Draft(f"job-{number}", b""), events=(told(f"{number}"),)) for number in range(3)]
    ill = commit(Draft("ill", b""), events=(told("before"), told("ill", note="poison")))

    async def scene() -> list[Any]:
        asked = [well[0], ill, *well[1:]]
        return await asyncio.gather(*(store.aask(each) for each in asked), return_exceptions=True)

    answers = asyncio.run(scene())
    assert [type(answer) for answer in answers] == [Committed, StoreCorrupt, Committed, Committed]
    assert found(store, "ill") is None
    assert heard(store) == ["0", "1", "2"]
    assert chain(store) == (True, 3, 0)  # numbers that were rolled back are no gap in it


def test_a_seal_skips_no_event_of_a_commit_that_is_still_open(server, schema, store):
    with other(server, schema) as connection:
        connection.execute(HOLD_4)
        assert store.ask(commit(Draft("job", b""), tenant="globex", events=(told("later"),))).done
        assert heard(store) == ["later"]
        assert store.ask(SealEvents()) is None
        connection.commit()
    assert heard(store) == ["held", "later"]
    assert chain(store) == (True, 2, 0)


def test_a_chain_that_is_sealed_while_many_commit_is_whole(server, schema, stores):
    stores += [open_store(server.url(schema)) for _ in range(4)]
    tenants = ["acme", "globex", "initech"]
    ended = threading.Event()

    def write_all(number: int) -> None:
        for turn in range(20):
            asked = [
                commit(Draft(f"{number}", b""), tenant=tenant, events=(told(f"{number}.{turn}", tenant),))
                for tenant in tenants
            ]
            assert all(answer.done for answer in all_at_once(stores[number], asked))

    def seal_all() -> int:
        seals = 0
        while not ended.is_set():
            seals += stores[3].ask(SealEvents()) is not None
        return seals

    with ThreadPoolExecutor(4) as pool:
        sealing = pool.submit(seal_all)
        try:
            list(pool.map(write_all, range(3)))
        finally:
            ended.set()
        assert sealing.result() > 0, "nothing was sealed meanwhile"
    assert chain(stores[3]) == (True, 180, 0)
    for tenant in tenants:
        for number in range(3):
            own = [key for key in heard(stores[3], tenant) if key.startswith(f"{number}.")]
            assert own == [f"{number}.{turn}" for turn in range(20)]


# --- other users of the database ---------------------------------------------------------------------------


@HOLDS
def test_a_tenant_that_somebody_else_holds_is_a_bounded_refusal_and_others_go_on(hold, server, schema, store):
    with other(server, schema) as connection:
        connection.execute(hold)
        with pytest.raises(StoreUnavailable):
            store.ask(commit(Draft("run", b"1")))
        assert store.ask(commit(Draft("run", b"1"), tenant="globex")).done
        connection.rollback()
    assert store.ask(commit(Draft("run", b"1"))).done


def test_a_deadlock_in_which_the_store_gives_way_is_not_noticed_by_its_caller(server, schema, stores):
    """They lock the row that the store wants last, and then want the one that it has locked first."""
    stores.append(open_store(server.url(schema, timeout="10s")))
    store, before = stores[0], deadlocks(server)
    assert store.ask(commit(Draft("one", b""), Draft("two", b""))).done
    lock = "SELECT 1 FROM documents WHERE id = %s FOR UPDATE"
    # Where a busy machine has the store look for a ring before there is one: then once more.
    for _ in range(10):
        asked = commit(Draft("one", b""), Draft("two", b""))
        with other(server, schema) as connection, ThreadPoolExecutor(1) as pool:
            connection.execute(lock, ("two",))
            committing = pool.submit(store.ask, asked)
            until(lambda: blocked(server, schema), "the store's transaction waits")
            connection.execute(lock, ("one",))
            connection.rollback()
            assert committing.result().done
        assert found(store, "one") == document(asked)
        if deadlocks(server) > before:
            return
    pytest.fail("never a deadlock")


# --- damage ------------------------------------------------------------------------------------------------

UNCHECKED = "ALTER TABLE documents DROP CONSTRAINT places_are_a_list"
EVERYTHING = [
    commit(Draft("run", b"2"), expect={"run": None}),
    Fetch("acme", ("run",)),
    Scan("acme", "runs", 1),
]
DAMAGES: dict[str, tuple[str, list[Any]]] = {
    "no documents": ("ALTER TABLE documents RENAME TO gone", EVERYTHING),
    "no entries": (
        "ALTER TABLE places RENAME TO gone",
        [*EVERYTHING[2:], Count("acme", "runs"), Tenants("x")],
    ),
    "no step": ("ALTER FUNCTION commit_documents_6 RENAME TO gone", EVERYTHING[:1]),
    "no list of entries": ("UPDATE documents SET places = '{}'", EVERYTHING),
    "entries that are none": ("UPDATE documents SET places = '[7]'", EVERYTHING),
    "a score that is none": ("UPDATE documents SET places = '[[\"runs\", 1.5]]'", EVERYTHING),
    "a place without its document": ("DELETE FROM documents", EVERYTHING[2:]),
    "a place that its document denies": ("UPDATE documents SET places = '[]'", EVERYTHING[2:]),
    "a document at another score": ("UPDATE places SET score = 8", EVERYTHING[2:]),
}


@pytest.mark.parametrize(("damage", "queries"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_document_is_not_an_absent_one(damage, queries, server, schema, store):
    assert store.ask(commit(Draft("run", b"1", on("runs", 7)))).done
    meddle(server, schema, UNCHECKED, damage)
    for query in queries:
        with pytest.raises(StoreCorrupt):
            store.ask(query)


def test_a_commit_that_would_replace_damaged_places_says_so(server, schema, store):
    assert store.ask(commit(Draft("run", b"1", on("runs", 7)))).done
    meddle(server, schema, UNCHECKED, 'UPDATE documents SET places = \'[["runs", "x"]]\'')
    with pytest.raises(StoreCorrupt):
        store.ask(commit(Draft("run", b"2")))


def test_the_damage_of_one_document_does_not_hold_up_other_commits_of_its_tick(server, schema, store):
    assert store.ask(commit(Draft("run", b"1", on("runs", 7)))).done
    meddle(server, schema, UNCHECKED, 'UPDATE documents SET places = \'[["runs", "x"]]\'')
    well = [commit(Draft(f"other-{number}", b"1"), events=(told(f"{number}"),)) for number in range(3)]

    async def scene() -> list[Any]:
        asked = [well[0], commit(Draft("run", b"2"), events=(told("never"),)), *well[1:]]
        return await asyncio.gather(*(store.aask(each) for each in asked), return_exceptions=True)

    answers = asyncio.run(scene())
    assert [type(answer) for answer in answers] == [Committed, StoreCorrupt, Committed, Committed]
    assert [found(store, each.put[0].id) for each in well] == [document(each) for each in well]
    assert heard(store) == ["0", "1", "2"]


# --- from the schema before --------------------------------------------------------------------------------

FIFTH_SCHEMA = ("DROP FUNCTION commit_documents_6",)
FOURTH_SCHEMA = (*FIFTH_SCHEMA, "ALTER TABLE records DROP COLUMN closes, DROP COLUMN stopped")
THIRD_SCHEMA = (
    *FOURTH_SCHEMA,
    "DROP FUNCTION commit_documents_4",
    "UPDATE meta SET value = '3' WHERE name = 'version'",
)
FIRST_SCHEMA = (
    *FOURTH_SCHEMA,
    "DROP FUNCTION commit_documents_3, commit_documents_4",
    "DROP TABLE documents, places",
    "DROP SEQUENCE commits_seq",
    "UPDATE meta SET value = '1' WHERE name = 'version'",
)


def test_a_store_of_the_first_schema_is_opened_keeps_its_records_and_takes_documents(server, schema, stores):
    stores.append(open_store(server.url(schema)))
    record = stores[0].perform(claim(A)).record
    meddle(server, schema, *FIRST_SCHEMA)
    stores.append(open_store(server.url(schema)))
    assert stores[1].perform(look()).record == record
    assert stores[1].ask(commit(Draft("run", b"1"))).done
    assert found(stores[1], "run") is not None


def test_a_store_of_the_third_schema_is_opened_keeps_its_documents_and_takes_events(server, schema, stores):
    stores.append(open_store(server.url(schema)))
    asked = commit(Draft("run", b"1"))
    assert stores[0].ask(asked).done
    meddle(server, schema, *THIRD_SCHEMA)
    stores.append(open_store(server.url(schema)))
    next_ = commit(Draft("run", b"2"), expect={"run": asked.tag}, events=(told("job"),))
    assert stores[1].ask(next_).done
    assert heard(stores[1]) == ["job"]


def test_a_store_of_the_fifth_schema_is_opened_and_old_and_new_count_the_same_slots(server, schema, stores):
    stores.append(open_store(server.url(schema)))
    assert stores[0].ask(commit(Draft("one", b"1", on("slots")))).done
    meddle(server, schema, *FIFTH_SCHEMA, "UPDATE meta SET value = '5' WHERE name = 'version'")
    stores.append(open_store(server.url(schema)))
    with other(server, schema) as connection:
        put = """
            SELECT done, full_room FROM commit_documents_4(
                NULL, '{acme}', '{tag-4}', '{0}', '{}', '{}', '{1}', '{two}', '{2}', ARRAY['[["slots", 3]]'],
                '{0}', '{}', '{1}', '{slots}', '{2}', NULL, NULL
            )
        """
        assert connection.execute(put).fetchone() == (True, None)
        connection.commit()
    answer = stores[1].ask(commit(Draft("three", b"3", on("slots")), capacity=(Capacity("slots", 2),)))
    assert (answer.done, answer.count) == (False, 2)


OF_THE_RELEASE_BEFORE = """
    SELECT done FROM commit_documents_3(
        NULL, '{acme}', '{tag-3}', '{1}', '{run}', ARRAY[%s], '{1}', '{run}', '{3}',
        ARRAY['[["runs", 3]]'], '{0}', '{}', '{0}', '{}', '{}'
    )
"""


def test_the_step_of_the_release_before_and_the_present_one_write_the_same_documents(server, schema, store):
    first = commit(Draft("run", b"1", on("runs", 1)), events=(told("job"),))
    assert store.ask(first).done
    with other(server, schema) as connection:
        assert connection.execute(OF_THE_RELEASE_BEFORE, (first.tag,)).fetchone() == (True,)
        connection.commit()
    by_the_old = Document("run", b"3", "tag-3", on("runs", 3))
    assert store.ask(Scan("acme", "runs", 9)).documents == [by_the_old]
    assert store.ask(commit(Draft("run", b"4"), expect={"run": "tag-3"})).done
    assert heard(store) == ["job"]
