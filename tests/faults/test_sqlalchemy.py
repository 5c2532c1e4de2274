"""An ORM's session on the ledger's transaction: what it writes commits with the record, or not at all."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

import semel
from semel.errors import ContractError, EffectFailed, PartialSuccess
from semel.integrations.sqlalchemy import async_session, session
from semel.kernel.record import State
from tests.faults.checks import all_records, assert_history_holds, only_record
from tests.faults.orm import Base, Payment, apay_tool, application, call, pay_tool, run
from tests.faults.places import POSTGRES, SQLITE
from tests.missing import library
from tests.patience import PATIENCE_S
from tests.tools import another_process

library("psycopg")

ROOT = Path(__file__).resolve().parents[2]

on_postgres = pytest.mark.parametrize("url", [POSTGRES], ids=["postgres"], indirect=True)
on_sqlite = pytest.mark.parametrize("url", [SQLITE], ids=["sqlite"], indirect=True)


@pytest.fixture(params=[SQLITE, POSTGRES], ids=lambda place: place.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    where: str = request.param.url(tmp_path)
    return where if "?" in where else f"{where}?shared=yes"


@pytest.fixture
def engine(url: str) -> Iterator[Any]:
    """The application's own; its table is empty."""
    engine = application(url)
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def ledger(url: str, engine: Any) -> Iterator[semel.Ledger]:
    with semel.open(url) as ledger:
        yield ledger


@pytest.fixture
def payments(engine: Any) -> Callable[[], int]:
    def count() -> int:
        with Session(engine) as db:
            return db.scalar(select(func.count()).select_from(Payment)) or 0

    return count


def tool_of(work: Callable[[Any], Any]) -> Any:
    """It pays over its session, and then does something else with it."""

    @semel.tool_contract(name="pay", class_="write-non-idempotent")
    def pay(account: str, amount: int, books: semel.Transaction) -> str:
        session(books).add(Payment(account=account, amount=amount))
        work(session(books))
        return "paid"

    return pay


def atool_of(work: Callable[[Any], Any]) -> Any:
    @semel.tool_contract(name="pay", class_="write-non-idempotent")
    async def pay(account: str, amount: int, books: semel.Transaction) -> str:
        db = await async_session(books)
        db.add(Payment(account=account, amount=amount))
        await work(db)
        return "paid"

    return pay


# --- kill -9 -------------------------------------------------------------------------------------------


def play(url: str, how: str, dies: str = "") -> int:
    words = json.dumps({"url": url, "how": how, "dies": dies})
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.orm", words],
        cwd=ROOT,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


DEATHS = {"before effect": 0, "after effect": 0, "in commit": 0, "after commit": 1}

# SQLite has no asynchronous connection, and settling and committing are one step there.
KILLED = [
    pytest.param(place, how, dies, landed, id=f"{place.name}-{how}-{dies}")
    for place in (SQLITE, POSTGRES)
    for how in ("sync", "async")
    for dies, landed in DEATHS.items()
    if place is POSTGRES or (how == "sync" and dies != "in commit")
]


@pytest.mark.parametrize(("url", "how", "dies", "landed"), KILLED, indirect=["url"])
def test_a_killed_call_leaves_all_or_nothing_and_the_next_one_pays_once(
    url, how, dies, landed, ledger, payments
):
    assert play(url, how, dies) == -signal.SIGKILL
    assert payments() == landed
    for _ in range(2):
        assert run(another_process(ledger), how) == "paid 1400"
        assert payments() == 1
    assert only_record(ledger).state is State.DONE
    assert_history_holds(ledger)


@on_sqlite
def test_without_semel_a_process_that_dies_after_its_commit_pays_twice(url, engine, payments):
    assert play(url, "unguarded", "after commit") == -signal.SIGKILL
    assert play(url, "unguarded") == 0
    assert payments() == 2


# --- what the session does ------------------------------------------------------------------------------


