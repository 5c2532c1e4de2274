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
from tests.fake_clock import START_US, FakeClock
from tests.handles import StoreHandle


def place(number: int, tenant: str = "acme", scope: str = "tool") -> Address:
    return Address(tenant, scope, f"key-{number}")


def token(number: int) -> bytes:
    return number.to_bytes(16, "big")


def claim_many(handle: StoreHandle, count: int, **changes: Any) -> list[Record]:
    """So many pending records, all at this very moment."""
    replies = [handle.perform(claim(token(number), place(number), **changes)) for number in range(count)]
    return [reply.record for reply in replies if reply.record is not None]


def keys(records: Sequence[Record]) -> list[str]:
    return [record.request.at.key for record in records]


def kinds(handle: StoreHandle) -> list[str]:
    return [event.kind for event in handle.ask(ReadEvents())]


# --- listing -----------------------------------------------------------------------------------------


def test_an_empty_store_lists_nothing(handle):
    assert list(handle.ask(ListRecords("acme"))) == []


def test_records_are_listed_whole_and_newest_first(handle, clock):
    records = []
    for number in range(5):
        clock.advance(1)
        records.append(handle.perform(claim(token(number), place(number))).record)
    assert list(handle.ask(ListRecords("acme"))) == records[::-1]


def test_records_of_one_moment_are_listed_by_id(handle):
    for number, name in enumerate(("b", "a", "é", "Z", "c")):
        handle.perform(claim(token(number), place(number), id=name))
    assert [record.request.id for record in handle.ask(ListRecords("acme"))] == ["é", "c", "b", "a", "Z"]


def test_a_released_key_keeps_its_place_in_the_list(handle, clock):
    handle.perform(claim(A, place(1)))
    handle.perform(release(A, place(1)))
    clock.advance(1)
    handle.perform(claim(A, place(2)))
    clock.advance(1)
    handle.perform(claim(B, place(1)))
    assert keys(handle.ask(ListRecords("acme"))) == ["key-2", "key-1"]


def test_only_the_tenants_own_records_are_listed(handle):
    handle.perform(claim(A, place(1)))
    handle.perform(claim(B, place(2, tenant="globex")))
    assert keys(handle.ask(ListRecords("acme"))) == ["key-1"]
    assert keys(handle.ask(ListRecords("globex"))) == ["key-2"]
    assert keys(handle.ask(ListRecords("acm"))) == []


def test_a_list_can_be_narrowed_by_scope_key_tool_and_all_of_them(handle):
    handle.perform(claim(token(1), place(1)))
    handle.perform(claim(token(2), place(2, scope="run")))
    handle.perform(claim(token(3), place(3), tool="send_email"))
    handle.perform(claim(token(4), place(3, scope="run"), tool="send_email"))

    def listed(**narrowed: Any) -> set[tuple[str, str]]:
        return {record.request.at[1:] for record in handle.ask(ListRecords("acme", **narrowed))}

    assert listed() == {("tool", "key-1"), ("run", "key-2"), ("tool", "key-3"), ("run", "key-3")}
    assert listed(scope="run") == {("run", "key-2"), ("run", "key-3")}
    assert listed(key="key-3") == {("tool", "key-3"), ("run", "key-3")}
    assert listed(tool="send_email") == {("tool", "key-3"), ("run", "key-3")}
    assert listed(scope="run", key="key-3", tool="send_email") == {("run", "key-3")}
    assert listed(scope="run", key="key-1") == set()
    assert listed(scope="") == listed(key="") == listed(tool="") == set()


