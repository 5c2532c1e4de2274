"""The page, made of the results and of the trials' own texts. The same results give the same page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import scoreboard.trials  # noqa: F401  # they register themselves
from bench.servers import REPOSITORY
from scoreboard.cells import GROUPS, TRIALS, Colour, Trial
from scoreboard.libraries import libraries
from scoreboard.picture import MEANINGS, SIGNS, drawn
from scoreboard.results import FILE, Results, RowResult

PAGE = REPOSITORY / "docs" / "scoreboard.md"
PICTURE = FILE.with_name("scoreboard.svg")
TEXT = Path(__file__).with_name("page.md")

# What stands beside a cell of ours that is not green.
EXPLAINED: dict[tuple[str, str], str] = {}


def write(results: Results) -> None:
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(drawn(results), encoding="utf-8")
    PAGE.write_text(rendered(results), encoding="utf-8")


def rendered(results: Results) -> str:
    parts = {
        "date": results.date,
        "machine": results.machine,
        "again": "".join(f" On {each.date}: {each.part}; {each.machine}." for each in results.again),
        "meanings": "\n".join(f"| {_mark(each, SIGNS[each])} | {MEANINGS[each]} |" for each in MEANINGS),
        "tables": "\n\n".join(_tables(results)),
        "trials": "\n\n".join(_texts()),
        "promises": "\n".join(_promises(results)),
    }
    text = TEXT.read_text(encoding="utf-8")
    for name, part in parts.items():
        text = text.replace(f"<!-- {name} -->", part)
    return text


def _tables(results: Results) -> Iterator[str]:
    for group in GROUPS:
        trials = [each for each in TRIALS if each.group == group]
        if not any(each.name in row.cells for row in results.rows for each in trials):
            yield f"### {group}\n\nNot measured in this run; `make scoreboard` measures them."
            continue
        head = " | ".join(f"[{each.title}](#{each.anchor})" for each in trials)
        lines = [f"### {group}", "", f"| | {head} |", "|---|" + "---|" * len(trials)]
        lines += [
            f"| {_name(row)} | {' | '.join(_cell(row, each) for each in trials)} |" for row in results.rows
        ]
        yield "\n".join(lines)


def _name(row: RowResult) -> str:
    link = f"[{row.library}](../scoreboard/adapters/{row.adapter})"
    return f"{link} {row.version} · {row.store}".replace("  ", " ")


def _cell(row: RowResult, trial: Trial) -> str:
    cell = row.cells.get(trial.name)
    if cell is None:
        return ""
    if cell.colour is Colour.MEASURED:
        return f"[{cell.seen}](#{trial.anchor})"
    shown = f"{_mark(cell.colour, f'[{SIGNS[cell.colour]}](#{trial.anchor})')} {cell.seen}"
    why = EXPLAINED.get((row.library, trial.name))
    return f"{shown} ({why})" if why and cell.colour is not Colour.KEPT else shown


def _mark(colour: Colour, shown: str) -> str:
    """In the colour of the picture where there are styles, and with its sign everywhere."""
    return f'<span class="mark {colour}">{shown}</span>'


def _texts() -> Iterator[str]:
    for each in TRIALS:
        yield f"### {each.title}\n\n{each.text}\n\n`{each.name}`"


def _promises(results: Results) -> Iterator[str]:
    yield "| library | where it says so | trials |"
    yield "|---|---|---|"
    there = {row.library for row in results.rows}
    names = {each.name for each in TRIALS}
    for library in libraries():
        if library.name not in there:
            continue
        for where, trials in library.promises.items():
            named = [each for each in trials if each in names]
            yield f"| {library.name} ({', '.join(library.stores)}) | {where} | {', '.join(named)} |"