def test_what_was_added_is_written_without_a_flush_or_a_commit(ledger, payments):
    for _ in range(2):
        assert call(ledger, tool_of(lambda db: None)) == "paid"
    assert payments() == 1


def test_it_reads_what_it_wrote_and_what_was_there(ledger, payments):
    seen: list[int] = []
    tool = tool_of(lambda db: seen.append(len(db.scalars(select(Payment)).all())))
    for number in range(3):
        call(ledger, tool, f"pay-{number}")
    assert seen == [1, 2, 3]


def test_a_transaction_has_one_session_however_often_it_is_asked_for(ledger):
    same: list[bool] = []

    @semel.tool_contract(name="pay", class_="write-non-idempotent")
    def pay(account: str, amount: int, books: semel.Transaction) -> str:
        same.append(session(books) is session(books))
        return "paid"

    call(ledger, pay)
    assert same == [True]


def test_what_a_tool_writes_beside_the_session_is_in_the_same_transaction(ledger, payments):
    @semel.tool_contract(name="pay", class_="write-non-idempotent")
    def pay(account: str, amount: int, books: semel.Transaction) -> int:
        books.connection.execute("INSERT INTO orm_payments (account, amount) VALUES ('x', 1)")
        return len(session(books).scalars(select(Payment)).all())

    assert call(ledger, pay) == 1
    assert payments() == 1


def flush_a_clash(db: Any) -> None:
    db.flush()
    (first,) = db.scalars(select(Payment.id)).all()
    db.add(Payment(id=first, account="acc-2", amount=1))
    db.flush()


def leave_a_clash(db: Any) -> None:
    db.flush()
    (first,) = db.scalars(select(Payment.id)).all()
    db.add(Payment(id=first, account="acc-2", amount=1))


@pytest.mark.filterwarnings("ignore:New instance.*conflicts with persistent instance")
@pytest.mark.parametrize("work", [flush_a_clash, leave_a_clash])
def test_a_flush_that_fails_is_the_tools_failure_and_nothing_of_it_stays(work, ledger, payments):
    for _ in range(2):
        with pytest.raises(EffectFailed, match="IntegrityError"):
            call(ledger, tool_of(work))
    assert payments() == 0
    assert only_record(ledger).state is State.FAILED


@pytest.mark.filterwarnings("ignore:New instance.*conflicts with persistent instance")
@pytest.mark.parametrize("more", [True, False])
def test_a_tool_that_goes_on_from_a_failed_flush_is_not_recorded_as_done(more, ledger, payments):
    def work(db: Any) -> None:
        with pytest.raises(IntegrityError):
            flush_a_clash(db)
        if more:
            db.add(Payment(account="acc-3", amount=1))

    with pytest.raises(ContractError, match="flush failed"):
        call(ledger, tool_of(work))
    assert payments() == 0
    assert only_record(ledger).state is State.RELEASED


@pytest.mark.filterwarnings("ignore:New instance.*conflicts with persistent instance")
def test_a_part_that_may_fail_has_a_savepoint(ledger, payments):
    def tried(db: Any) -> None:
        db.flush()
        with pytest.raises(IntegrityError), db.begin_nested():
            leave_a_clash(db)

    assert call(ledger, tool_of(tried)) == "paid"
    assert payments() == 1


def test_a_part_that_was_done_is_flushed_and_committed_with_the_record_that_says_so(ledger, payments):
    def part(_: Any) -> None:
        raise PartialSuccess(done=["paid"], remaining=["mailed"])

    with pytest.raises(PartialSuccess):
        call(ledger, tool_of(part))
    assert payments() == 1
    assert only_record(ledger).state is State.PARTIAL


def with_it(db: Any) -> None:
    with db:
        db.add(Payment(account="acc-2", amount=1))


def test_the_usual_with_flushes_and_leaves_the_rest_to_semel(ledger, payments):
    assert call(ledger, tool_of(with_it)) == "paid"
    assert payments() == 2