def test_a_list_can_be_narrowed_by_states(handle):
    claim_many(handle, 8)
    handle.perform(settle(token(1), place(1)))
    handle.perform(settle(token(2), place(2), state=State.FAILED))
    handle.perform(settle(token(3), place(3), state=State.PARTIAL))
    handle.perform(park(token(4), place(4)))
    handle.perform(release(token(5), place(5)))
    handle.perform(park(token(6), place(6)))
    handle.perform(resolve(token(6), A, False, place(6)))
    handle.perform(claim(B, place(8), waiting=True))

    def listed(*states: State) -> list[str]:
        return sorted(keys(handle.ask(ListRecords("acme", states=frozenset(states)))))

    assert listed(State.PENDING) == ["key-0", "key-7"]
    assert listed(State.DONE) == ["key-1"]
    assert listed(State.FAILED, State.PARTIAL) == ["key-2", "key-3"]
    assert listed(State.IN_DOUBT) == ["key-4"]
    assert listed(State.RELEASED) == ["key-5"]
    assert listed(State.CLEARED) == ["key-6"]
    assert listed(State.WAITING) == ["key-8"]
    assert len(listed(*State)) == len(listed()) == 9


def test_a_lapsed_record_is_listed_as_in_doubt_before_any_sweep_and_after(handle, clock):
    handle.perform(claim(A))
    doubtful = ListRecords("acme", states=frozenset([State.IN_DOUBT]))
    pending = ListRecords("acme", states=frozenset([State.PENDING]))
    clock.advance((LEASE - 1) / SECOND)
    assert (len(handle.ask(pending)), len(handle.ask(doubtful))) == (1, 0)
    clock.advance(1 / SECOND)
    assert (len(handle.ask(pending)), len(handle.ask(doubtful))) == (0, 1)
    assert handle.ask(doubtful)[0].state is State.PENDING  # Listing marks nothing.
    handle.ask(Sweep())
    assert (len(handle.ask(pending)), len(handle.ask(doubtful))) == (0, 1)


def test_a_record_whose_window_closed_is_not_listed(handle, clock):
    handle.perform(claim(A))
    handle.perform(settle(A))
    clock.advance((WINDOW - 1) / SECOND)
    assert len(handle.ask(ListRecords("acme"))) == 1
    clock.advance(1 / SECOND)
    assert len(handle.ask(ListRecords("acme"))) == 0


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
def test_pages_show_every_record_once_also_where_several_share_a_moment(handle, clock, limit):
    claim_many(handle, 3)
    clock.advance(1)
    for number in range(3, 7):
        handle.perform(claim(token(number), place(number)))
    whole = list(handle.ask(ListRecords("acme")))
    pages: list[Record] = []
    before = None
    while page := handle.ask(ListRecords("acme", before=before, limit=limit)):
        assert len(page) <= limit
        pages += page
        before = (page[-1].created_at, page[-1].request.id)
    assert pages == whole
    assert len(pages) == 7


def test_new_records_do_not_shift_the_pages_of_someone_who_reads(handle, clock):
    claim_many(handle, 4)
    first = handle.ask(ListRecords("acme", limit=2))
    clock.advance(1)
    handle.perform(claim(A, place(9)))
    rest = handle.ask(ListRecords("acme", before=(first[-1].created_at, first[-1].request.id)))
    assert sorted(keys([*first, *rest])) == ["key-0", "key-1", "key-2", "key-3"]


def test_a_list_has_fifty_records_unless_told_otherwise(handle):
    claim_many(handle, 52)
    assert len(handle.ask(ListRecords("acme"))) == 50
    assert len(handle.ask(ListRecords("acme", limit=60))) == 52


# --- what is unsettled ---------------------------------------------------------------------------------


def every_kind(handle: StoreHandle, clock: FakeClock, tenant: str) -> None:
    """Of one tenant: two in doubt, of which one lapsed; one pending, one waiting; and what is over."""
    handle.perform(claim(token(0), place(0, tenant), tool="send_email"))
    clock.advance(1)
    handle.perform(claim(token(1), place(1, tenant), lease_us=9 * LEASE))
    handle.perform(park(token(1), place(1, tenant)))
    clock.advance(LEASE / SECOND)
    for number in range(2, 6):
        handle.perform(claim(token(number), place(number, tenant)))
    handle.perform(settle(token(3), place(3, tenant)))
    handle.perform(release(token(4), place(4, tenant)))
    handle.perform(park(token(5), place(5, tenant)))
    handle.perform(resolve(token(5), A, False, place(5, tenant)))
    handle.perform(claim(B, place(6, tenant), lease_us=9 * LEASE, waiting=True))


