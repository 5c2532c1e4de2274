"""Documents in memory: the specification. The store's lock is held around every call."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from typing import Any

from semel.audit.events import Event
from semel.kernel.clock import Clock
from semel.stores.documents import (
    Commit,
    Committed,
    Count,
    Document,
    Draft,
    Fetch,
    Fetched,
    Scan,
    Scanned,
    Tenants,
    Weigh,
)

Index = list[tuple[int, str]]


class MemoryDocuments:
    def __init__(self, clock: Clock, note: Callable[[Sequence[Event]], None]) -> None:
        self._clock = clock
        self._note = note  # into the audit log
        self._documents: dict[tuple[str, str], Document] = {}
        self._indexes: dict[tuple[str, str], Index] = {}
        self.answers: dict[type, Callable[[Any], Any]] = {
            Commit: self.commit,
            Fetch: self.fetch,
            Scan: self.scan,
            Count: self.count,
            Tenants: self.tenants,
            Weigh: self.weigh,
        }

    def commit(self, query: Commit) -> Committed:
        now_us = self._clock.now_us()
        if query.put and self._tag(query.tenant, query.put[0].id) == query.tag:
            return Committed(True, now_us, {})
        unexpected = {
            id_: self._documents.get((query.tenant, id_))
            for id_, tag in query.expect.items()
            if self._tag(query.tenant, id_) != tag
        }
        if unexpected:
            return Committed(False, now_us, unexpected)
        for capacity in query.capacity:
            count = len(self._indexes.get((query.tenant, capacity.index_name), ()))
            if count >= capacity.limit:
                return Committed(False, now_us, {}, capacity, count)
        for id_ in query.drop:
            self._remove(query.tenant, id_)
        for draft in query.put:
            self._write(query.tenant, draft, query.tag)
        self._note(query.events)
        return Committed(True, now_us, {})

    def fetch(self, query: Fetch) -> Fetched:
        present = (self._documents.get((query.tenant, id_)) for id_ in query.ids)
        return Fetched(self._clock.now_us(), {document.id: document for document in present if document})

    def scan(self, query: Scan) -> Scanned:
        entries = self._indexes.get((query.tenant, query.index), [])
        documents = [self._documents[query.tenant, id_] for _, id_ in _chosen(entries, query)]
        return Scanned(self._clock.now_us(), documents)

    def count(self, query: Count) -> int:
        return len(self._indexes.get((query.tenant, query.index), ()))

    def weigh(self, query: Weigh) -> int:
        return sum(
            len(document.body) for (tenant, _), document in self._documents.items() if tenant == query.tenant
        )

    def tenants(self, query: Tenants) -> Sequence[str]:
        upto = self._clock.now_us() if query.upto is None else query.upto
        return [
            tenant
            for (tenant, index), entries in self._indexes.items()
            if index == query.index and entries[0][0] <= upto
        ]

    def _tag(self, tenant: str, id_: str) -> str | None:
        document = self._documents.get((tenant, id_))
        return None if document is None else document.tag

    def _write(self, tenant: str, draft: Draft, tag: str) -> None:
        self._remove(tenant, draft.id)
        self._documents[tenant, draft.id] = Document(draft.id, draft.body, tag, draft.entries)
        for entry in draft.entries:
            insort(self._indexes.setdefault((tenant, entry.index_name), []), (entry.score, draft.id))

    def _remove(self, tenant: str, id_: str) -> None:
        document = self._documents.pop((tenant, id_), None)
        for entry in document.entries if document else ():
            entries = self._indexes[tenant, entry.index_name]
            del entries[bisect_left(entries, (entry.score, id_))]
            if not entries:
                del self._indexes[tenant, entry.index_name]


def _chosen(entries: Index, query: Scan) -> Index:
    """The part of the index that the scan covers, in its order."""
    begin, end = 0, len(entries)
    if query.upto is not None:
        end = bisect_left(entries, (query.upto + 1, ""))
    if query.after is not None and query.newest:
        end = min(end, bisect_left(entries, query.after))
    elif query.after is not None:
        begin = bisect_right(entries, query.after)
    if query.newest:
        return entries[max(begin, end - query.limit) : end][::-1]
    return entries[begin : min(end, begin + query.limit)]
