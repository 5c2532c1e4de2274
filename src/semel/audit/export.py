"""The audit log as JSON data: every event, oldest first, and the report of duplicates.

Oldest first, unlike lists of what there is now: an event that is written meanwhile lies ahead of the reader,
not between two pages. A store that is spread over several servers has several histories (*lanes*) that share
no order; they follow one another, each in its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from semel.audit.duplicate_report import Duplicates
from semel.audit.duplicates import CallPair, LateRepeat, LateRepeats, Made, NearRepeats, ToolDuplicates
from semel.audit.events import Event
from semel.audit.pages import BEFORE_ALL, PAGE
from semel.errors import StoreCorrupt
from semel.kernel import answers
from semel.kernel.clock import rfc3339
from semel.kernel.durations import words
from semel.stores.base import ReadEvents, Store


class LogPosition(NamedTuple):
    """After this event of this lane."""

    lane: int
    seq: int


BEGINNING = LogPosition(0, BEFORE_ALL)


class Part(NamedTuple):
    """Some events, and where the next ones are; None at the end."""

    lines: list[answers.EventJson]
    next: LogPosition | None


def part(store: Store, tenant: str | None, after: LogPosition = BEGINNING, limit: int = PAGE) -> Part:
    """The next events, at most so many: of one tenant, or of all."""
    found: list[answers.EventJson] = []
    for lane in range(after.lane, store.lanes):
        seq = after.seq if lane == after.lane else BEFORE_ALL
        wanted = limit - len(found)
        events = store.ask(ReadEvents(seq, wanted, tenant, lane=lane))
        found += [line(event, lane) for event in events]
        if len(events) == wanted:
            return Part(found, LogPosition(lane, events[-1].seq))
    return Part(found, None)


def exported_lines(store: Store, tenant: str | None) -> Iterator[answers.EventJson]:
    """All of them, one part in memory."""
    after: LogPosition | None = BEGINNING
    while after is not None:
        found, after = part(store, tenant, after)
        yield from found


def line(event: Event, lane: int) -> answers.EventJson:
    """One event. `digest` stands for arguments and outcomes, which are in no log."""
    return {
        "lane": lane,
        "seq": event.seq,
        "at": rfc3339(event.at_us),
        "tenant": event.tenant,
        "type": event.kind,
        "scope": event.scope,
        "key": event.key,
        "record_id": event.record_id,
        "state": event.state,
        "fence": event.fence,
        "tool": event.tool,
        "version": event.version,
        "digest": event.digest.hex(),
        "expires_at": rfc3339(event.expires_at),
        "conversation": event.conversation,
        "step": _path(event.step),
        "by": event.by,
        "note": event.note,
        "times": event.times,
    }


def _path(step: str) -> Any:
    try:
        return orjson.loads(step) if step else []
    except orjson.JSONDecodeError as error:
        raise StoreCorrupt("The step of an event is damaged.") from error


def duplicates(found: Duplicates) -> answers.DuplicatesJson:
    """The report, with counts per tool and the first examples of each."""
    return {
        "within": words(found.within_us),
        "calls": found.calls,
        "duplicates": found.count,
        "flooded": found.flooded,
        "tools": [_tool(tool) for tool in found.tools.values()],
        "late_repeats": found.late_count,
        "late_tools": [_late(tool) for tool in found.late.values()],
        "near_repeats": found.near.count,
        "near_tools": [_near(tool) for tool in found.near.tools.values()],
    }


def _tool(found: ToolDuplicates) -> answers.ToolDuplicatesJson:
    return {
        "tool": found.tool,
        "count": found.count,
        "same_conversation": found.same_conversation,
        "meaning": found.meaning,
        "examples": [_pair(pair) for pair in found.examples],
    }


def _late(found: LateRepeats) -> answers.LateRepeatsJson:
    return {
        "tool": found.tool,
        "count": found.count,
        "window": words(found.window_us),
        "covering": words(found.covering_us),
        "meaning": found.meaning,
        "examples": [_late_example(repeat) for repeat in found.examples],
    }


def _late_example(repeat: LateRepeat) -> answers.LateRepeatJson:
    settled_at, closed_at = rfc3339(repeat.settled_us), rfc3339(repeat.closed_us)
    return {"settled_at": settled_at, "closed_at": closed_at, "again": _made(repeat.again)}


def _near(found: NearRepeats) -> answers.NearRepeatsJson:
    return {
        "tool": found.tool,
        "argument": found.argument,
        "count": found.count,
        "meaning": found.meaning,
        "examples": [_pair(pair) for pair in found.examples],
    }


def _pair(pair: CallPair) -> answers.CallPairJson:
    return {"first": _made(pair.first), "second": _made(pair.second)}


def _made(call: Made) -> answers.MadeCallJson:
    return {
        "at": rfc3339(call.at_us),
        "record_id": call.record_id,
        "key": call.key,
        "conversation": call.conversation,
        "step": _path(call.step),
    }
