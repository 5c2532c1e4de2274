"""The picture of docs/figures.md: how far each figure is from its goal, on a logarithmic scale, as SVG.

Everything to the right of the line in the middle is better than its goal, whether the goal is an upper or a
lower bound; what stands twice as far to the right is better by the square. Figures without a goal, and those
measured besides, are left out. The colours are chosen by whoever shows it: light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from bench.figures import BenchReport, Figure

WIDTH = 1000
TOP, ROW, BOTTOM = 64, 24, 40

# From the left: what was done, the scale, what came out beside its goal.
SCALE_LEFT, SCALE_RIGHT = 560, 820
TEXT_RIGHT = WIDTH - 10

# A text of so many letters fits beside the scale; a longer one is cut.
LETTERS_MAX = 84

# The scale goes as far as the farthest figure, and to this at least.
SPAN_MIN = 2.0

_STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .soft { fill: #59636e }
  .band { fill: #f2f4f7 }
  .grid { stroke: #d1d9e0 }
  .goal { stroke: #59636e; stroke-width: 1.5 }
  .reached { fill: #1a7f37; stroke: #1a7f37 }
  .missed { fill: #cf222e; stroke: #cf222e }
  .value { stroke: none !important; font-variant-numeric: tabular-nums }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .soft { fill: #9198a1 }
    .band { fill: #151b23 }
    .grid { stroke: #3d444d }
    .goal { stroke: #9198a1 }
    .reached { fill: #3fb950; stroke: #3fb950 }
    .missed { fill: #f85149; stroke: #f85149 }
  }
"""


def drawn(report: BenchReport) -> str:
    """The picture of a report's figures that have a goal in the plan, in their order."""
    figures = [each for each in report.figures if each.row.goal is not None and not each.row.extra]
    span = _span(figures)
    height = TOP + ROW * len(figures) + BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="How far each figure is from its goal">',
        f"<style>{_STYLE}</style>",
        *_heading(),
        *_grid(span, len(figures)),
        *(line for number, figure in enumerate(figures) for line in _row(number, figure, span)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def better(figure: Figure, value: float) -> float:
    """How many times better than its goal a value of this figure is; below 1 it is worse."""
    goal = figure.row.goal
    assert goal is not None
    return goal.value / value if goal.sense == "≤" else value / goal.value


def _span(figures: list[Figure]) -> float:
    """The scale reaches so many times to both sides: the next power of two around all that is drawn."""
    ends = [better(figure, value) for figure in figures for value in (figure.value, *figure.spread)]
    farthest = max([SPAN_MIN, *(max(end, 1 / end) for end in ends)])
    return float(2 ** math.ceil(math.log2(farthest)))


def _x(times: float, span: float) -> float:
    middle, half = (SCALE_LEFT + SCALE_RIGHT) / 2, (SCALE_RIGHT - SCALE_LEFT) / 2
    return round(middle + half * math.log(times) / math.log(span), 1)


def _heading() -> Iterator[str]:
    yield '<text class="title" x="10" y="24">Figures beside their goals</text>'
    yield _text(
        10, 44, "by hand, bare and rivals in the same run; the bar is the middle half of the rounds", "soft"
    )


def _grid(span: float, rows: int) -> Iterator[str]:
    bottom = TOP + ROW * rows
    steps = int(math.log2(span))
    # No more than five numbers on each side, or they would stand in one another.
    for power in range(-steps, steps + 1, max(1, math.ceil(steps / 2))):
        times = 2.0**power
        x = _x(times, span)
        kind = "goal" if power == 0 else "grid"
        yield f'<line class="{kind}" x1="{x}" y1="{TOP - 4}" x2="{x}" y2="{bottom}"/>'
        label = "goal" if power == 0 else f"{times:g}×" if power > 0 else f"1/{1 / times:g}"
        yield _text(x, bottom + 16, label, "soft", "middle")
    yield _text(SCALE_LEFT, bottom + 32, "← worse", "soft")
    yield _text(SCALE_RIGHT, bottom + 32, "better →", "soft", "end")


def _row(number: int, figure: Figure, span: float) -> Iterator[str]:
    top = TOP + ROW * number
    if number % 2 == 0:
        yield f'<rect class="band" x="0" y="{top}" width="{SCALE_LEFT - 10}" height="{ROW}"/>'
        beside = SCALE_RIGHT + 10
        yield f'<rect class="band" x="{beside}" y="{top}" width="{WIDTH - beside}" height="{ROW}"/>'
    row, middle = figure.row, top + ROW / 2
    assert row.goal is not None
    yield _text(10, middle + 4, _cut(row.work))
    low, high = sorted(_x(better(figure, value), span) for value in figure.spread)
    kind = figure.verdict
    yield f'<line class="{kind}" x1="{low}" y1="{middle}" x2="{high}" y2="{middle}" stroke-width="3"/>'
    yield f'<circle class="{kind}" cx="{_x(better(figure, figure.value), span)}" cy="{middle}" r="5"/>'
    unit = row.unit
    yield _text(SCALE_RIGHT + 95, middle + 4, _short(unit.spelled(figure.value)), f"{kind} value", "end")
    yield _text(
        TEXT_RIGHT, middle + 4, f"{row.goal.sense} {_short(unit.spelled(row.goal.value))}", "soft", "end"
    )


def _short(spelled: str) -> str:
    """The unit is the same for both numbers: "× the rate" is no news beside the work."""
    return spelled.replace(" the rate", "")


def _cut(text: str) -> str:
    for known in (" per second", "guarded ", " with the same rows"):
        text = text.replace(known, "")
    return text if len(text) <= LETTERS_MAX else text[: LETTERS_MAX - 1] + "…"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    where = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x}" y="{y}"{named}{where}>{escape(text)}</text>'
