"""Read, decide, commit; and again if something changed in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from semel.audit.events import Event
from semel.errors import StoreUnavailable
from semel.flow.storage import Storage
from semel.flow.values import cut, is_heavy, position_of
from semel.questions.job_index import is_message
from semel.stores import inquiry
from semel.stores.base import Query, Store
from semel.stores.documents import Capacity, Commit, Committed, Document, Draft, Fetch, Scan, Scanned
from semel.stores.inquiry import Inquiry

T = TypeVar("T")

# Of a page, read first: they tell whether the others are large too.
_FIRST = 16


_NONE_SENT: dict[str, float] = {}


class MessagesOnTheirWay(Protocol):
    """Who sends what commits have written (semel.flow.outbox)."""

    def written(self, tenant: str, messages: Sequence[Draft]) -> None:
        """These messages are in the store."""

    def take_along(self, tenant: str) -> dict[str, float]:
        """Ids of messages that were sent, for the tenant's next commit to drop besides."""

    def not_forgotten(self, tenant: str, taken: dict[str, float]) -> None:
        """Those are perhaps not dropped: the commit was refused, or nobody knows."""


class LeftToOthers:
    """Nobody here sends them; `wake(tenant)` hears that there are some."""

    def __init__(self, wake: Callable[[str], None] = lambda _: None) -> None:
        self._wake = wake

    def written(self, tenant: str, messages: Sequence[Draft]) -> None:
        del messages
        self._wake(tenant)

    def take_along(self, tenant: str) -> dict[str, float]:
        del tenant
        return _NONE_SENT

    def not_forgotten(self, tenant: str, taken: dict[str, float]) -> None:
        del tenant, taken


class DocumentStore:
    """The documents of a store, for any tenant. `bytes_max` is how many of them a tenant may keep."""

    def __init__(self, store: Store, bytes_max: int | None = None) -> None:
        self.store = store
        self.storage = Storage(self, bytes_max)
        self.clock = store.clock
        self.messages: MessagesOnTheirWay = LeftToOthers()
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
        by_id: dict[str, Document] = {}
        for index in indexes:
            scanned = await self.scan(Scan(tenant, index, limit, newest=True, after=after))
            by_id.update((document.id, document) for document in scanned.documents)
        return sorted(by_id.values(), key=lambda each: position_of(each, *indexes), reverse=True)[:limit]

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
        # A commit without drafts leaves no tag behind: what it drops is its own business.
        taken = self.messages.take_along(commit.tenant) if commit.put else _NONE_SENT
        committed = await (self._insist(commit) if not taken else self._write_along(commit, taken))
        self._learn(committed.now_us)
        if committed.done and commit.put:
            self.storage.wrote(commit.tenant, commit.put)
            if messages := [draft for draft in commit.put if is_message(draft.id)]:
                self.messages.written(commit.tenant, messages)
        return committed

    async def _write_along(self, commit: Commit, taken: dict[str, float]) -> Committed:
        done = False
        try:
            committed = await self._insist(
                Commit(
                    commit.tenant,
                    commit.tag,
                    commit.expect,
                    commit.put,
                    (*commit.drop, *taken),
                    commit.capacity,
                    commit.events,
                )
            )
            done = committed.done
        finally:
            if not done:
                self.messages.not_forgotten(commit.tenant, taken)
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
        try:
            return await self.store.aask(commit)
        except StoreUnavailable:
            # A reply may be lost together with its connection: the tag makes asking again harmless.
            return await self.store.aask(commit)

    async def ask(self, query: Query[T]) -> T:
        return await self.store.aask(query)

    def _learn(self, store_now_us: int) -> None:
        self._ahead_us = store_now_us - self._monotonic_us()

    def _monotonic_us(self) -> int:
        return int(self.clock.monotonic() * 1_000_000)