def test_what_is_unsettled_is_listed_over_all_tenants_newest_first(handle, clock):
    every_kind(handle, clock, "acme")
    clock.advance(1)
    every_kind(handle, clock, "globex")

    def listed(*states: State, **narrowed: Any) -> list[tuple[str, str]]:
        records = handle.ask(ListRecords(None, states=frozenset(states), **narrowed))
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
def test_pages_over_all_tenants_show_every_record_once(handle, clock, states):
    every_kind(handle, clock, "acme")
    every_kind(handle, clock, "globex")
    whole = list(handle.ask(ListRecords(None, states=states)))
    pages: list[Record] = []
    before = None
    while page := handle.ask(ListRecords(None, states=states, before=before, limit=3)):
        pages += page
        before = (page[-1].created_at, page[-1].request.id)
    assert pages == whole
    assert [(record.created_at, record.request.id) for record in whole] == sorted(
        ((record.created_at, record.request.id) for record in whole), reverse=True
    )


def test_what_is_unsettled_is_counted_by_tenant_tool_and_state(handle, clock):
    assert handle.ask(CountUnsettled()) == {}
    every_kind(handle, clock, "acme")
    every_kind(handle, clock, "globex")
    refund, mail = "issue_refund", "send_email"
    in_doubt = {
        Whose("acme", refund, State.IN_DOUBT): 2,
        Whose("acme", mail, State.IN_DOUBT): 1,
        Whose("globex", refund, State.IN_DOUBT): 1,
        Whose("globex", mail, State.IN_DOUBT): 1,
    }
    assert handle.ask(CountUnsettled()) == in_doubt
    assert handle.ask(CountUnsettled(tenant="globex")) == {
        whose: count for whose, count in in_doubt.items() if whose.tenant == "globex"
    }
    assert handle.ask(CountUnsettled(tenant="nobody")) == {}
    assert handle.ask(CountUnsettled(UNSETTLED)) == in_doubt | {
        Whose("globex", refund, State.PENDING): 1,
        Whose("acme", refund, State.WAITING): 1,
        Whose("globex", refund, State.WAITING): 1,
    }
    handle.ask(Sweep())
    assert handle.ask(CountUnsettled()) == in_doubt


def test_a_question_that_is_over_is_not_counted_as_unsettled(handle, clock):
    handle.perform(claim(A, lease_us=SECOND, waiting=True))
    assert handle.ask(CountUnsettled(UNSETTLED)) == {Whose("acme", "issue_refund", State.WAITING): 1}
    clock.advance(1)
    assert handle.ask(CountUnsettled(UNSETTLED)) == {}
    handle.ask(Sweep())
    assert handle.ask(CountUnsettled(UNSETTLED)) == {}


def test_a_key_that_goes_on_after_a_closed_question_is_unsettled_once(handle, clock):
    handle.perform(claim(A, lease_us=SECOND, waiting=True))
    clock.advance(1)
    handle.perform(claim(B, waiting=True))
    assert handle.ask(CountUnsettled(UNSETTLED)) == {Whose("acme", "issue_refund", State.WAITING): 1}
    handle.perform(settle(B))
    assert list(handle.ask(ListRecords(None, states=UNSETTLED))) == []


# --- finding, counting ---------------------------------------------------------------------------------


def test_a_record_is_found_by_its_id_by_its_own_tenant_only(handle):
    record = handle.perform(claim(A)).record
    assert handle.ask(FindRecord("acme", asked(A).id)) == record
    assert handle.ask(FindRecord("globex", asked(A).id)) is None
    assert handle.ask(FindRecord("acme", "rec_unknown")) is None


