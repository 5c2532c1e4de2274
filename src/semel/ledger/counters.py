"""Answers that changed nothing, counted at once and written to the audit in batches; and their ages."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from semel.audit import events
from semel.audit.events import Event
from semel.call.unfinished import Unfinished
from semel.instrumentation.numbers import are_shown, count_later, numbers_of
from semel.kernel.record import Address, Record
from semel.windows.ages import Ages

REPLAYED, REFUSED, PERFORMED = "dedup_hit", "refused", "performed"

# A replay from the cache takes microseconds, the flush comes once a second: this many wait at most.
_WAITING_MAX = 50_000


class Hit(NamedTuple):
    """One answer given without a transition."""

    kind: str
    at: Address
    tool: str
    version: str
    record_id: str
    code: str
    conversation: str
    step: str
    by: str
    note: str = ""


class AnswerCounters:
    """Counts answers per record; `take` turns what was counted since into events, one per distinct answer.

    `take_ages` has the ages of the replays among them, by tenant and tool.
    """

    def __init__(self) -> None:
        self.reset()
        count_later(self)

    def reset(self) -> None:
        """Nothing is counted: as in a forked child, whose parent writes down what it counted."""
        self._hits: deque[tuple[Hit | Record, int]] = deque()
        # Reentrant: a finaliser may count on the very thread that holds it.
        self._lock = threading.RLock()
        self._counting = False
        self._counts: dict[Hit, tuple[int, int]] = {}
        self._ages: dict[tuple[str, str], Ages] = {}

    def __bool__(self) -> bool:
        return bool(self._hits or self._counts)

    def replayed(self, record: Record, now_us: int) -> None:
        # Appending is atomic and quick; everything else waits until the batch is made.
        self._hits.append((record, now_us))
        if len(self._hits) > _WAITING_MAX:
            self.count()

    def add(self, hit: Hit, now_us: int) -> None:
        self._hits.append((hit, now_us))
        if len(self._hits) > _WAITING_MAX:
            self.count()

    def take(self) -> list[Event]:
        """The events of what was counted since the last time."""
        self.count()
        with self._lock:
            counts, self._counts = self._counts, {}
        return [_event(hit, count, last_us) for hit, (count, last_us) in counts.items()]

    def take_ages(self) -> dict[tuple[str, str], Ages]:
        """The ages of replays that were turned into events since the last time, by tenant and tool."""
        with self._lock:
            ages, self._ages = self._ages, {}
        return ages

    def count(self) -> None:
        """What waits is counted."""
        with self._lock:
            if self._counting:
                return  # by this very thread, further up; what it does not take along is counted next time
            self._counting = True
            try:
                self._count_hits()
            finally:
                self._counting = False

    def _count_hits(self) -> None:
        # Most replays of a moment are of few records: what is the same for all of them is done once.
        replays: list[tuple[Record, list[int]]] = []
        times_of: dict[int, list[int]] = {}  # by the address of a record, which `replays` keeps alive
        hits = self._hits
        for _ in range(len(hits)):
            hit, now_us = hits.popleft()
            times_us = times_of.get(id(hit))
            if times_us is not None:
                times_us.append(now_us)
            elif isinstance(hit, Record):
                times_us = times_of[id(hit)] = [now_us]
                replays.append((hit, times_us))
                self._add(_hit(hit), 0, 0)  # counted below; added here, so that events keep their order
            else:
                self._add(hit, 1, now_us)
        for record, times_us in replays:
            self._add(_hit(record), len(times_us), max(times_us))
            self._add_ages(record, times_us)

    def _add(self, hit: Hit, times: int, now_us: int) -> None:
        count, last_us = self._counts.get(hit, (0, 0))
        self._counts[hit] = (count + times, max(last_us, now_us))

    def _add_ages(self, record: Record, times_us: list[int]) -> None:
        of = (record.request.at.tenant, record.request.tool)
        ages = self._ages.setdefault(of, Ages())
        # The window counts from settlement, so the age that it has to cover does too.
        since_us = record.created_at if record.settled_at is None else record.settled_at
        ages.met(times_us, since_us, record.expires_at)
        if are_shown():
            numbers_of(record.request.tool, recorded=True).retried(times_us, since_us)


def _hit(record: Record) -> Hit:
    request = record.request
    return Hit(
        REPLAYED,
        request.at,
        request.tool,
        request.version,
        request.id,
        record.state.value,
        request.conversation,
        request.step,
        request.principal,
    )


def skipped_events(
    tenant: str, conversation: str, step: str, by: str, calls: Iterable[Unfinished], now_us: int
) -> list[Event]:
    """What a conversation leaves behind when it moves on openly: a line for each call, or one for none."""
    lines = [
        Hit(
            events.SKIPPED,
            Address(tenant, "tool", call.key),
            call.tool,
            "",
            call.record_id,
            call.code,
            conversation,
            step,
            by,
            call.job_id,
        )
        for call in calls
    ]
    nothing = Hit(events.SKIPPED, Address(tenant, "tool", ""), "", "", "", "", conversation, step, by)
    return [_event(line, 1, now_us) for line in lines or [nothing]]


def _event(hit: Hit, count: int, last_us: int) -> Event:
    return Event(
        seq=0,
        at_us=last_us,
        tenant=hit.at.tenant,
        scope=hit.at.scope,
        key=hit.at.key,
        record_id=hit.record_id,
        kind=hit.kind,
        state=hit.code,
        fence=0,
        tool=hit.tool,
        version=hit.version,
        digest=b"",
        expires_at=None,
        conversation=hit.conversation,
        step=hit.step,
        by=hit.by,
        note=hit.note,
        times=count,
    )
