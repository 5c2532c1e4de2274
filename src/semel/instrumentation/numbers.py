"""How often each tool of this process was called, how it ended and how long it took, as plain numbers.

A call adds to them, and whoever shows them pays for the form: so they are kept whether or not anybody looks.
An addition is one step of the interpreter, which no other thread of CPython comes in between.
"""

from __future__ import annotations

import os
import re
import weakref
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Protocol

from semel import errors
from semel.kernel.clock import SYSTEM

DONE, REPLAYED = "done", "replayed"

# It may have happened, and nobody can tell by itself.
DOUBT = frozenset((errors.UpstreamUnavailable.code, errors.OutcomeUnknown.code, errors.OwnershipLost.code))

# Shown of a recorded tool from its first call on, if only as 0: an alert on growth does not see the first one
# of a series that was not there before.
_ALWAYS_SHOWN = (DONE, REPLAYED, *sorted(DOUBT))

# From a claim in memory to the longest that a tool may run by default, 15 minutes.
CALL_SECONDS = (
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1, 2.5, 5, 10, 30, 60, 300, 900,
)  # fmt: skip

# From an HTTP client's second attempt to the longest window by default, 90 days.
AGE_SECONDS = (1, 10, 60, 600, 3_600, 21_600, 86_400, 259_200, 604_800, 2_592_000, 7_776_000)

STAGES = ("claim", "tool", "settle")

# Tools with numbers of their own: the first ones called, because each is some eighty series. All others share
# one.
TOOLS_MAX = 200
OTHER = "other"

# Codes that a tool makes up itself and that are shown: the first ones. All others count as EFFECT_FAILED.
CODES_MAX = 20

# How many calls of a tool are measured without anybody looking, and for how long after somebody looked: twice
# as long as Prometheus takes a series for alive.
UNSEEN_MAX = 1_000
_SEEN_FOR_S = 600.0

_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


class Distribution:
    """How many were at most each bound, and what they come to."""

    __slots__ = ("counts", "created_s", "total")

    def __init__(self, bounds: int, created_s: float) -> None:
        self.counts = [0] * (bounds + 1)  # the last: above every bound
        self.total = 0.0
        self.created_s = created_s


class _Display:
    """Whether somebody shows the numbers."""

    on = False


_display = _Display()


