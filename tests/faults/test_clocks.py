"""Wall clocks an hour apart on one store: safety comes from fence and contract, never from a clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import semel
from semel.kernel.record import State
from tests.faults.bank import Bank
from tests.faults.caller import Heard, call
from tests.faults.checks import assert_history_holds, assert_rising, only_record
from tests.faults.conftest import Start
from tests.faults.payment import LONG_LEASE, payment
from tests.faults.scenes import ShiftedClock

HOUR_S = 3_600
BOTH_WAYS = pytest.mark.parametrize("shift_s", [HOUR_S, -HOUR_S], ids=["an hour ahead", "an hour behind"])


@contextmanager
def shifted(url: str, shift_s: float) -> Iterator[semel.Ledger]:
    """This process, with its wall clock set wrong."""
    with semel.open(url, clock=ShiftedClock(shift_s)) as ledger:
        yield ledger


@pytest.mark.parametrize("shift_s", [0, -HOUR_S], ids=["the owner's clock is right", "is an hour behind"])
def test_a_lease_that_is_over_by_a_fast_clock_is_doubt_and_not_freedom(
    shift_s: int, url: str, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    owner = start("one_call", policy="park", lease=LONG_LEASE, after="pause", note="first", shift_s=shift_s)
    owner.hear("in the tool")
    tool = payment(bank, "park", lease=LONG_LEASE)
    with shifted(url, HOUR_S) as ahead:
        assert call(ahead, tool, note="second").code == "OUTCOME_UNKNOWN"
        ahead.sweeper.run_once()
        owner.go_on()
        receipt = owner.hear("heard")["receipt"]
        assert vars(call(ahead, tool, note="third").receipt) == receipt
    assert len(bank.entries()) == 1
    assert_history_holds(ledger)


@BOTH_WAYS
def test_a_settlement_is_read_by_clocks_that_are_an_hour_apart(
    shift_s: int, url: str, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    receipt = start("one_call", policy="park", note="first", shift_s=shift_s).hear("heard")["receipt"]
    with shifted(url, -shift_s) as other:
        assert vars(call(other, payment(bank, "park"), note="second").receipt) == receipt
    assert vars(call(ledger, payment(bank, "park"), note="third").receipt) == receipt
    assert len(bank.entries()) == 1


@BOTH_WAYS
def test_fences_rise_whatever_the_clocks_say(
    shift_s: int, url: str, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    # Each dies in flight at a clock of its own; a person frees the key, so that no lease has to be awaited.
    for turn, shift in enumerate([0, shift_s, -shift_s, shift_s, 0]):
        start("one_call", policy="park", lease="1ms", after="die", note="first", shift_s=shift).end()
        assert len(bank.entries()) == turn + 1
        with shifted(url, 2 * HOUR_S) as later:
            later.records.resolve(only_record(later).request.id, "did_not_happen", by="ann")
    assert_rising([entry.fence for entry in bank.entries()])
    assert_history_holds(ledger)


@BOTH_WAYS
def test_a_sweeper_with_a_wrong_clock_removes_nothing_that_is_open(
    shift_s: int, url: str, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    receipt = start("one_call", policy="park", note="first").hear("heard")["receipt"]
    start("one_call", policy="park", note="first", shift_s=shift_s).hear("heard")
    with shifted(url, shift_s) as other:
        assert other.sweeper.run_once().closed == 0
    assert only_record(ledger).state is State.DONE
    assert vars(call(ledger, payment(bank, "park")).receipt) == receipt
    assert len(bank.entries()) == 1


def test_a_clock_that_is_behind_keeps_a_window_open_rather_longer(
    url: str, bank: Bank, ledger: semel.Ledger
) -> None:
    tool = payment(bank, "park", window="30m")
    first = call(ledger, tool, note="first")
    with shifted(url, -HOUR_S) as behind:
        assert call(behind, tool, note="second") == first
        assert behind.sweeper.run_once().closed == 0
    with semel.open(url) as fresh:
        assert call(fresh, tool, note="third") == first
    assert len(bank.entries()) == 1


def test_a_pending_record_is_never_swept_however_far_the_clock_is_ahead(
    url: str, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    owner = start("one_call", policy="park", after="pause", note="first", window="1s")
    owner.hear("in the tool")
    with shifted(url, 1_000 * HOUR_S) as far_ahead:
        for _ in range(2):
            assert far_ahead.sweeper.run_once().closed == 0
        assert call(far_ahead, payment(bank, "park"), note="second") == Heard(code="OUTCOME_UNKNOWN")
    owner.go_on()
    assert owner.hear("heard")["receipt"] is not None
    assert len(bank.entries()) == 1
    assert_history_holds(ledger)
