"""Documents: how runs, jobs, keys and messages of the gateway are kept, and the one step that changes them.

A document is bytes under a tenant and an id. It has a *tag* that changes with every write, and *entries*: the
indexes it stands in, each at a score. What it means is the business of `semel.questions` and `semel.flow`; a
store knows a few things to do with documents, and only one of them writes:

    Commit   if all that was seen still holds and there is capacity, write everything; else write nothing
    Fetch    documents by their ids
    Scan     documents of one index, in the order of (score, id)
    Count    how many documents stand in an index
    Tenants  which tenants have something due in an index
    Weigh    how many bytes a tenant's documents have

So admission is one atomic step on every store: "the key is absent, the workflow is the one I read, fewer than
the limit hold a slot: then key, run, jobs and messages are written". A slot is an entry of the run that holds
it, so the count of slots can not drift from the runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from semel.audit.events import Event
from semel.stores.base import Query


class Entry(NamedTuple):
    """Where a document stands: in an index, at a score (usually microseconds; below 2^53).

    A document stands in an index at most once.
    """

    index_name: str
    score: int


class Document(NamedTuple):
    """What a store keeps. Ids and names of indexes are at most 512 bytes; bodies are any bytes."""

    id: str
    body: bytes
    tag: str
    entries: tuple[Entry, ...] = ()


class Draft(NamedTuple):
    """A document as a commit writes it: it replaces the one with its id, entries included."""

    id: str
    body: bytes
    entries: tuple[Entry, ...] = ()


class Capacity(NamedTuple):
    """A condition: fewer than `limit` documents stand in the index before the commit."""

    index_name: str
    limit: int


@dataclass(frozen=True, slots=True)
class Commit(Query["Committed"]):
    """Writes `put` and removes `drop` if every expectation holds and there is capacity; else nothing.

    `expect` has the tag that the caller has seen of each document, None for one that was absent. All
    expectations are judged before any capacity, so that a repeat is recognised in a full index. `tag` is 16
    fresh bytes as hex: it becomes the tag of every document written, and if the first of `put` carries it
    already, this commit was carried out before and its reply lost: the answer is the same, nothing is written
    again.
    `events` go into the audit log together with the documents, in their order, or not at all.
    """

    tenant: str
    tag: str
    expect: Mapping[str, str | None]
    put: tuple[Draft, ...] = ()
    drop: tuple[str, ...] = ()
    capacity: tuple[Capacity, ...] = ()
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """`done`, or why nothing was written: the documents that are `unexpected`, or what is `full`."""

    done: bool
    now_us: int
    unexpected: Mapping[str, Document | None]
    full: Capacity | None = None
    count: int = 0  # how many stand in the full index


@dataclass(frozen=True, slots=True)
class Fetch(Query["Fetched"]):
    """The documents with these ids, as of one moment."""

    tenant: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Those that exist, by id."""

    now_us: int
    documents: Mapping[str, Document]


@dataclass(frozen=True, slots=True)
class Scan(Query["Scanned"]):
    """Documents of an index, oldest (lowest score, then id) first, or newest first.

    `after` is the (score, id) of the last one seen: it and all before it, in the order of the scan, are left
    out. `upto` leaves out scores above it.
    """

    tenant: str
    index: str
    limit: int
    newest: bool = False
    after: tuple[int, str] | None = None
    upto: int | None = None


@dataclass(frozen=True, slots=True)
class Scanned:
    now_us: int
    documents: Sequence[Document]


@dataclass(frozen=True, slots=True)
class Count(Query[int]):
    tenant: str
    index: str


@dataclass(frozen=True, slots=True)
class Tenants(Query[Sequence[str]]):
    """Tenants with a document in the index at a score of at most `upto`, by the store's clock if None."""

    index: str
    upto: int | None = None


@dataclass(frozen=True, slots=True)
class Weigh(Query[int]):
    """Bytes of the bodies of all documents that the tenant has. It may take long: it looks at each."""

    tenant: str


def score_on(document: Document, index: str) -> int:
    """Where the document stands in the index; it has to stand there."""
    return next(entry.score for entry in document.entries if entry.index_name == index)
