"""Ages of retries, kept in the store: one small document for each tool, into which many processes count.

A batch of counts is merged once, however often it is tried: the document remembers the number of the last
batch of each writer, and what was read has to be unchanged when it is written. What the store does not take
now is merged later.

document        id                   index
ages of a tool  ages/<kind>/<name>   ages: 0
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from semel.stores.base import Store
from semel.stores.documents import Capacity, Commit, Committed, Document, Draft, Entry, Fetch, Scan
from semel.windows.ages import Ages, as_data, from_data

log = logging.getLogger("semel")

# Tools of contracts, keys that clients send to a gateway, windows of entities.
TOOL, KEY, ENTITY = "tool", "key", "entity"

INDEX = "ages"

# Tools of one tenant with a document of their own; all others of a kind share one.
TOOLS_MAX = 200
OTHER = "other"

# Writers whose last batch is remembered: more than write between two tries of one of them.
_WRITERS_MAX = 64

# Each try fails only if another writer was quicker, so all of them come to an end.
_TRIES = 100

# What waits for a store that is away: tools of tenants, a few hundred bytes each.
_WAITING_MAX = 1_000

_VERSION = 1


class Subject(NamedTuple):
    """Whose retries are counted together."""

    tenant: str
    kind: str
    name: str


@dataclass(slots=True)
class SubjectAges:
    """What the store keeps of one subject."""

    kind: str
    name: str
    ages: Ages = field(default_factory=Ages)
    written: dict[str, int] = field(default_factory=dict)  # writer, the number of its last batch


class Batch(NamedTuple):
    number: int
    subject: Subject
    ages: Ages


class AgeCounters:
    """Counts that wait to be merged. Used by any thread; a forked child begins a new one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._merging = threading.Lock()
        self._waiting: dict[Subject, Ages] = {}
        self._begun: dict[int, Batch] = {}  # perhaps merged: only the store can tell
        self._writer = ""
        self._number = 0

    def add(self, subject: Subject, ages: Ages) -> None:
        """These are merged soon; beyond a bound they are dropped, if the store stays away."""
        with self._lock:
            if subject in self._waiting or len(self._waiting) < _WAITING_MAX:
                self._waiting.setdefault(subject, Ages()).absorb(ages)

    def merge(self, store: Store, batches_max: int | None = None) -> bool:
        """Whether everything that was added is now in the store, once; what it does not take stays here.

        Batches go in the order of their numbers, and the first that fails ends the round: so the last number
        that a document remembers says that those before it are in it.
        """
        with self._merging:
            self._writer = self._writer or store.clock.token().hex()[:16]
            done = 0
            while (batch := self._next()) is not None:
                if done == batches_max or not self._merged(store, batch):
                    return False
                del self._begun[batch.number]
                done += 1
            return True

    def _next(self) -> Batch | None:
        """The oldest batch. New counts become batches once the old ones are merged: so these are bounded."""
        if not self._begun:
            with self._lock:
                waiting, self._waiting = self._waiting, {}
            for subject, ages in waiting.items():
                self._number += 1
                self._begun[self._number] = Batch(self._number, subject, ages)
        return next(iter(self._begun.values()), None)

    def _merged(self, store: Store, batch: Batch) -> bool:
        """Whether it is in the store, by this try or an earlier one. Raises what the store raises."""
        subject = batch.subject
        for _ in range(_TRIES):
            id_ = _id(subject)
            document = store.ask(Fetch(subject.tenant, (id_,))).documents.get(id_)
            subject_ages = (
                SubjectAges(subject.kind, subject.name) if document is None else _readable(document)
            )
            if subject_ages is None:
                return True
            if subject_ages.written.get(self._writer, 0) >= batch.number:
                return True
            committed = self._write(store, subject, document, subject_ages, batch)
            if committed.done:
                return True
            if committed.full is not None:
                subject = subject._replace(name=OTHER)
        return False

    def _write(
        self,
        store: Store,
        subject: Subject,
        document: Document | None,
        subject_ages: SubjectAges,
        batch: Batch,
    ) -> Committed:
        subject_ages.ages.absorb(batch.ages)
        subject_ages.written.pop(self._writer, None)
        # At the end: the one that wrote longest ago is first.
        subject_ages.written[self._writer] = batch.number
        while len(subject_ages.written) > _WRITERS_MAX:
            del subject_ages.written[next(iter(subject_ages.written))]
        id_ = _id(subject)
        expect: Mapping[str, str | None] = {id_: document.tag if document else None}
        capacity = () if document or subject.name == OTHER else (Capacity(INDEX, TOOLS_MAX),)
        draft = Draft(id_, _body(subject_ages), (Entry(INDEX, 0),))
        return store.ask(
            Commit(subject.tenant, store.clock.token().hex(), expect, (draft,), capacity=capacity)
        )


def read_ages(store: Store, tenant: str) -> list[SubjectAges]:
    """What is kept of the tenant's retries, by kind and name."""
    # Besides those with a document of their own there is one for the others of each kind.
    documents = store.ask(Scan(tenant, INDEX, TOOLS_MAX + len((TOOL, KEY, ENTITY)))).documents
    readable = (_readable(document) for document in documents)
    return [subject_ages for subject_ages in readable if subject_ages is not None]


def _readable(document: Document) -> SubjectAges | None:
    """None if a later version wrote it, or it is damaged: the other documents are read all the same."""
    try:
        return subject_ages_of(document)
    except (ValueError, KeyError, TypeError):
        log.warning("semel: the retry ages in %s cannot be read and are left alone", document.id)
        return None


def subject_ages_of(document: Document) -> SubjectAges:
    data = orjson.loads(document.body)
    if data["version"] != _VERSION:
        raise ValueError(f"retry ages of version {data['version']}")
    return SubjectAges(data["kind"], data["name"], from_data(data), dict(data["written"]))


def _body(subject_ages: SubjectAges) -> bytes:
    data = {
        "version": _VERSION,
        "kind": subject_ages.kind,
        "name": subject_ages.name,
        "written": list(subject_ages.written.items()),
    }
    return orjson.dumps(data | as_data(subject_ages.ages))


def _id(subject: Subject) -> str:
    return f"ages/{subject.kind}/{subject.name}"
