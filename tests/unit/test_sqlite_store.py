"""The SQLite store beyond what every store does: the file, group commit, event loops, errors."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from semel.audit import export
from semel.audit.events import fold, told_by
from semel.audit.verify import verify
from semel.errors import OpenError, StoreCorrupt, StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address, State
from semel.stores.base import AppendEvents, ListRecords, ReadEvents, SealEvents, Sweep
from semel.stores.batching import BATCH_MAX
from semel.stores.sqlite import SqliteStore
from semel.stores.sqlite.schema import APPLICATION_ID, open_database
from semel.stores.sqlite.statements import SCHEMAS
from tests.commands import AT, LEASE, SECOND, A, B, claim, look, park, release, renew, settle
from tests.fake_clock import FakeClock
from tests.patience import PATIENCE_S

# Nothing waits this long unless it is stuck.
STUCK_S = PATIENCE_S


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "semel.db")


@pytest.fixture
def store(path: str):
    with closing(SqliteStore(path)) as opened:
        yield opened


@contextmanager
def locked(path: str):
    """Another program holds the database's write lock."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            yield other
        finally:
            if other.in_transaction:
                other.execute("ROLLBACK")


def damage(path: str, assignment: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA ignore_check_constraints = ON")
        other.execute(f"UPDATE semel_records SET {assignment}")


def numbered(number: int) -> tuple[bytes, Address]:
    return number.to_bytes(16, "big"), AT._replace(key=f"key-{number}")


def until(happened) -> None:
    for _ in range(int(STUCK_S / 0.001)):
        if happened():
            return
        SYSTEM.sleep(0.001)
    pytest.fail("it did not happen")


def waiting(store: SqliteStore) -> int:
    return len(store._writer._queue)


# --- durability --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("durability", "level", "words"), [("full", 2, "power loss"), ("normal", 1, "may")])
def test_durability_is_what_the_connection_is_set_to(path, durability, level, words) -> None:
    with closing(SqliteStore(path, durability=durability)) as store:
        connection = store._connect()
        assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert words in store.durability
        connection.close()


def test_an_unknown_durability_is_refused_before_anything_is_made(path) -> None:
    with pytest.raises(OpenError, match="full or normal"):
        SqliteStore(path, durability="extra")  # type: ignore[arg-type]
    assert not Path(path).exists()


@pytest.mark.parametrize(
    ("durability", "made_with", "page_bytes", "pages"),
    [
        ("full", None, 4_096, 1_024),
        ("full", 1_024, 1_024, 4_096),
        ("normal", None, 2_048, 4_096),
        ("normal", 65_536, 65_536, 128),
    ],
)
def test_a_file_keeps_its_pages_and_the_log_grows_as_long_whatever_their_size(
    path, durability, made_with, page_bytes, pages
) -> None:
    if made_with:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute(f"PRAGMA page_size = {made_with}")
            other.execute("VACUUM")
    with closing(SqliteStore(path, durability=durability)) as store, closing(store._connect()) as another:
        assert store._writer._connection is not None
        for connection in (store._writer._connection, another):
            assert connection.execute("PRAGMA page_size").fetchone() == (page_bytes,)
            assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (pages,)


def test_records_and_the_secret_key_are_there_after_reopening(path) -> None:
    with closing(SqliteStore(path)) as first:
        first.perform(claim(A))
        settled = first.perform(settle(A)).record
        secret = first.secret_key
    with closing(SqliteStore(path)) as second:
        assert second.perform(look()).record == settled
        assert second.secret_key == secret
        assert len(secret) == 32


# --- group commit ------------------------------------------------------------------------------------


def test_threads_that_wait_for_a_commit_share_the_next_one(store, path) -> None:
    with ThreadPoolExecutor(32) as pool:
        with locked(path):
            replies = [pool.submit(store.perform, claim(*numbered(number))) for number in range(32)]
            until(lambda: waiting(store) == 31)
        assert all(reply.result(STUCK_S).applied for reply in replies)
    assert store.commits == 2  # the first came alone, all the others share one


def test_tasks_that_wait_for_a_commit_share_the_next_one(store, path) -> None:
    async def all_at_once() -> None:
        with locked(path):
            first = asyncio.ensure_future(store.aperform(claim(*numbered(0))))
            await asyncio.sleep(0)
            # Until it is taken, and its commit waits for the lock.
            await asyncio.to_thread(until, lambda: waiting(store) == 0)
            others = [asyncio.ensure_future(store.aperform(claim(*numbered(n)))) for n in range(1, 64)]
            await asyncio.sleep(0)
            assert waiting(store) == 63
        assert all(reply.applied for reply in await asyncio.gather(first, *others))

    asyncio.run(all_at_once())
    assert store.commits == 2


def test_the_log_of_a_crowd_may_grow_longer(store) -> None:
    def pages() -> int:
        return store._writer._connection.execute("PRAGMA wal_autocheckpoint").fetchone()[0]

    async def renewed(times: int) -> None:
        for _ in range(32):
            await asyncio.gather(*(store.aperform(renew(A)) for _ in range(times)))

    store.perform(claim(A))
    asyncio.run(renewed(3))
    assert pages() == 1_024
    asyncio.run(renewed(8))
    assert pages() == 2_048


def test_more_callers_than_a_batch_takes_are_all_served(store, path) -> None:
    callers = BATCH_MAX + 20
    with ThreadPoolExecutor(callers) as pool:
        with locked(path):
            replies = [pool.submit(store.perform, claim(*numbered(number))) for number in range(callers)]
            until(lambda: waiting(store) == callers - 1)
        assert all(reply.result(STUCK_S).applied for reply in replies)
    assert store.commits == 3


def test_a_command_that_cannot_be_stored_does_not_hurt_those_in_its_batch(store, path) -> None:
    commands = [claim(*numbered(number)) for number in range(8)]
    commands[3] = commands[3]._replace(lease_us=1 << 70)
    with ThreadPoolExecutor(8) as pool:
        with locked(path):
            replies = [pool.submit(store.perform, command) for command in commands]
            until(lambda: waiting(store) == 7)
        errors = [reply.exception(STUCK_S) for reply in replies]
    assert [type(error) for error in errors if error] == [StoreUnavailable]
    assert isinstance(errors[3], StoreUnavailable)
    assert len(store.ask(ListRecords("acme"))) == 7
    assert len(store.ask(ReadEvents())) == 7


def test_one_caller_alone_needs_no_thread(store) -> None:
    before = threading.active_count()
    store.perform(claim(A))
    store.perform(settle(A))
    assert threading.active_count() == before


def test_a_batch_of_reads_opens_no_transaction(store) -> None:
    store.perform(claim(A))
    commits = store.commits

    async def read() -> None:
        replies = await asyncio.gather(*(store.aperform(command) for command in (look(), claim(B), look())))
        assert [reply.record.token for reply in replies] == [A, A, A]

    asyncio.run(read())
    assert store.perform(claim(B)).applied is False
    assert store.commits == commits


def test_claims_are_looked_up_first_once_one_met_a_record_and_until_one_is_new(store) -> None:
    seen = [store._writer.expects_records]
    for command in (claim(A), claim(B), look(), settle(A), claim(B), claim(*numbered(2)), settle(A)):
        store.perform(command)
        seen.append(store._writer.expects_records)
    assert seen == [False, False, True, True, True, True, False, False]


def test_a_replay_is_answered_while_another_process_writes(store, path) -> None:
    store.perform(claim(A))
    with locked(path):
        assert store.perform(claim(B)).record.token == A
        assert store.perform(look()).record.token == A


# --- event loops -------------------------------------------------------------------------------------


def test_the_loop_goes_on_while_the_database_is_locked(store, path) -> None:
    async def release_it_from_the_same_loop() -> bool:
        with locked(path) as other:
            claimed = asyncio.ensure_future(store.aperform(claim(A)))
            await asyncio.sleep(0.01)
            assert not claimed.done()
            other.execute("ROLLBACK")
            return (await claimed).applied

    assert asyncio.run(release_it_from_the_same_loop())


def test_a_cancelled_command_is_carried_out(store, path) -> None:
    async def cancel() -> None:
        with locked(path):
            task = asyncio.ensure_future(store.aperform(claim(A)))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancel())
    store.flush()
    assert store.perform(look()).record.token == A


