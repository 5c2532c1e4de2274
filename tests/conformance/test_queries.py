"""What a store answers when it is asked about its records and events, and how it sweeps and seals them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from semel.audit.events import CLOSED, GENESIS, LAPSED, LEAF_BYTES, Event, chain, fold, new_event
from semel.kernel.record import LEASE_LAPSED, UNSETTLED, Address, Record, State
from semel.stores.base import (
    AppendEvents,
    CountRecords,
    CountUnsettled,
    FindRecord,
    ListRecords,
    ReadEvents,
    ReadSeals,
    SealEvents,
    Sweep,
    Whose,
)
from tests.commands import (
    LEASE,
    SECOND,
    WINDOW,
    A,
    B,
    asked,
    claim,
    look,
    park,
    release,
    resolve,
    retake,
    settle,
)
from tests.doors import Door
from tests.fake_clock import START_US, FakeClock


def place(number: int, tenant: str = "acme", scope: str = "tool") -> Address:
    return Address(tenant, scope, f"key-{number}")


def token(number: int) -> bytes:
    return number.to_bytes(16, "big")


def claim_many(door: Door, count: int, **changes: Any) -> list[Record]:
    """So many pending records, all at this very moment."""
    replies = [door.perform(claim(token(number), place(number), **changes)) for number in range(count)]
    return [reply.record for reply in replies if reply.record is not None]


def keys(records: Sequence[Record]) -> list[str]:
    return [record.request.at.key for record in records]


def kinds(door: Door) -> list[str]:
    return [event.kind for event in door.ask(ReadEvents())]


# --- listing -----------------------------------------------------------------------------------------


def test_an_empty_store_lists_nothing(door):
    assert list(door.ask(ListRecords("acme"))) == []


def test_records_are_listed_whole_and_newest_first(door, clock):
    records = []
    for number in range(5):
        clock.advance(1)
        records.append(door.perform(claim(token(number), place(number))).record)
    assert list(door.ask(ListRecords("acme"))) == records[::-1]


def test_records_of_one_moment_are_listed_by_id(door):
    for number, name in enumerate(("b", "a", "é", "Z", "c")):
        door.perform(claim(token(number), place(number), id=name))
    assert [record.request.id for record in door.ask(ListRecords("acme"))] == ["é", "c", "b", "a", "Z"]


def test_a_released_key_keeps_its_place_in_the_list(door, clock):
    door.perform(claim(A, place(1)))
    door.perform(release(A, place(1)))
    clock.advance(1)
    door.perform(claim(A, place(2)))
    clock.advance(1)
    door.perform(claim(B, place(1)))
    assert keys(door.ask(ListRecords("acme"))) == ["key-2", "key-1"]


def test_only_the_tenants_own_records_are_listed(door):
    door.perform(claim(A, place(1)))
    door.perform(claim(B, place(2, tenant="globex")))
    assert keys(door.ask(ListRecords("acme"))) == ["key-1"]
    assert keys(door.ask(ListRecords("globex"))) == ["key-2"]
    assert keys(door.ask(ListRecords("acm"))) == []


def test_a_list_can_be_narrowed_by_scope_key_tool_and_all_of_them(door):
    door.perform(claim(token(1), place(1)))
    door.perform(claim(token(2), place(2, scope="run")))
    door.perform(claim(token(3), place(3), tool="send_email"))
    door.perform(claim(token(4), place(3, scope="run"), tool="send_email"))

    def listed(**narrowed: Any) -> set[tuple[str, str]]:
        return {record.request.at[1:] for record in door.ask(ListRecords("acme", **narrowed))}

    assert listed() == {("tool", "key-1"), ("run", "key-2"), ("tool", "key-3"), ("run", "key-3")}
    assert listed(scope="run") == {("run", "key-2"), ("run", "key-3")}
    assert listed(key="key-3") == {("tool", "key-3"), ("run", "key-3")}
    assert listed(tool="send_email") == {("tool", "key-3"), ("run", "key-3")}
    assert listed(scope="run", key="key-3", tool="send_email") == {("run", "key-3")}
    assert listed(scope="run", key="key-1") == set()
    assert listed(scope="") == listed(key="") == listed(tool="") == set()


def test_a_list_can_be_narrowed_by_states(door):
    claim_many(door, 8)
    door.perform(settle(token(1), place(1)))
    door.perform(settle(token(2), place(2), state=State.FAILED))
    door.perform(settle(token(3), place(3), state=State.PARTIAL))
    door.perform(park(token(4), place(4)))
    door.perform(release(token(5), place(5)))
    door.perform(park(token(6), place(6)))
    door.perform(resolve(token(6), A, False, place(6)))
    door.perform(claim(B, place(8), waiting=True))

    def listed(*states: State) -> list[str]:
        return sorted(keys(door.ask(ListRecords("acme", states=frozenset(states)))))

    assert listed(State.PENDING) == ["key-0", "key-7"]
    assert listed(State.DONE) == ["key-1"]
    assert listed(State.FAILED, State.PARTIAL) == ["key-2", "key-3"]
    assert listed(State.IN_DOUBT) == ["key-4"]
    assert listed(State.RELEASED) == ["key-5"]
    assert listed(State.CLEARED) == ["key-6"]
    assert listed(State.WAITING) == ["key-8"]
    assert len(listed(*State)) == len(listed()) == 9


def test_a_lapsed_record_is_listed_as_in_doubt_before_any_sweep_and_after(door, clock):
    door.perform(claim(A))
    doubtful = ListRecords("acme", states=frozenset([State.IN_DOUBT]))
    pending = ListRecords("acme", states=frozenset([State.PENDING]))
    clock.advance((LEASE - 1) / SECOND)
    assert (len(door.ask(pending)), len(door.ask(doubtful))) == (1, 0)
    clock.advance(1 / SECOND)
    assert (len(door.ask(pending)), len(door.ask(doubtful))) == (0, 1)
    assert door.ask(doubtful)[0].state is State.PENDING  # Listing marks nothing.
    door.ask(Sweep())
    assert (len(door.ask(pending)), len(door.ask(doubtful))) == (0, 1)


def test_a_record_whose_window_closed_is_not_listed(door, clock):
    door.perform(claim(A))
    door.perform(settle(A))
    clock.advance((WINDOW - 1) / SECOND)
    assert len(door.ask(ListRecords("acme"))) == 1
    clock.advance(1 / SECOND)
    assert len(door.ask(ListRecords("acme"))) == 0


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
def test_pages_show_every_record_once_also_where_several_share_a_moment(door, clock, limit):
    claim_many(door, 3)
    clock.advance(1)
    for number in range(3, 7):
        door.perform(claim(token(number), place(number)))
    whole = list(door.ask(ListRecords("acme")))
    pages: list[Record] = []
    before = None
    while page := door.ask(ListRecords("acme", before=before, limit=limit)):
        assert len(page) <= limit
        pages += page
        before = (page[-1].created_at, page[-1].request.id)
    assert pages == whole
    assert len(pages) == 7


def test_new_records_do_not_shift_the_pages_of_someone_who_reads(door, clock):
    claim_many(door, 4)
    first = door.ask(ListRecords("acme", limit=2))
    clock.advance(1)
    door.perform(claim(A, place(9)))
    rest = door.ask(ListRecords("acme", before=(first[-1].created_at, first[-1].request.id)))
    assert sorted(keys([*first, *rest])) == ["key-0", "key-1", "key-2", "key-3"]


def test_a_list_has_fifty_records_unless_told_otherwise(door):
    claim_many(door, 52)
    assert len(door.ask(ListRecords("acme"))) == 50
    assert len(door.ask(ListRecords("acme", limit=60))) == 52


# --- what is unsettled ---------------------------------------------------------------------------------


def every_kind(door: Door, clock: FakeClock, tenant: str) -> None:
    """Of one tenant: two in doubt, of which one lapsed; one pending, one waiting; and what is over."""
    door.perform(claim(token(0), place(0, tenant), tool="send_email"))
    clock.advance(1)
    door.perform(claim(token(1), place(1, tenant), lease_us=9 * LEASE))
    door.perform(park(token(1), place(1, tenant)))
    clock.advance(LEASE / SECOND)
    for number in range(2, 6):
        door.perform(claim(token(number), place(number, tenant)))
    door.perform(settle(token(3), place(3, tenant)))
    door.perform(release(token(4), place(4, tenant)))
    door.perform(park(token(5), place(5, tenant)))
    door.perform(resolve(token(5), A, False, place(5, tenant)))
    door.perform(claim(B, place(6, tenant), lease_us=9 * LEASE, waiting=True))


def test_what_is_unsettled_is_listed_over_all_tenants_newest_first(door, clock):
    every_kind(door, clock, "acme")
    clock.advance(1)
    every_kind(door, clock, "globex")

    def listed(*states: State, **narrowed: Any) -> list[tuple[str, str]]:
        records = door.ask(ListRecords(None, states=frozenset(states), **narrowed))
        return [(record.request.at.tenant, record.request.at.key) for record in records]

    lapsed_since = [("acme", "key-2")]
    assert listed(State.IN_DOUBT) == [
        ("globex", "key-1"), ("globex", "key-0"), *lapsed_since, ("acme", "key-1"), ("acme", "key-0"),
    ]  # fmt: skip
    assert listed(State.WAITING) == [("globex", "key-6"), ("acme", "key-6")]
    assert listed(State.PENDING) == [("globex", "key-2")]
    assert listed(State.IN_DOUBT, tool="send_email") == [("globex", "key-0"), ("acme", "key-0")]
    assert listed(State.IN_DOUBT, scope="run") == []
    assert listed(State.IN_DOUBT, key="key-1") == [("globex", "key-1"), ("acme", "key-1")]
    assert len(listed(*UNSETTLED)) == 8
    assert len(listed()) == 14


@pytest.mark.parametrize("states", [UNSETTLED, frozenset()], ids=["unsettled", "all"])
def test_pages_over_all_tenants_show_every_record_once(door, clock, states):
    every_kind(door, clock, "acme")
    every_kind(door, clock, "globex")
    whole = list(door.ask(ListRecords(None, states=states)))
    pages: list[Record] = []
    before = None
    while page := door.ask(ListRecords(None, states=states, before=before, limit=3)):
        pages += page
        before = (page[-1].created_at, page[-1].request.id)
    assert pages == whole
    assert [(record.created_at, record.request.id) for record in whole] == sorted(
        ((record.created_at, record.request.id) for record in whole), reverse=True
    )


def test_what_is_unsettled_is_counted_by_tenant_tool_and_state(door, clock):
    assert door.ask(CountUnsettled()) == {}
    every_kind(door, clock, "acme")
    every_kind(door, clock, "globex")
    refund, mail = "issue_refund", "send_email"
    in_doubt = {
        Whose("acme", refund, State.IN_DOUBT): 2,
        Whose("acme", mail, State.IN_DOUBT): 1,
        Whose("globex", refund, State.IN_DOUBT): 1,
        Whose("globex", mail, State.IN_DOUBT): 1,
    }
    assert door.ask(CountUnsettled()) == in_doubt
    assert door.ask(CountUnsettled(tenant="globex")) == {
        whose: count for whose, count in in_doubt.items() if whose.tenant == "globex"
    }
    assert door.ask(CountUnsettled(tenant="nobody")) == {}
    assert door.ask(CountUnsettled(UNSETTLED)) == in_doubt | {
        Whose("globex", refund, State.PENDING): 1,
        Whose("acme", refund, State.WAITING): 1,
        Whose("globex", refund, State.WAITING): 1,
    }
    door.ask(Sweep())
    assert door.ask(CountUnsettled()) == in_doubt


def test_a_question_that_is_over_is_not_counted_as_unsettled(door, clock):
    door.perform(claim(A, lease_us=SECOND, waiting=True))
    assert door.ask(CountUnsettled(UNSETTLED)) == {Whose("acme", "issue_refund", State.WAITING): 1}
    clock.advance(1)
    assert door.ask(CountUnsettled(UNSETTLED)) == {}
    door.ask(Sweep())
    assert door.ask(CountUnsettled(UNSETTLED)) == {}


def test_a_key_that_goes_on_after_a_closed_question_is_unsettled_once(door, clock):
    door.perform(claim(A, lease_us=SECOND, waiting=True))
    clock.advance(1)
    door.perform(claim(B, waiting=True))
    assert door.ask(CountUnsettled(UNSETTLED)) == {Whose("acme", "issue_refund", State.WAITING): 1}
    door.perform(settle(B))
    assert list(door.ask(ListRecords(None, states=UNSETTLED))) == []


# --- finding, counting ---------------------------------------------------------------------------------


def test_a_record_is_found_by_its_id_by_its_own_tenant_only(door):
    record = door.perform(claim(A)).record
    assert door.ask(FindRecord("acme", asked(A).id)) == record
    assert door.ask(FindRecord("globex", asked(A).id)) is None
    assert door.ask(FindRecord("acme", "rec_unknown")) is None


def test_a_swept_record_is_not_found(door, clock):
    door.perform(claim(A))
    door.perform(settle(A))
    clock.advance(WINDOW / SECOND)
    door.ask(Sweep())
    assert door.ask(FindRecord("acme", asked(A).id)) is None
    assert door.perform(look()).record is None


def test_records_are_counted_by_state_over_all_tenants(door):
    assert door.ask(CountRecords()) == {}
    claim_many(door, 3)
    door.perform(claim(A, place(1, tenant="globex")))
    door.perform(settle(token(1), place(1)))
    door.perform(park(token(2), place(2)))
    assert door.ask(CountRecords()) == {State.PENDING: 2, State.DONE: 1, State.IN_DOUBT: 1}


# --- events ----------------------------------------------------------------------------------------------


def test_events_are_read_in_the_order_of_their_commits(door):
    for command in (claim(A), park(A), retake(A, B), settle(B)):
        door.perform(command)
    events = door.ask(ReadEvents())
    assert [event.kind for event in events] == ["claimed", "parked", "retaken", "settled"]
    seqs = [event.seq for event in events]
    assert seqs == sorted(set(seqs))
    assert seqs[0] > 0


def test_events_can_be_read_on_from_any_of_them(door):
    claim_many(door, 5)
    events = list(door.ask(ReadEvents()))
    for position, event in enumerate(events):
        assert list(door.ask(ReadEvents(after=event.seq))) == events[position + 1 :]
    assert list(door.ask(ReadEvents(limit=2))) == events[:2]
    assert list(door.ask(ReadEvents(after=events[1].seq, limit=2))) == events[2:4]


def test_events_can_be_read_of_one_tenant_or_of_one_record(door):
    door.perform(claim(A, place(1)))
    door.perform(claim(B, place(2, tenant="globex")))
    door.perform(claim(B, place(2)))
    door.perform(settle(A, place(1)))
    events = list(door.ask(ReadEvents()))
    assert list(door.ask(ReadEvents(tenant="globex"))) == [events[1]]
    assert list(door.ask(ReadEvents(record_id=asked(A, place(1)).id))) == [events[0], events[3]]
    assert list(door.ask(ReadEvents(record_id=asked(A, place(1)).id, limit=1))) == [events[0]]
    assert list(door.ask(ReadEvents(tenant="globex", record_id=asked(A, place(1)).id))) == []
    assert list(door.ask(ReadEvents(tenant="acme", after=events[0].seq))) == events[2:]


def counted(number: int) -> Event:
    return Event(
        seq=0,
        at_us=START_US + number,
        tenant="acme",
        scope="tool",
        key=f"key-{number}",
        record_id=f"rec_{number}",
        kind="dedup_hit",
        state="done",
        fence=number,
        tool="issue_refund",
        version="2.1.0",
        digest=b"d" * 32,
        expires_at=None if number % 2 else START_US,
        conversation="conv-42",
        step='["refund-1"]',
        by="support-bot",
        note="",
        times=number + 1,
    )


def test_counted_answers_are_written_in_one_batch_among_the_other_events(door):
    door.perform(claim(A))
    door.ask(AppendEvents([counted(0), counted(1)]))
    door.perform(settle(A))
    door.ask(AppendEvents([]))
    events = door.ask(ReadEvents())
    assert [event.kind for event in events] == ["claimed", "dedup_hit", "dedup_hit", "settled"]
    assert [event._replace(seq=0) for event in events[1:3]] == [counted(0), counted(1)]
    assert events[0].seq < events[1].seq < events[2].seq < events[3].seq


# --- sweeping --------------------------------------------------------------------------------------------


def sweep_all(door: Door, limit: int = 500) -> tuple[int, int]:
    """How many lapsed and closed records one whole round finds, never more than `limit` in a step."""
    lapsed = closed = 0
    more = True
    while more:
        swept = door.ask(Sweep(limit))
        assert swept.lapsed <= limit
        assert swept.closed <= limit
        lapsed, closed, more = lapsed + swept.lapsed, closed + swept.closed, swept.more
    return lapsed, closed


def test_a_sweep_of_what_is_alive_does_nothing(door, clock):
    claim_many(door, 3)
    door.perform(settle(token(1), place(1)))
    door.perform(park(token(2), place(2)))
    clock.advance((LEASE - 1) / SECOND)
    before, events = list(door.ask(ListRecords("acme"))), door.ask(ReadEvents())
    assert sweep_all(door) == (0, 0)
    assert (list(door.ask(ListRecords("acme"))), door.ask(ReadEvents())) == (before, events)


def test_a_sweep_marks_what_lapsed_and_says_why(door, clock):
    record = door.perform(claim(A)).record
    clock.advance(LEASE / SECOND)
    assert sweep_all(door) == (1, 0)
    marked = record._replace(state=State.IN_DOUBT, lease_until=None, note=LEASE_LAPSED)
    assert door.perform(look()).record == marked
    last = door.ask(ReadEvents())[-1]
    assert last == new_event(LAPSED, marked, clock.now_us())._replace(seq=last.seq)
    assert sweep_all(door) == (0, 0)


def test_a_sweep_removes_what_closed_and_the_story_ends(door, clock):
    door.perform(claim(A))
    settled = door.perform(settle(A)).record
    clock.advance((WINDOW - 1) / SECOND)
    assert sweep_all(door) == (0, 0)
    clock.advance(1 / SECOND)
    assert sweep_all(door) == (0, 1)
    assert door.perform(look()).record is None
    events = door.ask(ReadEvents(record_id=asked(A).id))
    assert events[-1] == new_event(CLOSED, settled, clock.now_us())._replace(seq=events[-1].seq)
    assert fold(events) is None


def test_released_cleared_and_unanswered_records_are_removed_when_their_time_is_over(door, clock):
    claim_many(door, 2)
    door.perform(release(token(0), place(0)))
    door.perform(park(token(1), place(1)))
    door.perform(resolve(token(1), A, False, place(1)))
    door.perform(claim(B, place(2), waiting=True, lease_us=WINDOW))
    clock.advance(WINDOW / SECOND)
    assert sweep_all(door) == (0, 3)
    assert door.ask(CountRecords()) == {}


def test_what_is_in_doubt_is_never_removed(door, clock):
    claim_many(door, 2)
    door.perform(park(token(0), place(0)))
    clock.advance(100 * 366 * 86_400)
    assert sweep_all(door) == (1, 0)
    assert door.ask(CountRecords()) == {State.IN_DOUBT: 2}


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_a_sweep_in_small_steps_finds_everything_once(door, clock, limit):
    claim_many(door, 9)
    for number in range(4):
        door.perform(settle(token(number), place(number), window_us=SECOND))
    clock.advance(LEASE / SECOND)
    assert sweep_all(door, limit) == (5, 4)
    assert sweep_all(door, limit) == (0, 0)
    assert (kinds(door).count("lapsed"), kinds(door).count("closed")) == (5, 4)


def test_a_sweep_says_that_there_is_more_to_do(door, clock):
    claim_many(door, 5)
    clock.advance(LEASE / SECOND)
    assert door.ask(Sweep(limit=2)).more
    assert not door.ask(Sweep(limit=100)).more


def test_a_swept_owner_that_was_only_slow_goes_on(door, clock):
    door.perform(claim(A))
    clock.advance(LEASE / SECOND)
    sweep_all(door)
    assert door.perform(settle(A)).applied


# --- sealing ---------------------------------------------------------------------------------------------


def verified(door: Door) -> int:
    """How many events the seals cover, after their chain was computed again from the events themselves."""
    link, covered = GENESIS, 0
    events, seals = door.ask(ReadEvents(limit=100_000)), door.ask(ReadSeals())
    for number, seal in enumerate(seals, 1):
        run = [event for event in events if seal.first_seq <= event.seq <= seal.last_seq]
        link = chain(link, number, run)
        assert (seal.number, seal.events, seal.hash) == (number, len(run), link)
        assert (run[0].seq, run[-1].seq) == (seal.first_seq, seal.last_seq)
        covered += seal.events
    return covered


def test_nothing_to_seal_is_none(door):
    assert door.ask(SealEvents()) is None
    assert list(door.ask(ReadSeals())) == []


def test_each_event_is_sealed_once_and_in_order(door, clock):
    claim_many(door, 5)
    clock.advance(1)
    first = door.ask(SealEvents(limit=3))
    assert (first.number, first.events, first.at_us) == (1, 3, clock.now_us())
    assert door.ask(SealEvents(limit=3)).events == 2
    assert door.ask(SealEvents(limit=3)) is None
    door.perform(settle(token(0), place(0)))
    door.ask(AppendEvents([counted(0)]))
    assert door.ask(SealEvents()).number == 3
    assert verified(door) == 7


def test_seals_can_be_read_on_from_any_of_them(door):
    claim_many(door, 4)
    made = [door.ask(SealEvents(limit=1)) for _ in range(4)]
    assert all(len(seal.leaves) == LEAF_BYTES for seal in made)
    seals = [seal._replace(leaves=b"") for seal in made]  # told when it is made, and in no row
    assert list(door.ask(ReadSeals())) == seals
    assert list(door.ask(ReadSeals(after=2))) == seals[2:]
    assert list(door.ask(ReadSeals(after=1, limit=2))) == seals[1:3]


def test_old_events_go_in_whole_seals_and_the_rest_still_verifies(door, clock):
    claim_many(door, 3)
    door.ask(SealEvents(limit=2))
    door.ask(SealEvents(limit=1))
    clock.advance(door.store.audit_kept_us / SECOND + 1)
    door.perform(settle(token(0), place(0), window_us=None))
    last = door.ask(SealEvents())
    sweep_all(door)
    events = list(door.ask(ReadEvents()))
    assert events[0].seq == last.first_seq
    assert [event.kind for event in events] == ["settled", "lapsed", "lapsed"]
    previous = door.ask(ReadSeals())[-2]
    assert last.hash == chain(previous.hash, last.number, events[:1])


def test_old_events_that_no_seal_covers_stay(door, clock):
    claim_many(door, 2)
    clock.advance(door.store.audit_kept_us / SECOND + 1)
    sweep_all(door)
    assert kinds(door) == ["claimed", "claimed", "lapsed", "lapsed"]


def test_a_seal_with_a_young_event_stays_whole(door, clock):
    door.perform(claim(A))
    clock.advance(door.store.audit_kept_us / SECOND + 1)
    door.perform(settle(A))
    door.ask(SealEvents())
    sweep_all(door)
    assert kinds(door) == ["claimed", "settled"]


def test_numbers_of_events_go_on_after_old_ones_went(door, clock):
    door.perform(claim(A))
    sealed = door.ask(SealEvents())
    clock.advance(door.store.audit_kept_us / SECOND + 1)
    sweep_all(door)
    door.perform(settle(A))
    events = door.ask(ReadEvents(after=sealed.last_seq))
    assert [event.kind for event in events] == ["lapsed", "settled"]
    assert events == door.ask(ReadEvents())


def test_a_clock_that_was_set_back_neither_loses_nor_reopens_anything(door, clock):
    door.perform(claim(A))
    door.perform(settle(A))
    clock.advance(-86_400)
    assert sweep_all(door) == (0, 0)
    assert not door.perform(claim(B)).applied
    assert kinds(door) == ["claimed", "settled"]


def test_the_store_says_what_an_acknowledged_write_survives(door):
    assert len(door.store.durability.split()) > 3


def test_a_store_keeps_its_own_clock(house):
    early, late = FakeClock(START_US), FakeClock(START_US + SECOND)
    assert house.open(early).perform(look()).now_us == START_US
    assert house.open(late).perform(look()).now_us == START_US + SECOND