class ToolNumbers:
    """What became of the calls of one tool, in this process.

    Every call is counted. How long it takes is measured while somebody looks: that costs twenty times what
    counting does, and most programs in which prometheus-client is installed are never scraped.
    """

    __slots__ = (
        "_seen_at",
        "_unseen",
        "ages",
        "answers",
        "codes",
        "created_s",
        "done",
        "measured",
        "recorded",
        "replayed",
        "stages",
    )

    def __init__(self) -> None:
        self.recorded = False  # whether it is of a tool that keeps records
        self.reset()

    def reset(self) -> None:
        """Nothing was counted, as in a forked child: its parent shows what the parent counted."""
        self.created_s = SYSTEM.now_us() / 1e6
        self.done = self.replayed = 0
        self.measured = _display.on
        self._unseen = 0  # how many calls were measured since somebody looked
        self._seen_at: float | None = None
        self.answers: dict[str, int] = {}  # any other answer
        self.codes: set[str] = set()  # those among them that are the tool's own
        self.stages = tuple(Distribution(len(CALL_SECONDS), self.created_s) for _ in STAGES)
        self.ages = Distribution(len(AGE_SECONDS), self.created_s)

    def seen(self) -> None:
        """Somebody looks."""
        self._seen_at, self._unseen = SYSTEM.monotonic(), 0
        self.measured = _display.on

    def _rest(self) -> None:
        """Nobody has looked for many calls. If nobody has for long either, they are measured no more."""
        self._unseen = 0
        self.measured = self._seen_at is not None and SYSTEM.monotonic() - self._seen_at < _SEEN_FOR_S

    def performed(self, claim_s: float, tool_s: float, settle_s: float) -> None:
        """A call ran and is on record. Written out, because every call comes by here."""
        self.done += 1
        claim, tool, settle = self.stages
        claim.counts[bisect_left(CALL_SECONDS, claim_s)] += 1
        claim.total += claim_s
        tool.counts[bisect_left(CALL_SECONDS, tool_s)] += 1
        tool.total += tool_s
        settle.counts[bisect_left(CALL_SECONDS, settle_s)] += 1
        settle.total += settle_s
        self._unseen += 1
        if self._unseen >= UNSEEN_MAX:
            self._rest()

    def ran(self, tool_s: float) -> None:
        """A call ran, of a tool that keeps no record."""
        self.done += 1
        tool = self.stages[1]
        tool.counts[bisect_left(CALL_SECONDS, tool_s)] += 1
        tool.total += tool_s
        self._unseen += 1
        if self._unseen >= UNSEEN_MAX:
            self._rest()

    def answered(self, answer: str, stages_s: Sequence[float | None]) -> None:
        """A call ended otherwise; None stands for a stage that it did not come to."""
        if answer == DONE:
            self.done += 1
        elif answer == REPLAYED:
            self.replayed += 1
        else:
            self.answers.setdefault(answer, 0)
            self.answers[answer] += 1
        for stage, seconds in zip(self.stages, stages_s, strict=True):
            if seconds is not None:
                stage.counts[bisect_left(CALL_SECONDS, seconds)] += 1
                stage.total += seconds

    def retried(self, times_us: Sequence[int], since_us: int) -> None:
        """Calls at these times read what was settled then."""
        ages, first = self.ages, _age_bound(min(times_us) - since_us)
        if first == _age_bound(max(times_us) - since_us):
            ages.counts[first] += len(times_us)
        else:
            for time_us in times_us:
                ages.counts[_age_bound(time_us - since_us)] += 1
        ages.total += sum(max(0, time_us - since_us) for time_us in times_us) / 1e6

    def every_answer(self) -> list[tuple[str, int]]:
        """How often each was given."""
        answers = dict.fromkeys(_ALWAYS_SHOWN if self.recorded else (DONE,), 0)
        answers |= self.answers
        answers[DONE] = self.done
        if self.replayed:
            answers[REPLAYED] = self.replayed
        return list(answers.items())

    def shows(self, code: object) -> bool:
        """Whether the code is ours, or was shown before."""
        return isinstance(code, str) and (code in errors.BY_CODE or code in _OF_OURS or code in self.codes)

    def shown(self, code: object, secrets: Iterable[str] | None) -> str:
        """A code of the tool's own as it is shown: bounded in number and form, and without secrets.

        Where nobody knows what those are (None) it is not shown.
        """
        if (
            secrets is None
            or not isinstance(code, str)
            or not _CODE.fullmatch(code)
            or any(secret in code for secret in secrets)
            or len(self.codes) >= CODES_MAX
        ):
            return errors.EffectFailed.code
        self.codes.add(code)
        return code


_OF_OURS = frozenset((errors.ContractError.code, errors.StepError.code, errors.SemelError.code))


def _age_bound(age_us: int) -> int:
    return bisect_left(AGE_SECONDS, max(0, age_us) / 1e6)


# Of a tool that was not called yet.
UNUSED = ToolNumbers()


class Uncounted(Protocol):
    """Counts some of it later, in batches."""

    def count(self) -> None:
        """Nothing is left to be counted."""


# Not a set: another thread may add to it while this one reads.
_uncounted: weakref.WeakValueDictionary[int, Uncounted] = weakref.WeakValueDictionary()

_tools: dict[str, ToolNumbers] = {}


def numbers_of(tool: str, *, recorded: bool) -> ToolNumbers:
    """The numbers of the tools of this name."""
    numbers = _tools.get(tool)
    if numbers is None:
        numbers = _tools.setdefault(tool if len(_tools) < TOOLS_MAX else OTHER, ToolNumbers())
    numbers.recorded = numbers.recorded or recorded
    return numbers


def count_later(uncounted: Uncounted) -> None:
    """It is asked to count before somebody looks."""
    _uncounted[id(uncounted)] = uncounted


def show(yes: bool) -> None:
    """Somebody shows the numbers from here on, or nobody does."""
    _display.on = yes
    for numbers in list(_tools.values()):
        numbers.measured = yes


def are_shown() -> bool:
    return _display.on


def tool_label(tool: str) -> str:
    """The tool's name, if it is among those that have numbers of their own."""
    return tool if tool in _tools else OTHER


def every_tool() -> list[tuple[str, ToolNumbers]]:
    """All of them, with everything counted, for somebody who looks."""
    for reference in _uncounted.valuerefs():
        if (counters := reference()) is not None:
            counters.count()
    for numbers in list(_tools.values()):
        numbers.seen()
    return sorted(_tools.items())


def _in_child() -> None:
    for numbers in list(_tools.values()):
        numbers.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
