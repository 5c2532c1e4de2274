"""An owner is frozen past its lease (SIGSTOP) and wakes up after others went on."""

from __future__ import annotations

import signal

import pytest

import semel
from semel.kernel.record import State
from tests.faults.bank import Bank
from tests.faults.caller import call
from tests.faults.checks import assert_history_holds, assert_rising, only_record, until, until_in_doubt
from tests.faults.conftest import Start
from tests.faults.payment import payment
from tests.faults.process import Process


def frozen(start: Start, ledger: semel.Ledger, **told: str) -> Process:
    """A process that stands still in the middle of its tool, and whose lease lapsed."""
    owner = start("one_call", note="first", **told)
    owner.hear("in the tool")
    owner.freeze()
    until_in_doubt(ledger)
    return owner


def wake(owner: Process) -> None:
    owner.send(signal.SIGCONT)
    owner.go_on()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("policy", ["retry", "rerun"])
def test_the_owner_that_wakes_is_told_that_it_lost_and_the_record_is_its_successors(
    policy: str, asynchronous: bool, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    owner = frozen(start, ledger, policy=policy, after="pause", asynchronous=asynchronous)  # type: ignore[arg-type]
    successor = call(ledger, payment(bank, policy, asynchronous=asynchronous), note="second")
    settled = only_record(ledger)
    wake(owner)
    assert owner.hear("heard")["code"] == "OWNERSHIP_LOST"
    assert only_record(ledger) == settled
    assert successor.receipt is not None
    assert successor.receipt.fence == settled.fence
    assert {entry.note for entry in bank.entries()} == {"first"}
    assert_rising([entry.fence for entry in bank.entries()])
    assert_history_holds(ledger)


def test_the_owner_that_wakes_while_its_successor_runs_changes_nothing(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    owner = frozen(start, ledger, policy="retry", after="pause")
    successor = start("one_call", policy="retry", after="pause", note="second")
    successor.hear("in the tool")
    wake(owner)
    assert owner.hear("heard")["code"] == "OWNERSHIP_LOST"
    assert only_record(ledger).settled_at is None
    successor.go_on()
    receipt = successor.hear("heard")["receipt"]
    assert receipt["fence"] == only_record(ledger).fence == max(entry.fence for entry in bank.entries())
    assert_history_holds(ledger)


def test_a_parked_owner_that_wakes_may_still_settle(start: Start, bank: Bank, ledger: semel.Ledger) -> None:
    owner = frozen(start, ledger, policy="park", after="pause")
    assert call(ledger, payment(bank, "park"), note="second").code == "OUTCOME_UNKNOWN"
    wake(owner)
    receipt = owner.hear("heard")["receipt"]
    assert only_record(ledger).state is State.DONE
    later = call(ledger, payment(bank, "park"), note="third")
    assert vars(later.receipt) == receipt
    assert len(bank.entries()) == 1
    assert_history_holds(ledger)


def test_a_parked_owner_that_wakes_may_still_settle_after_a_sweep(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    owner = frozen(start, ledger, policy="park", after="pause")
    assert ledger.sweeper.run_once().lapsed == 1
    assert only_record(ledger).state is State.IN_DOUBT
    wake(owner)
    assert owner.hear("heard")["receipt"] is not None
    assert only_record(ledger).state is State.DONE
    assert_history_holds(ledger)


def test_an_owner_that_wakes_and_goes_on_working_shows_a_sign_of_life_again(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    owner = frozen(start, ledger, policy="park", after="pause")
    ledger.sweeper.run_once()
    owner.send(signal.SIGCONT)
    until(lambda: only_record(ledger).state is State.PENDING, "its lease is renewed")
    owner.go_on()
    assert owner.hear("heard")["receipt"] is not None
    assert_history_holds(ledger)


@pytest.mark.parametrize("outcome", ["happened", "did_not_happen"])
def test_an_owner_that_wakes_after_a_person_decided_changes_nothing(
    outcome: str, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    owner = frozen(start, ledger, policy="park", after="pause")
    decided = ledger.records.resolve(only_record(ledger).request.id, outcome, by="ann")
    wake(owner)
    assert owner.hear("heard")["code"] == "OWNERSHIP_LOST"
    assert only_record(ledger) == decided
    assert_history_holds(ledger)


def test_a_probe_that_found_the_payment_settles_it_before_the_owner_wakes(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    owner = frozen(start, ledger, policy="probe", after="pause")
    found = call(ledger, payment(bank, "probe"), note="second")
    wake(owner)
    assert owner.hear("heard")["code"] == "OWNERSHIP_LOST"
    assert found.receipt == bank.receipt(only_record(ledger).request.at.key)
    assert len(bank.entries()) == 1
    assert_history_holds(ledger)


def test_what_a_frozen_owner_still_does_carries_the_older_fence(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    # Nobody can stop an entry that is under way; a downstream that compares fences can refuse it.
    owner = frozen(start, ledger, policy="retry", before="pause")
    call(ledger, payment(bank, "retry"), note="second")
    wake(owner)
    assert owner.hear("heard")["code"] == "OWNERSHIP_LOST"
    newer, older = bank.entries()
    assert older.pid == owner.pid
    assert older.fence < newer.fence == only_record(ledger).fence
    assert (older.key, older.note) == (newer.key, newer.note)
    assert_history_holds(ledger)
