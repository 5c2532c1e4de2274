"""What a PostgreSQL server, the network and other users of the database can do to the store."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from semel.audit.events import fold, told_by
from semel.errors import OpenError, StoreCorrupt, StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address, State, ours, settled_by
from semel.stores.base import CountRecords, ReadEvents, SealEvents, Sweep
from semel.stores.postgres import PostgresStore, statements
from semel.stores.postgres.statements import Migration
from semel.stores.urls import open_store
from tests.commands import AT, A, B, claim, look, park, release, settle
from tests.faults.checks import until
from tests.missing import library
from tests.patience import HURRIED
from tests.postgres_server import DATABASE, USER, PostgresServer
from tests.proxy import Proxy

psycopg = library("psycopg")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
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
    return stores[0]


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def far(server: PostgresServer, proxy: Proxy, schema: str, stores: list[Any]) -> Any:
    """The store behind the proxy."""
    url = server.url(schema, timeout=HURRIED).replace(f":{server.port}/", f":{proxy.port}/")
    stores.append(open_store(url))
    return stores[-1]


@contextmanager
def other(server: PostgresServer, schema: str) -> Iterator[Any]:
    """Somebody else's connection to the same tables, in a transaction."""
    connection = psycopg.connect(
        host="127.0.0.1", port=server.port, user=USER, dbname=DATABASE, options=f"-c search_path={schema}"
    )
    try:
        yield connection
    finally:
        connection.close()


def place(name: object) -> Address:
    return Address("acme", "tool", str(name))


def kinds(store: Any) -> list[str]:
    return [event.kind for event in store.ask(ReadEvents(limit=100_000))]


def works(store: Any) -> bool:
    try:
        store.perform(look())
    except StoreUnavailable:
        return False
    return True


# --- the server dies ---------------------------------------------------------------------------------


