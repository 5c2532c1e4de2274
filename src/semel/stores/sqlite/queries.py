"""Queries that only read, as statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from semel.audit import Event, Seal
from semel.record import Record, State
from semel.stores.base import CountRecords, FindRecord, ListRecords, ReadEvents, ReadSeals
from semel.stores.sqlite import documents
from semel.stores.sqlite import statements as sql
from semel.stores.sqlite.rows import event_of, record_of, seal_of, state_of

# Later than every record.
_NEWEST = ((1 << 63) - 1, "")


def list_records(connection: sqlite3.Connection, query: ListRecords, now_us: int) -> Sequence[Record]:
    states = f",{','.join(query.states)}," if query.states else None
    created_at, id_ = query.before or _NEWEST
    filters = (query.scope, query.scope, query.key, query.key, query.tool, query.tool, states, states)
    parameters = (query.tenant, created_at, id_, *filters, now_us, now_us, query.limit)
    return [record_of(row) for row in connection.execute(sql.LIST_RECORDS, parameters).fetchall()]


def find_record(connection: sqlite3.Connection, query: FindRecord, _: int) -> Record | None:
    row = connection.execute(sql.FIND_RECORD, (query.tenant, query.id)).fetchone()
    return None if row is None else record_of(row)


def read_events(connection: sqlite3.Connection, query: ReadEvents, _: int) -> Sequence[Event]:
    chosen = (query.after, query.tenant, query.tenant, query.limit)
    if query.record_id is None:
        rows = connection.execute(sql.READ_EVENTS, chosen)
    else:
        of_record = (query.record_id, query.after, query.after, query.record_id, *chosen[1:])
        rows = connection.execute(sql.READ_EVENTS_OF_RECORD, of_record)
    return [event_of(row) for row in rows.fetchall()]


def read_seals(connection: sqlite3.Connection, query: ReadSeals, _: int) -> Sequence[Seal]:
    return [seal_of(row) for row in connection.execute(sql.READ_SEALS, (query.after, query.limit)).fetchall()]


def count_records(connection: sqlite3.Connection, _: CountRecords, __: int) -> dict[State, int]:
    return {state_of(name): count for name, count in connection.execute(sql.COUNT_RECORDS).fetchall()}


ANSWERS: dict[type, Callable[[sqlite3.Connection, Any, int], Any]] = {
    ListRecords: list_records,
    FindRecord: find_record,
    ReadEvents: read_events,
    ReadSeals: read_seals,
    CountRecords: count_records,
    **documents.ANSWERS,
}
