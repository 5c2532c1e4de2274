"""Events tell the record's story, and a seal notices when they were touched."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.audit.events import (
    CLOSED,
    COUNTED,
    GENESIS,
    LAPSED,
    Event,
    Seal,
    Story,
    chain,
    fold,
    new_event,
    new_seal,
    of,
    told_by,
)
from semel.kernel.record import Claim, Command, Record, State, apply, closed, sweep
from tests.commands import (
    LEASE,
    SECOND,
    WINDOW,
    A,
    B,
    C,
    amend,
    asked,
    claim,
    park,
    release,
    renew,
    resolve,
    retake,
    settle,
)
from tests.fake_clock import START_US
from tests.situations import SITUATIONS, SWEEP, Step


class Book:
    """One record and its events, as a store keeps them."""

    def __init__(self) -> None:
        self.record: Record | None = None
        self.now_us = START_US
        self.events: list[Event] = []

    def take(self, step: Step) -> None:
        if isinstance(step, int):
            self.now_us += step
        elif isinstance(step, str):
            self._sweep()
        else:
            self._perform(step)

    def _perform(self, command: Command) -> None:
        after = apply(self.record, command, self.now_us)
        if after is not None:
            self._write(of(self.record, after, command, self.now_us))
            self.record = after

    def _sweep(self) -> None:
        if self.record is None:
            return
        if (marked := sweep(self.record, self.now_us)) is not None:
            self.record = marked
            self._write(new_event(LAPSED, marked, self.now_us))
        elif closed(self.record, self.now_us):
            self._write(new_event(CLOSED, self.record, self.now_us))
            self.record = None

    def _write(self, event: Event | None) -> None:
        if event is not None:
            self.events.append(event._replace(seq=len(self.events) + 1))

    def of_record(self, record: Record) -> list[Event]:
        return [event for event in self.events if event.record_id == record.request.id]


def written(*steps: Step) -> Book:
    book = Book()
    for step in steps:
        book.take(step)
    return book


# --- one event per transition ----------------------------------------------------------------------------


KINDS: dict[tuple[Step, ...], list[str]] = {
    (claim(A), settle(A)): ["claimed", "settled"],
    (claim(A), park(A), retake(A, B)): ["claimed", "parked", "retaken"],
    (claim(A), release(A), claim(B)): ["claimed", "released", "claimed"],
    (claim(A), park(A), resolve(A, B, True)): ["claimed", "parked", "resolved"],
    (claim(A), park(A), resolve(A, B, False), claim(C)): ["claimed", "parked", "resolved", "claimed"],
    (claim(A), park(A), resolve(A, B, True), amend(B, C)): ["claimed", "parked", "resolved", "amended"],
    (claim(A, waiting=True), retake(A, B)): ["asked", "retaken"],
    (claim(A), renew(A), LEASE, renew(A)): ["claimed"],
    (claim(A), LEASE, SWEEP, renew(A)): ["claimed", "lapsed", "revived"],
    (claim(A), settle(A), WINDOW, SWEEP): ["claimed", "settled", "closed"],
}


@pytest.mark.parametrize(("steps", "kinds"), KINDS.items(), ids=map("-".join, KINDS.values()))
def test_each_transition_is_one_event(steps, kinds):
    assert [event.kind for event in written(*steps).events] == kinds


def test_a_command_that_changes_nothing_is_no_event():
    assert len(written(claim(A), claim(B), settle(B), settle(A), settle(A)).events) == 2


def test_an_event_says_who_did_what_to_which_record_when():
    (event,) = written(SECOND, claim(A)).events
    assert event == Event(
        seq=1,
        at_us=START_US + SECOND,
        tenant="acme",
        scope="tool",
        key="key-1",
        record_id=asked(A).id,
        kind="claimed",
        state="pending",
        fence=START_US + SECOND,
        tool="issue_refund",
        version="2.1.0",
        digest=asked(A).fingerprint,
        expires_at=None,
        conversation="conv-42",
        step='["refund-1"]',
        by="support-bot",
        note="",
        times=1,
    )
    assert event.at == asked(A).at


def test_who_settles_or_resolves_is_named_and_else_the_one_who_asked():
    assert [event.by for event in written(claim(A), settle(A)).events] == ["support-bot"] * 2
    assert written(claim(A), settle(A, by="probe")).events[-1].by == "probe"
    assert written(claim(A), park(A), resolve(A, B, True, by="ann")).events[-1].by == "ann"


@pytest.mark.parametrize("steps", SITUATIONS.values(), ids=SITUATIONS)
def test_neither_arguments_nor_outcomes_are_in_any_event(steps):
    told = repr(written(*steps).events)
    assert "1400000" not in told
    assert "r-1" not in told


def test_the_digest_stands_for_the_arguments_until_there_is_an_outcome():
    events = written(claim(A), settle(A, outcome=b"x")).events
    assert [event.digest for event in events] == [asked(A).fingerprint, hashlib.sha256(b"x").digest()]


# --- folding ---------------------------------------------------------------------------------------------


def test_nothing_told_is_no_story():
    assert fold([]) is None


def test_the_story_ends_when_the_window_closes():
    assert fold(written(claim(A), settle(A), WINDOW, SWEEP).events) is None


def test_answers_that_changed_nothing_are_not_part_of_the_story():
    book = written(claim(A), settle(A))
    counted = [book.events[-1]._replace(kind=kind, note="", state="", fence=0) for kind in sorted(COUNTED)]
    assert fold(book.events + counted) == fold(book.events)
    assert fold(counted) is None


@pytest.mark.parametrize(
    "steps",
    [told for told in SITUATIONS.values() if told],
    ids=[name for name in SITUATIONS if name != "absent"],
)
def test_in_every_situation_the_events_tell_the_record(steps):
    book = written(*steps)
    assert book.record is not None
    assert fold(book.of_record(book.record)) == told_by(book.record)


def test_a_record_tells_how_it_stands():
    record = written(claim(A), SECOND, park(A), retake(A, B), SECOND, settle(B, outcome=b"x")).record
    assert record is not None
    settled_at = START_US + 2 * SECOND
    assert told_by(record) == Story(
        state="done",
        fence=START_US + SECOND,
        attempts=2,
        created_at=START_US,
        settled_at=settled_at,
        expires_at=settled_at + WINDOW,
        digest=hashlib.sha256(b"x").digest(),
        note="",
    )


TOKENS = [bytes([65 + number]) * 16 for number in range(5)]
tokens = st.sampled_from(TOKENS)
windows = st.sampled_from([0, 1, 2 * SECOND, WINDOW, None])
leases = st.sampled_from([1, SECOND, LEASE])
outcomes = st.none() | st.binary(max_size=3)
fingerprints = st.sampled_from([b"f" * 32, b"g" * 32])

commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(claim, tokens, lease_us=leases, waiting=st.booleans(), fingerprint=fingerprints),
    st.builds(retake, tokens, tokens, lease_us=leases, within_us=st.none() | leases),
    st.builds(renew, tokens, lease_us=leases),
    st.builds(
        settle,
        tokens,
        state=st.sampled_from([State.DONE, State.FAILED, State.PARTIAL]),
        outcome=outcomes,
        window_us=windows,
        by=st.sampled_from(["", "probe"]),
    ),
    st.builds(park, tokens, note=st.sampled_from(["timeout", "", "cancelled"])),
    st.builds(release, tokens, window_us=windows),
    st.builds(resolve, tokens, tokens, st.booleans(), outcome=outcomes, window_us=windows),
    st.builds(amend, tokens, tokens),
)
times = st.sampled_from([0, 1, SECOND, LEASE, WINDOW, -SECOND, -WINDOW])


def _with_ids(steps: Sequence[Step]) -> list[Step]:
    """Every claim with a record id of its own, as callers make them."""
    return [
        step._replace(request=step.request._replace(id=f"rec_{number}")) if isinstance(step, Claim) else step
        for number, step in enumerate(steps)
    ]


@given(st.lists(st.one_of(commands, commands, times, st.just(SWEEP)), max_size=40).map(_with_ids))
def test_folding_the_events_gives_the_record_back(steps):
    book = Book()
    for step in steps:
        book.take(step)
        if book.record is not None:
            assert fold(book.of_record(book.record)) == told_by(book.record)


@given(st.lists(st.one_of(commands, times, st.just(SWEEP)), max_size=40).map(_with_ids))
def test_whatever_happens_fences_of_claimed_and_retaken_records_rise(steps):
    book = Book()
    swept_at = 0
    for step in steps:
        book.take(step)
        if book.record is None:
            swept_at = len(book.events)  # Of a key that was swept only the clock remembers.
        fences = [
            event.fence for event in book.events[swept_at:] if event.kind in ("asked", "claimed", "retaken")
        ]
        assert fences == sorted(set(fences))


# --- sealing ---------------------------------------------------------------------------------------------


EVENTS = written(claim(A), SECOND, park(A), SECOND, retake(A, B), SECOND, settle(B), WINDOW, SWEEP).events


def sealed(events: Sequence[Event], *sizes: int) -> list[Seal]:
    """Seals over runs of the given sizes."""
    seals: list[Seal] = []
    start = 0
    for size in sizes:
        seals.append(new_seal(seals[-1] if seals else None, events[start : start + size], START_US))
        start += size
    return seals


def test_a_seal_says_what_it_covers():
    first, second = sealed(EVENTS, 2, 3)
    assert first[:4] == (1, 1, 2, 2)
    assert second[:4] == (2, 3, 5, 3)
    assert (first.at_us, second.at_us) == (START_US, START_US)
    assert len({first.hash, second.hash, GENESIS}) == 3


def test_the_same_events_give_the_same_seals():
    assert sealed(EVENTS, 2, 3) == sealed(list(EVENTS), 2, 3)


def another(value: str | int | bytes | None) -> object:
    """A value of the same type that is not the same."""
    match value:
        case str():
            return value + "!"
        case bytes():
            return value + b"!"
        case int():
            return value + 1
        case None:
            return 0


@pytest.mark.parametrize("place", range(len(EVENTS)))
@pytest.mark.parametrize("field", Event._fields)
def test_any_changed_field_of_any_event_breaks_the_chain(field, place):
    changed = list(EVENTS)
    changed[place] = changed[place]._replace(**{field: another(getattr(EVENTS[place], field))})
    assert last_hash(changed) != last_hash(EVENTS)


def last_hash(events: Sequence[Event]) -> bytes:
    """The end of the chain over all of them, in seals of two."""
    link = GENESIS
    for number, start in enumerate(range(0, len(events), 2), 1):
        link = chain(link, number, events[start : start + 2])
    return link


@pytest.mark.parametrize("place", range(len(EVENTS)))
def test_a_missing_event_breaks_the_chain(place):
    assert last_hash(EVENTS[:place] + EVENTS[place + 1 :]) != last_hash(EVENTS)


@pytest.mark.parametrize("place", range(len(EVENTS) + 1))
def test_an_added_event_breaks_the_chain(place):
    assert last_hash([*EVENTS[:place], EVENTS[0], *EVENTS[place:]]) != last_hash(EVENTS)


@pytest.mark.parametrize("place", range(len(EVENTS) - 1))
def test_two_events_that_changed_places_break_the_chain(place):
    swapped = list(EVENTS)
    swapped[place : place + 2] = reversed(swapped[place : place + 2])
    assert last_hash(swapped) != last_hash(EVENTS)


def test_a_seal_depends_on_the_one_before_and_on_its_number():
    assert chain(GENESIS, 1, EVENTS) != chain(b"other", 1, EVENTS)
    assert chain(GENESIS, 1, EVENTS) != chain(GENESIS, 2, EVENTS)


def test_text_cannot_slide_from_one_field_into_the_next():
    one, other = EVENTS[0]._replace(by="ab", note="c"), EVENTS[0]._replace(by="a", note="bc")
    assert chain(GENESIS, 1, [one]) != chain(GENESIS, 1, [other])


def test_any_text_and_any_number_of_a_record_can_be_sealed():
    odd = EVENTS[0]._replace(
        key="nul \x00 and \U0001f98a", note='"\\\n', fence=2**63 - 1, expires_at=2**63 - 1
    )
    assert chain(GENESIS, 1, [odd]) != chain(GENESIS, 1, [EVENTS[0]])
