"""Every store against the memory store, operation by operation, through whatever Hypothesis thinks of.

Replies are equal, and so are the events that each operation writes. Not compared: `seq`, which is the store's
own, and the order in which one sweep goes through the records.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from semel.audit.events import GENESIS, Event, chain, fold, new_event, told_by
from semel.kernel.record import UNSETTLED, Address, Claim, Command, Look, Record, State, closed
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
)
from semel.stores.memory import MemoryStore
from tests.commands import LEASE, SECOND, WINDOW, amend, claim, park, release, renew, resolve, retake, settle
from tests.fake_clock import FakeClock
from tests.handles import AsyncStoreHandle, StoreHandle
from tests.stores import BY_NAME, KINDS, SPREAD, Kind

PLACES = [Address(tenant, "tool", key) for tenant in ("acme", "globex") for key in ("k", "k\x00ü")]
TOKENS = [letter * 16 for letter in (b"A", b"B", b"C", b"\x00")]
CURRENT = b"whoever owns it now"

# Short enough that a run outlives it, so that old events are dropped too.
AUDIT_KEPT_US = 3 * WINDOW

# Mostly one and the same, mostly its owner, and not often for ever: else hardly a story gets far.
places = st.sampled_from([PLACES[0]] * 4 + PLACES[1:])
fresh = st.sampled_from(TOKENS)
owners = st.sampled_from([CURRENT] * 6 + TOKENS)
leases = st.sampled_from([1, SECOND, LEASE])
windows = st.sampled_from([0, SECOND, SECOND, WINDOW, WINDOW, None])
outcomes = st.sampled_from([None, b"", b"\x00\xff", b'{"refund":"r-1"}'])
notes = st.sampled_from(["timeout", "", "nul \x00", "🦊"])


class Agreement(RuleBasedStateMachine):
    """Two handles on one store, and the specification, side by side under one clock."""

    kind: ClassVar[Kind]
    manner: ClassVar[type[StoreHandle]]

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.directory = Path(tempfile.mkdtemp(prefix="semel-agreement-"))
        self.memory = MemoryStore(clock=self.clock)
        self.memory.audit_kept_us = AUDIT_KEPT_US
        self.handle, self.other_handle = self.open_handle(), self.open_handle()
        self.claims = 0
        self.last: Command | None = None
        self.read_up_to: dict[tuple[str, int], int] = {}

    def open_handle(self) -> StoreHandle:
        handle = self.manner(self.kind.open(self.directory, self.clock, True))
        handle.store.audit_kept_us = AUDIT_KEPT_US
        return handle

    @rule()
    def another_process_goes_on(self):
        """What a handle remembers of a record must not matter once the other one has changed it."""
        self.handle, self.other_handle = self.other_handle, self.handle

    # --- commands ----------------------------------------------------------------------------------

    def compare(self, command: Command) -> None:
        self.last = command
        assert self.handle.perform(command) == self.memory.perform(command)

    def token_of(self, at: Address, owner: bytes) -> bytes:
        """The token, or that of the present owner; where nobody owns the key, somebody claims it first."""
        if owner is not CURRENT:
            return owner
        record = self.memory.perform(Look(at)).record
        if record is None or closed(record, self.clock.now_us()) or record.state is State.RELEASED:
            self.claims_a_key(at, TOKENS[0], LEASE, False, b"f", "issue_refund")
            return TOKENS[0]
        return record.token

    @rule(
        at=places,
        token=fresh,
        lease_us=leases,
        waiting=st.sampled_from([False, False, False, True]),
        payload=st.sampled_from([b"f", b"f", b"g"]),
        tool=st.sampled_from(["issue_refund", "send_email"]),
    )
    def claims_a_key(self, at, token, lease_us, waiting, payload, tool):
        self.claims += 1
        named = {"id": f"rec_{self.claims}", "fingerprint": payload * 32, "tool": tool}
        self.compare(claim(token, at, lease_us, waiting, **named))

    @rule(
        at=places,
        seen=owners,
        token=fresh,
        lease_us=leases,
        within_us=st.none() | leases,
        parked=st.booleans(),
    )
    def retakes(self, at, seen, token, lease_us, within_us, parked):
        if parked:
            self.parks(at, CURRENT, "timeout")
        self.compare(retake(self.token_of(at, seen), token, at, lease_us, within_us))

    @rule(at=places, owner=owners, lease_us=leases)
    def renews(self, at, owner, lease_us):
        self.compare(renew(self.token_of(at, owner), at, lease_us))

    @rule(
        at=places,
        owner=owners,
        state=st.sampled_from([State.DONE, State.FAILED, State.PARTIAL]),
        outcome=outcomes,
        window_us=windows,
        by=st.sampled_from(["", "ann"]),
    )
    def settles(self, at, owner, state, outcome, window_us, by):
        self.compare(settle(self.token_of(at, owner), at, state, outcome, window_us, by))

    @rule(at=places, owner=owners, note=notes)
    def parks(self, at, owner, note):
        self.compare(park(self.token_of(at, owner), at, note))

    @rule(at=places, owner=owners, window_us=windows)
    def releases(self, at, owner, window_us):
        self.compare(release(self.token_of(at, owner), at, window_us))

    @rule(
        at=places,
        seen=owners,
        token=fresh,
        happened=st.booleans(),
        outcome=outcomes,
        window_us=windows,
        parked=st.booleans(),
        by=st.sampled_from(["ann", "ann", "probe"]),
    )
    def resolves(self, at, seen, token, happened, outcome, window_us, parked, by="ann"):
        if parked:
            self.parks(at, CURRENT, "timeout")
        self.compare(resolve(self.token_of(at, seen), token, happened, at, outcome, window_us, by))

    @rule(
        at=places,
        seen=owners,
        token=fresh,
        outcome=st.sampled_from([b"", b'"r-2"']),
        by=st.sampled_from(["ann", "probe"]),
        resolved=st.booleans(),
    )
    def amends(self, at, seen, token, outcome, by, resolved):
        if resolved:
            self.resolves(at, CURRENT, token, True, None, WINDOW, True)
        self.compare(amend(self.token_of(at, seen), token, at, outcome, by))

    @precondition(lambda self: self.last is not None)
    @rule()
    def asks_again(self):
        assert self.last is not None
        at = self.last.request.at if isinstance(self.last, Claim) else self.last.at
        record = self.memory.perform(Look(at)).record
        # Whoever claims after the window has closed makes a new record, with an id of its own.
        if record is None or not closed(record, self.clock.now_us()):
            self.compare(self.last)

    # --- time --------------------------------------------------------------------------------------

    @rule(us=st.sampled_from([1, SECOND, LEASE - 1, LEASE, WINDOW, 2 * WINDOW, -1, -SECOND, -WINDOW]))
    def time_passes_or_the_clock_is_set_back(self, us):
        self.clock.advance(us / SECOND)

    # --- queries -----------------------------------------------------------------------------------

    @rule(
        tenant=st.sampled_from(["acme", "globex", None]),
        key=st.sampled_from([None, None, "k"]),
        tool=st.sampled_from([None, None, "send_email"]),
        states=st.frozensets(st.sampled_from(list(State)), max_size=3),
        limit=st.sampled_from([1, 50]),
    )
    def lists(self, tenant, key, tool, states, limit):
        query = ListRecords(tenant, states=states, key=key, tool=tool, limit=limit)
        page = self.listed(query)
        if page:
            self.listed(ListRecords(tenant, before=(page[-1].created_at, page[-1].request.id)))

    def listed(self, query: ListRecords) -> Sequence[Record]:
        ours, theirs = self.memory.ask(query), self.handle.ask(query)
        assert [*theirs] == [*ours]
        return ours

    @rule(number=st.integers(1, 10), tenant=st.sampled_from(["acme", "globex"]))
    def finds(self, number, tenant):
        query = FindRecord(tenant, f"rec_{number}")
        assert self.handle.ask(query) == self.memory.ask(query)

    @rule(limit=st.sampled_from([1, 2, 500]))
    def sweeps(self, limit):
        assert swept(self.handle, limit) == swept(StoreHandle(self.memory), limit)

    @rule(limit=st.sampled_from([1, 3, 1_000]))
    def seals(self, limit):
        ours, theirs = self.memory.ask(SealEvents(limit)), self.handle.ask(SealEvents(limit))
        assert (theirs is None) == (ours is None)
        if ours is not None and theirs is not None:
            # The hash covers `seq` and the order within a sweep, which are the store's own.
            assert (theirs.number, theirs.events, theirs.at_us) == (ours.number, ours.events, ours.at_us)
            self.verify_last_seal()

    def verify_last_seal(self, lane: int = 0) -> None:
        *_, last = seals = self.handle.ask(ReadSeals(lane=lane))
        previous = seals[-2].hash if len(seals) > 1 else GENESIS
        run = self.handle.ask(ReadEvents(after=last.first_seq - 1, limit=last.events, lane=lane))
        assert (run[0].seq, run[-1].seq) == (last.first_seq, last.last_seq)
        assert last.hash == chain(previous, last.number, run)

    @rule(at=places, times=st.integers(1, 3))
    def counts_a_replay(self, at, times):
        record = self.memory.perform(Look(at)).record
        if record is not None:
            hit = new_event("dedup_hit", record, self.clock.now_us())._replace(times=times)
            for store in (self.handle, StoreHandle(self.memory)):
                store.ask(AppendEvents([hit, hit]))

    # --- after every step ---------------------------------------------------------------------------

    @invariant()
    def all_records_are_equal(self):
        for at in PLACES:
            assert self.handle.perform(Look(at)) == self.memory.perform(Look(at))
        for tenant in ("acme", "globex"):
            self.listed(ListRecords(tenant))
        assert self.handle.ask(CountRecords()) == self.memory.ask(CountRecords())
        assert self.handle.ask(CountUnsettled(UNSETTLED)) == self.memory.ask(CountUnsettled(UNSETTLED))

    @invariant()
    def the_same_events_were_written(self):
        assert self.unread("store", self.handle) == self.unread("memory", StoreHandle(self.memory))

    def unread(self, name: str, handle: StoreHandle) -> list[Event]:
        """What was written since the last reading. A sweep touches each address once, in its own order."""
        events: list[Event] = []
        for lane in range(handle.store.lanes):
            page = handle.ask(ReadEvents(after=self.read_up_to.get((name, lane), 0), lane=lane))
            if page:
                self.read_up_to[name, lane] = page[-1].seq
            events += page
        return sorted((event._replace(seq=0) for event in events), key=lambda event: event.at)

    def teardown(self) -> None:
        try:
            self.compare_what_is_kept()
        finally:
            self.handle.close()
            self.other_handle.close()
            shutil.rmtree(self.directory)

    def compare_what_is_kept(self) -> None:
        kept, expected = (
            store.ask(ReadEvents(limit=10_000)) for store in (self.handle, StoreHandle(self.memory))
        )
        assert [event.at_us for event in kept] == [event.at_us for event in expected]
        assert len(self.handle.ask(ReadSeals())) == len(self.memory.ask(ReadSeals()))
        if kept and kept[0].seq == 1:
            self.compare_stories(kept)

    def compare_stories(self, events: Sequence[Event]) -> None:
        """Nothing was dropped yet, so the events tell every record."""
        for at in PLACES:
            record = self.handle.perform(Look(at)).record
            if record is not None:
                assert fold(event for event in events if event.record_id == record.request.id) == told_by(
                    record
                )


class SpreadAgreement(Agreement):
    """On several lanes each has an order and a chain of its own: chains are judged, not compared."""

    @rule(limit=st.sampled_from([1, 3, 1_000]))
    def seals(self, limit):
        for lane in range(self.handle.store.lanes):
            if self.handle.ask(SealEvents(limit, lane)) is not None:
                self.verify_last_seal(lane)

    def compare_what_is_kept(self) -> None:
        lanes = [lane for name, lane in self.read_up_to if name == "store"]
        kept = [self.handle.ask(ReadEvents(limit=10_000, lane=lane)) for lane in lanes]
        if all(events and events[0].seq == 1 for events in kept):
            self.compare_stories([event for events in kept for event in events])


def swept(handle: StoreHandle, limit: int) -> tuple[int, int]:
    """How many lapsed and closed records a whole round finds."""
    lapsed = closed = 0
    more = True
    while more:
        step = handle.ask(Sweep(limit))
        lapsed, closed, more = lapsed + step.lapsed, closed + step.closed, step.more
    return lapsed, closed


MACHINES = [
    pytest.param(kind, manner, id=f"{kind.name}-{name}")
    for kind in (*KINDS, SPREAD)
    if kind.shared
    for name, manner in (("sync", StoreHandle), ("async", AsyncStoreHandle))
]

ORDINARY = settings(
    max_examples=20, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow], deadline=None
)


def agree(kind: Kind, manner: type[StoreHandle], how: settings) -> None:
    # On several servers every look goes to all of them.
    how = settings(how, max_examples=how.max_examples // 2) if kind is SPREAD else how
    plan = SpreadAgreement if kind is SPREAD else Agreement
    machine = type("Agreement", (plan,), {"kind": kind, "manner": manner})
    run_state_machine_as_test(machine, settings=how)


@pytest.mark.parametrize(("kind", "manner"), MACHINES)
def test_a_store_answers_like_memory_operation_by_operation(kind, manner):
    agree(kind, manner, ORDINARY)


@pytest.mark.full
def test_postgres_answers_like_memory_also_by_the_statements_that_commands_share(monkeypatch):
    """Alone, a command goes by a statement of its own, as in every other test of one caller."""
    from semel.stores.postgres.commands import Commands

    def run_as_one_of_many(self, queued, link, common):
        self._run_together([queued], link, common)

    monkeypatch.setattr(Commands, "_run_alone", run_as_one_of_many)
    agree(BY_NAME["postgres"], StoreHandle, ORDINARY)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "manner"), MACHINES)
def test_a_store_answers_like_memory_for_a_long_time(kind, manner):
    agree(kind, manner, settings(ORDINARY, max_examples=1_500, stateful_step_count=100))
