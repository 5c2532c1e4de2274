"""Documents: commits as one statement, however many there are, and what is read as rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from typing import Any

import orjson

from semel.audit.events import Event
from semel.errors import StoreCorrupt
from semel.stores.documents import (
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
from semel.stores.postgres import statements as sql
from semel.stores.postgres.packing import (
    binaries,
    escaped,
    number,
    numbers,
    text,
    texts,
    truth,
    unescaped,
)
from semel.stores.postgres.trouble import Failure
from semel.stores.postgres.wire import PostgresConnection, Row

# Beyond every score, which are below 2^53 either way.
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1

# No index has as many; and the server may add to it without running over.
_LIMIT_MAX = 1 << 53

# Columns of an answer to a commit (schema/0003.sql): from the last one on, an unexpected document.
_POSITION, _TAG, _NOW, _DONE, _NEWEST_COMMIT, _FULL, _COUNT, _DOCUMENT = range(8)

# In place of the positions of commits that have events, and the events.
_NO_EVENTS = (None, None)


def turn_of(commit: Commit) -> bytes:
    """A digest that commits of one tenant share, and nothing else: they wait for each other anyway."""
    return hashlib.sha256(b"documents\x00" + commit.tenant.encode()).digest()


def size_of(commit: Commit) -> int:
    """How many bytes of bodies it writes."""
    return sum(len(draft.body) for draft in commit.put)


class Commits:
    """Commits of any tenants, and what became of them."""

    newest_event = 0  # a transaction that writes one counts as a commit, and newest_commit shows that

    def __init__(self, commits: Sequence[Commit]) -> None:
        self._commits = commits
        self.replies: list[Committed | Exception | None] = [None] * len(commits)
        self.newest_commit = 0

    @property
    def open(self) -> bool:
        return None in self.replies

    @property
    def repeatable(self) -> bool:
        """Whether each leaves its tag behind; else its events would be written again after a lost reply."""
        return all(commit.put or not commit.events for commit in self._commits)

    def run(self, link: PostgresConnection, common: Sequence[bytes | None]) -> None:
        """All of them have their reply, by one statement. It may be repeated: a tag tells what was done."""
        now, audit, _ = common
        events = _packed_events(self._commits) if audit == truth(True) else _NO_EVENTS
        rows = link.run(sql.COMMIT_DOCUMENTS, (now, *_packed(self._commits), *events))
        answers: dict[tuple[int, str], list[Row]] = {}
        for row in rows:
            answers.setdefault((row[_POSITION], row[_TAG]), []).append(row)
        requests = [(position, commit.tag) for position, commit in enumerate(self._commits, start=1)]
        if set(requests) != set(answers):
            link.close()
            raise Failure("the answer is to another question", lost=True)
        self.replies = [
            _judged(commit, answers[one]) for one, commit in zip(requests, self._commits, strict=True)
        ]
        self.newest_commit = max(row[_NEWEST_COMMIT] or 0 for row in rows)


def _packed(commits: Sequence[Commit]) -> list[bytes]:
    expected = [commit.expect for commit in commits]
    put = [_last_of_each_id(commit.put) for commit in commits]
    drop = [commit.drop for commit in commits]
    capacity = [commit.capacity for commit in commits]
    drafts, capacities = list(chain(*put)), list(chain(*capacity))
    return [
        texts([commit.tenant for commit in commits]),
        texts([commit.tag for commit in commits]),
        _ends(expected),
        texts([id_ for each in expected for id_ in each]),
        texts([tag for each in expected for tag in each.values()]),
        _ends(put),
        texts([draft.id for draft in drafts]),
        binaries([draft.body for draft in drafts]),
        texts([_written(draft.entries) for draft in drafts]),
        _ends(drop),
        texts(list(chain(*drop))),
        _ends(capacity),
        texts([each.index_name for each in capacities]),
        numbers([min(each.limit, _LIMIT_MAX) for each in capacities]),
    ]


def _packed_events(commits: Sequence[Commit]) -> tuple[bytes | None, bytes | None]:
    """The position of the commit that each event belongs to, and the events."""
    positions = [position for position, commit in enumerate(commits, start=1) for _ in commit.events]
    if not positions:
        return _NO_EVENTS
    return numbers(positions), texts([_line(event) for commit in commits for event in commit.events])


def _line(event: Event) -> str:
    """Its columns by their names, but for its number, which is the store's to give."""
    columns: dict[str, Any] = event._asdict()
    del columns["seq"]
    columns["by_whom"] = columns.pop("by")
    columns["digest"] = "\\x" + event.digest.hex()
    line = orjson.dumps(columns)
    if b"\\u0000" in line or b"\\u0001" in line:  # hardly ever; then each text that needs it is escaped
        line = orjson.dumps({name: _escaped(value) for name, value in columns.items()})
    return line.decode()


