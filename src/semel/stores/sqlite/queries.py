"""Queries that only read, as statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from semel.audit.events import Event, Seal
from semel.kernel.record import Record, State, unsettled_only
from semel.stores.base import (
    CountRecords,
    CountUnsettled,
    FindRecord,
    ListRecords,
    ReadEvents,
    ReadSeals,
    Whose,
)
from semel.stores.sqlite import documents
from semel.stores.sqlite import statements as sql
from semel.stores.sqlite.rows import event_of, record_of, seal_of, state_of

# Later than every record.
_NEWEST = ((1 << 63) - 1, "")


def list_records(connection: sqlite3.Connection, query: ListRecords, now_us: int) -> Sequence[Record]:
    list_ = _list_unsettled if unsettled_only(query.states) else _list_any
    return [record_of(row) for row in list_(connection, query, now_us)]


def _list_any(connection: sqlite3.Connection, query: ListRecords, now_us: int) -> list[Any]:
    states = _packed(query.states) if query.states else None
    filters = (query.scope, query.scope, query.key, query.key, query.tool, query.tool, states, states)
    parameters = (*(query.before or _NEWEST), *filters, now_us, now_us, query.limit)
    if query.tenant is None:
        return connection.execute(sql.LIST_ALL_RECORDS, parameters).fetchall()
    return connection.execute(sql.LIST_RECORDS, (query.tenant, *parameters)).fetchall()


def _list_unsettled(connection: sqlite3.Connection, query: ListRecords, now_us: int) -> list[Any]:
    created_at, id_ = query.before or _NEWEST
    listing = sql.LIST_ALL_UNSETTLED if query.tenant is None else sql.LIST_UNSETTLED
    parameters = _unsettled(query.states, query.tenant, now_us) | {
        "created_at": created_at,
        "id": id_,
        "scope": query.scope,
        "key": query.key,
        "tool": query.tool,
        "limit": query.limit,
    }
    return connection.execute(listing, parameters).fetchall()


def _unsettled(states: frozenset[State], tenant: str | None, now_us: int) -> dict[str, Any]:
    """Whoever does not ask for live pending records has no need to look at what is not due yet."""
    upto = _NEWEST[0] if State.PENDING in states else now_us
    return {"states": _packed(states), "tenant": tenant, "now": now_us, "upto": upto}


def _packed(states: frozenset[State]) -> str:
    return f",{','.join(states)},"


def find_record(connection: sqlite3.Connection, query: FindRecord, _: int) -> Record | None:
    address = connection.execute(sql.FIND_ADDRESS, (query.tenant, query.id)).fetchone()
    if address is None:
        row = connection.execute(sql.FIND_RECORD, (query.tenant, query.id)).fetchone()
        return None if row is None else record_of(row)
    row = connection.execute(sql.LOOK, (query.tenant, *address)).fetchone()
    record = None if row is None else record_of(row)
    # The key may have been claimed anew since its window ended: that is another record.
    return record if record is not None and record.request.id == query.id else None


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


def count_unsettled(
    connection: sqlite3.Connection, query: CountUnsettled, now_us: int
) -> Mapping[Whose, int]:
    parameters = _unsettled(query.states, query.tenant, now_us)
    rows = connection.execute(sql.COUNT_UNSETTLED, parameters).fetchall()
    return {Whose(tenant, tool, state_of(name)): count for tenant, tool, name, count in rows}


ANSWERS: dict[type, Callable[[sqlite3.Connection, Any, int], Any]] = {
    ListRecords: list_records,
    FindRecord: find_record,
    ReadEvents: read_events,
    ReadSeals: read_seals,
    CountRecords: count_records,
    CountUnsettled: count_unsettled,
    **documents.ANSWERS,
}
