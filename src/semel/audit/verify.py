"""Whether the audit log is whole, and whether records and questions are what their events tell.

It only reads, in pages, so it may run beside a busy store and over a log of any length.

What it cannot see: a log that was cut off at its end together with its seals and its records, or one that
was rewritten as a whole, seals included. The head, kept somewhere else and given back, tells that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from semel.audit.events import (
    ASKED,
    CLAIMED,
    GENESIS,
    WAITING,
    Event,
    Seal,
    Story,
    chain,
    fold,
    leaf_of,
    told_by,
)
from semel.audit.leaves import newest, read
from semel.audit.pages import BEFORE_ALL, PAGE, Progress, events_after, records, silent
from semel.audit.questions import NO_EVENTS, question_difference, questions_in
from semel.errors import StoreCorrupt
from semel.kernel.record import Address, Look, Record
from semel.questions.views import QUESTION_SCOPE, job_of_question, question_record_id
from semel.stores.base import ReadEvents, ReadSeals, Store
from semel.stores.documents import Fetch

# Whoever reads the report looks at the first ones; the count says how many there are.
_EXAMPLES = 20

# Open ledgers seal three times within it (ledger/keeper.py): whatever waits longer has nobody who seals it.
SEALED_WITHIN_US = 60_000_000

# Changed events that are named of one seal.
_NAMED = 10

# A record may change between the two looks at it and at its events; three times in a row is not chance.
_LOOKS = 3


class Break(NamedTuple):
    """Where the chain does not hold: the seal, the first event concerned if known, and what is wrong."""

    seal: int
    seq: int | None
    wrong: Literal["changed", "missing", "added", "unsealed"]
    text: str


class Difference(NamedTuple):
    """A record, or a question as a record, that is not what its events tell."""

    tenant: str
    record_id: str
    text: str


@dataclass
class Verification:
    seals: int = 0
    events: int = 0
    unsealed: int = 0
    dropped: int = 0  # seals whose events were too old to keep
    compared: int = 0
    incomplete: int = 0  # records older than the oldest event that is kept
    questions: int = 0  # that were compared
    break_count: int = 0
    difference_count: int = 0
    breaks: list[Break] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    heads: dict[int, Seal] = field(default_factory=dict)  # by lane: the last seal of each chain
    kept: dict[bytes, Seal] = field(default_factory=dict)  # of the heads that were given, by hash

    @property
    def head(self) -> Seal | None:
        """The last seal that was looked at; where there is one lane, the head of the chain."""
        return next(reversed(self.heads.values()), None)

    @property
    def whole(self) -> bool:
        return not (self.break_count or self.difference_count)

    def broken(self, break_: Break) -> None:
        self.break_count += 1
        if len(self.breaks) < _EXAMPLES:
            self.breaks.append(break_)

    def differs(self, difference: Difference) -> None:
        self.difference_count += 1
        if len(self.differences) < _EXAMPLES:
            self.differences.append(difference)


def verify(
    store: Store,
    *,
    tenants: Iterable[str] = (),
    heads: Iterable[bytes] = (),
    progress: Progress = silent,
) -> Verification:
    """Every seal recomputed from its events; every record and question compared with what its events tell.

    Those of `tenants` are looked at even if no event speaks of them. `heads` are hashes of seals that were
    kept elsewhere: one that the chain does not contain is a break.
    """
    return _Verifier(store, tenants, heads, progress).run()


class _Verifier:
    def __init__(
        self, store: Store, tenants: Iterable[str], heads: Iterable[bytes], progress: Progress
    ) -> None:
        self._store = store
        self._tenants = set(tenants)
        self._kept_heads = set(heads)
        self._progress = progress
        self._report = Verification()
        self._lane = 0
        self._before_lane = 0  # events of the lanes before this one

    def run(self) -> Verification:
        try:
            # By the store's own clock, as events are.
            self._began_us = self._store.ask(Fetch("default", ())).now_us
            for lane in range(self._store.lanes):
                self._walk_lane(lane)
            self._miss_heads()
            self._compare_unmentioned()
        except StoreCorrupt as damage:
            number = self._report.head.number + 1 if self._report.head else 1
            text = f"{damage.message} Nothing after it was checked."
            self._report.broken(Break(number, None, "changed", text))
        return self._report

    def _walk_lane(self, lane: int) -> None:
        self._lane, self._before_lane = lane, self._report.events
        last = self._walk_seals()
        self._miss_seals()
        self._walk_tail(last)

    def _walk_tail(self, last_seq: int) -> None:
        """Events without a seal are counted; those that have waited too long for one are a break."""
        due_us, late, first = self._began_us - SEALED_WITHIN_US, 0, None
        for event in self._seen(events_after(self._store, last_seq, lane=self._lane)):
            self._report.unsealed += 1
            if event.at_us < due_us:
                late, first = late + 1, event.seq if first is None else first
        if first is not None:
            text = (
                f"{late} events, the first is {first}, have waited for a seal for more than a minute: who "
                "wrote them was killed and no ledger has been open since, or their seals were removed. A "
                "change of them is noticed only where a record contradicts it."
            )
            self._report.broken(Break(self._next_number(), first, "unsealed", text))

    def _next_number(self) -> int:
        head = self._report.heads.get(self._lane)
        return head.number + 1 if head else 1

    # --- the chain ------------------------------------------------------------------------------------------

    def _walk_seals(self) -> int:
        """The number of the last sealed event."""
        report, previous = self._report, None
        while page := self._store.ask(ReadSeals(previous.number if previous else 0, PAGE, self._lane)):
            for seal in page:
                self._check(seal, previous)
                report.seals += 1
                report.heads[self._lane] = previous = seal
                if seal.hash in self._kept_heads:
                    report.kept[seal.hash] = seal
        return previous.last_seq if previous else BEFORE_ALL

    def _miss_seals(self) -> None:
        """Seals that were made after the last one that is there."""
        missing, made = self._next_number(), newest(self._store, self._lane)
        # One may have been made since the last was read.
        if made < missing or self._store.ask(ReadSeals(made - 1, 1, self._lane)):
            return
        which = f"Seal {made} was" if made == missing else f"Seals {missing}–{made} were"
        self._report.broken(Break(missing, None, "missing", f"{which} made, and removed since."))

    def _miss_heads(self) -> None:
        for lost in sorted(self._kept_heads - self._report.kept.keys()):
            text = (
                f"No seal has the hash {lost.hex()}: since that head was kept the chain was cut off before "
                "it, or written anew. Whoever could do that could change every event; a copy of the store "
                "from before tells which."
            )
            self._report.broken(Break(self._next_number(), None, "missing", text))

    def _check(self, seal: Seal, previous: Seal | None) -> None:
        expected = previous.number + 1 if previous else 1
        if seal.number != expected:
            text = f"Seal {expected} is missing: the next one is {seal.number}."
            self._report.broken(Break(expected, None, "missing", text))
        run = _Run(self._seen(self._covered(seal, previous)), seal)
        hash_ = chain(previous.hash if previous else GENESIS, seal.number, run)
        if run.count == 0 and self._report.events == self._before_lane and self._too_old(seal):
            self._report.dropped += 1
        elif (wrong := run.wrong(hash_)) is not None:
            self._report.broken(self._named(wrong, seal, previous))
        elif self._made_anew(seal):
            text = (
                f"Seal {seal.number} (events {seal.first_seq}–{seal.last_seq}) fits, but it is not the one "
                "that was made first: seals were removed and made anew, or the store lost writes that it had "
                "acknowledged."
            )
            self._report.broken(Break(seal.number, seal.first_seq, "changed", text))

    def _made_anew(self, seal: Seal) -> bool:
        leaves = read(self._store, self._lane, seal.number)
        return leaves is not None and leaves.hash != seal.hash

    def _named(self, wrong: Break, seal: Seal, previous: Seal | None) -> Break:
        """The break with the events that were changed, if what was kept with the seal tells them."""
        leaves = read(self._store, self._lane, seal.number)
        if wrong.wrong != "changed" or leaves is None or len(leaves.each) != seal.events:
            return wrong
        events = zip(self._covered(seal, previous), leaves.each, strict=False)
        changed = [event.seq for event, leaf in events if leaf_of(event) != leaf]
        covered = f"Seal {seal.number} (events {seal.first_seq}–{seal.last_seq}) does not fit"
        if not changed:
            text = f"{covered}: its events are as they were, so it or the seal before it was changed."
            return wrong._replace(seq=None, text=text)
        return wrong._replace(
            seq=changed[0], text=f"{covered}: {_numbered(changed)} changed after it was made."
        )

    def _covered(self, seal: Seal, previous: Seal | None) -> Iterator[Event]:
        after = previous.last_seq if previous else BEFORE_ALL
        for event in events_after(self._store, after, lane=self._lane):
            if event.seq > seal.last_seq:
                return
            yield event

    def _too_old(self, seal: Seal) -> bool:
        return seal.at_us < self._store.clock.now_us() - self._store.audit_kept_us

    # --- records against events -----------------------------------------------------------------------------

    def _seen(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            self._report.events += 1
            self._progress(self._report.events)
            self._tenants.add(event.tenant)
            if event.kind in (CLAIMED, ASKED):
                self._compare(event.at, event.record_id)
            elif event.kind == WAITING and event.scope == QUESTION_SCOPE:
                self._compare_question(event.tenant, event.record_id)
            yield event

    def _compare_question(self, tenant: str, record_id: str) -> None:
        for _ in range(_LOOKS):
            lines = list(events_after(self._store, BEFORE_ALL, tenant, record_id))
            difference = question_difference(self._store, tenant, job_of_question(record_id), lines)
            if difference is None:
                break
        self._report.questions += 1
        if difference is not None:
            self._report.differs(Difference(tenant, record_id, difference))

    def _compare(self, at: Address, record_id: str) -> None:
        """Compare the record with its story; they are read one after the other, so again if they differ."""
        for _ in range(_LOOKS):
            record = self._store.perform(Look(at)).record
            lines = list(events_after(self._store, BEFORE_ALL, at.tenant, record_id))
            difference = self._difference(record_id, record, lines)
            if difference is None:
                break
        self._report.compared += 1
        if difference is not None:
            self._report.differs(Difference(at.tenant, record_id, difference))

    def _difference(self, record_id: str, record: Record | None, lines: list[Event]) -> str | None:
        story = fold(lines)
        if record is None or record.request.id != record_id:
            free_at = self._store.clock.now_us() if record is None else record.created_at
            if story is None or (story.expires_at is not None and story.expires_at <= free_at):
                return None
            return f"its events end as {story.state}, but the record is not there"
        if self._began_before(record, lines):
            self._report.incomplete += 1
            return None
        return _told_differently(told_by(record), story)

    def _began_before(self, record: Record, lines: list[Event]) -> bool:
        """Whether the record's first events were dropped for their age."""
        return self._kept_no_more(record.created_at) and (not lines or lines[0].at_us > record.created_at)

    def _kept_no_more(self, at_us: int) -> bool:
        return at_us < self._store.clock.now_us() - self._store.audit_kept_us

    def _compare_unmentioned(self) -> None:
        for tenant in sorted(self._tenants):
            for job_id, asked_us in questions_in(self._store, tenant):
                record_id = question_record_id(job_id)
                mentioned = self._store.ask(ReadEvents(BEFORE_ALL, 1, tenant, record_id))
                if not mentioned and not self._kept_no_more(asked_us):
                    self._report.differs(Difference(tenant, record_id, NO_EVENTS))
            for record in records(self._store, tenant):
                mentioned = self._store.ask(ReadEvents(BEFORE_ALL, 1, tenant, record.request.id))
                if not mentioned and not self._began_before(record, []):
                    text = "it has no events: they were removed, or it was written with ?audit=off"
                    self._report.differs(Difference(tenant, record.request.id, text))


