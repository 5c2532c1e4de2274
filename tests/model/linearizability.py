"""Recorded histories, and the decision whether one atomic record could have produced them.

A history is linearizable when its operations can be put into one order that

- respects real time: what ended before something else began comes first, and
- the sequential model accepts, answer by answer.

An operation that was never answered may have taken effect at any time after it began, or never.
Keys are judged one by one: a history is linearizable exactly when its part for every key is.

    recorder = Recorder(directory / "worker-3.jsonl", "worker-3")
    recorder.call("key-1", "claim", ("token-3",), lambda: ask_the_store())
    ...
    verdict = check(History.read(*directory.glob("*.jsonl")), RecordModel())
    assert verdict, str(verdict)
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)
Answer = TypeVar("Answer")

# 128 operations on one record take some hundreds; this many take seconds, and then an error helps more.
EXPLORED_MAX = 200_000


@dataclass(frozen=True, slots=True)
class Op:
    """One question to the store and its answer; arguments and answers are JSON values, lists as tuples."""

    process: str
    name: str
    args: tuple[Any, ...]
    result: Any
    start_ns: int
    end_ns: int | None
    key: str = ""

    def __post_init__(self) -> None:
        if self.end_ns is not None and self.end_ns < self.start_ns:
            raise ValueError(f"{self.process} {self.name}: it ended at {self.end_ns}, before {self.start_ns}")
        # Frozen forbids plain assignment; a history read back must equal the one that was written.
        object.__setattr__(self, "args", _tuples(self.args))
        object.__setattr__(self, "result", _tuples(self.result))

    @property
    def answered(self) -> bool:
        return self.end_ns is not None

    def __str__(self) -> str:
        asked = f"{self.process} {self.name}({', '.join(map(repr, self.args))})"
        return f"{asked} -> {self.result!r}" if self.answered else f"{asked} -> no answer"


def _tuples(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_tuples, value))
    return value


class History(list[Op]):
    """Operations in any order; their times tell which came first."""

    def by_key(self) -> dict[str, History]:
        parts: dict[str, History] = {}
        for op in self:
            parts.setdefault(op.key, History()).append(op)
        return parts

    def write(self, path: Path) -> None:
        """Afterwards `path`, which must not exist yet, holds one operation per line."""
        with path.open("xb") as file:
            file.writelines(_line(number, op) for number, op in enumerate(self))

    @classmethod
    def read(cls, *paths: Path) -> History:
        """The operations of all files; of several lines with one number in one file the last counts."""
        return cls(op for path in paths for op in _ops(path.read_bytes()))


def _line(number: int, op: Op) -> bytes:
    return json.dumps({"number": number, **asdict(op)}).encode() + b"\n"


def _ops(data: bytes) -> Iterable[Op]:
    # What follows the last newline is the line during which its writer was killed: an operation that had not
    # begun yet, or an answer that nobody heard.
    whole_lines = data[: data.rfind(b"\n") + 1].splitlines()
    numbered: dict[int, Op] = {}
    for line in whole_lines:
        fields = json.loads(line)
        number = fields.pop("number")
        numbered[number] = Op(**fields)
    return numbered.values()


class Recorder:
    """Writes down what one client asks and hears, one question at a time, so that kill -9 loses no question.

    A question is in the file, unanswered, before it is asked; its answer is a second line with its number.
    The clock must be one that all recorded processes share, as the monotonic clock of one machine is.
    """

    def __init__(self, path: Path, process: str, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        # Unbuffered: what was written outlives the process. Exclusive: a reused file would mix two clients.
        self._file = path.open("xb", buffering=0)
        self._process = process
        self._clock_ns = clock_ns
        self._number = 0

    def call(self, key: str, name: str, args: tuple[Any, ...], ask: Callable[[], Answer]) -> Answer:
        """What `ask()` answers; if it raises, the operation stays on record as unanswered."""
        self._number += 1
        self._write(Op(self._process, name, args, None, self._clock_ns(), None, key))
        start_ns = self._clock_ns()  # Read again: the write above took time, and a tight interval tells more.
        result = ask()
        end_ns = self._clock_ns()
        self._write(Op(self._process, name, args, result, start_ns, end_ns, key))
        return result

    def _write(self, op: Op) -> None:
        self._file.write(_line(self._number, op))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Model(Protocol[State]):
    """The sequential specification of one key."""

    @property
    def initial(self) -> State: ...

    def step(self, state: State, op: Op) -> State | None:
        """The state after `op`, or None if `op` cannot have been answered so in `state`.

        To an unanswered operation every answer is acceptable.
        """

    def only_reads(self, op: Op) -> bool:
        """True only if `op`, answered as it was, leaves every state as it is. False is always safe."""


class SearchTooLarge(Exception):
    """The history has too many possible orders to be decided."""


@dataclass(frozen=True)
class KeyVerdict:
    """An order for all answered operations of a key, or the longest there is and what cannot follow it."""

    key: str
    order: tuple[Op, ...]
    state: Hashable
    stuck: tuple[Op, ...]

    @property
    def linearizable(self) -> bool:
        return not self.stuck

    def __str__(self) -> str:
        if self.linearizable:
            return f"key {self.key!r}: linearizable, {len(self.order)} operations"
        line = _line_printer(self.order + self.stuck)
        return "\n".join(
            [
                f"key {self.key!r}: not linearizable. The longest order (times in µs):",
                *(line(op) for op in self.order),
                f"  leads to {self.state}, where none can follow of:",
                *(line(op) for op in self.stuck),
            ]
        )


def _line_printer(ops: Iterable[Op]) -> Callable[[Op], str]:
    zero_ns = min(op.start_ns for op in ops)

    def micros(at_ns: int | None) -> str:
        return "?" if at_ns is None else f"{(at_ns - zero_ns) / 1000:.3f}"

    return lambda op: f"  [{micros(op.start_ns):>12} .. {micros(op.end_ns):>12}] {op}"


@dataclass(frozen=True)
class Verdict:
    """True if every key is linearizable; as text it shows the keys that are not."""

    keys: tuple[KeyVerdict, ...]

    @property
    def failures(self) -> tuple[KeyVerdict, ...]:
        return tuple(part for part in self.keys if not part.linearizable)

    def __bool__(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.failures)) or f"linearizable, {len(self.keys)} keys"


def check(history: Iterable[Op], model: Model[Any], explored_max: int = EXPLORED_MAX) -> Verdict:
    """Whether the operations of each key have an order that real time and the model allow.

    Raises SearchTooLarge if a key needs more than `explored_max` points of the search.
    """
    parts = History(history).by_key()
    return Verdict(tuple(_Search(ops, model, explored_max).verdict(key) for key, ops in parts.items()))


@dataclass(frozen=True, slots=True)
class _Point(Generic[State]):
    """Some operations are in order, the last of them `index`; the set bits of `left` are not yet."""

    left: int
    state: State
    index: int
    before: _Point[State] | None


class _Search(Generic[State]):
    """Depth-first through the partial orders, after Wing and Gong, never twice through equal points (Lowe).

    Sets of operations are bits of an integer, in the order of their start.
    """

    def __init__(self, ops: Iterable[Op], model: Model[State], explored_max: int) -> None:
        self._ops = sorted(ops, key=lambda op: op.start_ns)
        self._model = model
        self._explored_max = explored_max
        self._explored = 0
        self._answered = sum(1 << index for index, op in enumerate(self._ops) if op.answered)
        self._ended_before = _ended_before(self._ops)
        self._reads = [op.answered and model.only_reads(op) for op in self._ops]
        self._visited: dict[tuple[int, State], list[int]] = {}

    def verdict(self, key: str) -> KeyVerdict:
        end = self._furthest()
        stuck = tuple(self._ops[index] for index in self._possible(end.left) if self._ops[index].answered)
        return KeyVerdict(key, self._order(end), end.state, stuck)

    def _furthest(self) -> _Point[State]:
        """A point with every answered operation in order, or else one with as many as can be."""
        start = _Point((1 << len(self._ops)) - 1, self._model.initial, -1, None)
        furthest, open_points = start, [start]
        while open_points and furthest.left & self._answered:
            point = open_points.pop()
            self._count()
            if self._is_known(point):
                continue
            furthest = min(furthest, point, key=self._unplaced)
            open_points.extend(self._next(point))
        return furthest

    def _unplaced(self, point: _Point[State]) -> int:
        return (point.left & self._answered).bit_count()

    def _is_known(self, point: _Point[State]) -> bool:
        """True if an earlier point promises at least as much; otherwise this one is remembered.

        Nobody has to place an unanswered operation, so with the same answered ones placed and the same state,
        having more unanswered ones left is never worse.
        """
        unanswered = point.left & ~self._answered
        known = self._visited.setdefault((point.left & self._answered, point.state), [])
        if any(unanswered & ~other == 0 for other in known):
            return True
        known.append(unanswered)
        return False

    def _count(self) -> None:
        self._explored += 1
        if self._explored > self._explored_max:
            raise SearchTooLarge(f"{len(self._ops)} operations, more than {self._explored_max} points")

    def _next(self, point: _Point[State]) -> list[_Point[State]]:
        """The points one operation further, the most promising last."""
        found: list[_Point[State]] = []
        for index in self._possible(point.left):
            state = self._model.step(point.state, self._ops[index])
            if state is None:
                continue
            further = _Point(point.left & ~(1 << index), state, index, point)
            if self._reads[index]:
                return [further]  # Whatever the order, a read that fits now can stand here: no choice.
            found.append(further)
        # What ended first is first in most orders; what was never answered is needed only if all else fails.
        return sorted(found, key=lambda further: self._deadline(further.index), reverse=True)

    def _deadline(self, index: int) -> float:
        end_ns = self._ops[index].end_ns
        return float("inf") if end_ns is None else end_ns

    def _possible(self, left: int) -> Iterator[int]:
        """The operations before which, by real time, no other of `left` has to stand."""
        rest = left
        while rest:
            index = (rest & -rest).bit_length() - 1
            if self._ended_before[index] & left:
                return  # Whatever starts later has to wait for the same one.
            yield index
            rest &= rest - 1

    def _order(self, point: _Point[State]) -> tuple[Op, ...]:
        backwards = []
        while point.before is not None:
            backwards.append(self._ops[point.index])
            point = point.before
        return tuple(reversed(backwards))


def _ended_before(ops: Sequence[Op]) -> list[int]:
    """For each of `ops`, sorted by start, the set of those that had ended when it started.

    An end and a start at the same instant count as overlapping: the clock cannot tell which came first.
    """
    ends = sorted((op.end_ns, index) for index, op in enumerate(ops) if op.end_ns is not None)
    sets, ended, position = [], 0, 0
    for op in ops:
        while position < len(ends) and ends[position][0] < op.start_ns:
            ended |= 1 << ends[position][1]
            position += 1
        sets.append(ended)
    return sets
