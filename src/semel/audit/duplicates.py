"""Calls that look like one intention under several keys, or under one key twice: gathered one by one.

    equal arguments, other keys, within seconds         the key was made in the wrong place
    one key, claimed again after its window             the window was too short
    one step, one tool, keys that differ in one         probably free text that is missing from `ignore`
    argument only

Pure: who reads events and records hands them over in their order. What is held is bounded; where that was too
little, `flooded` says so.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic_core import from_json

from semel.audit.events import ASKED, CLAIMED, RESOLVED, SETTLED, Event
from semel.kernel.durations import words
from semel.kernel.record import OF_HTTP, OF_TOOL, Record, State
from semel.ledger.records import terms
from semel.windows.ages import Ages, covering_us

# Whoever reads the report looks at the first ones; the count says how many there are.
EXAMPLES = 20

# Calls that are held at once. More within seconds, or of keys that came twice, is a flood, not a retry.
HELD_MAX = 200_000

# One bit for each key that came: 8 MiB, of which ten million keys fill a seventh.
_BITS = 1 << 26

# Calls with more arguments than this are not compared.
_ARGUMENTS_MAX = 64

# As fields of models are named.
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]{0,63}")

# Only these took effect, or may have: a call that failed may be made again with another argument.
_EFFECTIVE = frozenset((State.PENDING, State.IN_DOUBT, State.WAITING, State.DONE, State.PARTIAL))

# Of a request over HTTP the caller is part of what tells it apart, so two callers are no duplicate.
_SCOPES = (OF_TOOL, OF_HTTP)


class Made(NamedTuple):
    """One call that claimed a key."""

    at_us: int
    key: str
    record_id: str
    conversation: str
    step: str


class CallPair(NamedTuple):
    """Two calls of one tool that look like one intention, in the order in which they were made."""

    first: Made
    second: Made


def claims(event: Event) -> bool:
    """Whether the key of a tool or request was claimed."""
    return event.scope in _SCOPES and event.kind in (CLAIMED, ASKED)


def made_by(event: Event) -> Made:
    return Made(event.at_us, event.key, event.record_id, event.conversation, event.step)


# --- equal arguments, other keys ------------------------------------------------------------------


@dataclass
class ToolDuplicates:
    """The suspicious calls of one tool: how many, from where, and the first of them."""

    tool: str
    count: int = 0
    same_conversation: int = 0
    examples: list[CallPair] = field(default_factory=list)

    @property
    def meaning(self) -> str:
        """What it usually is."""
        if self.same_conversation * 2 >= self.count:
            return (
                "One conversation, several steps: the step is probably named anew on every attempt. Name it "
                "from the state of whoever decides to retry, outside the loop that retries."
            )
        return (
            "Several conversations: the conversation's id is probably made anew on every attempt, or two "
            "callers really meant the same thing. Take the id from the request, not from whoever serves it."
        )

    def add(self, pair: CallPair) -> None:
        self.count += 1
        self.same_conversation += pair.first.conversation == pair.second.conversation
        if len(self.examples) < EXAMPLES:
            self.examples.append(pair)


class RecentCalls:
    """The newest call of each tool and arguments, as long as it is recent."""

    def __init__(self, within_us: int) -> None:
        self._within_us = within_us
        self._newest: dict[tuple[str, bytes], Made] = {}
        self._order: deque[tuple[tuple[str, bytes], Made]] = deque()
        self.flooded = False

    def other_key(self, tool: str, digest: bytes, made: Made) -> Made | None:
        """The recent call with another key, if there is one; `made` takes its place."""
        self._forget(made.at_us)
        action = (tool, digest)
        earlier = self._newest.get(action)
        self._newest[action] = made
        self._order.append((action, made))
        return earlier if earlier is not None and earlier.key != made.key else None

    def _forget(self, now_us: int) -> None:
        while self._order:
            action, oldest = self._order[0]
            full = len(self._order) >= HELD_MAX
            recent = now_us - oldest.at_us <= self._within_us
            if recent and not full:
                return
            self.flooded |= recent
            self._order.popleft()
            if self._newest.get(action) is oldest:
                del self._newest[action]


# --- one key, after its window --------------------------------------------------------------------


class LateRepeat(NamedTuple):
    """A key that was claimed again once its window had closed: the tool ran again."""

    tool: str
    settled_us: int
    closed_us: int
    again: Made

    @property
    def window_us(self) -> int:
        return self.closed_us - self.settled_us


@dataclass
class LateRepeats:
    """Those of one tool."""

    tool: str
    count: int = 0
    window_us: int = 0  # that the last of them came too late for
    ages: Ages = field(default_factory=Ages)
    examples: list[LateRepeat] = field(default_factory=list)

    @property
    def covering_us(self) -> int:
        """A window that would have recognised all of them."""
        return covering_us(self.ages.counts, 1_000)

    @property
    def meaning(self) -> str:
        return (
            f"The window of {words(self.window_us)} was over, so each of them was a new action. If they were "
            f"retries, the window was too short: {words(self.covering_us)} would have covered all of them."
        )

    def add(self, repeat: LateRepeat) -> None:
        self.count += 1
        self.window_us = repeat.window_us
        self.ages.saw([repeat.again.at_us], repeat.settled_us)
        if len(self.examples) < EXAMPLES:
            self.examples.append(repeat)


class CameTwice:
    """Keys that were claimed more than once, as the first reading of the log finds them.

    A key is a bit of a table, so some that came once are among them; none that came twice is missing.
    """

    def __init__(self) -> None:
        self._bits = bytearray(_BITS // 8)
        self.keys: set[str] = set()
        self.flooded = False

    def claimed(self, key: str) -> None:
        bit_number = hash(key) % _BITS
        byte, bit = bit_number >> 3, 1 << (bit_number & 7)
        if not self._bits[byte] & bit:
            self._bits[byte] |= bit
        elif len(self.keys) < HELD_MAX:
            self.keys.add(key)
        else:
            self.flooded = True


def late_repeats(events: Iterable[Event], keys: set[str]) -> Iterator[LateRepeat]:
    """Of these keys those that were claimed after the window of an earlier settlement, in the log's order."""
    settled: dict[str, tuple[int, int]] = {}
    for event in events:
        if event.scope not in _SCOPES or event.key not in keys:
            continue
        if event.kind == SETTLED or (event.kind == RESOLVED and event.state == State.DONE):
            if event.expires_at is not None:
                settled[event.key] = event.at_us, event.expires_at
        elif claims(event):
            settled_us, closed_us = settled.pop(event.key, (0, event.at_us + 1))
            if closed_us <= event.at_us:
                yield LateRepeat(event.tool, settled_us, closed_us, made_by(event))


