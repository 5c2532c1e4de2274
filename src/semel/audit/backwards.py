"""The audit log from its end, for people: what happened last comes first.

Stores read events forwards only. Their numbers have few gaps, so the end is found by halving, and a part is
read as short pieces, each before the other. A part looks at so many numbers and no more, however few of them
are the tenant's: so it takes as long at a million events as at a thousand.
"""

from __future__ import annotations

from semel.audit.export import LogPosition, Part, line
from semel.audit.pages import BEFORE_ALL, PAGE
from semel.kernel.answers import EventJson
from semel.stores.base import ReadEvents, Store

# Numbers that one part looks at, and those that one read does.
LOOKED_AT = 2_000
_PIECE = 200


def part_before(store: Store, tenant: str | None, before: LogPosition | None, limit: int) -> Part:
    """The last events before this one, newest first, at most so many: of one tenant, or of all.

    Lanes follow one another, as they do in an export.
    """
    lines: list[EventJson] = []
    looked_at = 0
    for lane in range(before.lane if before else 0, store.lanes):
        first = store.ask(ReadEvents(BEFORE_ALL, 1, lane=lane))
        if not first:
            continue
        here = before is not None and lane == before.lane
        last = before.seq - 1 if before and here else _newest(store, lane, first[0].seq)
        while last >= first[0].seq:
            if looked_at >= LOOKED_AT:
                return Part(lines, LogPosition(lane, last + 1))
            piece = store.ask(ReadEvents(last - _PIECE, _PIECE, lane=lane))
            for event in reversed(piece):
                if event.seq <= last and tenant in (None, event.tenant):
                    lines.append(line(event, lane))
                    if len(lines) == limit:
                        return Part(lines, LogPosition(lane, event.seq))
            last -= _PIECE
            looked_at += _PIECE
    return Part(lines, None)


def _newest(store: Store, lane: int, first: int) -> int:
    """The number of the newest event, in a few reads more for twice as many events."""
    low, step = first, PAGE
    while store.ask(ReadEvents(low + step, 1, lane=lane)):
        low, step = low + step, step * 2
    while step > PAGE:
        step //= 2
        if store.ask(ReadEvents(low + step, 1, lane=lane)):
            low += step
    last = store.ask(ReadEvents(low, PAGE, lane=lane))
    return last[-1].seq if last else low