def test_a_loop_that_ended_meanwhile_disturbs_nobody(store, path) -> None:
    loop = asyncio.new_event_loop()

    async def ask_and_leave() -> None:
        loop.create_task(store.aperform(claim(A))).add_done_callback(lambda _: None)
        await asyncio.sleep(0)

    with locked(path):
        loop.run_until_complete(ask_and_leave())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
    assert store.perform(claim(*numbered(2))).applied
    assert store.perform(look()).record.token == A


def test_several_loops_and_threads_use_one_store_at_once(store) -> None:
    async def some(first: int) -> list[bool]:
        replies = await asyncio.gather(
            *(store.aperform(claim(*numbered(first + number))) for number in range(40))
        )
        return [reply.applied for reply in replies]

    def plain(first: int) -> list[bool]:
        return [store.perform(claim(*numbered(first + number))).applied for number in range(40)]

    with ThreadPoolExecutor(6) as pool:
        loops = [pool.submit(asyncio.run, some(first)) for first in (0, 100, 200)]
        threads = [pool.submit(plain, first) for first in (300, 400, 20)]
        won = [sum(future.result(STUCK_S)) for future in loops + threads]
    # The last range overlaps the first by twenty keys: each of them has one owner.
    assert sum(won) == 40 * 6 - 20
    assert len(store.ask(ListRecords("acme", limit=1_000))) == 40 * 6 - 20


