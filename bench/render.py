"""A report as people and programs read it."""

from __future__ import annotations

from typing import Any

import orjson
from rich.table import Table

from bench.figures import BenchReport, Figure

NOT_COMPARABLE = "Quick run: few rounds, short histories. It shows that all works; its figures mean nothing."
HOW = (
    "Each figure is the median of its rounds. The sides of a comparison take turns, and a ratio is made "
    "within a round."
)


def table(report: BenchReport) -> Table:
    """For a terminal."""
    made = Table(title="Semel, side by side with the store by hand", caption=_caption(report))
    for heading in ("work", "goal", "here", "middle half", "verdict"):
        made.add_column(heading, justify="left" if heading in ("work", "verdict") else "right")
    for figure in report.figures:
        cells = _cells(figure, report)
        made.add_row(*cells, style="bold red" if cells[-1] == "missed" else "")
    return made


def plain(report: BenchReport) -> str:
    """For a file or a pipe."""
    rows = [_cells(figure, report) for figure in report.figures]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([*(line.rstrip() for line in lines), "", _caption(report)])


def markdown(report: BenchReport) -> str:
    """The table of docs/figures.md."""
    lines = ["| work | goal | here | |", "|---|---|---|---|"]
    for figure in report.figures:
        work, goal, here, _, verdict = _cells(figure, report)
        lines.append(f"| {work} | {goal} | {here} | {verdict} |")
    return "\n".join([*lines, "", _caption(report)])


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


def _figure_data(figure: Figure, report: BenchReport) -> dict[str, Any]:
    row, (low, high) = figure.row, figure.spread
    return {
        "row": row.name,
        "work": row.work,
        "unit": row.unit.value,
        "goal": {"sense": row.goal.sense, "value": row.goal.value} if row.goal else None,
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


def _caption(report: BenchReport) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    measured = f"{NOT_COMPARABLE if report.quick else HOW} Measured on: {facts}."
    return "\n".join([measured, *report.left_out])
