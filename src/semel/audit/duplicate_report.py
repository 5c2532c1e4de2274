"""The report of calls that took effect more than once although they look like one intention.

It reads a tenant's events and records in pages; what makes two calls look alike is in duplicates.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from semel.audit.duplicates import (
    CallPair,
    CameTwice,
    LateRepeats,
    Near,
    RecentCalls,
    ToolDuplicates,
    claims,
    late_repeats,
    made_by,
)
from semel.audit.events import Event
from semel.audit.pages import Progress, events_of, records, silent
from semel.kernel.durations import Duration, microseconds
from semel.stores.base import Store


@dataclass
class Duplicates:
    """Calls that look like one intention, and took effect more than once."""

    within_us: int
    calls: int = 0
    tools: dict[str, ToolDuplicates] = field(default_factory=dict)
    late: dict[str, LateRepeats] = field(default_factory=dict)  # by tool
    near: Near = field(default_factory=Near)
    flooded: bool = False  # more calls than can be held: some may be unseen

    @property
    def count(self) -> int:
        """With other keys and the same arguments."""
        return sum(tool.count for tool in self.tools.values())

    @property
    def late_count(self) -> int:
        return sum(tool.count for tool in self.late.values())

    @property
    def any(self) -> bool:
        return bool(self.count or self.late_count or self.near.count)


def find_duplicates(
    store: Store, tenant: str, *, within: Duration = "60s", progress: Progress = silent
) -> Duplicates:
    """Of a tenant: calls with other keys but the same tool and arguments as one shortly before; keys that
    came again after their window; calls of one step that differ in one argument only."""
    report = Duplicates(microseconds(within, "within"))
    held, twice, number = RecentCalls(report.within_us), CameTwice(), 0
    for number, event in enumerate(events_of(store, tenant), 1):
        progress(number)
        if not claims(event):
            continue
        report.calls += 1
        twice.claimed(event.key)
        made = made_by(event)
        earlier = held.other_key(event.tool, event.digest, made)
        if earlier is not None:
            report.tools.setdefault(event.tool, ToolDuplicates(event.tool)).add(CallPair(earlier, made))
    report.late = _late(store, tenant, twice.keys, progress, number)
    for count, record in enumerate(records(store, tenant), number):
        progress(count)
        report.near.add(record)
    report.flooded = held.flooded or twice.flooded or report.near.flooded
    return report


def late_by_tool(store: Store, tenant: str, progress: Progress = silent) -> dict[str, LateRepeats]:
    """Keys of the tenant that came again after their window, by tool."""
    twice, number = CameTwice(), 0
    for number, event in enumerate(events_of(store, tenant), 1):
        progress(number)
        if claims(event):
            twice.claimed(event.key)
    return _late(store, tenant, twice.keys, progress, number)


def _late(
    store: Store, tenant: str, keys: set[str], progress: Progress, number: int
) -> dict[str, LateRepeats]:
    """If keys came twice the log is read again, for what settled them before."""
    tools: dict[str, LateRepeats] = {}
    if not keys:
        return tools
    for repeat in late_repeats(_counted(events_of(store, tenant), progress, number), keys):
        tools.setdefault(repeat.tool, LateRepeats(repeat.tool)).add(repeat)
    return tools


def _counted(events: Iterable[Event], progress: Progress, number: int) -> Iterator[Event]:
    for count, event in enumerate(events, number):
        progress(count)
        yield event