def test_what_was_submitted_comes_before_what_is_asked_after_it(store, path) -> None:
    store.perform(claim(A))
    with locked(path) as other:
        store.submit(park(A))
        store.submit(renew(A))  # too late: parked by then
        store.submit(release(A))
        unlock = threading.Timer(0.05, lambda: other.execute("ROLLBACK"))
        unlock.start()
        assert store.perform(look()).record.state is State.RELEASED
        unlock.join()
    kinds = [event.kind for event in store.ask(ReadEvents())]
    assert kinds == ["claimed", "parked", "released"]


# --- closing -----------------------------------------------------------------------------------------


def test_closing_carries_out_what_was_submitted(path) -> None:
    store = SqliteStore(path)
    with locked(path) as other:
        for number in range(5):
            store.submit(claim(*numbered(number)))
        closer = threading.Thread(target=store.close)
        closer.start()
        other.execute("ROLLBACK")
        closer.join(STUCK_S)
    with closing(SqliteStore(path)) as again:
        assert len(again.ask(ListRecords("acme"))) == 5


def test_a_closed_store_refuses_and_may_be_closed_again(path) -> None:
    store = SqliteStore(path)
    store.close()
    store.close()
    for use in (
        lambda: store.perform(look()),
        lambda: store.perform(claim(A)),
        lambda: store.submit(claim(A)),
        lambda: store.ask(ReadEvents()),
        lambda: asyncio.run(store.aperform(claim(A))),
    ):
        with pytest.raises(StoreUnavailable, match="The ledger is closed"):
            use()


def test_the_last_to_close_leaves_one_file(path, tmp_path) -> None:
    first, second = SqliteStore(path), SqliteStore(path)
    first.perform(claim(A))
    second.perform(look())
    asyncio.run(first.aperform(look()))
    first.close()
    second.close()
    assert [file.name for file in tmp_path.iterdir()] == ["semel.db"]


# --- other processes ---------------------------------------------------------------------------------


