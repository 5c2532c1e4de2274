"""The picture: a square for each row and trial, as SVG. The colours are chosen by whoever shows it: light
or dark.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from scoreboard.cells import TRIALS, Colour
from scoreboard.results import Results, RowResult

LEFT, TOP, STEP, SIZE, BOTTOM = 310, 232, 30, 26, 54

# Each has a shape of its own, for those who do not tell colours apart.
SIGNS = {
    Colour.KEPT: "✓",
    Colour.WEAK: "~",
    Colour.BROKEN: "✕",
    Colour.UNPROMISED: "○",
    Colour.ABSENT: "–",
}
WORDS = {
    Colour.KEPT: "seen",
    Colour.WEAK: "no second effect, but nobody answered",
    Colour.BROKEN: "promised, and not seen",
    Colour.UNPROMISED: "not seen, and not promised",
    Colour.ABSENT: "nothing to try",
}
MEANINGS = {
    Colour.KEPT: "what the trial looks for was seen",
    Colour.WEAK: "it was promised; there was no second effect, but somebody was left without an answer",
    Colour.BROKEN: "it was promised, and not seen",
    Colour.UNPROMISED: "it was not seen, and the library does not promise it: no failure, but good to know",
    Colour.ABSENT: "there is nothing to try, and the cell says why",
}

_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 }
  .soft { fill: #59636e }
  .own { font-weight: 600 }
  .sign { fill: #ffffff; font-weight: 700; text-anchor: middle } .sign.absent { fill: #59636e }
  rect.kept { fill: #1a7f37 } rect.weak { fill: #bf8700 } rect.broken { fill: #cf222e }
  rect.unpromised { fill: #afb8c1 } rect.absent { fill: none; stroke: #d1d9e0 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .soft { fill: #9198a1 }
    rect.kept { fill: #2ea043 } rect.weak { fill: #bb8009 } rect.broken { fill: #da3633 }
    rect.unpromised { fill: #59636e } rect.absent { stroke: #3d444d }
  }
"""


def drawn(results: Results) -> str:
    """Rows by library and store, columns by trial; figures are left to the page."""
    trials = [each for each in TRIALS if not each.alone]
    width, height = LEFT + STEP * len(trials) + 120, TOP + STEP * len(results.rows) + BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-label="What each trial saw of each library">',
        f"<style>{_STYLE}</style>",
        '<text class="title" x="10" y="26">What each trial saw of each library</text>',
        f'<text class="soft" x="10" y="46">{escape(results.date)}</text>',
    ]
    for number, trial in enumerate(trials):
        x = LEFT + STEP * number + SIZE / 2 + 4
        lines.append(f'<text transform="translate({x},{TOP - 8}) rotate(-52)">{escape(trial.title)}</text>')
    for number, row in enumerate(results.rows):
        lines += _row(number, row, [each.name for each in trials])
    lines += [*_legend(height), "</svg>"]
    return "\n".join(lines) + "\n"


def _row(number: int, row: RowResult, trials: list[str]) -> Iterator[str]:
    y = TOP + STEP * number
    kind = ' class="own"' if row.library == "semel" else ""
    name = escape(f"{row.library} · {row.store}")
    yield f'<text x="{LEFT - 10}" y="{y + 18}" text-anchor="end"{kind}>{name}</text>'
    for column, name in enumerate(trials):
        cell = row.cells.get(name)
        if cell is not None:
            yield from _square(LEFT + STEP * column, y, cell.colour, cell.seen)


def _square(x: float, y: float, colour: Colour, title: str) -> Iterator[str]:
    place = f'x="{x}" y="{y}" width="{SIZE}" height="{SIZE}" rx="4"'
    yield f'<rect class="{colour}" {place}><title>{escape(title)}</title></rect>'
    if SIGNS.get(colour):
        yield f'<text class="sign {colour}" x="{x + SIZE / 2}" y="{y + 18}">{SIGNS[colour]}</text>'


def _legend(height: float) -> Iterator[str]:
    x = 10.0
    for colour, words in WORDS.items():
        yield from _square(x, height - 38, colour, words)
        yield f'<text class="soft" x="{x + SIZE + 8}" y="{height - 20}">{escape(words)}</text>'
        x += SIZE + 24 + 7.2 * len(words)