def begun(db: Any) -> None:
    with db.begin():
        pass


ENDINGS: dict[str, Callable[[Any], Any]] = {
    "commit": lambda db: db.commit(),
    "rollback": lambda db: db.rollback(),
    "close": lambda db: db.close(),
    "reset": lambda db: db.reset(),
    "invalidate": lambda db: db.invalidate(),
    "begin": begun,
    "connection's commit": lambda db: db.connection().commit(),
    "connection's rollback": lambda db: db.connection().rollback(),
    "words": lambda db: db.execute(text("COMMIT")),
    "driver's commit": lambda db: db.connection().connection.dbapi_connection.commit(),
}


@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS)
def test_what_would_end_the_transaction_is_refused_and_the_key_is_free(end, ledger, payments):
    # So that the first look of an engine at its database, which is rolled back, is over.
    call(ledger, tool_of(lambda db: db.flush()), "before")
    with pytest.raises(ContractError, match="not its own to end"):
        call(ledger, tool_of(end))
    assert payments() == 1
    assert call(another_process(ledger), tool_of(lambda db: None)) == "paid"
    assert payments() == 2


def test_many_threads_each_have_their_own(ledger, payments):
    tool = tool_of(lambda db: db.flush())
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda number: call(ledger, tool, f"pay-{number}"), range(8))) == ["paid"] * 8
    assert payments() == 8


def test_nothing_is_left_behind_for_the_collector_to_complain_about(ledger, payments):
    def fail(_: Any) -> None:
        raise ValueError("no such account")

    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        call(ledger, tool_of(lambda db: None))
        with pytest.raises(EffectFailed):
            call(ledger, tool_of(fail), "fails")
        gc.collect()
    assert complaints == []
    assert payments() == 1


# --- async ----------------------------------------------------------------------------------------------


async def abegun(db: Any) -> None:
    async with db.begin():
        pass


async def awith(db: Any) -> None:
    async with db:
        db.add(Payment(account="acc-2", amount=1))


@on_postgres
@pytest.mark.parametrize(
    "end", [lambda db: db.commit(), lambda db: db.rollback(), lambda db: db.close(), abegun]
)
def test_an_asynchronous_session_refuses_the_same(end, ledger, payments):
    with pytest.raises(ContractError, match="not its own to end"):
        asyncio.run(call(ledger, atool_of(end)))
    assert payments() == 0


@on_postgres
def test_an_asynchronous_session_writes_what_was_added(ledger, payments):
    asyncio.run(call(ledger, atool_of(awith)))
    assert payments() == 2


@on_postgres
def test_which_of_the_two_it_takes_is_said(ledger):
    @semel.tool_contract(name="pay", class_="write-non-idempotent")
    async def apay(account: str, amount: int, books: semel.Transaction) -> str:
        session(books)
        return "paid"

    @semel.tool_contract(name="pay", class_="write-non-idempotent", version="2.0.0")
    def pay(account: str, amount: int, books: semel.Transaction) -> str:
        asyncio.run(async_session(books))
        return "paid"

    with pytest.raises(ContractError, match="async_session"):
        asyncio.run(call(ledger, apay))
    with pytest.raises(ContractError, match=r"session\(transaction\)"):
        call(ledger, pay)
    assert {record.state for record in all_records(ledger)} == {State.RELEASED}


@on_sqlite
def test_an_async_def_on_sqlite_has_the_synchronous_session(ledger, payments):
    @semel.tool_contract(name="pay", class_="write-non-idempotent")
    async def pay(account: str, amount: int, books: semel.Transaction) -> str:
        session(books).add(Payment(account=account, amount=amount))
        return "paid"

    assert asyncio.run(call(ledger, pay)) == "paid"
    assert payments() == 1


def test_both_tools_of_the_scene_are_one_action(ledger):
    assert (pay_tool().contract.name, apay_tool().contract.name) == ("pay", "pay")