def test_a_lock_held_too_long_is_unavailable_and_says_what_did_not_happen(path) -> None:
    with closing(SqliteStore(path, busy_s=0.05)) as store:
        store.perform(claim(A))
        with locked(path):
            with pytest.raises(
                StoreUnavailable, match=r"locked by another process; the tool did not run"
            ) as no:
                store.perform(claim(*numbered(2)))
            assert no.value.retriable
            with pytest.raises(StoreUnavailable, match=r"the outcome was not recorded"):
                store.perform(settle(A))
        assert store.perform(settle(A)).applied


def test_a_waiter_is_woken_by_what_another_handle_settles(store, path) -> None:
    store.perform(claim(A))
    waiter = store.waiters.add(AT)
    store.watch()
    with closing(SqliteStore(path)) as other:
        other.perform(settle(A))
    assert waiter.wait(SYSTEM, STUCK_S)


def test_a_waiter_that_comes_after_the_settlement_is_woken_at_once(store, path) -> None:
    with closing(SqliteStore(path)) as other:
        store.perform(claim(A))
        other.perform(settle(A))
        waiter = store.waiters.add(AT)
        store.watch()
        assert waiter.wait(SYSTEM, STUCK_S)


def test_a_waiter_sleeps_on_while_its_record_is_renewed(store, path) -> None:
    store.perform(claim(A))
    waiter, neighbour = store.waiters.add(AT), store.waiters.add(numbered(2)[1])
    with closing(SqliteStore(path)) as other:
        other.perform(claim(*numbered(2)))
        store.watch()
        other.perform(renew(A, lease_us=2 * LEASE))
        other.perform(settle(*numbered(2)))
    assert neighbour.wait(SYSTEM, STUCK_S)
    assert not waiter.wait(SYSTEM, 0)


# --- a file that is not as it should be --------------------------------------------------------------


def test_a_missing_directory_is_named(tmp_path) -> None:
    with pytest.raises(OpenError, match=r"There is no directory .*nowhere"):
        SqliteStore(str(tmp_path / "nowhere" / "semel.db"))


def test_a_directory_is_no_database(tmp_path) -> None:
    with pytest.raises(OpenError, match="is a directory"):
        SqliteStore(str(tmp_path))


def test_a_file_of_something_else_is_damaged_and_stays_as_it_is(path) -> None:
    Path(path).write_bytes(b"no database at all " * 500)
    with pytest.raises(StoreCorrupt, match="not a database"):
        SqliteStore(path)
    assert Path(path).read_bytes() == b"no database at all " * 500


@pytest.mark.parametrize(
    "mark", ["CREATE TABLE theirs (x)", "PRAGMA application_id = 7", "PRAGMA user_version = 1"]
)
def test_a_database_of_another_application_is_left_alone(path, mark) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute(mark)
    before = Path(path).read_bytes()
    with pytest.raises(OpenError, match="another application"):
        SqliteStore(path)
    assert Path(path).read_bytes() == before


def test_a_newer_schema_is_refused_with_both_versions(path) -> None:
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 7")
    with pytest.raises(OpenError, match=rf"schema 7, .* up to {len(SCHEMAS)}.*Upgrade semel"):
        SqliteStore(path)


def test_pages_overwritten_are_damage_not_absence(path) -> None:
    with closing(SqliteStore(path)) as store:
        for number in range(200):
            store.perform(claim(*numbered(number)))
    content = bytearray(Path(path).read_bytes())
    content[4_096:] = bytes(0xA5 for _ in content[4_096:])
    Path(path).write_bytes(content)
    with pytest.raises(StoreCorrupt), closing(SqliteStore(path)) as store:
        store.perform(claim(*numbered(1)))


@pytest.mark.parametrize(
    "assignment",
    [
        "state = 'finished'",
        "state = 'done'",
        "lease_until = NULL",
        "lease_until = 'soon'",
        "expires_at = 5",
        "settled_at = 5",
        "fence = 'high'",
        "token = 'text'",
        "arguments = 12",
        "tool = x'00'",
        "tool = CAST(x'ff' AS TEXT)",
    ],
)
def test_a_damaged_record_is_never_taken_for_an_absent_one(path, assignment) -> None:
    with closing(SqliteStore(path)) as store:
        store.perform(claim(A))
        damage(path, assignment)
        for use in (look(), claim(B)):
            with pytest.raises(StoreCorrupt):
                store.perform(use)
            with pytest.raises(StoreCorrupt):
                asyncio.run(store.aperform(use))
        assert store.perform(claim(*numbered(2))).applied


