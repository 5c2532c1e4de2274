"""Handlers of the audit log: its events, and calls that look like one intention under several keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from semel.audit import duplicate_report, export
from semel.audit.backwards import part_before
from semel.audit.export import BEGINNING, LogPosition, Part
from semel.audit.heads import ChainHead, heads
from semel.flow.problems import Refused
from semel.flow.values import Page
from semel.gateway.bodies import DuplicatesQuery, EventsQuery
from semel.gateway.exchange import Exchange, HttpReply, Listed, data
from semel.gateway.incoming import Disconnected
from semel.gateway.services import Services
from semel.kernel.answers import DuplicatesJson, EventJson


async def list_events(call: Exchange) -> Listed[EventJson]:
    query: EventsQuery = call.query
    read: Callable[..., Part] = export.part
    position = _position(call)
    if query.order == "newest":
        read = part_before
    elif position is None:
        position = BEGINNING
    part = await asyncio.to_thread(read, call.services.store, call.tenant, position, query.limit)
    after = None if part.next is None else (part.next.seq, str(part.next.lane))
    return call.page(Page(part.lines, after))


def _position(call: Exchange) -> LogPosition | None:
    after = call.after()
    return None if after is None else LogPosition(int(after[1]), after[0])


async def chain_heads(services: Services) -> list[ChainHead]:
    """How far the chain of the whole store reaches; of the events after it only how many there are."""
    return await asyncio.to_thread(heads, services.store)


async def find_duplicates(call: Exchange) -> HttpReply[DuplicatesJson]:
    """The report over the whole log: on a thread, which ends early when nobody waits for it any more."""
    query: DuplicatesQuery = call.query
    async with watching(call) as look:
        report = await asyncio.to_thread(
            duplicate_report.find_duplicates,
            call.services.store,
            call.tenant,
            within=query.within,
            progress=look,
        )
    return data(export.duplicates(report))


@asynccontextmanager
async def watching(call: Exchange) -> AsyncIterator[Callable[[int], None]]:
    """For work on a thread, to call now and then: it raises once nobody waits, or the gateway stops."""
    gone = asyncio.ensure_future(call.request.gone())

    def look(_: int) -> None:
        if gone.done():
            raise Disconnected
        if call.services.stopping.is_set():
            raise Refused("store_unavailable", "The gateway stops; ask another one, or later.")

    try:
        yield look
    finally:
        gone.cancel()
