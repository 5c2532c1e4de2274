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
    lines: list[answers.EventJson] = []
    for lane in range(after.lane, store.lanes):
        seq = after.seq if lane == after.lane else BEFORE_ALL
        missing = limit - len(lines)
        events = store.ask(ReadEvents(seq, missing, tenant, lane=lane))
        lines += [line(event, lane) for event in events]
        if len(events) == missing:
            return Part(lines, LogPosition(lane, events[-1].seq))
    return Part(lines, None)


def exported_lines(store: Store, tenant: str | None) -> Iterator[answers.EventJson]:
    """All of them, one part in memory."""
    after: LogPosition | None = BEGINNING
    while after is not None:
        lines, after = part(store, tenant, after)
        yield from lines


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


def duplicates(report: Duplicates) -> answers.DuplicatesJson:
    """The report, with counts per tool and the first examples of each."""
    return {
        "within": words(report.within_us),
        "calls": report.calls,
        "duplicates": report.count,
        "flooded": report.flooded,
        "tools": [_tool(tool) for tool in report.tools.values()],
        "late_repeats": report.late_count,
        "late_tools": [_late(tool) for tool in report.late.values()],
        "near_repeats": report.near.count,
        "near_tools": [_near(tool) for tool in report.near.tools.values()],
    }


def _tool(repeats: ToolDuplicates) -> answers.ToolDuplicatesJson:
    return {
        "tool": repeats.tool,
        "count": repeats.count,
        "same_conversation": repeats.same_conversation,
        "meaning": repeats.meaning,
        "examples": [_pair(pair) for pair in repeats.examples],
    }


def _late(repeats: LateRepeats) -> answers.LateRepeatsJson:
    return {
        "tool": repeats.tool,
        "count": repeats.count,
        "window": words(repeats.window_us),
        "covering": words(repeats.covering_us),
        "meaning": repeats.meaning,
        "examples": [_late_example(repeat) for repeat in repeats.examples],
    }


def _late_example(repeat: LateRepeat) -> answers.LateRepeatJson:
    settled_at, closed_at = rfc3339(repeat.settled_us), rfc3339(repeat.closed_us)
    return {"settled_at": settled_at, "closed_at": closed_at, "again": _made(repeat.again)}


def _near(repeats: NearRepeats) -> answers.NearRepeatsJson:
    return {
        "tool": repeats.tool,
        "argument": repeats.argument,
        "count": repeats.count,
        "meaning": repeats.meaning,
        "examples": [_pair(pair) for pair in repeats.examples],
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