def _escaped(value: Any) -> Any:
    return escaped(value) if isinstance(value, str) else value


def _ends(parts: Iterable[Any]) -> bytes:
    return numbers(list(accumulate(map(len, parts))))


def _last_of_each_id(drafts: Sequence[Draft]) -> list[Draft]:
    """A statement writes a row once: of drafts for one id the last counts, in the position of the first."""
    return list({draft.id: draft for draft in drafts}.values())


def _judged(commit: Commit, rows: Sequence[Row]) -> Committed | Exception:
    try:
        first = rows[0]
        if first[_DONE]:
            return Committed(True, first[_NOW], {})
        if first[_FULL] is not None:
            return Committed(False, first[_NOW], {}, commit.capacity[first[_FULL] - 1], first[_COUNT])
        return Committed(False, first[_NOW], {row[_DOCUMENT]: _document_of(row[_DOCUMENT:]) for row in rows})
    except StoreCorrupt as damage:
        return damage


# --- reading -------------------------------------------------------------------------------------------


class DocumentAnswers:
    """Answers queries for documents over a connection that it is given."""

    def __init__(self, now: Callable[[], bytes | None]) -> None:
        self._now = now
        self.answers: dict[type, Callable[[PostgresConnection, Any], Any]] = {
            Fetch: self._fetch,
            Scan: self._scan,
            Count: self._count,
            Tenants: self._tenants,
            Weigh: self._weigh,
        }

    def _fetch(self, link: PostgresConnection, query: Fetch) -> Fetched:
        ids = texts(list(dict.fromkeys(query.ids)))
        rows = link.run(sql.FETCH_DOCUMENTS, (self._now(), text(query.tenant), ids))
        documents = (_document_of(row[1:]) for row in rows)
        return Fetched(rows[0][0], {document.id: document for document in documents if document})

    def _scan(self, link: PostgresConnection, query: Scan) -> Scanned:
        step, begin = (sql.SCAN_NEWEST, _HIGHEST) if query.newest else (sql.SCAN_OLDEST, _LOWEST)
        score, id_ = query.after or (begin, "")
        upto = _HIGHEST if query.upto is None else query.upto
        where = (text(query.tenant), text(query.index), number(score), text(id_), number(upto))
        rows = link.run(step, (self._now(), *where, number(query.limit)))
        return Scanned(rows[0][0], [_document_in(query.index, row) for row in rows if row[1] is not None])

    def _count(self, link: PostgresConnection, query: Count) -> int:
        ((count,),) = link.run(sql.COUNT_DOCUMENTS, (text(query.tenant), text(query.index)))
        return int(count)

    def _weigh(self, link: PostgresConnection, query: Weigh) -> int:
        ((number_of_bytes,),) = link.run(sql.WEIGH_DOCUMENTS, (text(query.tenant),))
        return int(number_of_bytes)

    def _tenants(self, link: PostgresConnection, query: Tenants) -> Sequence[str]:
        rows = link.run(sql.FIND_TENANTS, (self._now(), text(query.index), number(query.upto)))
        return [tenant for (tenant,) in rows]


def _document_in(index: str, row: Row) -> Document:
    """The document of an entry; StoreCorrupt unless the document has that entry itself."""
    document = _document_of(row[2:])
    if document is None or Entry(index, row[1]) not in document.entries:
        raise StoreCorrupt("An index and the document on it contradict each other; nothing was done.")
    return document


def _document_of(row: Row) -> Document | None:
    """The document in a row of its columns; None if there is none."""
    id_, tag, body, entries = row
    if tag is None:
        return None
    return Document(id_, body, tag, _read(entries))


def _written(entries: Iterable[Entry]) -> str:
    return orjson.dumps([(escaped(entry.index_name), entry.score) for entry in entries]).decode()


def _read(written: str) -> tuple[Entry, ...]:
    entries = orjson.loads(written)
    if type(entries) is not list or not all(map(_is_entry, entries)):
        raise StoreCorrupt("A document's entries are damaged; nothing was done.")
    return tuple(Entry(unescaped(index), score) for index, score in entries)


def _is_entry(value: Any) -> bool:
    return type(value) is list and [type(part) for part in value] == [str, int]
