"""Many processes, threads and event loops call at once: one effect each, and everyone hears the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

import semel
from semel.kernel.clock import SYSTEM
from semel.kernel.record import State
from tests.faults.bank import Bank
from tests.faults.caller import Heard, acall, call
from tests.faults.checks import PATIENCE_S, all_records, assert_history_holds, only_record, until
from tests.faults.conftest import Start
from tests.faults.payment import LONG_LEASE, POLICIES, payment

T = TypeVar("T")

PROCESSES = 16
THREADS = 32
KEYS = 50


def in_threads(work: Callable[[], T], count: int) -> list[T]:
    """What each of so many threads got, all of which began at the same time."""
    together, got = threading.Barrier(count), []

    def run() -> None:
        together.wait(PATIENCE_S)
        got.append(work())

    threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(got) == count
    return got


@pytest.mark.parametrize("policy", ["park", "rerun"])
def test_sixteen_processes_with_one_step_pay_once(
    policy: str, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    told = {"policy": policy, "lease": LONG_LEASE, "accounts": ["acc-1"]}
    racers = [start("race", seed=n, note=f"racer {n}", **told) for n in range(PROCESSES)]
    for racer in racers:
        racer.hear("ready")
    for racer in racers:
        racer.go_on()
    answers = [racer.hear("heard")["acc-1"] for racer in racers]
    (entry,) = bank.entries()
    assert answers[0]["receipt"]["fence"] == entry.fence
    assert all(answer == answers[0] for answer in answers)
    assert_history_holds(ledger)


def test_sixteen_processes_pay_each_of_fifty_keys_once(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    accounts = [f"acc-{n}" for n in range(KEYS)]
    told = {"policy": "rerun", "lease": LONG_LEASE, "accounts": accounts}
    racers = [start("race", seed=n, note=f"racer {n}", **told) for n in range(PROCESSES)]
    for racer in racers:
        racer.hear("ready")
    for racer in racers:
        racer.go_on()
    answers = [racer.hear("heard") for racer in racers]
    assert sorted(entry.account for entry in bank.entries()) == sorted(accounts)
    receipts = {entry.account: bank.receipt(entry.key) for entry in bank.entries()}
    for heard in answers:
        assert {account: answer["receipt"] for account, answer in heard.items()} == {
            account: vars(receipt) for account, receipt in receipts.items()
        }
    assert_history_holds(ledger)
    assert {record.state for record in all_records(ledger)} == {State.DONE}


@pytest.mark.parametrize("policy", POLICIES)
def test_thirty_two_threads_with_one_step_pay_once(policy: str, bank: Bank, ledger: semel.Ledger) -> None:
    tool = payment(bank, policy, lease=LONG_LEASE)
    answers = in_threads(lambda: call(ledger, tool, note="thread"), THREADS)
    (entry,) = bank.entries()
    assert answers == [Heard(receipt=bank.receipt(entry.key))] * THREADS
    assert_history_holds(ledger)


def test_several_event_loops_in_several_threads_share_one_ledger(bank: Bank, ledger: semel.Ledger) -> None:
    tool = payment(bank, "rerun", asynchronous=True, lease=LONG_LEASE)
    accounts = [f"acc-{n}" for n in range(8)]

    async def all_of_them() -> list[Heard]:
        return await asyncio.gather(*(acall(ledger, tool, account=account) for account in accounts))

    answers = in_threads(lambda: asyncio.run(all_of_them()), 6)
    assert sorted(entry.account for entry in bank.entries()) == accounts
    receipts = [Heard(receipt=bank.receipt(bank.entries(account)[0].key)) for account in accounts]
    assert answers == [receipts] * 6
    assert_history_holds(ledger)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_callers_in_other_processes_are_woken_by_the_settlement(
    asynchronous: bool, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    # The lease is far longer than this test may take: only a settlement that is noticed ends the wait.
    told = {"policy": "park", "lease": LONG_LEASE, "asynchronous": asynchronous}
    owner = start("one_call", after="pause", note="owner", **told)
    owner.hear("in the tool")
    waiters = [start("waiting_call", **told) for _ in range(4)]
    for waiter in waiters:
        waiter.hear("waiting")
    owner.go_on()
    answers = [process.hear("heard") for process in (owner, *waiters)]
    assert answers[0]["receipt"]["note"] == "owner"
    assert answers == [answers[0]] * 5
    assert len(bank.entries()) == 1


def test_a_waiting_caller_goes_on_when_the_owner_dies(start: Start, bank: Bank, ledger: semel.Ledger) -> None:
    # So long a lease that the owner is not late with a renewal, however busy the machine.
    owner = start("one_call", policy="retry", after="pause", note="owner", lease="5s")
    owner.hear("in the tool")
    waiter = start("waiting_call", policy="retry", lease="5s")
    waiter.hear("waiting")
    owner.clean_up()
    assert waiter.hear("heard")["receipt"]["note"] == "owner"
    assert [entry.note for entry in bank.entries()] == ["owner", "owner"]
    assert_history_holds(ledger)


def test_only_one_of_many_takes_over_from_the_dead(start: Start, bank: Bank, ledger: semel.Ledger) -> None:
    owner = start("one_call", policy="rerun", after="die", note="dead", lease="50ms")
    owner.end()
    until(lambda: _lapsed(ledger), "the dead owner's lease lapsed")
    tool = payment(bank, "rerun", lease=LONG_LEASE)
    answers = in_threads(lambda: call(ledger, tool, note="thread"), THREADS)
    assert len(bank.entries()) == 2
    assert len(set(answers)) == 1
    assert only_record(ledger).attempts == 2
    assert_history_holds(ledger)


def _lapsed(ledger: semel.Ledger) -> bool:
    lease_until = only_record(ledger).lease_until
    return lease_until is not None and lease_until < SYSTEM.now_us()
