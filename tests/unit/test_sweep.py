"""The sweeper: lapsed leases become doubt, closed windows go, events are sealed."""

import threading

import pytest

from semel.kernel.record import Look
from semel.ledger.ledger import Ledger
from semel.ledger.sweep import SweepReport
from semel.stores.base import ReadEvents, ReadSeals
from semel.testing import Crash, crashing
from tests.tools import a_step, declared, kinds, state, the_record


@declared(window="1h", lease="10s")
def pay(to: str) -> None:
    if to == "unlucky":
        raise TimeoutError


def test_an_empty_store_needs_no_sweeping(ledger):
    assert ledger.sweeper.run_once() == SweepReport(lapsed=0, closed=0, sealed=0)


def test_a_lapsed_lease_becomes_doubt_with_an_event(ledger, clock):
    with a_step(crashing(ledger, "before settle")), pytest.raises(Crash):
        pay("a")
    assert ledger.sweeper.run_once().lapsed == 0
    clock.advance("10s")
    assert ledger.sweeper.run_once().lapsed == 1
    assert ledger.sweeper.run_once().lapsed == 0
    assert (state(ledger), kinds(ledger)) == ("in_doubt", ["claimed", "lapsed"])


def test_a_window_closes_neither_early_nor_late(ledger, clock):
    with a_step(ledger):
        pay("a")
    at = the_record(ledger).request.at
    clock.advance("59m")
    assert ledger.sweeper.run_once().closed == 0
    clock.advance("1m")
    assert ledger.sweeper.run_once().closed == 1
    assert ledger.store.perform(Look(at)).record is None
    assert kinds(ledger) == ["claimed", "settled", "closed"]


def test_a_doubt_is_never_swept_away(ledger, clock):
    with a_step(ledger), pytest.raises(TimeoutError):
        pay("unlucky")
    clock.advance("400d")
    ledger.sweeper.run_once()
    assert state(ledger) == "in_doubt"


def test_two_sweepers_at_once_are_harmless(ledger, clock):
    with a_step(ledger):
        for number in range(50):
            pay(str(number))
    clock.advance("1h")
    reports: list[SweepReport] = []
    sweepers = [Ledger(ledger.store, tenant="acme").sweeper for _ in range(2)]
    threads = [
        threading.Thread(target=lambda each=each: reports.append(each.run_once())) for each in sweepers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(report.closed for report in reports) == 50
    assert kinds(ledger).count("closed") == 50


def test_every_event_is_sealed_once(ledger):
    with a_step(ledger):
        pay("a"), pay("b")
    assert ledger.sweeper.run_once().sealed == 4
    assert ledger.sweeper.run_once().sealed == 0
    seals, events = ledger.store.ask(ReadSeals()), ledger.store.ask(ReadEvents())
    assert (seals[0].first_seq, seals[-1].last_seq) == (events[0].seq, events[-1].seq)


def test_a_sweeper_runs_until_it_is_told_to_stop(ledger, clock):
    stop, passes = threading.Event(), []

    def sleep_and_stop(seconds: float) -> None:
        passes.append(seconds)
        if len(passes) == 3:
            stop.set()

    clock.sleep = sleep_and_stop
    ledger.sweeper.run(5.0, stop)
    assert passes == [5.0] * 3
