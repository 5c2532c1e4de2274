"""A tool's effect and its settlement in one commit: whatever dies, the effect is there once."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.contract.transaction import ENDED_BY_TOOL
from semel.errors import (
    ContractError,
    EffectFailed,
    OutcomeUnknown,
    OwnershipLost,
    PartialSuccess,
    StoreUnavailable,
)
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address, Settle, State, effective_state
from tests.faults.checks import all_records, assert_history_holds, only_record, until
from tests.faults.interrupting import interrupted_at, moments_of
from tests.faults.payment import LONG_LEASE
from tests.faults.places import POSTGRES, SQLITE
from tests.faults.till import COUNT, CREATE, INSERT, apay_tool, call, pay_tool, run
from tests.missing import library
from tests.patience import HURRIED, PATIENCE_S
from tests.proxy import Proxy
from tests.tools import another_process

psycopg = library("psycopg")

ROOT = Path(__file__).resolve().parents[2]

TRANSACTIONAL = (SQLITE, POSTGRES)
on_postgres = pytest.mark.parametrize("url", [POSTGRES], ids=["postgres"], indirect=True)


@pytest.fixture(params=TRANSACTIONAL, ids=lambda place: place.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    where: str = request.param.url(tmp_path)
    return where


@pytest.fixture
def ledger(url: str) -> Iterator[semel.Ledger]:
    with semel.open(url) as ledger:
        books(ledger, CREATE)
        if ledger.store.name == "postgres":
            books(ledger, "TRUNCATE payments")
        yield ledger


def connected(ledger: semel.Ledger) -> Any:
    """As the application itself is connected with its database; each statement is committed."""
    store: Any = ledger.store
    if store.name == "sqlite":
        return closing(sqlite3.connect(store.path, isolation_level=None, timeout=30))
    return closing(psycopg.connect(store._conninfo.decode(), autocommit=True))


def books(ledger: semel.Ledger, statement: str) -> Any:
    """What a statement answers, in a transaction of its own."""
    with connected(ledger) as connection:
        found = connection.execute(statement)
        return found.fetchall() if found.description else None


def payments(ledger: semel.Ledger) -> int:
    count: int = books(ledger, COUNT)[0][0]
    return count


def tool_of(ledger: semel.Ledger, **said: Any) -> Any:
    return pay_tool(ledger.store.name, **said)


# --- kill -9 -------------------------------------------------------------------------------------------


DEATHS: dict[str, tuple[dict[str, str], int]] = {
    "before the claim": ({"crash": "before claim"}, 0),
    "claim sent, reply unread": ({"crash": "after claim"}, 0),
    "claimed, before the effect": ({"dies": "before effect"}, 0),
    "effect done, not settled": ({"dies": "after effect"}, 0),
    "before settle": ({"crash": "before settle"}, 0),
    "settled, not committed": ({"dies": "in commit"}, 0),
    "committed, reply unread": ({"crash": "after settle"}, 1),
}


def die(url: str, told: dict[str, str], *, asynchronous: bool) -> None:
    words = json.dumps({"url": url, "asynchronous": asynchronous, **told})
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.till", words],
        cwd=ROOT,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def until_free(ledger: semel.Ledger) -> None:
    def free() -> bool:
        now_us = ledger.clock.now_us()
        return all(effective_state(record, now_us) is not State.PENDING for record in all_records(ledger))

    until(free, "the lease of the dead lapsed")


# sqlite3 has no asynchronous connection, and settling and committing are one step there.
KILLED = [
    pytest.param(place, told, landed, asynchronous, id=f"{place.name}-{name}-{how}")
    for place in TRANSACTIONAL
    for name, (told, landed) in DEATHS.items()
    for how, asynchronous in (("sync", False), ("async", True))
    if place is not SQLITE or not (asynchronous or told.get("dies") == "in commit")
]


@pytest.mark.parametrize(("url", "told", "landed", "asynchronous"), KILLED, indirect=["url"])
def test_a_killed_call_leaves_all_or_nothing_and_the_next_one_makes_it_once(
    told, landed, asynchronous, ledger, url
):
    die(url, told, asynchronous=asynchronous)
    until_free(ledger)
    assert payments(ledger) == landed
    for _ in range(2):
        assert run(ledger, asynchronous=asynchronous) == "paid 1400 to acc-1"
        assert payments(ledger) == 1
    assert only_record(ledger).state is State.DONE
    assert_history_holds(ledger)


# --- what an ending means -------------------------------------------------------------------------------


def test_of_many_callers_one_pays_and_all_read_it(ledger):
    tool = tool_of(ledger)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: call(ledger, tool), range(8)))
    assert answers == ["paid 1400 to acc-1"] * 8
    assert payments(ledger) == 1


def test_a_failure_is_recorded_and_what_it_wrote_is_rolled_back(ledger):
    tool = tool_of(ledger, raises=ValueError("no such account"))
    for _ in range(2):
        with pytest.raises(EffectFailed, match="no such account"):
            call(ledger, tool)
    assert payments(ledger) == 0
    assert only_record(ledger).state is State.FAILED


@pytest.mark.parametrize("error", [TimeoutError("slow"), KeyboardInterrupt()], ids=["timeout", "ctrl-C"])
def test_what_would_be_doubt_elsewhere_is_rolled_back_and_simply_run_again(error, ledger):
    with pytest.raises(type(error)):
        call(ledger, tool_of(ledger, raises=error))
    assert payments(ledger) == 0
    assert only_record(ledger).state is State.RELEASED
    assert call(ledger, tool_of(ledger)) == "paid 1400 to acc-1"
    assert payments(ledger) == 1


def test_an_interrupt_at_any_moment_leaves_all_or_nothing_and_the_next_call_pays(ledger):
    # What an interrupted call cannot give back itself, its keeper gives back, long before the lease ends.
    tool = tool_of(ledger, lease=LONG_LEASE)

    def interrupted(name: str) -> str:
        try:
            return call(ledger, tool, name)
        except KeyboardInterrupt:
            return "interrupted"

    interrupted("warm")
    answers: Counter[str | None] = Counter()
    for number, moment in enumerate(moments_of(lambda: interrupted("watched"))):
        name = f"pay-{number}"
        answers[interrupted_at(moment, functools.partial(interrupted, name))] += 1
        assert call(ledger, tool, name) == "paid 1400 to acc-1", moment
    assert payments(ledger) == answers.total() + 2  # and those two that nobody interrupted
    assert answers["interrupted"] > 0.9 * answers.total() > 100


def test_a_commit_that_comes_after_the_cancelled_callers_end_is_refused(ledger):
    transaction = ledger.store.begin(asynchronous=False)
    transaction.roll_back()
    settle = Settle(Address("default", "tool", "k"), b"t" * 16, State.DONE, None, 1)
    with pytest.raises(StoreUnavailable, match="rolled back"):
        transaction.settle(settle)


def test_a_part_that_was_done_is_committed_with_the_record_that_says_so(ledger):
    tool = tool_of(ledger, raises=PartialSuccess(done=["paid"], remaining=["mailed"]))
    for _ in range(2):
        with pytest.raises(PartialSuccess):
            call(ledger, tool)
    assert payments(ledger) == 1
    assert only_record(ledger).state is State.PARTIAL


def test_a_transient_failure_is_tried_again_in_a_transaction_of_its_own(ledger):
    tries = []

    @semel.tool_contract(class_="write-non-idempotent", transient=(TimeoutError,), attempts=3, backoff="1ms")
    def pay(amount: int, books: semel.Transaction) -> int:
        tries.append(amount)
        books.connection.execute(INSERT[ledger.store.name], ("acc-1", amount))
        if len(tries) < 3:
            raise TimeoutError
        return amount

    assert ledger.step(conversation="c", step="s").run(pay, amount=5) == 5
    assert (len(tries), payments(ledger)) == (3, 1)


# On SQLite nobody can take the key while a transaction holds the only write lock.
@on_postgres
def test_an_owner_that_lost_its_key_meanwhile_has_its_effect_rolled_back(ledger):
    entered, go_on = threading.Event(), threading.Event()

    @semel.tool_contract(name="pay", class_="write-non-idempotent", lease="1s", run_limit="1s")
    def slow(account: str, amount: int, books: semel.Transaction) -> str:
        books.connection.execute(INSERT["postgres"], (account, amount))
        entered.set()
        assert go_on.wait(PATIENCE_S)
        return "too late"

    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(call, ledger, slow)
        assert entered.wait(PATIENCE_S)
        until_free(ledger)
        assert call(another_process(ledger), tool_of(ledger)) == "paid 1400 to acc-1"
        go_on.set()
        with pytest.raises(OwnershipLost, match="rolled back"):
            late.result()
    assert payments(ledger) == 1
    assert only_record(ledger).attempts == 2


def test_a_commit_whose_reply_was_lost_is_found_out_about(tmp_path):
    """It was lost before the server got it, so nothing happened, and the caller is told so."""
    from tests.postgres_server import shared_port

    url = POSTGRES.url(tmp_path)
    proxy = Proxy(shared_port())
    far = url.replace(f":{shared_port()}/", f":{proxy.port}/") + f"&timeout={HURRIED}"
    try:
        with semel.open(url) as near, semel.open(far) as ledger:
            books(near, CREATE)
            books(near, "TRUNCATE payments")

            def lose_the_commit() -> None:
                # It begins with the statement "join", on the tool's own connection.
                until(lambda: any(b"join\0" in request for request in proxy.lost), "the commit is lost")
                proxy.restore()

            @semel.tool_contract(name="pay", class_="write-non-idempotent")
            def pay(account: str, amount: int, books: semel.Transaction) -> str:
                books.connection.execute(INSERT["postgres"], (account, amount))
                proxy.drops_requests = True
                threading.Thread(target=lose_the_commit, daemon=True).start()
                return "paid"

            with pytest.raises(StoreUnavailable, match="rolled back"):
                call(ledger, pay, "first")
            assert payments(near) == 0
            assert call(another_process(ledger), tool_of(near), "first") == "paid 1400 to acc-1"
            assert payments(near) == 1
    finally:
        proxy.close()


@on_postgres
def test_a_cancelled_task_leaves_nothing_and_the_next_call_pays(ledger):
    @semel.tool_contract(name="pay", class_="write-non-idempotent")
    async def slow(account: str, amount: int, books: semel.Transaction) -> str:
        await books.connection.execute(INSERT["postgres"], (account, amount))
        await books.connection.execute("SELECT pg_sleep(30)")
        return "too late"

    async def scene() -> str:
        task = asyncio.create_task(call(ledger, slow))
        await asyncio.sleep(0.3)  # wherever it is by then
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        paid: str = await call(another_process(ledger), apay_tool())
        return paid

    assert asyncio.run(scene()) == "paid 1400 to acc-1"
    assert payments(ledger) == 1


# --- a transaction is not the tool's to end --------------------------------------------------------------


def ending_tool(store: str, end: Callable[[Any], Any], raises: BaseException | None = None) -> Any:
    """It pays, and then tries to end its transaction."""

    @semel.tool_contract(name="pay", class_="write-non-idempotent", lease=LONG_LEASE)
    def pay(account: str, amount: int, books: semel.Transaction) -> str:
        books.connection.execute(INSERT[store], (account, amount))
        end(books.connection)
        if raises is not None:
            raise raises
        return "paid"

    return pay


def entered(connection: Any) -> None:
    with connection:
        pass


def assigned(connection: Any) -> None:
    connection.isolation_level = None


METHODS: dict[str, Callable[[Any], Any]] = {
    "commit": lambda connection: connection.commit(),
    "rollback": lambda connection: connection.rollback(),
    "close": lambda connection: connection.close(),
    "with": entered,
}
ENDING_WORDS = (
    "COMMIT", "END", "end transaction", "ROLLBACK", "  rollback  ", "BEGIN",
    "/* really */ COMMIT", "-- well\nCOMMIT;",
)  # fmt: skip


def refused_and_free(ledger: semel.Ledger, end: Callable[[Any], Any]) -> None:
    with pytest.raises(ContractError, match="not its own to end"):
        call(ledger, ending_tool(ledger.store.name, end))
    assert payments(ledger) == 0
    assert only_record(ledger).state is State.RELEASED
    assert call(another_process(ledger), tool_of(ledger)) == "paid 1400 to acc-1"
    assert payments(ledger) == 1


@pytest.mark.parametrize("end", METHODS.values(), ids=METHODS)
def test_what_would_end_the_transaction_is_refused_and_the_call_is_rolled_back(end, ledger):
    refused_and_free(ledger, end)


@pytest.mark.parametrize("words", ENDING_WORDS)
def test_words_that_would_end_the_transaction_are_refused(words, ledger):
    refused_and_free(ledger, lambda connection: connection.execute(words))


@pytest.mark.parametrize("url", [SQLITE], ids=["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "end",
    [
        lambda connection: connection.executescript("SELECT 1"),
        lambda connection: connection.cursor().executescript("SELECT 1"),
        lambda connection: connection.cursor().execute("COMMIT"),
        lambda connection: connection.execute("ATTACH ':memory:' AS other"),
        lambda connection: connection.execute("PRAGMA journal_mode = DELETE"),
        lambda connection: connection.set_authorizer(None),
        assigned,
        lambda connection: connection.backup(connection),
    ],
    ids=[
        "script",
        "cursor's script",
        "cursor",
        "attach",
        "pragma",
        "authorizer",
        "isolation_level",
        "backup",
    ],
)
def test_sqlites_other_ways_to_end_it_are_refused_too(end, ledger):
    refused_and_free(ledger, end)


@on_postgres
@pytest.mark.parametrize(
    "words",
    [
        "ABORT", "START TRANSACTION", "PREPARE TRANSACTION 'x'", "COMMIT AND CHAIN", "DISCARD ALL",
        "RESET ALL",
        "SELECT 1; COMMIT; SELECT 1", "SELECT ';' AS a; /* a /* b */ */ COMMIT", "SELECT $x$;$x$; COMMIT",
        "SELECT E'\\';' ; COMMIT", b"COMMIT", "SELECT 1 AS a$x$; COMMIT; SELECT 2 AS b$x$",
    ],
)  # fmt: skip
def test_postgres_has_more_words_for_it_and_takes_several_statements_at_once(words, ledger):
    refused_and_free(ledger, lambda connection: connection.cursor().execute(words))


@on_postgres
def test_words_of_an_asynchronous_tool_are_refused_as_well(ledger):
    @semel.tool_contract(name="pay", class_="write-non-idempotent")
    async def pay(account: str, amount: int, books: semel.Transaction) -> str:
        await books.connection.execute(INSERT["postgres"], (account, amount))
        for end in (books.connection.commit, books.connection.rollback, books.connection.close):
            with pytest.raises(ContractError):
                await end()
        with pytest.raises(ContractError):
            async with books.connection:
                pass
        await books.connection.execute("COMMIT")
        return "paid"

    async def scene() -> None:
        with pytest.raises(ContractError, match="COMMIT"):
            await call(ledger, pay)

    asyncio.run(scene())
    assert payments(ledger) == 0
    assert only_record(ledger).state is State.RELEASED


def test_a_refusal_that_the_tool_swallows_ends_nothing(ledger):
    def swallowed(connection: Any) -> None:
        with suppress(ContractError):
            connection.commit()
        with suppress(ContractError):
            connection.execute("ROLLBACK")

    assert call(ledger, ending_tool(ledger.store.name, swallowed)) == "paid"
    assert payments(ledger) == 1
    assert only_record(ledger).state is State.DONE


def test_a_tool_may_take_a_part_of_its_work_back(ledger):
    def partly(connection: Any) -> None:
        for word in ("SAVEPOINT half", "DELETE FROM payments", "ROLLBACK TO half", "RELEASE half"):
            connection.execute(word)

    assert call(ledger, ending_tool(ledger.store.name, partly)) == "paid"
    assert payments(ledger) == 1


@on_postgres
def test_the_drivers_own_savepoints_and_isolation_levels_are_the_tools_to_use(ledger):
    @semel.tool_contract(name="pay", class_="write-non-idempotent")
    def pay(account: str, amount: int, books: semel.Transaction) -> str:
        books.connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        with books.connection.transaction():
            books.connection.execute(INSERT["postgres"], (account, amount))
        with books.connection.transaction():
            books.connection.execute("DELETE FROM payments")
            raise psycopg.Rollback
        found = books.connection.execute("SHOW transaction_isolation").fetchone()
        return str(found[0])

    assert call(ledger, pay) == "serializable"
    assert payments(ledger) == 1


def committed_behind_its_back(connection: Any) -> None:
    """By ways that no honest tool takes."""
    if isinstance(connection, sqlite3.Connection):
        sqlite3.Connection.set_authorizer(connection, None)
        sqlite3.Cursor(connection).execute("COMMIT")
        sqlite3.Cursor(connection).execute("BEGIN")
    else:
        psycopg.ClientCursor(connection).execute("COMMIT")
        psycopg.ClientCursor(connection).execute("SELECT 1")  # which begins another


def assert_in_doubt_until_a_person_looked(ledger: semel.Ledger) -> None:
    record = only_record(ledger)
    assert (record.state, record.note) == (State.IN_DOUBT, ENDED_BY_TOOL)
    with pytest.raises(OutcomeUnknown, match="ended the transaction"):
        call(another_process(ledger), tool_of(ledger))
    assert payments(ledger) == 1
    ledger.records.resolve(record.request.id, "happened", by="ann")


def test_a_transaction_that_the_tool_ended_all_the_same_is_never_recorded_as_done(ledger):
    with pytest.raises(OutcomeUnknown, match="ended the transaction"):
        call(ledger, ending_tool(ledger.store.name, committed_behind_its_back))
    assert_in_doubt_until_a_person_looked(ledger)


@on_postgres
def test_nor_as_failed_nor_is_it_run_again(ledger):
    tool = ending_tool(ledger.store.name, committed_behind_its_back, ValueError("no such account"))
    with pytest.raises(OutcomeUnknown, match="ended the transaction"):
        call(ledger, tool)
    assert_in_doubt_until_a_person_looked(ledger)


@on_postgres
def test_a_rollback_behind_its_back_is_not_recorded_as_done_either(ledger):
    def rolled_back(connection: Any) -> None:
        psycopg.ClientCursor(connection).execute("ROLLBACK")

    with pytest.raises(OutcomeUnknown, match="ended the transaction"):
        call(ledger, ending_tool("postgres", rolled_back))
    assert only_record(ledger).state is State.IN_DOUBT


@pytest.mark.parametrize("url", [SQLITE], ids=["sqlite"], indirect=True)
@pytest.mark.parametrize("ending", [TimeoutError(), ValueError(), None], ids=["unsure", "fails", "returns"])
def test_what_follows_a_rollback_of_sqlites_own_is_not_committed_by_itself(ending, ledger):
    books(ledger, "CREATE TABLE numbers (id INTEGER PRIMARY KEY ON CONFLICT ROLLBACK)")
    books(ledger, "INSERT INTO numbers VALUES (1)")

    def rolled_back_and_on(connection: Any) -> None:
        with suppress(sqlite3.IntegrityError):
            connection.execute("INSERT INTO numbers VALUES (1)")
        with suppress(ContractError):
            connection.execute(INSERT["sqlite"], ("acc-1", 1_400))

    for _ in range(3):
        with suppress(Exception):
            call(ledger, ending_tool("sqlite", rolled_back_and_on, ending))
    assert payments(ledger) == 0
    assert only_record(ledger).state is not State.DONE


@pytest.mark.parametrize("url", [SQLITE], ids=["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    ["CREATE TEMP TABLE semel_events (seq)", "CREATE TEMP VIEW semel_events AS SELECT 1"],
)
def test_nothing_may_stand_in_for_what_is_semels(statement, ledger):
    with pytest.raises(ContractError, match="semel_events"):
        call(ledger, ending_tool("sqlite", lambda connection: connection.execute(statement)))
    assert payments(ledger) == 0


@pytest.mark.parametrize("url", [SQLITE], ids=["sqlite"], indirect=True)
def test_nothing_may_be_renamed_to_stand_in_for_it_either(ledger):
    def renamed(connection: Any) -> None:
        connection.execute("CREATE TEMP TABLE mine AS SELECT * FROM main.semel_events WHERE 0")
        connection.execute("ALTER TABLE mine RENAME TO semel_events")

    with pytest.raises(ContractError, match="temporary"):
        call(ledger, ending_tool("sqlite", renamed))
    assert call(another_process(ledger), tool_of(ledger)) == "paid 1400 to acc-1"
    assert_history_holds(ledger)


@pytest.mark.parametrize("url", [SQLITE], ids=["sqlite"], indirect=True)
def test_a_refusal_is_told_as_one_though_sqlite_asks_on_after_it(ledger):
    with pytest.raises(ContractError, match="Semel's own"):
        call(ledger, ending_tool("sqlite", lambda connection: connection.execute("REINDEX")))
    assert payments(ledger) == 0


# --- what the tool leaves behind ------------------------------------------------------------------------


def failed_twice(connection: Any) -> None:
    for _ in range(2):
        connection.execute("INSERT INTO numbers VALUES (1)")


def left_reading(connection: Any) -> None:
    held.append(connection.execute("SELECT account FROM payments UNION ALL SELECT 'x'"))
    held[-1].fetchone()
    raise ValueError("no such account")


held: list[Any] = []
"""What a tool keeps beyond its call."""


@pytest.mark.parametrize("fails", [failed_twice, left_reading])
def test_a_tool_that_failed_holds_no_lock_whoever_holds_its_error_or_cursor(fails, ledger):
    books(ledger, "CREATE TABLE IF NOT EXISTS numbers (id INTEGER PRIMARY KEY)")
    with pytest.raises(EffectFailed) as failed:
        call(ledger, ending_tool(ledger.store.name, fails))
    assert failed.value.__cause__ is not None
    assert payments(ledger) == 0
    assert only_record(ledger).state is State.FAILED


@pytest.mark.parametrize("url", [SQLITE], ids=["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "leave",
    [
        lambda connection: held.append(connection.execute("SELECT 1 UNION SELECT 2")),
        lambda connection: held.append(
            connection.execute("INSERT INTO payments (account, amount) VALUES ('a', 1), ('b', 2) RETURNING 1")
        ),
        lambda connection: connection.set_progress_handler(lambda: 1, 1),
    ],
    ids=["a cursor that reads", "a cursor that writes", "a progress handler"],
)
def test_what_a_tool_left_on_its_connection_is_not_in_the_way_of_its_settlement(leave, ledger):
    assert call(ledger, ending_tool("sqlite", leave)) == "paid"
    assert payments(ledger) >= 1
    assert only_record(ledger).state is State.DONE


# --- what the tool's connection finds -------------------------------------------------------------------


@pytest.fixture
def namesake(tmp_path: Path) -> Iterator[str]:
    """The URL of a role that is called like Semel's schema, as the usual URL has it."""
    plain = POSTGRES.url(tmp_path)
    name = f"n{SYSTEM.token().hex()[:12]}"
    with semel.open(plain) as ledger, connected(ledger) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN SUPERUSER")
        yield f"postgresql://{name}@{plain.partition('@')[2].partition('?')[0]}?schema={name}"
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
        connection.execute(f"DROP ROLE {name}")


