"""A report as people and programs read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson
from rich.table import Table

from bench.figures import BenchReport, Figure, Row

NOT_COMPARABLE = "Quick run: few rounds, short histories. It shows that all works; its figures mean nothing."
HOW = (
    "Each figure is the median of its rounds. The sides of a comparison take turns, and a ratio is made "
    "within a round."
)
BESIDES = "Measured besides:"


def table(report: BenchReport) -> Table:
    """For a terminal."""
    made = Table(title="Semel, side by side with its yardsticks", caption=_caption(report))
    for heading in ("work", "goal", "here", "middle half", "verdict"):
        made.add_column(heading, justify="left" if heading in ("work", "verdict") else "right")
    for figures in _groups(report):
        for figure in figures:
            cells = _cells(figure, report)
            made.add_row(*cells, style="bold red" if cells[-1] == "missed" else "")
        made.add_section()
    return made


def plain(report: BenchReport) -> str:
    """For a file or a pipe."""
    groups = [[_cells(figure, report) for figure in figures] for figures in _groups(report)]
    rows = [row for group in groups for row in group]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(5)]
    blocks = ["\n".join(_line(row, widths) for row in group) for group in groups]
    return "\n\n".join([*blocks, _caption(report)])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def markdown(report: BenchReport, picture: str | None = None) -> str:
    """What stands between the markers of docs/figures.md; `picture` is a file beside that page."""
    lines = [f"![Each figure beside its goal]({picture})", ""] if picture else []
    for figures in _groups(report):
        if figures[0].row.extra:
            lines += [BESIDES, ""]
        lines += ["| work | goal | here | |", "|---|---|---|---|"]
        for figure in figures:
            work, goal, here, _, verdict = _cells(figure, report)
            lines.append(f"| {work} | {goal} | {here} | {verdict} |")
        lines.append("")
    return "\n".join([*lines, _caption(report, between="\n\n")])


def _groups(report: BenchReport) -> list[list[Figure]]:
    """The figures of the plan, and those besides."""
    groups = ([each for each in report.figures if each.row.extra is extra] for extra in (False, True))
    return [group for group in groups if group]


def data(report: BenchReport) -> dict[str, Any]:
    return {
        "quick": report.quick,
        "comparable": not report.quick,
        "machine": report.machine,
        "figures": [_figure_data(figure, report) for figure in report.figures],
        "did": report.did,
        "left_out": report.left_out,
    }


def as_json(report: BenchReport) -> str:
    return orjson.dumps(data(report), option=orjson.OPT_INDENT_2).decode()


def from_json(runs: Iterable[bytes], rows: Iterable[Row]) -> BenchReport:
    """One report of several runs, in the order of the rows; of a row that was measured twice the last one.

    What a run left out and another one measured is not left out. A row that there is no more is dropped.
    """
    together = BenchReport(False, {})
    rounds: dict[str, tuple[float, ...]] = {}
    for run in map(orjson.loads, runs):
        together.quick |= run["quick"]
        together.machine |= _facts(together.machine, run["machine"])
        together.left_out += [line for line in run["left_out"] if line not in together.left_out]
        together.did |= run["did"]
        rounds |= {figure["row"]: tuple(figure["rounds"]) for figure in run["figures"]}
    together.figures = [Figure(row, rounds[row.name]) for row in rows if row.name in rounds]
    together.left_out = [
        line for line in together.left_out if not any(f"row {name} " in line for name in rounds)
    ]
    return together


def _facts(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Of two runs: what differs is said of both."""
    for name, value in now.items():
        known = before.get(name, value)
        yield name, known if value in known else f"{known}; {value}"


def _figure_data(figure: Figure, report: BenchReport) -> dict[str, Any]:
    row, (low, high) = figure.row, figure.spread
    return {
        "row": row.name,
        "work": row.work,
        "unit": row.unit.value,
        "goal": {"sense": row.goal.sense, "value": row.goal.value} if row.goal else None,
        "leaves_out": row.leaves_out or None,
        "value": figure.value,
        "middle_half": [low, high],
        "rounds": list(figure.rounds),
        "verdict": _verdict(figure, report) or None,
    }


def _cells(figure: Figure, report: BenchReport) -> tuple[str, str, str, str, str]:
    row, (low, high) = figure.row, figure.spread
    unit = row.unit
    goal = f"{row.goal.sense} {unit.spelled(row.goal.value)}" if row.goal else "–"
    spread = f"{unit.spelled(low)} – {unit.spelled(high)}"
    return row.work, goal, unit.spelled(figure.value), spread, _verdict(figure, report)


def _verdict(figure: Figure, report: BenchReport) -> str:
    # What is not comparable is not judged either.
    return "" if report.quick else figure.verdict


def _caption(report: BenchReport, between: str = "\n") -> str:
    facts = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    measured = f"{NOT_COMPARABLE if report.quick else HOW} Measured on: {facts}."
    other_sides = dict.fromkeys(figure.row.leaves_out for figure in report.figures if figure.row.leaves_out)
    return between.join([measured, *other_sides, *report.left_out])