# --- one step, one argument -----------------------------------------------------------------------


@dataclass
class NearRepeats:
    """Calls of one tool in one step whose arguments differ in this one only."""

    tool: str
    argument: str
    count: int = 0
    examples: list[CallPair] = field(default_factory=list)

    @property
    def meaning(self) -> str:
        return (
            f"In one step, equal but for {self.argument!r}, so each was an action of its own. If that is "
            f"text which a model writes anew on every attempt, say ignore=({self.argument!r},); if each was "
            "meant, all is well."
        )

    def add(self, pair: CallPair) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(pair)


class _Without(NamedTuple):
    """A call but for one of its arguments."""

    conversation: str
    step: str
    tool: str
    argument: str
    others: bytes


class Near:
    """Calls as their records tell them, each compared with those before it."""

    def __init__(self) -> None:
        self._held: dict[_Without, tuple[Made, bytes]] = {}
        self.tools: dict[tuple[str, str], NearRepeats] = {}
        self.flooded = False

    @property
    def count(self) -> int:
        return sum(each.count for each in self.tools.values())

    def add(self, record: Record) -> None:
        request = record.request
        if request.at.scope != OF_TOOL or not request.conversation or record.state not in _EFFECTIVE:
            return
        made = Made(record.created_at, request.at.key, request.id, request.conversation, request.step)
        for without, value in _but_for_one(record):
            earlier = self._held.get(without)
            if earlier is None:
                self._hold(without, made, value)
            elif earlier[1] != value and earlier[0].key != made.key:
                self._add_pair(request.tool, without.argument, earlier[0], made)

    def _add_pair(self, tool: str, argument: str, one: Made, other: Made) -> None:
        first, second = sorted((one, other))
        near = self.tools.setdefault((tool, argument), NearRepeats(tool, argument))
        near.add(CallPair(first, second))

    def _hold(self, without: _Without, made: Made, value: bytes) -> None:
        if len(self._held) >= HELD_MAX:
            # Calls of one step are made soon after one another: the oldest are the least needed.
            del self._held[next(iter(self._held))]
            self.flooded = True
        self._held[without] = made, value


def _but_for_one(record: Record) -> Iterator[tuple[_Without, bytes]]:
    """The call without one of its arguments, and that argument's digest: for each that is not ignored."""
    request = record.request
    arguments = _less(from_json(request.arguments), terms(record).get("ignore", ()))
    if not isinstance(arguments, dict):
        return
    by_path = dict(_members(arguments))
    if not 1 < len(by_path) <= _ARGUMENTS_MAX:
        return  # with one argument there is no other that could be equal
    digests = {name: _digest(value) for name, value in by_path.items()}
    for name, digest in digests.items():
        others = hashlib.sha256(request.version.partition(".")[0].encode())
        for other in sorted(digests.keys() - {name}):
            others.update(_digest(other) + digests[other])
        yield _Without(request.conversation, request.step, request.tool, name, others.digest()[:16]), digest


def _members(arguments: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Each value by its path, as `ignore` takes it. What callers name as they like is one value."""
    for name, value in arguments.items():
        if isinstance(value, Mapping) and value and all(map(_NAME.fullmatch, value)):
            yield from _members(value, f"{before}{name}.")
        else:
            yield before + name, value


def _less(arguments: Any, ignored: Iterable[str]) -> Any:
    """The arguments without those that the contract ignores; a path with dots leads inside of one."""
    for path in ignored:
        arguments = _dropped(arguments, path.split("."))
    return arguments


def _dropped(value: Any, path: list[str]) -> Any:
    if not isinstance(value, Mapping) or path[0] not in value:
        return value
    rest = {name: each for name, each in value.items() if name != path[0]}
    return rest if len(path) == 1 else rest | {path[0]: _dropped(value[path[0]], path[1:])}


def _digest(value: Any) -> bytes:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()[:16]
