"""Events and records read in pages, so that a report over them may run beside a busy store, at any length."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from semel.audit.events import Event
from semel.kernel.record import Record, State
from semel.stores.base import ListRecords, ReadEvents, Store

# One page is read in milliseconds and takes about a megabyte.
PAGE = 1_000

# Before every event, also before one that somebody added with a number that the store would not give.
BEFORE_ALL = -(1 << 62)

Progress = Callable[[int], None]


def silent(_: int) -> None:
    """Nobody watches."""


def events_after(
    store: Store, after: int, tenant: str | None = None, record_id: str | None = None, lane: int = 0
) -> Iterator[Event]:
    """Events of a lane after a number, to the end, one page in memory."""
    while True:
        page = store.ask(ReadEvents(after, PAGE, tenant, record_id, lane))
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].seq


def events_of(store: Store, tenant: str) -> Iterator[Event]:
    """A tenant's events of all lanes, in the order of their time as far as the lanes' clocks agree."""
    lanes = (events_after(store, BEFORE_ALL, tenant, lane=lane) for lane in range(store.lanes))
    return heapq.merge(*lanes, key=lambda event: event.at_us) if store.lanes > 1 else next(lanes)


def records(store: Store, tenant: str, states: frozenset[State] = frozenset()) -> Iterator[Record]:
    """All records of a tenant, or those in some states, newest first, one page in memory."""
    before = None
    while page := store.ask(ListRecords(tenant, states=states, before=before, limit=PAGE)):
        yield from page
        before = (page[-1].created_at, page[-1].request.id)