@pytest.mark.parametrize("assignment", ["note = x'ff'", "tenant = x'ff'", "fence = 'x'", "kind = x'00'"])
def test_an_event_of_another_form_breaks_the_log_and_no_reader(path, assignment) -> None:
    with closing(SqliteStore(path)) as store:
        store.perform(claim(A))
        store.perform(settle(A))
        store.ask(SealEvents())
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute(f"UPDATE semel_events SET {assignment} WHERE seq = 2")
        found = verify(store)
        assert [(each.seal, each.wrong) for each in found.breaks] == [(1, "changed")]
        with pytest.raises(StoreCorrupt):
            list(export.exported_lines(store, None))


def test_the_step_of_an_event_that_cannot_be_read_is_damage(path) -> None:
    with closing(SqliteStore(path)) as store:
        store.perform(claim(A))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("UPDATE semel_events SET step = '{'")
        with pytest.raises(StoreCorrupt):
            list(export.exported_lines(store, None))


def test_a_missing_secret_key_is_damage(path) -> None:
    SqliteStore(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("DELETE FROM semel_meta")
    with pytest.raises(StoreCorrupt, match="secret key"):
        SqliteStore(path)


def test_an_old_sqlite_is_refused(path, monkeypatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(OpenError, match="too old"):
        SqliteStore(path)


# --- the schema --------------------------------------------------------------------------------------


def test_a_second_schema_is_reached_from_the_first_and_keeps_the_records(path) -> None:
    with closing(SqliteStore(path)) as store:
        store.perform(claim(A))
        secret = store.secret_key
    second = "ALTER TABLE semel_meta ADD COLUMN since INTEGER;\nCREATE TABLE extra (x);"
    connection, kept = open_database(path, "full", SYSTEM, 1.0, [*SCHEMAS, second])
    with closing(connection):
        assert connection.execute("PRAGMA user_version").fetchone() == (len(SCHEMAS) + 1,)
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("SELECT count(*) FROM extra").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM semel_records").fetchone() == (1,)
    assert kept == secret


def test_a_migration_that_fails_leaves_the_old_schema(path) -> None:
    SqliteStore(path).close()
    broken = "CREATE TABLE extra (x);\nINSERT INTO nowhere VALUES (1);"
    with pytest.raises(StoreUnavailable):
        open_database(path, "full", SYSTEM, 1.0, [*SCHEMAS, broken])
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA user_version").fetchone() == (len(SCHEMAS),)
        assert other.execute("SELECT count(*) FROM sqlite_master WHERE name = 'extra'").fetchone() == (0,)
    SqliteStore(path).close()


# --- events, sweeping, doctor ------------------------------------------------------------------------


def test_without_audit_there_are_no_events_at_all(path) -> None:
    with closing(SqliteStore(path)) as audited:
        audited.perform(claim(A))
        events = audited.ask(ReadEvents())
    with closing(SqliteStore(path, audit_on=False)) as store:
        store.perform(settle(A))
        store.ask(AppendEvents(events))
        assert store.ask(ReadEvents()) == events


def test_events_of_one_commit_are_numbered_as_their_commands_came_and_sealed_among_them(store) -> None:
    """Also those that share a statement; and a seal in the middle covers all that came before it."""
    first, second = [numbered(n) for n in range(2, 21)], [numbered(n) for n in range(21, 40)]

    async def in_one_commit(*commands):
        before = store.commits
        asked = [store.aperform(each) if isinstance(each, tuple) else store.aask(each) for each in commands]
        answers = await asyncio.gather(*asked)
        assert store.commits == before + 1
        return answers

    seal = SealEvents()
    claims = asyncio.run(in_one_commit(*(claim(*at) for at in first), seal, *(claim(*at) for at in second)))
    asyncio.run(in_one_commit(*(settle(*at) for at in first + second)))
    events = store.ask(ReadEvents())
    assert [event.seq for event in events] == list(range(1, 77))
    assert [event.at for event in events] == 2 * [at for _, at in first + second]
    assert (claims[19].first_seq, claims[19].last_seq) == (1, 19)
    for _, at in first + second:
        record = store.perform(look(at)).record
        assert fold(store.ask(ReadEvents(record_id=record.request.id))) == told_by(record)


def test_numbers_of_events_go_on_after_all_of_them_were_dropped(path) -> None:
    clock = FakeClock()
    with closing(SqliteStore(path, clock=clock)) as store:
        store.perform(claim(A))
        store.perform(settle(A))
        store.ask(SealEvents())
        clock.advance(store.audit_kept_us / SECOND + 1)
        swept = store.ask(Sweep())
        assert swept.closed == 1
        store.ask(SealEvents())
        clock.advance(store.audit_kept_us / SECOND + 1)
        store.ask(Sweep())
        assert store.ask(ReadEvents()) == []
        store.perform(claim(B))
        assert [event.seq for event in store.ask(ReadEvents())] == [4]


def test_sealed_and_unsealed_events_of_a_record_are_found_together(store) -> None:
    claimed = store.perform(claim(A)).record
    store.perform(claim(*numbered(2)))
    store.ask(SealEvents())
    store.perform(settle(A))
    found = store.ask(ReadEvents(record_id=claimed.request.id))
    assert [event.kind for event in found] == ["claimed", "settled"]
    assert fold(found) == told_by(store.perform(look()).record)


def test_a_settled_record_is_swept_when_its_window_ends_however_long_its_lease_was(path) -> None:
    clock = FakeClock()
    with closing(SqliteStore(path, clock=clock)) as store:
        store.perform(claim(A, lease_us=1_000 * SECOND))
        store.perform(settle(A, window_us=5 * SECOND))
        clock.advance(6)
        assert store.ask(Sweep()).closed == 1


def test_a_lapsed_record_that_its_owner_settled_is_swept_when_its_window_ends(path) -> None:
    clock = FakeClock()
    with closing(SqliteStore(path, clock=clock)) as store:
        store.perform(claim(A, lease_us=SECOND))
        clock.advance(2)
        assert store.ask(Sweep()).lapsed == 1
        assert store.perform(settle(A, window_us=5 * SECOND)).applied
        clock.advance(6)
        assert store.ask(Sweep()).closed == 1


def test_a_settlement_says_what_the_file_says_also_when_the_token_was_used_before(path) -> None:
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as other:
        store.perform(claim(A))
        other.perform(release(A))
        other.perform(claim(A))
        settled = store.perform(settle(A)).record
        assert other.perform(look()).record == settled


def test_two_sweepers_write_one_event_for_each_record(path) -> None:
    clock = FakeClock()
    with closing(SqliteStore(path, clock=clock)) as one, closing(SqliteStore(path, clock=clock)) as two:
        for number in range(60):
            one.perform(claim(*numbered(number)))
        clock.advance(LEASE / SECOND + 1)
        with ThreadPoolExecutor(2) as pool:
            swept = list(pool.map(lambda store: [store.ask(Sweep(7)).lapsed for _ in range(12)], (one, two)))
        assert sum(map(sum, swept)) == 60
        assert [event.kind for event in one.ask(ReadEvents())].count("lapsed") == 60


def test_the_doctor_is_told_what_matters(path) -> None:
    clock = FakeClock()
    with closing(SqliteStore(path, clock=clock, durability="normal", audit_on=True)) as store:
        store.perform(claim(A))
        levels = {finding.subject: finding.level for finding in store.findings()}
        assert levels["durability"] == "note"
        assert levels["journal"] == levels["integrity"] == levels["clock"] == "ok"
        clock.advance(-3_600)
        levels = {finding.subject: finding.level for finding in store.findings()}
        assert levels["clock"] == "danger"
