"""A tool's effect and its settlement in one commit: whatever dies, the effect is there once."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.errors import ContractError, EffectFailed, OwnershipLost, PartialSuccess, StoreUnavailable
from semel.record import Address, Settle, State, effective_state
from tests.faults.checks import all_records, assert_history_holds, only_record, until
from tests.faults.interrupting import interrupted_at, moments_of
from tests.faults.payment import LONG_LEASE
from tests.faults.places import POSTGRES, SQLITE
from tests.faults.till import COUNT, CREATE, INSERT, apay_tool, call, pay_tool, run
from tests.missing import library
from tests.proxy import Proxy
from tests.tools import another_process

library("psycopg")

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


def books(ledger: semel.Ledger, statement: str) -> Any:
    """What a statement answers, in a transaction of its own."""
    transaction = ledger.store.begin(asynchronous=False)
    try:
        found = transaction.connection.execute(statement)
        rows = found.fetchall() if found.description else None
        transaction.connection.execute("COMMIT")
        return rows
    finally:
        transaction.roll_back()


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
        timeout=60,
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
    tool = tool_of(ledger, lease=LONG_LEASE, in_flight="refuse")

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
        assert go_on.wait(30)
        return "too late"

    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(call, ledger, slow)
        assert entered.wait(30)
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
    far = url.replace(f":{shared_port()}/", f":{proxy.port}/") + "&timeout=1s"
    try:
        with semel.open(url) as near, semel.open(far) as ledger:
            books(near, CREATE)
            books(near, "TRUNCATE payments")

            def pay_and_then(switch: str) -> Any:
                @semel.tool_contract(name="pay", class_="write-non-idempotent")
                def pay(account: str, amount: int, books: semel.Transaction) -> str:
                    books.connection.execute(INSERT["postgres"], (account, amount))
                    setattr(proxy, switch, True)
                    threading.Timer(1.2, proxy.restore).start()
                    return "paid"

                return pay

            with pytest.raises(StoreUnavailable, match="rolled back"):
                call(ledger, pay_and_then("drops_requests"), "first")
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
