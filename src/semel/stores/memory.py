"""The store of one process: the executable specification of the others."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar, cast

from semel.audit.events import CLOSED, LAPSED, Event, Seal, kind_of, new_event, new_seal
from semel.kernel.clock import SYSTEM, Clock
from semel.kernel.record import (
    UNSETTLED,
    Address,
    Claim,
    Command,
    Record,
    Reply,
    State,
    apply,
    closed,
    effective_state,
    new,
    sweep,
    unsettled_only,
)
from semel.kernel.waiting import alone, entering
from semel.stores.base import (
    AppendEvents,
    CountRecords,
    CountUnsettled,
    FindRecord,
    ListRecords,
    Query,
    ReadEvents,
    ReadSeals,
    SealEvents,
    Store,
    Sweep,
    Swept,
    Whose,
)
from semel.stores.memory_documents import MemoryDocuments

T = TypeVar("T")


class MemoryStore(Store):
    name = "memory"
    durability = "Nothing survives the end of this process."

    def __init__(self, *, clock: Clock = SYSTEM, audit_on: bool = True) -> None:
        super().__init__()
        self.clock = clock
        self.audit = audit_on
        self._lock = threading.Lock()
        self._secret_key = clock.token() + clock.token()
        self._records: dict[Address, Record] = {}
        self._unsettled: dict[Address, Record] = {}  # those of them that nobody has settled
        self._unswept: list[Address] = []
        # What happened, to be made into events when somebody reads them: a record never changes.
        self._history: list[tuple[str, Record, int] | Event] = []
        self._dropped = 0  # events too old to keep; the next one's seq is one more
        self._seals: list[Seal] = []
        self._answers: dict[type, Callable[[Any], Any]] = {
            ListRecords: self._list,
            FindRecord: self._find,
            ReadEvents: self._read_events,
            AppendEvents: self._append,
            Sweep: self._sweep,
            SealEvents: self._seal,
            ReadSeals: self._read_seals,
            CountRecords: self._count,
            CountUnsettled: self._count_unsettled,
            **MemoryDocuments(clock, self._note).answers,
        }

    @property
    def secret_key(self) -> bytes:
        return self._secret_key

    def perform(self, command: Command) -> Reply:
        kind = type(command)
        at = command.request.at if kind is Claim else command.at  # type: ignore[union-attr]
        with alone():
            with self._lock:
                now_us = self.clock.now_us()
                before = self._records.get(at)
                after = apply(before, command, now_us)
                if after is None:
                    return Reply(before, now_us, False)
                self._put(at, after)
                if self.audit and (event := kind_of(before, after, command)):
                    self._history.append((event, after, now_us))
            self.waiters.wake(at)
            return new(Reply, (after, now_us, True))

    def _put(self, at: Address, record: Record) -> None:
        self._records[at] = record
        if record.state in UNSETTLED:
            self._unsettled[at] = record
        else:
            self._unsettled.pop(at, None)

    async def aperform(self, command: Command) -> Reply:
        return self.perform(command)

    def submit(self, command: Command) -> None:
        self.perform(command)

    @entering
    def ask(self, query: Query[T]) -> T:
        with self._lock:
            return cast(T, self._answers[type(query)](query))

    async def aask(self, query: Query[T]) -> T:
        return self.ask(query)

    def forked(self) -> None:
        super().forked()
        self._lock = threading.Lock()

    def close(self) -> None:
        """The records go with the store itself."""

    # --- queries ----------------------------------------------------------------------------------

    def _list(self, query: ListRecords) -> Sequence[Record]:
        now_us = self.clock.now_us()
        among = self._unsettled if unsettled_only(query.states) else self._records
        records = [record for record in among.values() if query.wants(record, now_us)]
        records.sort(key=_age, reverse=True)
        return records[: query.limit]

    def _find(self, query: FindRecord) -> Record | None:
        for at, record in self._records.items():
            if record.request.id == query.id and at.tenant == query.tenant:
                return record
        return None

    def _read_events(self, query: ReadEvents) -> Sequence[Event]:
        events = (
            event
            for event in map(self._event, range(max(0, query.after - self._dropped), len(self._history)))
            if query.tenant in (None, event.tenant) and query.record_id in (None, event.record_id)
        )
        return list(islice(events, query.limit))

    def _event(self, index: int) -> Event:
        entry = self._history[index]
        event = entry if isinstance(entry, Event) else new_event(*entry)
        return event._replace(seq=self._dropped + index + 1)

    def _append(self, query: AppendEvents) -> None:
        self._note(query.events)

    def _note(self, events: Sequence[Event]) -> None:
        if self.audit:
            self._history.extend(events)

    def _sweep(self, query: Sweep) -> Swept:
        if not self._unswept:
            self._unswept = list(self._records)
        now_us = self.clock.now_us()
        lapsed_count = closed_count = 0
        for _ in range(min(query.limit, len(self._unswept))):
            at = self._unswept.pop()
            record = self._records.get(at)
            if record is None:
                continue
            if (marked := sweep(record, now_us)) is not None:
                self._put(at, marked)
                self._tell(LAPSED, marked, now_us)
                self.waiters.wake(at)
                lapsed_count += 1
            elif closed(record, now_us):
                del self._records[at]
                self._unsettled.pop(at, None)
                self._tell(CLOSED, record, now_us)
                closed_count += 1
        self._drop_events(now_us - self.audit_kept_us)
        return Swept(lapsed_count, closed_count, more=bool(self._unswept))

    def _drop_events(self, before_us: int) -> None:
        """Whole seals only, so that what is left can still be verified."""
        for kept in self._seals:
            count = kept.last_seq - self._dropped
            if count <= 0:
                continue
            if self._event(count - 1).at_us >= before_us:
                break
            del self._history[:count]
            self._dropped += count

    def _tell(self, kind: str, record: Record, now_us: int) -> None:
        if self.audit and kind:
            self._history.append((kind, record, now_us))

    def _seal(self, query: SealEvents) -> Seal | None:
        previous = self._seals[-1] if self._seals else None
        start = previous.last_seq - self._dropped if previous else 0
        events = [self._event(index) for index in range(start, len(self._history))[: query.limit]]
        if not events:
            return None
        seal = new_seal(previous, events, self.clock.now_us())
        self._seals.append(seal._replace(leaves=b""))
        return seal

    def _read_seals(self, query: ReadSeals) -> Sequence[Seal]:
        return self._seals[query.after : query.after + query.limit]

    def _count(self, _: CountRecords) -> dict[State, int]:
        counts: dict[State, int] = {}
        for record in self._records.values():
            counts[record.state] = counts.get(record.state, 0) + 1
        return counts

    def _count_unsettled(self, query: CountUnsettled) -> Mapping[Whose, int]:
        now_us = self.clock.now_us()
        chosen = ListRecords(query.tenant, states=query.states)
        counts = Counter(
            Whose(record.request.at.tenant, record.request.tool, effective_state(record, now_us))
            for record in self._unsettled.values()
            if chosen.wants(record, now_us)
        )
        return dict(counts)


def _age(record: Record) -> tuple[int, str]:
    return record.created_at, record.request.id
