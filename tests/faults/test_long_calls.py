"""Tools that run longer than their lease, and processes that fork in the middle of their work."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import semel
from semel.kernel.record import State
from tests.faults.bank import Bank
from tests.faults.caller import Heard, call
from tests.faults.checks import PATIENCE_S, assert_history_holds, only_record, until, until_in_doubt
from tests.faults.conftest import Start
from tests.faults.payment import LEASE, payment


class Running:
    """A call on a thread of its own, whose tool blocks that thread until it is told to go on."""

    def __init__(
        self, ledger: semel.Ledger, bank: Bank, *, asynchronous: bool, run_limit: str = "15m"
    ) -> None:
        self.inside, self._go_on = threading.Event(), threading.Event()
        self._answers: list[Heard] = []
        tool = _blocking_payment(bank, self._block, asynchronous, run_limit)
        self._thread = threading.Thread(
            target=lambda: self._answers.append(call(ledger, tool, note="first")), daemon=True
        )
        self._thread.start()
        assert self.inside.wait(PATIENCE_S)

    def _block(self) -> None:
        self.inside.set()
        assert self._go_on.wait(PATIENCE_S)

    def finish(self) -> Heard:
        self._go_on.set()
        self._thread.join(PATIENCE_S)
        return self._answers[0]


def _blocking_payment(bank: Bank, block: Any, asynchronous: bool, run_limit: str) -> Any:
    if not asynchronous:
        return payment(bank, "park", before=block, run_limit=run_limit)
    contract = semel.tool_contract(
        class_="write-non-idempotent",
        name="pay",
        ignore="note",
        lease=LEASE,
        run_limit=run_limit,
        on_unknown="park",
    )

    async def pay(account: str, amount: int, note: str, key: semel.Key) -> str:
        block()  # what no tool should do: its loop stands still, and so does every timer on it
        await asyncio.sleep(0)
        bank.pay(key, semel.current_fence() or 0, account, amount, note)
        return note

    return contract(pay)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["a thread", "its event loop"])
def test_a_tool_that_blocks_longer_than_its_lease_stays_the_owner(
    asynchronous: bool, bank: Bank, ledger: semel.Ledger
) -> None:
    running = Running(ledger, bank, asynchronous=asynchronous)
    granted = only_record(ledger).lease_until
    assert granted is not None
    until(lambda: ledger.clock.now_us() > granted, "the lease as it was granted is over")
    until(lambda: (only_record(ledger).lease_until or 0) > ledger.clock.now_us(), "it was renewed")
    assert only_record(ledger).state is State.PENDING
    assert running.finish().code is None
    assert only_record(ledger).state is State.DONE
    assert len(bank.entries()) == 1
    assert_history_holds(ledger)


def test_a_tool_that_runs_past_its_limit_is_in_doubt_while_it_still_runs(
    bank: Bank, ledger: semel.Ledger
) -> None:
    running = Running(ledger, bank, asynchronous=False, run_limit="200ms")
    until_in_doubt(ledger)
    assert call(ledger, payment(bank, "park"), note="second").code == "OUTCOME_UNKNOWN"
    assert running.finish().receipt is not None, "the newest owner may still settle"
    assert call(ledger, payment(bank, "park"), note="third").receipt is not None
    assert len(bank.entries()) == 1
    assert_history_holds(ledger)


CHILDREN = 8


@pytest.mark.parametrize("asynchronous", [False, True])
def test_children_of_a_process_that_used_its_ledger_pay_each_key_once(
    asynchronous: bool, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    accounts = ["acc-parent", *(f"acc-{n}" for n in range(10))]
    parent = start(
        "forking",
        policy="rerun",
        lease="10m",
        accounts=accounts,
        children=CHILDREN,
        asynchronous=asynchronous,
    )
    heard: list[Any] = []
    ended: list[int] = []
    while (line := parent.next_line()) is not None:
        word, content = line
        {"child heard": heard, "child ended": ended, "heard": []}[word].append(content)
    assert parent.end() == 0
    assert ended == [0] * CHILDREN
    assert sorted(entry.account for entry in bank.entries()) == sorted([*accounts, "acc-after"])
    assert heard == [heard[0]] * CHILDREN
    assert heard[0]["acc-parent"]["receipt"]["note"] == "parent"
    assert_history_holds(ledger)
