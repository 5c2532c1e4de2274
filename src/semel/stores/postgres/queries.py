"""Queries as statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from semel.audit import events
from semel.audit.events import Event, Seal
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address, Record, State, unsettled_only
from semel.stores.base import (
    AppendEvents,
    CountRecords,
    CountUnsettled,
    FindRecord,
    ListRecords,
    ReadEvents,
    ReadSeals,
    SealEvents,
    Store,
    Sweep,
    Swept,
    Whose,
)
from semel.stores.postgres import statements as sql
from semel.stores.postgres.documents import DocumentAnswers
from semel.stores.postgres.packing import binaries, binary, number, numbers, text, texts, truth
from semel.stores.postgres.rows import event_of, record_of, seal_of, state_of
from semel.stores.postgres.trouble import Failure
from semel.stores.postgres.wire import PostgresConnection

# Later than every record.
_NEWEST = ((1 << 63) - 1, "")

_UNIQUE_VIOLATION = "23505"

# Transactions of calls last milliseconds; behind one that lasts longer the seal waits for the next round.
_HORIZON_S, _LOOK_AGAIN_S = 1.0, 0.002

# Sealed runs dropped in one sweep, 1 000 events each: a tenth of a second at most.
_RUNS_DROPPED_MAX = 20

# For each column of an event after its number.
_EVENT_COLUMNS: tuple[Callable[[Any], bytes], ...] = (
    numbers, texts, texts, texts, texts, texts, texts, numbers, texts, texts, binaries, numbers, texts, texts,
    texts, texts, numbers,
)  # fmt: skip


class Answers:
    """Answers queries over a connection that it is given."""

    def __init__(self, store: Store, channel: str) -> None:
        self._store = store
        self._channel = channel.encode()
        self._answers: dict[type, Callable[[PostgresConnection, Any], Any]] = {
            ListRecords: self._list,
            FindRecord: self._find,
            CountRecords: self._count,
            CountUnsettled: self._count_unsettled,
            ReadEvents: self._read_events,
            ReadSeals: self._read_seals,
            AppendEvents: self._append,
            Sweep: self._sweep,
            SealEvents: self._seal,
            **DocumentAnswers(self.now).answers,
        }

    def answer(self, link: PostgresConnection, query: Any) -> Any:
        return self._answers[type(query)](link, query)

    def now(self) -> bytes | None:
        """What stands for the server's own time: nothing, or a test's clock."""
        clock = self._store.clock
        return None if clock is SYSTEM else number(clock.now_us())

    def common(self) -> tuple[bytes | None, ...]:
        """What every step is told: the time, whether events are written, where those who wait listen."""
        store = self._store
        now = None if store.clock is SYSTEM else self.now()
        return now, truth(store.audit), self._channel

    def _list(self, link: PostgresConnection, query: ListRecords) -> Sequence[Record]:
        created_at, id_ = query.before or _NEWEST
        filters = (text(query.scope), text(query.key), text(query.tool))
        states = texts([state.value for state in query.states]) if query.states else None
        before = (number(created_at), text(id_))
        params = [self.now(), text(query.tenant), *before, *filters, states, number(query.limit)]
        if unsettled_only(query.states):
            listing = sql.LIST_ALL_UNSETTLED if query.tenant is None else sql.LIST_UNSETTLED
            params.append(truth(State.PENDING in query.states))
        else:
            listing = sql.LIST_ALL_RECORDS if query.tenant is None else sql.LIST_RECORDS
        return [record_of(row) for row in link.run(listing, params)]

    def _find(self, link: PostgresConnection, query: FindRecord) -> Record | None:
        rows = link.run(sql.FIND_RECORD, (text(query.tenant), text(query.id)))
        return record_of(rows[0]) if rows else None

    def _count(self, link: PostgresConnection, _: CountRecords) -> dict[State, int]:
        return {state_of(name): count for name, count in link.run(sql.COUNT_RECORDS)}

    def _count_unsettled(self, link: PostgresConnection, query: CountUnsettled) -> Mapping[Whose, int]:
        states = texts([state.value for state in query.states])
        params = (self.now(), text(query.tenant), states, truth(State.PENDING in query.states))
        rows = link.run(sql.COUNT_UNSETTLED, params)
        return {Whose(tenant, tool, state_of(name)): count for tenant, tool, name, count in rows}

    def _read_events(self, link: PostgresConnection, query: ReadEvents) -> Sequence[Event]:
        chosen = (number(query.after), text(query.tenant), number(query.limit))
        if query.record_id is None:
            rows = link.run(sql.READ_EVENTS, chosen)
        else:
            rows = link.run(sql.READ_EVENTS_OF_RECORD, (*chosen, text(query.record_id)))
        return [event_of(row) for row in rows]

    def _read_seals(self, link: PostgresConnection, query: ReadSeals) -> Sequence[Seal]:
        return [seal_of(row) for row in link.run(sql.READ_SEALS, (number(query.after), number(query.limit)))]

    def _append(self, link: PostgresConnection, query: AppendEvents) -> None:
        if self._store.audit and query.events:
            columns = zip(*(event[1:] for event in query.events), strict=True)
            packed = [pack(values) for pack, values in zip(_EVENT_COLUMNS, columns, strict=True)]
            link.run(sql.APPEND_EVENTS, packed)

    # --- the sweep -------------------------------------------------------------------------------

    def _sweep(self, link: PostgresConnection, query: Sweep) -> Swept:
        rows = link.run(sql.SWEEP, (*self.common(), number(query.limit)))
        for kind, *at, _ in rows:
            if kind == events.LAPSED:
                self._store.waiters.wake(Address(*at))
        counted = Counter(row[0] for row in rows)
        dropped = self._drop_events(link)
        # Fewer than it might look at: then it has seen all that were due.
        more = len(rows) >= query.limit or dropped == _RUNS_DROPPED_MAX
        return Swept(counted[events.LAPSED], counted[events.CLOSED], more)

    def _drop_events(self, link: PostgresConnection) -> int:
        kept = number(self._store.audit_kept_us)
        for dropped in range(_RUNS_DROPPED_MAX):
            ((count,),) = link.run(sql.DROP_EVENTS, (self.now(), kept))
            if not count:
                return dropped
        return _RUNS_DROPPED_MAX

    # --- seals -----------------------------------------------------------------------------------

    def _seal(self, link: PostgresConnection, query: SealEvents) -> Seal | None:
        ((last_event,),) = link.run(sql.LAST_EVENT)
        previous = self._last_seal(link)
        if last_event <= (previous.last_seq if previous else 0):
            return None
        now_us = self._await_horizon(link)
        if now_us is None:
            return None
        after = number(previous.last_seq if previous else 0)
        rows = link.run(sql.UNSEALED_EVENTS, (after, number(last_event), number(query.limit)))
        if not rows:
            return None
        seal = events.new_seal(previous, [event_of(row) for row in rows], now_us)
        try:
            link.run(sql.ADD_SEAL, (*map(number, seal[:4]), binary(seal.hash), number(seal.at_us)))
        except Failure as failure:
            if failure.code != _UNIQUE_VIOLATION:
                raise
            return self._seal(link, query)  # another process sealed meanwhile; what is left is ours
        return seal

    def _last_seal(self, link: PostgresConnection) -> Seal | None:
        rows = link.run(sql.LAST_SEAL)
        return seal_of(rows[0]) if rows else None

    def _await_horizon(self, link: PostgresConnection) -> int | None:
        """The time, once no event numbered so far is still uncommitted; None if that takes too long."""
        ((transaction, now_us),) = link.run(sql.HORIZON, (self.now(),))
        give_up_at = SYSTEM.monotonic() + _HORIZON_S
        while not link.run(sql.HORIZON_REACHED, (number(transaction),))[0][0]:
            if SYSTEM.monotonic() > give_up_at:
                return None
            SYSTEM.sleep(_LOOK_AGAIN_S)
        return int(now_us)