def test_a_swept_record_is_not_found(handle, clock):
    handle.perform(claim(A))
    handle.perform(settle(A))
    clock.advance(WINDOW / SECOND)
    handle.ask(Sweep())
    assert handle.ask(FindRecord("acme", asked(A).id)) is None
    assert handle.perform(look()).record is None


def test_records_are_counted_by_state_over_all_tenants(handle):
    assert handle.ask(CountRecords()) == {}
    claim_many(handle, 3)
    handle.perform(claim(A, place(1, tenant="globex")))
    handle.perform(settle(token(1), place(1)))
    handle.perform(park(token(2), place(2)))
    assert handle.ask(CountRecords()) == {State.PENDING: 2, State.DONE: 1, State.IN_DOUBT: 1}


# --- events ----------------------------------------------------------------------------------------------


def test_events_are_read_in_the_order_of_their_commits(handle):
    for command in (claim(A), park(A), retake(A, B), settle(B)):
        handle.perform(command)
    events = handle.ask(ReadEvents())
    assert [event.kind for event in events] == ["claimed", "parked", "retaken", "settled"]
    seqs = [event.seq for event in events]
    assert seqs == sorted(set(seqs))
    assert seqs[0] > 0


def test_events_can_be_read_on_from_any_of_them(handle):
    claim_many(handle, 5)
    events = list(handle.ask(ReadEvents()))
    for position, event in enumerate(events):
        assert list(handle.ask(ReadEvents(after=event.seq))) == events[position + 1 :]
    assert list(handle.ask(ReadEvents(limit=2))) == events[:2]
    assert list(handle.ask(ReadEvents(after=events[1].seq, limit=2))) == events[2:4]


def test_events_can_be_read_of_one_tenant_or_of_one_record(handle):
    handle.perform(claim(A, place(1)))
    handle.perform(claim(B, place(2, tenant="globex")))
    handle.perform(claim(B, place(2)))
    handle.perform(settle(A, place(1)))
    events = list(handle.ask(ReadEvents()))
    assert list(handle.ask(ReadEvents(tenant="globex"))) == [events[1]]
    assert list(handle.ask(ReadEvents(record_id=asked(A, place(1)).id))) == [events[0], events[3]]
    assert list(handle.ask(ReadEvents(record_id=asked(A, place(1)).id, limit=1))) == [events[0]]
    assert list(handle.ask(ReadEvents(tenant="globex", record_id=asked(A, place(1)).id))) == []
    assert list(handle.ask(ReadEvents(tenant="acme", after=events[0].seq))) == events[2:]


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


def test_counted_answers_are_written_in_one_batch_among_the_other_events(handle):
    handle.perform(claim(A))
    handle.ask(AppendEvents([counted(0), counted(1)]))
    handle.perform(settle(A))
    handle.ask(AppendEvents([]))
    events = handle.ask(ReadEvents())
    assert [event.kind for event in events] == ["claimed", "dedup_hit", "dedup_hit", "settled"]
    assert [event._replace(seq=0) for event in events[1:3]] == [counted(0), counted(1)]
    assert events[0].seq < events[1].seq < events[2].seq < events[3].seq


# --- sweeping --------------------------------------------------------------------------------------------


def sweep_all(handle: StoreHandle, limit: int = 500) -> tuple[int, int]:
    """How many lapsed and closed records one whole round finds, never more than `limit` in a step."""
    lapsed = closed = 0
    more = True
    while more:
        swept = handle.ask(Sweep(limit))
        assert swept.lapsed <= limit
        assert swept.closed <= limit
        lapsed, closed, more = lapsed + swept.lapsed, closed + swept.closed, swept.more
    return lapsed, closed