def test_a_tool_does_not_meet_semels_tables_where_the_role_is_called_like_their_schema(namesake):
    @semel.tool_contract(class_="write-non-idempotent")
    def clear(books: semel.Transaction = semel.filled) -> list[str]:
        return [str(row[0]) for row in books.connection.execute("SELECT unnest(current_schemas(false))")]

    @semel.tool_contract(class_="write-non-idempotent")
    def meddle(books: semel.Transaction = semel.filled) -> None:
        books.connection.execute("DELETE FROM events")

    with semel.open(namesake) as ledger:
        step = ledger.step(conversation="c", step="s")
        assert step.run(clear) == ["public"]
        with pytest.raises(EffectFailed, match="events"):
            step.run(meddle)
        assert_history_holds(ledger)


@on_postgres
@pytest.mark.parametrize("name", ["records", "events", "meta"])
@pytest.mark.parametrize(
    "make",
    ["CREATE TEMP TABLE {name} (id int)", "SELECT 1 AS id INTO TEMPORARY {name}"],
    ids=["made", "selected"],
)
def test_temporary_tables_do_not_stand_in_for_semels_nor_are_they_there_for_the_next(make, name, ledger):
    @semel.tool_contract(class_="write-non-idempotent")
    def sort_out(number: int, books: semel.Transaction) -> int:
        books.connection.execute(make.format(name=name))
        return number

    step = ledger.step(conversation="c", step="s")
    assert [step.run(sort_out, number=number) for number in (1, 2)] == [1, 2]
    assert {record.state for record in all_records(ledger)} == {State.DONE}
    assert_history_holds(ledger)


