"""A call is left in the middle: by ctrl-C, by an exit, by a cancelled task."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from typing import Any

import pytest

import semel
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Claim, Command, Reply, State
from semel.testing import WrappedStore
from tests.faults.bank import Bank
from tests.faults.caller import ACCOUNT, AMOUNT, CONVERSATION, STEP, Heard, acall, call
from tests.faults.checks import (
    PATIENCE_S,
    all_records,
    assert_history_holds,
    only_record,
    until,
    until_in_doubt,
)
from tests.faults.conftest import Start
from tests.faults.payment import LONG_LEASE, payment
from tests.faults.places import SQLITE

# --- ctrl-C and exits -----------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("moment", "landed"), [("before", 0), ("after", 1)])
def test_ctrl_c_in_a_tool_is_doubt_at_once_and_the_process_ends_by_it(
    moment: str, landed: int, asynchronous: bool, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    told: dict[str, Any] = {"lease": LONG_LEASE, "asynchronous": asynchronous, moment: "pause"}
    caller = start("call_uncaught", policy="park", note="first", **told)
    caller.hear("calling")
    caller.hear("in the tool")
    caller.send(signal.SIGINT)
    until(lambda: only_record(ledger).state is State.IN_DOUBT, "it is in doubt, though its lease is long")
    if asynchronous:
        caller.go_on()  # an event loop waits for its threads before it ends
    assert caller.end() == -signal.SIGINT
    assert call(ledger, payment(bank, "park"), note="second").code == "OUTCOME_UNKNOWN"
    assert len(bank.entries()) == landed
    assert_history_holds(ledger)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_tool_that_exits_is_in_doubt_at_once_and_the_exit_goes_on(
    asynchronous: bool, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    told: dict[str, Any] = {"lease": LONG_LEASE, "asynchronous": asynchronous}
    caller = start("call_uncaught", policy="retry", after="sys.exit", note="first", **told)
    assert caller.end() == 7
    record = only_record(ledger)
    assert (record.state, record.note) == (State.IN_DOUBT, "the tool ended with SystemExit")
    assert call(ledger, payment(bank, "retry"), note="second").receipt is not None
    assert [entry.note for entry in bank.entries()] == ["first", "first"]
    assert_history_holds(ledger)


def test_a_tool_that_leaves_without_a_word_is_in_doubt_when_its_lease_is_over(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    assert start("call_uncaught", policy="park", after="os._exit", note="first").end() == 7
    assert only_record(ledger).state is State.PENDING
    until_in_doubt(ledger)
    assert call(ledger, payment(bank, "park"), note="second").code == "OUTCOME_UNKNOWN"
    assert len(bank.entries()) == 1


def test_ctrl_c_between_the_claim_and_its_reply_gives_the_key_back(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    caller = start("hesitating_call", point="after claim", policy="park", lease=LONG_LEASE)
    caller.hear("hesitating")
    assert only_record(ledger).state is State.PENDING
    caller.send(signal.SIGINT)
    assert caller.hear("heard")["raised"] == "KeyboardInterrupt"
    assert caller.end() == 0
    assert only_record(ledger).state is State.RELEASED
    assert call(ledger, payment(bank, "park"), note="second").receipt is not None
    assert [entry.note for entry in bank.entries()] == ["second"]
    assert_history_holds(ledger)


@pytest.mark.parametrize("point", ["before settle", "after settle"])
def test_ctrl_c_while_the_outcome_is_written_does_not_lose_it(
    point: str, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    caller = start("hesitating_call", point=point, policy="park", lease=LONG_LEASE)
    caller.hear("hesitating")
    caller.send(signal.SIGINT)
    assert caller.hear("heard")["raised"] == "KeyboardInterrupt"
    assert caller.end() == 0
    assert only_record(ledger).state is State.DONE
    assert call(ledger, payment(bank, "park"), note="second").receipt == bank.receipt(bank.entries()[0].key)
    assert len(bank.entries()) == 1
    assert_history_holds(ledger)


@pytest.mark.parametrize("url", [SQLITE], ids=["sqlite"], indirect=True)  # the only store with a file to hold
def test_ctrl_c_while_another_process_holds_the_file_leaves_nothing_behind(
    start: Start, bank: Bank, ledger: semel.Ledger, url: str
) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        caller = start("call_uncaught", policy="park", lease=LONG_LEASE, note="first")
        caller.hear("calling")
        caller.send(signal.SIGINT)
        other.execute("ROLLBACK")
    assert caller.end() == -signal.SIGINT
    assert bank.entries() == []
    assert call(ledger, payment(bank, "park"), note="second").receipt is not None
    assert_history_holds(ledger)


def until_it_pays_again(bank: Bank) -> None:
    paid = len(bank.entries())
    until(lambda: len(bank.entries()) > paid, "it goes on")


def test_a_process_that_is_interrupted_again_and_again_goes_on_and_pays_nothing_twice(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    caller = start("interrupted_again_and_again", policy="park")
    caller.hear("calling")
    for _ in range(60):
        until_it_pays_again(bank)
        # Somewhere within the few milliseconds of a call.
        SYSTEM.sleep(SYSTEM.random() * 0.004)
        caller.send(signal.SIGINT)
    caller.go_on()
    assert caller.hear("heard")["receipt"] is not None
    assert caller.end() == 0
    assert max(Counter(entry.key for entry in bank.entries()).values()) == 1
    assert call(ledger, payment(bank, "park"), account="acc-other").receipt is not None
    assert_history_holds(ledger)


@pytest.mark.parametrize("crowd", [0, pytest.param(3, marks=pytest.mark.full)])
def test_an_interrupt_at_any_moment_of_a_call_holds_no_key_and_strands_nobody(
    crowd: int, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    caller = start("interrupted_everywhere", policy="park", lease=LONG_LEASE, crowd=crowd)
    moments = []
    while (told := caller.hear("still well")) is not None:
        moments.append(told)
    assert len(moments) > 100
    paid = Counter(entry.account for entry in bank.entries())
    for moment, account, first, again in moments:
        assert first["raised"] == "KeyboardInterrupt", moment
        if again["receipt"] is None:
            assert again["code"] == "OUTCOME_UNKNOWN", moment
            assert paid[account] <= 1, moment
        else:
            assert paid[account] == 1, moment
    if not crowd:  # whose records are thousands
        assert_history_holds(ledger)


# --- cancelled tasks ------------------------------------------------------------------------------


async def cancelled(ledger: semel.Ledger, tool: Any, when: Any) -> None:
    """A call that was cancelled once `when` came true, and that says so."""
    step = ledger.step(conversation=CONVERSATION, step=STEP)
    task = asyncio.ensure_future(step.run(tool, account=ACCOUNT, amount=AMOUNT, note="first"))
    await asyncio.wait_for(when(), PATIENCE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_task_that_is_cancelled_in_its_tool_is_in_doubt_before_the_caller_hears_of_it(
    bank: Bank, ledger: semel.Ledger
) -> None:
    async def scene() -> None:
        inside = asyncio.Event()

        @semel.tool_contract(class_="write-non-idempotent", name="pay", lease=LONG_LEASE, on_unknown="park")
        async def pay(account: str, amount: int, note: str) -> None:
            inside.set()
            await asyncio.Event().wait()

        await cancelled(ledger, pay, inside.wait)
        assert only_record(ledger).state is State.IN_DOUBT
        assert (await acall(ledger, pay, note="first")).code == "OUTCOME_UNKNOWN"

    asyncio.run(scene())
    assert_history_holds(ledger)


class SlowReplies(WrappedStore):
    """Claims are carried out, and their replies wait for `heard`."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.claimed = asyncio.Event()

    async def aperform(self, command: Command) -> Reply:
        reply = await super().aperform(command)
        if isinstance(command, Claim):
            self.claimed.set()
            await asyncio.Event().wait()
        return reply


