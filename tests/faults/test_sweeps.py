"""The sweeper dies in the middle of its pass; the next one finishes, and nothing is swept twice."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

import semel
from semel.audit.events import CLOSED, GENESIS, LAPSED, chain
from semel.kernel.record import Address, State
from semel.stores.base import ReadEvents, ReadSeals
from tests.commands import claim, settle
from tests.faults.checks import all_records, assert_history_holds, until
from tests.faults.conftest import Start

LAPSING, CLOSING, OPEN = 12, 12, 3


def at(name: str) -> Address:
    return Address("default", "tool", name)


@pytest.fixture
def overdue(ledger: semel.Ledger) -> semel.Ledger:
    """A store where much is due: leases that lapsed, windows that closed; and some of neither."""
    perform = ledger.store.perform
    for n in range(LAPSING):
        perform(claim(at=at(f"lapsing-{n}"), lease_us=1))
    for n in range(CLOSING):
        perform(claim(at=at(f"closing-{n}")))
        perform(settle(at=at(f"closing-{n}"), window_us=1))
    for n in range(OPEN):
        perform(claim(at=at(f"open-{n}")))
        perform(settle(at=at(f"open-{n}")))
    until(lambda: len(all_records(ledger)) == LAPSING + OPEN, "the windows are closed")
    return ledger


def count_events(ledger: semel.Ledger, kind: str) -> Counter[str]:
    return Counter(event.key for event in ledger.store.ask(ReadEvents(limit=10_000)) if event.kind == kind)


def assert_swept_once(ledger: semel.Ledger) -> None:
    assert count_events(ledger, LAPSED) == Counter(f"lapsing-{n}" for n in range(LAPSING))
    assert count_events(ledger, CLOSED) == Counter(f"closing-{n}" for n in range(CLOSING))
    assert Counter(record.state for record in all_records(ledger)) == {
        State.IN_DOUBT: LAPSING,
        State.DONE: OPEN,
    }
    assert_history_holds(ledger)
    assert_chain_whole(ledger)


def assert_chain_whole(ledger: semel.Ledger) -> None:
    """Every event is under one seal, and every seal follows from the one before it."""
    events = ledger.store.ask(ReadEvents(limit=10_000))
    previous, sealed = GENESIS, 0
    for seal in ledger.store.ask(ReadSeals()):
        covered = [event for event in events if seal.first_seq <= event.seq <= seal.last_seq]
        assert chain(previous, seal.number, covered) == seal.hash
        previous, sealed = seal.hash, sealed + seal.events
    assert sealed == len(events)


@pytest.mark.parametrize("point", ["before sweep", "after sweep", "before sealevents", "after sealevents"])
def test_a_sweeper_dies_in_its_pass_and_the_next_one_finishes(
    point: str, start: Start, overdue: semel.Ledger
) -> None:
    assert start("sweeping", batch=5, crash=point).end() == -signal.SIGKILL
    assert_history_holds(overdue)
    overdue.sweeper.run_once()
    assert_swept_once(overdue)


def test_sweepers_in_several_processes_at_once_are_harmless(start: Start, overdue: semel.Ledger) -> None:
    sweepers = [start("sweeping", batch=1) for _ in range(4)]
    for sweeper in sweepers:
        sweeper.hear("swept")
    overdue.sweeper.run_once()
    assert_swept_once(overdue)