def test_a_sweep_of_what_is_alive_does_nothing(handle, clock):
    claim_many(handle, 3)
    handle.perform(settle(token(1), place(1)))
    handle.perform(park(token(2), place(2)))
    clock.advance((LEASE - 1) / SECOND)
    before, events = list(handle.ask(ListRecords("acme"))), handle.ask(ReadEvents())
    assert sweep_all(handle) == (0, 0)
    assert (list(handle.ask(ListRecords("acme"))), handle.ask(ReadEvents())) == (before, events)


def test_a_sweep_marks_what_lapsed_and_says_why(handle, clock):
    record = handle.perform(claim(A)).record
    clock.advance(LEASE / SECOND)
    assert sweep_all(handle) == (1, 0)
    marked = record._replace(state=State.IN_DOUBT, lease_until=None, note=LEASE_LAPSED)
    assert handle.perform(look()).record == marked
    last = handle.ask(ReadEvents())[-1]
    assert last == new_event(LAPSED, marked, clock.now_us())._replace(seq=last.seq)
    assert sweep_all(handle) == (0, 0)


def test_a_sweep_removes_what_closed_and_the_story_ends(handle, clock):
    handle.perform(claim(A))
    settled = handle.perform(settle(A)).record
    clock.advance((WINDOW - 1) / SECOND)
    assert sweep_all(handle) == (0, 0)
    clock.advance(1 / SECOND)
    assert sweep_all(handle) == (0, 1)
    assert handle.perform(look()).record is None
    events = handle.ask(ReadEvents(record_id=asked(A).id))
    assert events[-1] == new_event(CLOSED, settled, clock.now_us())._replace(seq=events[-1].seq)
    assert fold(events) is None


def test_released_cleared_and_unanswered_records_are_removed_when_their_time_is_over(handle, clock):
    claim_many(handle, 2)
    handle.perform(release(token(0), place(0)))
    handle.perform(park(token(1), place(1)))
    handle.perform(resolve(token(1), A, False, place(1)))
    handle.perform(claim(B, place(2), waiting=True, lease_us=WINDOW))
    clock.advance(WINDOW / SECOND)
    assert sweep_all(handle) == (0, 3)
    assert handle.ask(CountRecords()) == {}


def test_what_is_in_doubt_is_never_removed(handle, clock):
    claim_many(handle, 2)
    handle.perform(park(token(0), place(0)))
    clock.advance(100 * 366 * 86_400)
    assert sweep_all(handle) == (1, 0)
    assert handle.ask(CountRecords()) == {State.IN_DOUBT: 2}


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_a_sweep_in_small_steps_finds_everything_once(handle, clock, limit):
    claim_many(handle, 9)
    for number in range(4):
        handle.perform(settle(token(number), place(number), window_us=SECOND))
    clock.advance(LEASE / SECOND)
    assert sweep_all(handle, limit) == (5, 4)
    assert sweep_all(handle, limit) == (0, 0)
    assert (kinds(handle).count("lapsed"), kinds(handle).count("closed")) == (5, 4)


def test_a_sweep_says_that_there_is_more_to_do(handle, clock):
    claim_many(handle, 5)
    clock.advance(LEASE / SECOND)
    assert handle.ask(Sweep(limit=2)).more
    assert not handle.ask(Sweep(limit=100)).more


def test_a_swept_owner_that_was_only_slow_goes_on(handle, clock):
    handle.perform(claim(A))
    clock.advance(LEASE / SECOND)
    sweep_all(handle)
    assert handle.perform(settle(A)).applied


# --- sealing ---------------------------------------------------------------------------------------------


def verified(handle: StoreHandle) -> int:
    """How many events the seals cover, after their chain was computed again from the events themselves."""
    link, covered = GENESIS, 0
    events, seals = handle.ask(ReadEvents(limit=100_000)), handle.ask(ReadSeals())
    for number, seal in enumerate(seals, 1):
        run = [event for event in events if seal.first_seq <= event.seq <= seal.last_seq]
        link = chain(link, number, run)
        assert (seal.number, seal.events, seal.hash) == (number, len(run), link)
        assert (run[0].seq, run[-1].seq) == (seal.first_seq, seal.last_seq)
        covered += seal.events
    return covered