class Load:
    """Threads and a loop that settle keys without pause, and remember what was acknowledged."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._stop = threading.Event()
        self.acknowledged: list[Address] = []
        self.refused = 0
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(4)]
        self._threads.append(threading.Thread(target=lambda: asyncio.run(self._tasks())))
        for thread in self._threads:
            thread.start()

    def _run(self, worker: int) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            at, token = place(f"{worker}-{number}"), os.urandom(16)
            try:
                assert ours(self._store.perform(claim(token, at)).record, claim(token, at))
                assert settled_by(self._store.perform(settle(token, at)).record, settle(token, at))
                self.acknowledged.append(at)
            except StoreUnavailable:
                self.refused += 1
                time.sleep(0.01)

    async def _tasks(self) -> None:
        await asyncio.gather(*(self._task(worker) for worker in range(8)))

    async def _task(self, worker: int) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            at, token = place(f"task-{worker}-{number}"), os.urandom(16)
            try:
                await self._store.aperform(claim(token, at))
                reply = await self._store.aperform(settle(token, at))
                assert settled_by(reply.record, settle(token, at))
                self.acknowledged.append(at)
            except StoreUnavailable:
                self.refused += 1
                await asyncio.sleep(0.01)

    def until(self, count: int) -> None:
        until(lambda: len(self.acknowledged) >= count, f"{count} calls were acknowledged")

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize(
    "end", [PostgresServer.kill, PostgresServer.stop], ids=["kill -9", "immediate shutdown"]
)
def test_nothing_acknowledged_is_lost_when_the_server_dies_under_load_and_service_resumes(
    end: Callable[[PostgresServer], None], server: PostgresServer, store: Any
) -> None:
    load = Load(store)
    try:
        load.until(200)
        end(server)
        until(lambda: load.refused > 5, "calls are refused")
        server.start()
        load.until(len(load.acknowledged) + 200)
    finally:
        load.end()
    for at in load.acknowledged:
        record = store.perform(look(at)).record
        assert record is not None
        assert record.state is State.DONE
        assert fold(store.ask(ReadEvents(record_id=record.request.id))) == told_by(record)


def test_a_server_that_comes_back_empty_is_noticed_and_not_trusted(server, schema, store, stores):
    store.perform(claim(A))
    server.stop()
    server.make()
    server.start()
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match="without its data"):
            store.perform(claim(B))
    stores.append(open_store(server.url(schema)))
    with pytest.raises(StoreCorrupt, match="another store"):
        store.perform(claim(B))
    assert stores[-1].perform(look()).record is None


def test_a_server_that_comes_back_in_an_older_state_is_noticed(server, store, tmp_path):
    store.perform(claim(A))
    server.stop()
    shutil.copytree(server.data, tmp_path / "backup", symlinks=True)
    server.start()
    for number in range(100):
        store.perform(claim(A, place(number)))
    server.stop()
    server.restore(tmp_path / "backup")
    server.start()
    with pytest.raises(StoreCorrupt, match="older state"):
        store.perform(look())


def test_connections_ended_by_an_administrator_are_made_anew_without_a_refusal(server, schema, store):
    store.perform(claim(A))
    with other(server, schema) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'semel'"
        )
        connection.commit()
    assert store.perform(settle(A)).record.state is State.DONE
    assert kinds(store) == ["claimed", "settled"]


# --- the network -------------------------------------------------------------------------------------


def test_a_lost_reply_is_a_refusal_and_asking_again_writes_no_second_event(proxy, store, far):
    proxy.drops_replies = True
    with pytest.raises(StoreUnavailable, match="in time"):
        far.perform(claim(A))
    proxy.restore()
    assert ours(far.perform(claim(A)).record, claim(A))
    proxy.drops_replies = True
    with pytest.raises(StoreUnavailable):
        far.perform(settle(A))
    proxy.restore()
    assert settled_by(far.perform(settle(A)).record, settle(A))
    assert kinds(store) == ["claimed", "settled"]


@pytest.mark.parametrize("count", [0, 1, 20, 120])
def test_a_reply_cut_in_the_middle_is_asked_for_again_and_found_done(count, proxy, store, far):
    far.perform(look())
    proxy.cuts_after = count
    assert ours(far.perform(claim(A)).record, claim(A))
    proxy.cuts_after = count
    assert settled_by(far.perform(settle(A)).record, settle(A))
    assert kinds(store) == ["claimed", "settled"]


def test_a_one_way_cut_refuses_in_bounded_time_and_service_resumes(proxy, far):
    far.perform(claim(A))
    proxy.drops_requests = True
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            far.perform(settle(A))
    proxy.restore()
    assert far.perform(settle(A)).applied


def test_a_refusing_network_is_a_refusal_and_service_resumes(proxy, far):
    proxy.refuses = True
    proxy.cut()
    with pytest.raises(StoreUnavailable):
        far.perform(claim(A))
    proxy.restore()
    assert far.perform(claim(A)).applied


def test_a_slow_network_only_delays(proxy, far):
    proxy.delay_s = 0.01

    async def scene() -> list[Any]:
        return await asyncio.gather(*(far.aperform(claim(A, place(number))) for number in range(50)))

    assert all(reply.applied for reply in asyncio.run(scene()))


# --- other users of the database -----------------------------------------------------------------------


def test_a_read_only_server_refuses_writes_answers_reads_and_resumes(server, store):
    settled = [store.perform(claim(A)), store.perform(settle(A))][-1].record
    server.stop()
    server.start(default_transaction_read_only="on")
    try:
        with pytest.raises(StoreUnavailable, match="read-only"):
            store.perform(claim(B, place("other")))
        assert store.perform(look()).record == settled
        assert "danger" in [finding.level for finding in store.findings() if finding.subject == "writing"]
    finally:
        server.stop()
        server.start()
    assert store.perform(claim(B, place("other"))).applied


def test_a_server_whose_default_is_serializable_and_asynchronous_is_set_right(server, schema, stores):
    server.stop()
    server.start(default_transaction_isolation="serializable", synchronous_commit="off", fsync="on")
    try:
        stores.append(open_store(server.url(schema)))
        with ThreadPoolExecutor(16) as pool:
            for number in range(20):
                at = place(number)
                replies = pool.map(
                    lambda token, at=at: stores[0].perform(claim(token, at)), map(bytes16, range(16))
                )
                assert sum(reply.applied for reply in replies) == 1
        assert "synchronous_commit=on" in stores[0].durability
    finally:
        server.stop()
        server.start()


def bytes16(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_a_record_locked_by_somebody_else_is_a_bounded_refusal(server, schema, store):
    store.perform(claim(A))
    with other(server, schema) as connection:
        connection.execute("SELECT 1 FROM records FOR UPDATE")
        with pytest.raises(StoreUnavailable):
            store.perform(settle(A))
        assert store.perform(claim(B, place("other"))).applied
        connection.rollback()
    assert store.perform(settle(A)).applied


@pytest.mark.parametrize("swapped", [False, True])
def test_a_deadlock_with_somebody_else_ends_and_everything_lands_once(swapped, server, schema, stores):
    """They lock one record and want the other; one statement of the store does it the other way round."""
    stores.append(open_store(server.url(schema, timeout="10s")))
    store = stores[0]
    ends = [place("one"), place("two")]
    for at in ends:
        store.perform(claim(A, at))
    first, second = reversed(ends) if swapped else ends

    async def settle_both() -> list[Any]:
        return await asyncio.gather(*(store.aperform(settle(A, at)) for at in ends))

    def blocked() -> bool:
        with other(server, schema) as eye:
            found = eye.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
            return bool(found[0])

    with other(server, schema) as connection, ThreadPoolExecutor(1) as pool:
        connection.execute("SELECT 1 FROM records WHERE key = %s FOR UPDATE", (second.key,))
        settling = pool.submit(lambda: asyncio.run(settle_both()))
        until(blocked, "the store's statement waits")
        try:
            connection.execute("SELECT 1 FROM records WHERE key = %s FOR UPDATE", (first.key,))
        except psycopg.errors.DeadlockDetected:
            pass  # either side may be chosen to give way
        connection.rollback()
        assert all(reply.record.state is State.DONE for reply in settling.result())
    assert kinds(store).count("settled") == 2


def test_of_many_handles_that_claim_one_key_at_once_one_gets_it_and_the_others_see_whose_it_is(
    server, schema, stores
):
    """A loser's snapshot may be older than the winner's commit: then it has to ask again."""
    stores += [open_store(server.url(schema)) for _ in range(8)]
    start = threading.Barrier(8)

    def race(number: int, at: Address) -> Any:
        start.wait()
        return stores[number].perform(claim(bytes16(number), at))

    with ThreadPoolExecutor(8) as pool:
        for key in range(60):
            replies = list(pool.map(race, range(8), [place(key)] * 8))
            (winner,) = [reply for reply in replies if reply.applied]
            assert {reply.record for reply in replies} == {winner.record}
    assert kinds(stores[0]) == ["claimed"] * 60


def test_a_seal_skips_no_event_of_a_transaction_that_is_still_open(server, schema, store):
    store.perform(claim(A))
    with other(server, schema) as connection:
        connection.execute(
            "INSERT INTO events (at_us, tenant, scope, key, record_id, kind, state, fence, tool, version,"
            " digest, conversation, step, by_whom, note, times)"
            " VALUES (1, 'acme', 's', 'k', 'r', 'dedup_hit', 'done', 1, 't', 'v', '', '', '', '', '', 1)"
        )
        store.perform(settle(A))
        assert store.ask(SealEvents()) is None
        connection.commit()
    assert store.ask(SealEvents()).events == 3


# --- damage --------------------------------------------------------------------------------------------


DAMAGES = {
    "state": "UPDATE records SET state = 'nonsense'",
    "lease": "UPDATE records SET lease_until = NULL",
    "address": "UPDATE records SET key = 'another'",
    "table": "ALTER TABLE records RENAME TO gone",
    "column": "ALTER TABLE records DROP COLUMN outcome",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_record_is_not_an_absent_one(damage, server, schema, store):
    store.perform(claim(A))
    with other(server, schema) as connection:
        connection.execute("ALTER TABLE records DROP CONSTRAINT times_fit_the_state")
        connection.execute(damage)
        connection.commit()
    with pytest.raises(StoreCorrupt):
        store.perform(claim(B))


def test_a_store_without_its_secret_key_does_not_open(server, schema, store):
    with other(server, schema) as connection:
        connection.execute("DELETE FROM meta WHERE name = 'secret_key'")
        connection.commit()
    with pytest.raises(StoreCorrupt):
        open_store(server.url(schema))


# --- opening -------------------------------------------------------------------------------------------


def test_what_only_a_person_can_mend_is_an_open_error_that_names_the_fix(server):
    url = server.url()
    for wrong in (url.replace("/postgres?", "/nowhere?"), url.replace(f"{USER}@", "nobody:hush@")):
        with pytest.raises(OpenError) as refused:
            open_store(wrong)
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "option", ["pool=1", "pool=x", "timeout=5", "audit=maybe", "colour=red", "sslmode=odd"]
)
def test_a_wrong_option_is_an_open_error(option, server):
    with pytest.raises(OpenError):
        open_store(server.url() + f"&{option}".replace("user@", "user:hush@"))


def test_a_password_on_the_query_is_refused_and_not_repeated(server):
    with pytest.raises(OpenError) as refused:
        open_store(server.url() + "&password=hush")
    assert "hush" not in str(refused.value)


def test_a_server_that_is_not_there_is_unavailable_and_the_password_stays_secret():
    with pytest.raises(StoreUnavailable) as refused:
        open_store("postgresql://ann:hush@127.0.0.1:1/db")
    assert "hush" not in str(refused.value)


def test_a_server_without_a_connection_left_is_unavailable():
    server = PostgresServer(max_connections="4", superuser_reserved_connections="0", max_wal_senders="0")
    try:
        server.start()
        taken = [psycopg.connect(server.url().partition("?")[0]) for _ in range(4)]
        with pytest.raises(StoreUnavailable):
            open_store(server.url())
        for connection in taken:
            connection.close()
        until(lambda: opens(server), "a connection is free")
    finally:
        server.remove()


def opens(server: PostgresServer) -> bool:
    try:
        open_store(server.url()).close()
    except StoreUnavailable:
        return False
    return True


# --- two versions of the schema --------------------------------------------------------------------------


WIDER = Migration("ALTER TABLE records ADD COLUMN colour text DEFAULT 'red'", works_with=1)
STRANGER = Migration("ALTER TABLE records ADD COLUMN shape text", works_with=len(statements.migrations()) + 2)


def version(server: PostgresServer, schema: str, *later: Migration) -> PostgresStore:
    conninfo = f"host=127.0.0.1 port={server.port} user={USER} dbname={DATABASE}"
    return PostgresStore(conninfo, schema_name=schema, migrations=[*statements.migrations(), *later])


def test_an_old_and_a_new_version_work_side_by_side_on_a_wider_schema(server, schema, stores):
    stores.append(version(server, schema))
    old = stores[0]
    old.perform(claim(A))
    stores.append(version(server, schema, WIDER))
    new = stores[1]
    assert old.perform(settle(A)).record == new.perform(look()).record
    assert new.perform(claim(B, place("new"))).applied
    assert old.perform(settle(B, place("new"))).applied
    stores.append(version(server, schema))
    assert stores[2].perform(look(place("new"))).record.state is State.DONE
    assert stores[2].secret_key == old.secret_key


def test_a_schema_that_an_old_version_cannot_keep_is_refused_by_it(server, schema, stores):
    stores.append(version(server, schema, WIDER, STRANGER))
    with pytest.raises(OpenError, match="Upgrade"):
        version(server, schema, WIDER)


def test_many_who_open_at_once_make_one_schema(server, schema, stores):
    with ThreadPoolExecutor(8) as pool:
        stores += pool.map(lambda _: open_store(server.url(schema)), range(8))
    assert len({store.secret_key for store in stores}) == 1


# --- processes -------------------------------------------------------------------------------------------


def test_a_forked_child_makes_its_own_connections_and_leaves_the_parents_alone(store):
    store.perform(claim(A))
    child = os.fork()
    if child == 0:
        done = 1
        try:
            done = 0 if store.perform(settle(A)).applied else 2
        finally:
            os._exit(done)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for number in range(5):
        assert store.perform(claim(A, place(number))).applied
    assert store.perform(look()).record.state is State.DONE


def test_waiters_hold_no_connection_and_one_notification_wakes_them_all(server, schema, stores):
    stores += [open_store(server.url(schema, pool="2")) for _ in range(2)]
    one, two = stores
    one.perform(claim(A))
    waiters = [two.waiters.add(AT) for _ in range(50)]
    two.watch()
    assert all(two.perform(claim(B, place(number))).applied for number in range(10))
    one.perform(settle(A))
    assert all(waiter.wait(SYSTEM, 30) for waiter in waiters)


def test_who_waits_is_woken_also_after_the_listening_connection_was_lost(proxy, store, far):
    store.perform(claim(A))
    waiter = far.waiters.add(AT)
    far.watch()
    until(lambda: far._listener._marked, "the record is marked")
    proxy.cut()
    store.perform(settle(A))
    assert waiter.wait(SYSTEM, 30)


def test_a_release_submitted_behind_a_cancelled_claim_is_carried_out_after_it(store):
    async def scene() -> None:
        for number in range(50):
            at = place(number)
            task = asyncio.create_task(store.aperform(claim(A, at)))
            await asyncio.sleep(0)
            task.cancel()
            store.submit(release(A, at))
        await asyncio.sleep(0)

    asyncio.run(scene())
    store.flush()
    for number in range(50):
        assert store.perform(look(place(number))).record.state is State.RELEASED


def test_a_parked_record_stays_parked_through_a_restart(server, store):
    store.perform(claim(A))
    store.perform(park(A))
    server.kill()
    server.start()
    assert store.perform(look()).record.state is State.IN_DOUBT


# --- many keys ---------------------------------------------------------------------------------------------


def settle_many(store: Any, count: int) -> None:
    """So many keys of one tenant, settled by 128 tasks."""

    async def work(worker: int) -> None:
        for number in range(worker, count, 128):
            at, token = place(number), number.to_bytes(16, "big")
            assert (await store.aperform(claim(token, at))).applied
            assert (await store.aperform(settle(token, at, window_us=1))).applied

    async def scene() -> None:
        await asyncio.gather(*map(work, range(128)))

    asyncio.run(scene())


def assert_all_are_counted_sealed_and_swept(store: Any, count: int) -> None:
    assert store.ask(CountRecords()) == {State.DONE: count}
    sealed = 0
    while (seal := store.ask(SealEvents(limit=10_000))) is not None:
        sealed += seal.events
    assert sealed == 2 * count
    closed, more = 0, True
    while more:
        swept = store.ask(Sweep(limit=5_000))
        closed, more = closed + swept.closed, swept.more
    assert closed == count
    assert store.ask(CountRecords()) == {}


@pytest.mark.parametrize(
    "count",
    [10_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(1_800)])],
)
def test_all_keys_of_one_tenant_are_counted_sealed_and_swept(server, schema, stores, count):
    stores.append(open_store(server.url(schema, timeout="60s")))
    settle_many(stores[0], count)
    assert_all_are_counted_sealed_and_swept(stores[0], count)
