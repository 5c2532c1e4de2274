"""The picture of docs/operate/scale.md: how long calls take as a fleet calls more, on logarithmic scales."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 900, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 620, 50, 400

_STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .soft { fill: #59636e }
  .grid { stroke: #d1d9e0 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .soft { fill: #9198a1 }
    .grid { stroke: #3d444d }
  }
"""
# Readable on light and dark.
_COLOURS = ("#1a7f37", "#cf222e", "#e16f24", "#0969da", "#8250df", "#bf3989")


class Line(NamedTuple):
    """A store: what it takes at each load, and where calls begin to wait for each other."""

    title: str
    points: tuple[tuple[float, float], ...]  # calls a second, milliseconds
    knee: int  # which of the points


def drawn(lines: Sequence[Line]) -> str:
    every = [point for line in lines for point in line.points]
    x, y = (
        _Scale.around([a for a, _ in every], LEFT, RIGHT),
        _Scale.around([b for _, b in every], BOTTOM, TOP),
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="Time of 99 of 100 calls at the store, by calls a second">',
        f"<style>{_STYLE}</style>",
        _text(10, 24, "99 of 100 calls take at most so long at the store, tools not counted", "title"),
        *_grid(x, y),
        *(part for number, line in enumerate(lines) for part in _curve(number, line, x, y)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Scale(NamedTuple):
    """Powers of ten from one end of the paper to the other."""

    first: int
    last: int
    start: float
    end: float

    @classmethod
    def around(cls, values: Sequence[float], start: float, end: float) -> _Scale:
        return cls(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))), start, end)

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.first) / (self.last - self.first)
        return round(self.start + share * (self.end - self.start), 1)


def _grid(x: _Scale, y: _Scale) -> Iterator[str]:
    for power in range(x.first, x.last + 1):
        at = x.at(10.0**power)
        yield f'<line class="grid" x1="{at}" y1="{TOP}" x2="{at}" y2="{BOTTOM}"/>'
        yield _text(at, BOTTOM + 18, _plain(power), "soft", "middle")
    for power in range(y.first, y.last + 1):
        at = y.at(10.0**power)
        yield f'<line class="grid" x1="{LEFT}" y1="{at}" x2="{RIGHT}" y2="{at}"/>'
        yield _text(LEFT - 8, at + 4, f"{_plain(power)} ms", "soft", "end")
    yield _text(
        (LEFT + RIGHT) / 2, BOTTOM + 40, "calls a second of 1 000 processes together", "soft", "middle"
    )


def _curve(number: int, line: Line, x: _Scale, y: _Scale) -> Iterator[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    path = " ".join(f"{x.at(a)},{y.at(b)}" for a, b in line.points)
    yield f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>'
    rate, height = line.points[line.knee]
    yield f'<circle cx="{x.at(rate)}" cy="{y.at(height)}" r="5" fill="{colour}"/>'
    beside = TOP + 20 + 24 * number
    yield f'<line x1="640" y1="{beside - 4}" x2="664" y2="{beside - 4}" stroke="{colour}" stroke-width="2"/>'
    yield _text(672, beside, line.title)
    if number == 0:
        yield _text(640, BOTTOM - 10, "● the knee", "soft")


def _plain(power: int) -> str:
    return f"{10**power:,}".replace(",", " ") if power >= 0 else f"{10.0**power:g}"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    where = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x}" y="{y}"{named}{where}>{escape(text)}</text>'