def test_a_task_that_is_cancelled_between_its_claim_and_the_reply_gives_the_key_back(
    bank: Bank, ledger: semel.Ledger
) -> None:
    tool = payment(bank, "park", asynchronous=True, lease=LONG_LEASE)

    async def scene() -> None:
        store = SlowReplies(ledger.store)
        await cancelled(semel.Ledger(store), tool, store.claimed.wait)
        assert (await acall(ledger, tool, note="second")).receipt is not None

    asyncio.run(scene())
    assert [entry.note for entry in bank.entries()] == ["second"]
    assert_history_holds(ledger)


def test_tasks_that_are_cancelled_at_any_moment_leave_no_call_undecided(
    bank: Bank, ledger: semel.Ledger
) -> None:
    tool = payment(bank, "park", asynchronous=True, lease=LONG_LEASE)
    accounts = [f"acc-{n}" for n in range(120)]

    async def cancel_after(account: str, ticks: int) -> Heard:
        task = asyncio.ensure_future(acall(ledger, tool, account=account, note="first"))
        for _ in range(ticks):
            await asyncio.sleep(0.0005)
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return Heard(raised="CancelledError")

    async def scene() -> list[Heard]:
        return await asyncio.gather(*(cancel_after(account, n) for n, account in enumerate(accounts)))

    first = dict(zip(accounts, asyncio.run(scene()), strict=True))
    until(lambda: not ledger.records.list(state="pending"), "what was cancelled is given back or in doubt")
    assert_history_holds(ledger)
    for account in accounts:
        second = call(ledger, tool, account=account, note="second")
        if first[account].receipt is not None:
            assert second == first[account]
        else:
            assert first[account] == Heard(raised="CancelledError")
            assert second.receipt is not None or second.code == "OUTCOME_UNKNOWN"
    assert max(Counter(entry.key for entry in bank.entries()).values()) == 1
    assert {record.state for record in all_records(ledger)} <= {State.DONE, State.IN_DOUBT}