def test_nothing_to_seal_is_none(handle):
    assert handle.ask(SealEvents()) is None
    assert list(handle.ask(ReadSeals())) == []


def test_each_event_is_sealed_once_and_in_order(handle, clock):
    claim_many(handle, 5)
    clock.advance(1)
    first = handle.ask(SealEvents(limit=3))
    assert (first.number, first.events, first.at_us) == (1, 3, clock.now_us())
    assert handle.ask(SealEvents(limit=3)).events == 2
    assert handle.ask(SealEvents(limit=3)) is None
    handle.perform(settle(token(0), place(0)))
    handle.ask(AppendEvents([counted(0)]))
    assert handle.ask(SealEvents()).number == 3
    assert verified(handle) == 7


def test_seals_can_be_read_on_from_any_of_them(handle):
    claim_many(handle, 4)
    made = [handle.ask(SealEvents(limit=1)) for _ in range(4)]
    assert all(len(seal.leaves) == LEAF_BYTES for seal in made)
    seals = [seal._replace(leaves=b"") for seal in made]  # told when it is made, and in no row
    assert list(handle.ask(ReadSeals())) == seals
    assert list(handle.ask(ReadSeals(after=2))) == seals[2:]
    assert list(handle.ask(ReadSeals(after=1, limit=2))) == seals[1:3]


def test_old_events_go_in_whole_seals_and_the_rest_still_verifies(handle, clock):
    claim_many(handle, 3)
    handle.ask(SealEvents(limit=2))
    handle.ask(SealEvents(limit=1))
    clock.advance(handle.store.audit_kept_us / SECOND + 1)
    handle.perform(settle(token(0), place(0), window_us=None))
    last = handle.ask(SealEvents())
    sweep_all(handle)
    events = list(handle.ask(ReadEvents()))
    assert events[0].seq == last.first_seq
    assert [event.kind for event in events] == ["settled", "lapsed", "lapsed"]
    previous = handle.ask(ReadSeals())[-2]
    assert last.hash == chain(previous.hash, last.number, events[:1])


def test_old_events_that_no_seal_covers_stay(handle, clock):
    claim_many(handle, 2)
    clock.advance(handle.store.audit_kept_us / SECOND + 1)
    sweep_all(handle)
    assert kinds(handle) == ["claimed", "claimed", "lapsed", "lapsed"]


def test_a_seal_with_a_young_event_stays_whole(handle, clock):
    handle.perform(claim(A))
    clock.advance(handle.store.audit_kept_us / SECOND + 1)
    handle.perform(settle(A))
    handle.ask(SealEvents())
    sweep_all(handle)
    assert kinds(handle) == ["claimed", "settled"]


def test_numbers_of_events_go_on_after_old_ones_went(handle, clock):
    handle.perform(claim(A))
    sealed = handle.ask(SealEvents())
    clock.advance(handle.store.audit_kept_us / SECOND + 1)
    sweep_all(handle)
    handle.perform(settle(A))
    events = handle.ask(ReadEvents(after=sealed.last_seq))
    assert [event.kind for event in events] == ["lapsed", "settled"]
    assert events == handle.ask(ReadEvents())


def test_a_clock_that_was_set_back_neither_loses_nor_reopens_anything(handle, clock):
    handle.perform(claim(A))
    handle.perform(settle(A))
    clock.advance(-86_400)
    assert sweep_all(handle) == (0, 0)
    assert not handle.perform(claim(B)).applied
    assert kinds(handle) == ["claimed", "settled"]


def test_the_store_says_what_an_acknowledged_write_survives(handle):
    assert len(handle.store.durability.split()) > 3


def test_a_store_keeps_its_own_clock(handles):
    early, late = FakeClock(START_US), FakeClock(START_US + SECOND)
    assert handles.open(early).perform(look()).now_us == START_US
    assert handles.open(late).perform(look()).now_us == START_US + SECOND
