"""Calls of a numbered step that have not come to their end: while there are any, the step does not move on.

A call is written down when it begins and struck out when its key is settled, so whatever happens in between
(an exception that is caught, a result that is data, an interrupt, a task that nobody awaits) leaves it here.
"""

from __future__ import annotations

from typing import NamedTuple

from semel.errors import InFlight


class Unfinished(NamedTuple):
    """One call without a settlement: made again in the same step, it goes on where it stopped."""

    tool: str
    code: str  # how it ended, as its ToolError says; RETRY_IN_FLIGHT while it runs
    record_id: str  # empty if the store never answered
    job_id: str  # the question that waits for a person, or empty
    key: str


class Action(NamedTuple):
    """What identifies a call: another tenant or store may have the same key."""

    store: bytes
    tenant: str
    key: str


class OpenCalls:
    """The unfinished calls of one number of a conversation. Threads and tasks share it."""

    def __init__(self) -> None:
        # Only single operations of a dictionary, so it needs no lock that an interrupt could leave closed.
        self._calls: dict[Action, Unfinished] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def listed(self) -> tuple[Unfinished, ...]:
        return tuple(self._calls.values())

    def begin(self, action: Action, call: Unfinished) -> Unfinished:
        """The entry that this call finishes if it settles its key: an earlier call's, or its own."""
        return self._calls.setdefault(action, call)

    def strike(self, action: Action, entry: Unfinished) -> None:
        """Take this very entry out: one that another call has left since then stays."""
        if self._calls.get(action) is entry:
            self._calls.pop(action, None)

    def settle(self, action: Action) -> None:
        self._calls.pop(action, None)

    def leave(self, action: Action, call: Unfinished) -> None:
        self._calls[action] = call


class Watched:
    """One running call, in the lists of all numbered steps around it."""

    __slots__ = ("_action", "_call", "_entries")

    def __init__(self, lists: tuple[OpenCalls, ...], tool: str, action: Action) -> None:
        self._action = action
        self._call = Unfinished(tool, InFlight.code, "", "", action.key)
        self._entries = [(calls, calls.begin(action, self._call)) for calls in lists]

    def settled(self) -> None:
        """Its answer is on record: it is finished, and with it what earlier calls of its key left."""
        for calls, entry in self._entries:
            calls.strike(self._action, entry)

    def refused(self) -> None:
        """It was turned away for good, which says nothing about earlier calls of its key."""
        for calls, _ in self._entries:
            calls.strike(self._action, self._call)

    def left(self, code: str, record_id: str, job_id: str) -> None:
        for calls, _ in self._entries:
            calls.leave(self._action, self._call._replace(code=code, record_id=record_id, job_id=job_id))
