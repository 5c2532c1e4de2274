"""Read, decide, commit; and again if something changed in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from semel.audit.events import Event
from semel.errors import StoreUnavailable
from semel.flow.storage import Storage
from semel.flow.values import cut, is_heavy, position_of
from semel.questions.job_index import OUTBOX
from semel.stores import inquiry
from semel.stores.base import Query, Store
from semel.stores.documents import Capacity, Commit, Committed, Document, Draft, Fetch, Scan, Scanned
from semel.stores.inquiry import Inquiry

T = TypeVar("T")

# Of a page, read first: they tell whether the others are large too.
_FIRST = 16

# A reply may be lost together with its connection: the same commit is asked once more on another.
_TRIES = 2


class DocumentStore:
    """The documents of a store, for any tenant. `bytes_max` is how many of them a tenant may keep."""

    def __init__(self, store: Store, bytes_max: int | None = None) -> None:
        self.store = store
        self.storage = Storage(self, bytes_max)
        self.clock = store.clock
        self.nudge: Callable[[str], None] = lambda _: None  # called when a tenant has something to send
        self._ahead_us: int | None = None  # the store's clock, against the monotonic one here

    async def now_us(self) -> int:
        """By the store's clock, near enough: what depends on it is judged by tags, not by times."""
        if self._ahead_us is None:
            await self.fetch("default")
        assert self._ahead_us is not None
        return self._monotonic_us() + self._ahead_us

    def new_id(self, kind: str) -> str:
        return inquiry.new_id(self.clock, kind)

    async def fetch(self, tenant: str, *ids: str) -> Mapping[str, Document]:
        fetched = await self.ask(Fetch(tenant, ids))
        self._learn(fetched.now_us)
        return fetched.documents

    async def scan(self, query: Scan) -> Scanned:
        scanned = await self.ask(query)
        self._learn(scanned.now_us)
        return scanned

    async def page(
        self, tenant: str, indexes: Sequence[str], limit: int, after: tuple[int, str] | None
    ) -> list[Document]:
        """Part of a list: fewer than were asked for where they are large (semel.flow.values.next_after)."""
        first = await self.newest(tenant, indexes, min(limit, _FIRST), after)
        if len(first) < _FIRST or is_heavy(first) or limit <= _FIRST:
            return cut(first)
        rest_after, left = position_of(first[-1], *indexes), limit - len(first)
        return cut([*first, *await self.newest(tenant, indexes, left, rest_after)])

    async def newest(
        self, tenant: str, indexes: Sequence[str], limit: int, after: tuple[int, str] | None
    ) -> list[Document]:
        """Documents that stand in any of the indexes, newest first, each once.

        The indexes are read in their order: what moves from one to a later one meanwhile is not missed, and
        is told as the later reading has it.
        """
        if len(indexes) == 1:
            return list(
                (await self.scan(Scan(tenant, indexes[0], limit, newest=True, after=after))).documents
            )
        found: dict[str, Document] = {}
        for index in indexes:
            scanned = await self.scan(Scan(tenant, index, limit, newest=True, after=after))
            found.update((document.id, document) for document in scanned.documents)
        return sorted(found.values(), key=lambda each: position_of(each, *indexes), reverse=True)[:limit]

    async def commit(
        self,
        tenant: str,
        expect: Mapping[str, str | None],
        put: tuple[Draft, ...] = (),
        drop: tuple[str, ...] = (),
        capacity: tuple[Capacity, ...] = (),
        tag: str | None = None,
        events: tuple[Event, ...] = (),
    ) -> Committed:
        return await self.write(Commit(tenant, tag or self.new_tag(), expect, put, drop, capacity, events))

    async def write(self, commit: Commit) -> Committed:
        committed = await self._insist(commit)
        self._learn(committed.now_us)
        if committed.done:
            self.storage.wrote(commit.tenant, commit.put)
        if committed.done and any(
            entry.index_name == OUTBOX for draft in commit.put for entry in draft.entries
        ):
            self.nudge(commit.tenant)
        return committed

    async def carry_out(self, queries: Inquiry[T]) -> T:
        """What the generator returns, its queries answered one after the other."""
        answer: Any = None
        while True:
            try:
                query = queries.send(answer)
            except StopIteration as stop:
                result: T = stop.value
                return result
            answer = await (self.write(query) if isinstance(query, Commit) else self.ask(query))

    def new_tag(self) -> str:
        return inquiry.new_tag(self.clock)

    async def _insist(self, commit: Commit) -> Committed:
        for _ in range(_TRIES - 1):
            try:
                return await self.ask(commit)
            except StoreUnavailable:
                pass  # perhaps only the reply was lost; the tag makes asking again harmless
        return await self.ask(commit)

    async def ask(self, query: Query[T]) -> T:
        return await self.store.aask(query)

    def _learn(self, store_now_us: int) -> None:
        self._ahead_us = store_now_us - self._monotonic_us()

    def _monotonic_us(self) -> int:
        return int(self.clock.monotonic() * 1_000_000)
