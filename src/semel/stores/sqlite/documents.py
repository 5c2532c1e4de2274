"""Documents as statements. A commit runs inside the writer's transaction, the rest on a reader.

Every check of a commit comes before its first write, so a refused one leaves nothing to take back, and the
others that share its transaction are not disturbed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from semel.errors import StoreCorrupt
from semel.stores.documents import (
    Capacity,
    Commit,
    Committed,
    Count,
    Document,
    Draft,
    Entry,
    Fetch,
    Fetched,
    Scan,
    Scanned,
    Tenants,
    Weigh,
)
from semel.stores.sqlite import statements as sql

# Beyond every entry, in either direction of a scan: a score is below 2^53.
_LOWEST, _HIGHEST = (-(1 << 63), ""), ((1 << 63) - 1, "")

# How far beyond its limit a full index is counted exactly: a limit is rarely lowered by more, and a commit
# that is refused must not count an index of millions.
_COUNTED_BEYOND = 1_000

_TO_THE_END = -1

# By index and tenant: how many documents stand in it, as a transaction has counted and changed it.
Standing = dict[tuple[str, str], int]


class StoredTag(NamedTuple):
    """What a commit knows of a document before it writes."""

    tag: str
    entries: str  # as the row has them


# --- the step that writes --------------------------------------------------------------------------------


def commit(
    connection: sqlite3.Connection, query: Commit, now_us: int, standing: Standing
) -> tuple[Committed, bool]:
    """The answer, and whether this very call wrote: else it was refused, or carried out before.

    `standing` is what the transaction has counted so far: nobody else writes meanwhile.
    """
    before = _before(connection, query)
    if query.put and _tag(before, query.put[0].id) == query.tag:
        return Committed(True, now_us, {}), False
    unmet = [id_ for id_, tag in query.expect.items() if _tag(before, id_) != tag]
    if unmet:
        present = _documents(connection, query.tenant, unmet)
        return Committed(False, now_us, {id_: present.get(id_) for id_ in unmet}), False
    for capacity in query.capacity:
        count = _count_for(connection, query.tenant, capacity, standing)
        if count >= capacity.limit:
            return Committed(False, now_us, {}, capacity, count), False
    _write(connection, query, before, standing)
    return Committed(True, now_us, {}), True


def _before(connection: sqlite3.Connection, query: Commit) -> dict[str, StoredTag]:
    """Those that exist of all that the commit names, by id."""
    ids = {*query.expect, *(draft.id for draft in query.put), *query.drop}
    rows = connection.execute(sql.LOOK_AT_DOCUMENTS, (_json([*ids]), query.tenant)).fetchall()
    return {id_: StoredTag(tag, entries) for id_, tag, entries in rows}


def _tag(before: Mapping[str, StoredTag], id_: str) -> str | None:
    stored = before.get(id_)
    return None if stored is None else stored.tag


def _count_for(connection: sqlite3.Connection, tenant: str, capacity: Capacity, standing: Standing) -> int:
    """How many stand in the index. Once in a transaction: where many begin at once, all would count all."""
    where, stop_at = (capacity.index_name, tenant), capacity.limit + _COUNTED_BEYOND
    if where in standing:
        return standing[where]
    count = _count(connection, tenant, capacity.index_name, stop_at)
    if count < stop_at:  # else there may be more of them
        standing[where] = count
    return count


def _write(
    connection: sqlite3.Connection, query: Commit, before: Mapping[str, StoredTag], standing: Standing
) -> None:
    # Of two drafts of one document the last counts, and what is put is not dropped.
    drafts = {draft.id: draft for draft in query.put}
    dropped = [id_ for id_ in dict.fromkeys(query.drop) if id_ in before and id_ not in drafts]
    _move(connection, query.tenant, before, drafts, dropped, standing)
    connection.executemany(sql.DROP_DOCUMENT, [(query.tenant, id_) for id_ in dropped])
    connection.executemany(
        sql.PUT_DOCUMENT,
        [
            (query.tenant, draft.id, query.tag, _json([*map(list, draft.entries)]), draft.body)
            for draft in drafts.values()
        ],
    )


def _move(
    connection: sqlite3.Connection,
    tenant: str,
    before: Mapping[str, StoredTag],
    drafts: Mapping[str, Draft],
    dropped: Iterable[str],
    standing: Standing,
) -> None:
    """The rows of `semel_places` are the entries of the drafts; an entry that stays is not touched."""
    old = {
        (index, tenant, score, id_)
        for id_ in (*drafts, *dropped)
        if id_ in before
        for index, score in _entries(before[id_].entries)
    }
    new = {(index, tenant, score, id_) for id_, draft in drafts.items() for index, score in draft.entries}
    removed, added = old - new, new - old
    connection.executemany(sql.REMOVE_ENTRY, removed)
    connection.executemany(sql.ADD_ENTRY, added)
    if standing:
        for rows, more in ((added, 1), (removed, -1)):
            for index, whose, _, _ in rows:
                if (index, whose) in standing:
                    standing[index, whose] += more


# --- questions -------------------------------------------------------------------------------------------


def fetch(connection: sqlite3.Connection, query: Fetch, now_us: int) -> Fetched:
    return Fetched(now_us, _documents(connection, query.tenant, query.ids))


def scan(connection: sqlite3.Connection, query: Scan, now_us: int) -> Scanned:
    step, bounds = _newest(query) if query.newest else _oldest(query)
    rows = connection.execute(step, (query.index, query.tenant, *bounds, query.limit)).fetchall()
    return Scanned(now_us, [document_of(row) for row in rows])


def _oldest(query: Scan) -> tuple[str, tuple[Any, ...]]:
    after = _LOWEST if query.after is None else query.after
    return sql.SCAN_OLDEST, (*after, _HIGHEST[0] if query.upto is None else query.upto)


def _newest(query: Scan) -> tuple[str, tuple[Any, ...]]:
    # Before the first that would stand at a higher score than `upto`; no id is less than the empty one.
    first = _HIGHEST if query.upto is None else (query.upto + 1, "")
    return sql.SCAN_NEWEST, first if query.after is None else min(first, query.after)


def count(connection: sqlite3.Connection, query: Count, _: int) -> int:
    return _count(connection, query.tenant, query.index, _TO_THE_END)


def tenants(connection: sqlite3.Connection, query: Tenants, now_us: int) -> Sequence[str]:
    upto = now_us if query.upto is None else query.upto
    rows = connection.execute(sql.TENANTS, (query.index, query.index, query.index, upto)).fetchall()
    return [tenant for (tenant,) in rows]


def weigh(connection: sqlite3.Connection, query: Weigh, _: int) -> int:
    number: int = connection.execute(sql.WEIGH_DOCUMENTS, (query.tenant,)).fetchone()[0]
    return number


ANSWERS: dict[type, Callable[[sqlite3.Connection, Any, int], Any]] = {
    Fetch: fetch,
    Scan: scan,
    Count: count,
    Tenants: tenants,
    Weigh: weigh,
}


def _count(connection: sqlite3.Connection, tenant: str, index: str, stop_at: int) -> int:
    number: int = connection.execute(sql.COUNT_INDEX, (index, tenant, stop_at)).fetchone()[0]
    return number


def _documents(connection: sqlite3.Connection, tenant: str, ids: Iterable[str]) -> dict[str, Document]:
    rows = connection.execute(sql.FETCH_DOCUMENTS, (_json([*ids]), tenant)).fetchall()
    return {row[0]: document_of(row) for row in rows}


# --- rows ------------------------------------------------------------------------------------------------


def document_of(row: Sequence[Any]) -> Document:
    """The document in a row of its columns; StoreCorrupt if it is none."""
    id_, body, tag, entries = row
    if type(body) is not bytes or type(tag) is not str or type(entries) is not str:
        raise StoreCorrupt(f"The document {id_!r} is damaged.")
    return Document(id_, body, tag, _entries(entries))


def _entries(text: str) -> tuple[Entry, ...]:
    if text == "[]":
        return ()
    try:
        entries = tuple([Entry(index, score) for index, score in orjson.loads(text)])
    except (TypeError, ValueError) as error:
        raise StoreCorrupt("The entries of a document are damaged.") from error
    if any(type(index) is not str or type(score) is not int for index, score in entries):
        raise StoreCorrupt("The entries of a document are damaged.")
    return entries


def _json(value: list[Any]) -> str:
    return orjson.dumps(value).decode()
