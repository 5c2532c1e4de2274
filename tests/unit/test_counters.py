"""Answers that changed nothing, counted at once and written in batches."""

import threading

from semel.kernel.record import Address, Record, apply
from semel.ledger.counters import REFUSED, AnswerCounters, Hit
from tests.commands import A, claim, settle

HIT = Hit(REFUSED, Address("acme", "tool", ""), "pay", "1.0.0", "", "NO_STEP", "conv", "[]", "")


def settled() -> Record:
    done = apply(apply(None, claim(A), 0), settle(A), 0)
    assert done is not None
    return done


def test_an_empty_tally_has_no_events():
    counters = AnswerCounters()
    assert not counters
    assert counters.take() == []


def test_equal_answers_are_one_event_with_the_time_of_the_last():
    counters = AnswerCounters()
    for now_us in (10, 30, 20):
        counters.add(HIT, now_us)
    assert counters
    [event] = counters.take()
    assert (event.kind, event.state, event.times, event.at_us) == ("refused", "NO_STEP", 3, 30)
    assert not counters


def test_different_answers_are_different_events():
    counters = AnswerCounters()
    for code in ("NO_STEP", "SCOPE_DENIED", "NO_STEP"):
        counters.add(HIT._replace(code=code), 1)
    assert {event.state: event.times for event in counters.take()} == {"NO_STEP": 2, "SCOPE_DENIED": 1}


def test_a_replay_names_the_record_and_what_it_holds():
    counters, record = AnswerCounters(), settled()
    counters.replayed(record, 1)
    counters.replayed(record, 2)
    [event] = counters.take()
    assert (event.kind, event.record_id, event.key) == ("dedup_hit", record.request.id, record.request.at.key)
    assert (event.times, event.state, event.digest) == (2, "done", b"")


def test_what_was_taken_is_not_taken_again():
    counters = AnswerCounters()
    counters.add(HIT, 1)
    counters.take()
    counters.add(HIT, 2)
    [event] = counters.take()
    assert event.times == 1


def test_more_answers_than_may_wait_are_counted_all_the_same():
    counters = AnswerCounters()
    for _ in range(60_000):
        counters.add(HIT, 1)
    assert sum(event.times for event in counters.take()) == 60_000


def test_nothing_is_lost_between_many_threads():
    counters, taken = AnswerCounters(), []

    def count() -> None:
        for _ in range(2_000):
            counters.add(HIT, 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken += counters.take()
    for thread in threads:
        thread.join()
    taken += counters.take()
    assert sum(event.times for event in taken) == 8_000
