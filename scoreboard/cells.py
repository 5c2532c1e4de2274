"""What a trial saw, and its colour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from scoreboard.caller import Scene


class Colour(StrEnum):
    KEPT = "kept"  # what the trial looks for was seen
    WEAK = "weak"  # no second effect, but somebody was left without what the trial looks for
    BROKEN = "broken"  # it was promised, and was not seen
    UNPROMISED = "unpromised"  # it was not seen, and nobody promised it
    ABSENT = "absent"  # there is nothing to try: the library or the store has no such side
    MEASURED = "measured"  # a figure


@dataclass(frozen=True)
class Cell:
    colour: Colour
    seen: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """One question, put to every row in the same way. Its text is the docstring of what runs it."""

    name: str
    title: str
    group: str
    text: str
    run: Callable[[Scene], Cell]
    alone: bool = False  # it is timed, so nothing runs beside it

    @property
    def anchor(self) -> str:
        return self.title.lower().replace(" ", "-").replace(",", "").replace("’", "")


# In the order of the page.
GROUPS = (
    "Races",
    "Deaths",
    "Frozen and slow owners",
    "Interrupted owners",
    "Store outages",
    "Answers",
    "Windows and clocks",
    "Figures",
)

TRIALS: list[Trial] = []


def trial(
    title: str, group: str, *, alone: bool = False
) -> Callable[[Callable[[Scene], Cell]], Callable[[Scene], Cell]]:
    def named(run: Callable[[Scene], Cell]) -> Callable[[Scene], Cell]:
        text = " ".join((run.__doc__ or "").split())
        TRIALS.append(Trial(run.__name__.strip("_").replace("_", "-"), title, group, text, run, alone))
        TRIALS.sort(key=lambda each: GROUPS.index(each.group))
        return run

    return named


def kept(seen: str, **facts: Any) -> Cell:
    return Cell(Colour.KEPT, seen, facts)


def weak(seen: str, **facts: Any) -> Cell:
    return Cell(Colour.WEAK, seen, facts)


def broken(seen: str, **facts: Any) -> Cell:
    return Cell(Colour.BROKEN, seen, facts)


def absent(why: str) -> Cell:
    return Cell(Colour.ABSENT, why)


def measured(seen: str, **facts: Any) -> Cell:
    return Cell(Colour.MEASURED, seen, facts)


def answered(answer: Mapping[str, Any] | None) -> str:
    """An answer in a few words."""
    if answer is None:
        return "no answer"
    if "error" in answer:
        return str(answer["error"])
    return "None" if answer.get("value", "").startswith("builtins.NoneType") else "the value"


def effects_and(count: int, *answers: Mapping[str, Any] | None) -> str:
    number = "1 effect" if count == 1 else f"{count} effects"
    words = list(dict.fromkeys(answered(each) for each in answers))
    return f"{number}; then {', '.join(words)}" if words else number


def judged(count: int, answers: Sequence[Mapping[str, Any] | None], **facts: Any) -> Cell:
    """One effect and an answer for everybody is what is looked for after a mishap; any error is an answer."""
    seen = effects_and(count, *answers)
    facts = {"effects": count, "answers": list(answers), **facts}
    if count > 1:
        return broken(seen, **facts)
    if any(each is None for each in answers):
        return weak(seen, **facts)
    return kept(seen, **facts)