@on_postgres
def test_what_one_tool_sets_on_its_connection_the_next_does_not_find(ledger):
    @semel.tool_contract(class_="write-non-idempotent")
    def setting(how: str, books: semel.Transaction) -> list[str]:
        before = [
            str(books.connection.execute(f"SHOW {name}").fetchone()[0])
            for name in ("search_path", "work_mem", "application_name")
        ]
        books.connection.execute(how)
        return before

    step = ledger.step(conversation="c", step="s")
    plain = step.run(setting, how="SELECT 1")
    for how in (
        "SET search_path = pg_catalog",
        "SELECT set_config('work_mem', '128kB', false)",
        "DO $$ BEGIN PERFORM set_config('application_' || 'name', 'x', false); END $$",
    ):
        assert step.run(setting, how=how) == plain
    assert step.run(setting, how="SELECT 2") == plain


# --- declaring it ---------------------------------------------------------------------------------------


def test_nobody_sees_the_parameter():
    tool = pay_tool("sqlite")
    assert list(inspect.signature(tool).parameters) == ["account", "amount"]
    assert set(tool.contract.schema["properties"]) == {"account", "amount"}
    assert tool.contract.describe()["same_transaction"] is True


def test_a_store_without_transactions_refuses_before_anything_runs():
    with semel.open("memory://") as ledger:
        with pytest.raises(ContractError, match="Transaction"):
            call(ledger, pay_tool("sqlite"))
        assert not all_records(ledger)


@pytest.mark.parametrize("said", [{"on_unknown": "park"}, {"on_unknown": "rerun"}])
def test_there_is_no_doubt_to_decide_about(said):
    with pytest.raises(ContractError, match="no doubt"):
        pay_tool("sqlite", **said)


def test_a_tool_that_keeps_no_record_has_no_transaction():
    with pytest.raises(ContractError, match="Transaction"):

        @semel.tool_contract(class_="read")
        def look(books: semel.Transaction) -> int:
            return 1
