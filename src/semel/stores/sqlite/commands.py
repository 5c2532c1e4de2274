"""Commands and writing queries as statements. Each runs inside the writer's transaction, with its event."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from semel.audit.events import (
    CLAIMED,
    CLOSED,
    LAPSED,
    REVIVED,
    SETTLED,
    Event,
    Seal,
    new_event,
    new_seal,
    of,
)
from semel.kernel.record import (
    LEASE_LAPSED,
    REFUSED_LATER,
    Address,
    Amend,
    Claim,
    Look,
    Park,
    Record,
    Release,
    Renew,
    Reply,
    Resolve,
    Retake,
    Settle,
    State,
    apply,
    next_fence,
)
from semel.stores.base import AppendEvents, SealEvents, Store, Sweep, Swept
from semel.stores.claimed_records import ClaimedRecords
from semel.stores.documents import Commit, Committed
from semel.stores.sqlite import documents
from semel.stores.sqlite import statements as sql
from semel.stores.sqlite.rows import DUE, event_of, record_of, seal_of

# No first entry is older than this, so "within any time" needs no statement of its own.
_EVER = -(1 << 63)

_NEVER = (1 << 63) - 1

# Sealed runs dropped in one sweep, 1 000 events each: a tenth of a second at most.
_RUNS_DROPPED_MAX = 20

# Plain strings, for the reason that `plain` gives.
_WAITING, _PENDING = State.WAITING.value, State.PENDING.value

_new = tuple.__new__  # half the price of naming every field once more

Statement = tuple[str, tuple[Any, ...]]
EventRow = tuple[Any, ...]  # the columns of an event after seq


def claim(command: Claim, now_us: int) -> Statement:
    request, until = command.request, now_us + command.lease_us
    columns: tuple[Any, ...]
    if command.waiting:
        columns = (_WAITING, command.token, next_fence(0, now_us), 0, 0, now_us, None, None, None, until)
    else:
        columns = (_PENDING, command.token, next_fence(0, now_us), 1, 1, now_us, now_us, until, None, None)
    return sql.CLAIM, (*plain(request.at), *request[1:], *columns, None, "", "", until)


def retake(command: Retake, now_us: int) -> Statement:
    since = _EVER if command.within_us is None else now_us - command.within_us
    lease_until = now_us + command.lease_us
    return sql.RETAKE, (
        command.token, now_us, now_us, lease_until, *plain(command.at), command.seen, now_us, now_us, since,
    )  # fmt: skip


def renew(command: Renew, now_us: int) -> Statement:
    return sql.RENEW, (now_us + command.lease_us, *plain(command.at), command.token)


def settle(command: Settle, now_us: int) -> Statement:
    expires_at = later(now_us, command.window_us)
    return sql.SETTLE, (
        command.state.value, now_us, expires_at, command.outcome, command.by, *plain(command.at),
        command.token,
    )  # fmt: skip


def park(command: Park, _: int) -> Statement:
    return sql.PARK, (command.note, *plain(command.at), command.token, LEASE_LAPSED)


def release(command: Release, now_us: int) -> Statement:
    expires_at = later(now_us, command.window_us)
    return sql.RELEASE, (expires_at, REFUSED_LATER, *plain(command.at), command.token, REFUSED_LATER)


def resolve(command: Resolve, now_us: int) -> Statement:
    expires_at, seen = later(now_us, command.window_us), (*plain(command.at), command.seen, now_us)
    if command.happened:
        return sql.RESOLVE_HAPPENED, (command.token, now_us, expires_at, command.outcome, command.by, *seen)
    return sql.RESOLVE_CLEARED, (command.token, expires_at, command.by, *seen)


def amend(command: Amend, now_us: int) -> Statement:
    return sql.AMEND, (
        command.token, command.outcome, command.by, *plain(command.at), command.seen, now_us,
    )  # fmt: skip


def later(now_us: int, by_us: int | None) -> int | None:
    return None if by_us is None else now_us + by_us


_STATEMENTS: dict[type, Callable[[Any, int], Statement]] = {
    Claim: claim,
    Retake: retake,
    Renew: renew,
    Settle: settle,
    Park: park,
    Release: release,
    Resolve: resolve,
    Amend: amend,
}


def plain(at: Address) -> tuple[str, str, str]:
    """The address as SQLite binds it at once: a Key, like any value of a subclass, takes a longer way."""
    return at[0], at[1], str(at[2])


def address_of(command: Any) -> Address:
    at: Address = command.request.at if type(command) is Claim else command.at
    return at


class Performer:
    """Carries commands and writing queries out on the writer's connection."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._claimed = ClaimedRecords()
        self._changed: list[Address] = []
        self._standing: documents.Standing = {}  # counted in the transaction of that list
        self._others: dict[type, Callable[[sqlite3.Connection, Any, list[Address]], Any]] = {
            Look: self._look,
            AppendEvents: self._append,
            Sweep: self._sweep,
            SealEvents: self._seal,
            Commit: self._commit,
            type(None): lambda *_: None,
        }

    def now_us(self) -> int:
        return self._store.clock.now_us()

    def token(self) -> bytes:
        return self._store.clock.token()

    def perform(
        self,
        connection: sqlite3.Connection,
        command: Any,
        changed: list[Address],
        events: list[EventRow] | None = None,
    ) -> Any:
        """The command's answer; the addresses of what it changed are added to `changed`.

        Its event is written; or added to `events`, for `write_events` to write it before the commit.
        """
        kind = type(command)
        # First what every call asks for, without reading back what was written: half the price.
        reply: Reply | None = None
        if kind is Claim:
            reply = self._claim_new(connection, command, changed, events)
        elif kind is Settle and (claimed := self._claimed.get(command.token)) is not None:
            reply = self._settle_held(connection, command, claimed, changed, events)
        if reply is not None:
            return reply
        if events:
            self.write_events(connection, events)  # in their order, and whoever reads them finds them
        return self._perform_any(connection, command, changed)

    def _claim_new(
        self,
        connection: sqlite3.Connection,
        command: Claim,
        changed: list[Address],
        events: list[EventRow] | None,
    ) -> Reply | None:
        """The reply to a claim of a key that has no record; None if it has one, or waits for a person."""
        request, token, lease_us, waiting = command
        if waiting:
            return None
        store = self._store
        now_us = store.clock.now_us()
        until, fence = now_us + lease_us, now_us if now_us > 0 else 1
        # In the order of Record, after its state; the row has the same, and when it is due.
        rest = (token, fence, 1, 1, now_us, now_us, until, None, None, None, "", "")
        at, id_, tool, version, fingerprint, _, _, conversation, step, principal, _ = request
        tenant, scope, key = plain(at)
        row = (tenant, scope, key, *request[1:], _PENDING, *rest, until)
        if connection.execute(sql.CLAIM_NEW, row).rowcount != 1:
            return None
        if store.audit:
            event = (
                now_us, tenant, scope, key, id_, CLAIMED, _PENDING, fence, tool, version, fingerprint, None,
                conversation, step, principal, "", 1,
            )  # fmt: skip
            if events is None:
                connection.execute(sql.NOTE_EVENT, event)
            else:
                events.append(event)
        changed.append(at)
        return _new(Reply, (_new(Record, (request, State.PENDING, *rest)), now_us, True))

    def _settle_held(
        self,
        connection: sqlite3.Connection,
        command: Settle,
        claimed: Record,
        changed: list[Address],
        events: list[EventRow] | None,
    ) -> Reply | None:
        """The reply to a settlement of what this process claimed; None if the record is not as it was then.

        The statement compares token and fence: so the rest is still what the claim was answered.
        """
        at, token, state, outcome, window_us, by = command
        request, _, _, fence, attempts, entries, created_at, entered_at, *_ = claimed
        if request.at != at:
            return None
        store = self._store
        now_us = store.clock.now_us()
        expires_at = None if window_us is None else now_us + window_us
        tenant, scope, key = plain(at)
        name: str = state._value_  # its `value` is a call of Python's
        held = (
            name, now_us, expires_at, outcome, by, tenant, scope, key, token, fence,
            _NEVER if expires_at is None else expires_at,
        )  # fmt: skip
        if connection.execute(sql.SETTLE_HELD, held).rowcount != 1:
            return None
        if store.audit:
            _, id_, tool, version, fingerprint, _, _, conversation, step, principal, _ = request
            digest = fingerprint if outcome is None else sha256(outcome).digest()
            event = (
                now_us, tenant, scope, key, id_, SETTLED, name, fence, tool, version, digest, expires_at,
                conversation, step, by or principal, "", 1,
            )  # fmt: skip
            if events is None:
                connection.execute(sql.NOTE_EVENT, event)
            else:
                events.append(event)
        changed.append(at)
        record = (
            request, state, token, fence, attempts, entries, created_at, entered_at, None, now_us, expires_at,
            outcome, "", by,
        )  # fmt: skip
        return _new(Reply, (_new(Record, record), now_us, True))

    def _perform_any(self, connection: sqlite3.Connection, command: Any, changed: list[Address]) -> Any:
        statement = _STATEMENTS.get(type(command))
        if statement is None:
            return self._others[type(command)](connection, command, changed)
        now_us = self._store.clock.now_us()
        if type(command) is Claim:
            # A damaged record has to be found out before it is taken for one whose window closed.
            record = look(connection, command.request.at)
            if record is not None and apply(record, command, now_us) is None:
                return Reply(record, now_us, False)
        step, parameters = statement(command, now_us)
        row = connection.execute(step, parameters).fetchone()
        if row is None:
            return self._refused(connection, command, now_us, changed)
        record = record_of(row)
        if too_late(record, row[DUE]):
            connection.execute(sql.FILE_ANEW, record.request.at)
        if self._store.audit:
            self._note(connection, of(None, record, command, now_us))
        changed.append(record.request.at)
        return Reply(record, now_us, True)

    def committed(self, command: Any, answer: Any) -> None:
        """The command's transaction is durable: what it claimed is kept until it is settled."""
        if type(command) is Settle:
            self._claimed.pop(command.token, None)
        elif type(command) is Claim and answer.applied:
            self._claimed.keep(answer.record)

    def _refused(
        self, connection: sqlite3.Connection, command: Any, now_us: int, changed: list[Address]
    ) -> Reply:
        if type(command) is Renew and (record := self._revive(connection, command, now_us)) is not None:
            changed.append(command.at)
            return Reply(record, now_us, True)
        return Reply(look(connection, address_of(command)), now_us, False)

    def _revive(self, connection: sqlite3.Connection, command: Renew, now_us: int) -> Record | None:
        """A lapsed record pending again. A statement of its own: only this kind of renewal has an event."""
        parameters = (now_us + command.lease_us, *plain(command.at), command.token, LEASE_LAPSED)
        row = connection.execute(sql.REVIVE, parameters).fetchone()
        if row is None:
            return None
        record = record_of(row)
        if too_late(record, row[DUE]):
            connection.execute(sql.FILE_ANEW, record.request.at)
        self._note_if_audited(connection, REVIVED, record, now_us)
        return record

    def _look(self, connection: sqlite3.Connection, command: Look, _: list[Address]) -> Reply:
        record = look(connection, command.at)
        return Reply(record, self._store.clock.now_us(), False)

    def _commit(self, connection: sqlite3.Connection, query: Commit, changed: list[Address]) -> Committed:
        if changed is not self._changed:  # each transaction has a list of its own
            self._changed, self._standing = changed, {}
        committed, written = documents.commit(connection, query, self._store.clock.now_us(), self._standing)
        if written:
            self._note_all(connection, query.events)
        return committed

    # --- events ----------------------------------------------------------------------------------

    def write_events(self, connection: sqlite3.Connection, events: list[EventRow]) -> None:
        """They are written, in their order, and the list is empty."""
        at_once = sql.EVENTS_AT_ONCE
        seq = connection.execute(sql.NEXT_EVENT).fetchone()[0] if len(events) >= at_once else 0
        while len(events) >= at_once:
            columns: list[Any] = []
            for event in events[:at_once]:
                columns.append(seq)
                columns += event
                seq += 1
            connection.execute(sql.NOTE_EVENTS, columns)
            del events[:at_once]
        for event in events:
            connection.execute(sql.NOTE_EVENT, event)
        events.clear()

    def _note(self, connection: sqlite3.Connection, event: Event | None) -> None:
        if event is not None:
            connection.execute(sql.NOTE_EVENT, (*event[1:4], str(event.key), *event[5:]))

    def _note_if_audited(
        self, connection: sqlite3.Connection, kind: str, record: Record, now_us: int
    ) -> None:
        if self._store.audit:
            self._note(connection, new_event(kind, record, now_us))

    def _append(self, connection: sqlite3.Connection, query: AppendEvents, _: list[Address]) -> None:
        self._note_all(connection, query.events)

    def _note_all(self, connection: sqlite3.Connection, events: Sequence[Event]) -> None:
        if self._store.audit:
            for event in events:
                self._note(connection, event)

    def _seal(self, connection: sqlite3.Connection, query: SealEvents, _: list[Address]) -> Seal | None:
        events = [event_of(row) for row in connection.execute(sql.UNSEALED_EVENTS, (query.limit,))]
        if not events:
            return None
        last = connection.execute(sql.LAST_SEAL).fetchone()
        seal = new_seal(seal_of(last) if last else None, events, self._store.clock.now_us())
        connection.execute(sql.ADD_SEAL, seal[:6])
        connection.execute(sql.TRACE_EVENTS, (seal.first_seq, seal.last_seq))
        return seal

    # --- the sweep -------------------------------------------------------------------------------

    def _sweep(self, connection: sqlite3.Connection, query: Sweep, changed: list[Address]) -> Swept:
        now_us, limit = self._store.clock.now_us(), query.limit
        lapsed = self._swept(
            connection, LAPSED, sql.SWEEP_LAPSED, (LEASE_LAPSED, now_us, now_us, limit), now_us
        )
        closed = self._swept(
            connection, CLOSED, sql.SWEEP_CLOSED, (now_us, now_us, limit, now_us, limit), now_us
        )
        early = connection.execute(sql.SWEEP_EARLY, (now_us, now_us, limit)).rowcount
        changed.extend(record.request.at for record in lapsed)
        dropped = self._drop_events(connection, now_us - self._store.audit_kept_us)
        # Fewer than it might look at: then it has seen all that were due.
        more = len(lapsed) + len(closed) + early >= limit or dropped == _RUNS_DROPPED_MAX
        return Swept(len(lapsed), len(closed), more)

    def _swept(
        self, connection: sqlite3.Connection, kind: str, step: str, parameters: tuple[Any, ...], now_us: int
    ) -> list[Record]:
        records = [record_of(row) for row in connection.execute(step, parameters).fetchall()]
        for record in records:
            self._note_if_audited(connection, kind, record, now_us)
        return records

    def _drop_events(self, connection: sqlite3.Connection, before_us: int) -> int:
        for dropped in range(_RUNS_DROPPED_MAX):
            last = connection.execute(sql.OLDEST_SEALED_RUN, (before_us,)).fetchone()
            if last is None:
                return dropped
            connection.execute(sql.DROP_TRACES, last)
            connection.execute(sql.DROP_EVENTS, last)
        return _RUNS_DROPPED_MAX


def too_late(record: Record, due: int | None) -> bool:
    """Whether the sweeper would look at the record only after its lease or window ended."""
    ends_at = record.expires_at if record.lease_until is None else record.lease_until
    return ends_at is not None and (due is None or due > ends_at)


def look(connection: sqlite3.Connection, at: Address) -> Record | None:
    row = connection.execute(sql.LOOK, plain(at)).fetchone()
    return None if row is None else record_of(row)