class _Run:
    """The events under one seal, on their way into the hash: counted, and the first gap noticed."""

    def __init__(self, events: Iterator[Event], seal: Seal) -> None:
        self._events = events
        self._seal = seal
        self.count = 0
        self._expected = seal.first_seq
        self._gap: int | None = None
        self._stranger: int | None = None

    def __iter__(self) -> Iterator[Event]:
        for event in self._events:
            self.count += 1
            if event.seq < self._seal.first_seq:
                self._stranger = event.seq if self._stranger is None else self._stranger
            elif event.seq != self._expected and self._gap is None:
                self._gap = self._expected
            self._expected = max(self._expected, event.seq + 1)
            yield event

    def wrong(self, computed: bytes) -> Break | None:
        seal = self._seal
        covered = f"Seal {seal.number} (events {seal.first_seq}–{seal.last_seq})"
        if self.count < seal.events:
            missing = self._expected if self._gap is None else self._gap
            text = (
                f"{covered} was made over {seal.events} events, {self.count} are left: {missing} is missing."
            )
            return Break(seal.number, missing, "missing", text)
        if self.count > seal.events:
            text = f"{covered} has {self.count} events, and was made over {seal.events}."
            return Break(seal.number, self._stranger, "added", text)
        if computed != seal.hash:
            text = f"{covered} does not fit: one of them, or the seal, was changed after it was made."
            return Break(seal.number, seal.first_seq, "changed", text)
        return None


def _numbered(seqs: Sequence[int]) -> str:
    """The events in words: all of them while they are few."""
    shown = ", ".join(map(str, seqs[:_NAMED]))
    if len(seqs) > _NAMED:
        return f"events {shown} and {len(seqs) - _NAMED} more were"
    return f"event {shown} was" if len(seqs) == 1 else f"events {shown} were"


def _told_differently(record: Story, story: Story | None) -> str | None:
    if story == record:
        return None
    if story is None:
        return "the record is there, but its events say that its window closed"
    names = [name for name in Story._fields if getattr(record, name) != getattr(story, name)]
    return "; ".join(
        f"{name} is {_shown(getattr(record, name))}, by its events {_shown(getattr(story, name))}"
        for name in names
    )


def _shown(value: object) -> str:
    return value.hex()[:16] + "…" if isinstance(value, bytes) else repr(value)
