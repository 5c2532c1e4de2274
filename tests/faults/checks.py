"""What holds after every fault, and waiting for something that another process does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import semel
from semel.audit.events import CLAIMED, RETAKEN, Event, fold, told_by
from semel.kernel.record import Record, State, effective_state
from tests.patience import PATIENCE_S as PATIENCE_S

T = TypeVar("T")


def until(ask: Callable[[], T], what: str) -> T:
    """The first answer that is true; fails once patience is over."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not (answer := ask()):
        assert time.monotonic() < give_up_at, f"waited in vain until {what}"
        time.sleep(0.005)
    return answer


def all_records(ledger: semel.Ledger) -> Sequence[Record]:
    return ledger.records.list(limit=10_000)


def only_record(ledger: semel.Ledger) -> Record:
    (record,) = all_records(ledger)
    return record


def until_in_doubt(ledger: semel.Ledger) -> None:
    """The lease of the only record lapsed: its owner is dead or frozen."""

    def in_doubt() -> bool:
        return effective_state(only_record(ledger), ledger.clock.now_us()) is State.IN_DOUBT

    until(in_doubt, "the record is in doubt")


def assert_history_holds(ledger: semel.Ledger) -> None:
    """Folding a record's events gives the record, and the fence rose with every attempt."""
    for record in all_records(ledger):
        record, events = _at_one_moment(ledger, record.request.id)
        assert fold(events) == told_by(record)
        assert_rising(_fences_of_attempts(events))


def _at_one_moment(ledger: semel.Ledger, id_: str) -> tuple[Record, Sequence[Event]]:
    """The record and its events. The sweeper is at work: what it changed in between is read again."""

    def read() -> tuple[Record, Sequence[Event]] | None:
        before, events = ledger.records.get(id_), ledger.records.history(id_)
        return (before, events) if ledger.records.get(id_) == before else None

    found = until(read, "nobody changes the record")
    assert found is not None
    return found


def _fences_of_attempts(events: Sequence[Event]) -> list[int]:
    return [event.fence for event in events if event.kind in (CLAIMED, RETAKEN)]


def assert_rising(fences: Sequence[int]) -> None:
    assert list(fences) == sorted(set(fences)), "fences rise with every attempt"
