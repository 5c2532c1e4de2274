"""Draws the sequences of docs/concepts/sequences.md, as SVG without script, font or picture from elsewhere.

    python -m tools.draw_sequences      writes docs/assets/sequences/*.svg anew

Ink and paper are variables: those of the site where the drawing stands inside a page, else black and white as
the reader's system has it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "assets" / "sequences"

_COLUMN = 205
_MARGIN = 100
_TOP = 60
_ROW = 36
_LINE = 15

_STYLE = """
  svg { --ink: #1b1f24; --paper: #ffffff; --good: #1a7f37; --bad: #c0392b; }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e6e8eb; --paper: #1b1f24; --good: #57c46f; --bad: #ff7b6b; }
  }
  [data-md-color-scheme] svg { --ink: var(--md-default-fg-color); --paper: var(--md-default-bg-color); }
  [data-md-color-scheme=default] svg { --good: #1a7f37; --bad: #c0392b; }
  [data-md-color-scheme=slate] svg { --good: #57c46f; --bad: #ff7b6b; }
  text { font: 13px system-ui, sans-serif; fill: var(--ink); text-anchor: middle; }
  .who { font-weight: 600; }
  .halo { stroke: var(--paper); stroke-width: 5px; paint-order: stroke; stroke-linejoin: round; }
  .life { stroke: var(--ink); stroke-opacity: .3; stroke-dasharray: 4 4; }
  .box, .note { fill: var(--paper); stroke: var(--ink); stroke-opacity: .55; }
  .note { stroke-dasharray: 3 3; }
  .arrow { stroke: var(--ink); stroke-width: 1.5; fill: none; }
  .answer { stroke-dasharray: 6 4; }
  .head { fill: var(--ink); }
  .good { stroke: var(--good); } .good-text { fill: var(--good); } .good-head { fill: var(--good); }
  .bad { stroke: var(--bad); } .bad-text { fill: var(--bad); } .bad-head { fill: var(--bad); }
"""


@dataclass(frozen=True)
class Arrow:
    """A request (solid) or an answer (dashed) from one column to another; `kind` colours it."""

    source: int
    target: int
    text: str
    answer: bool = False
    kind: str = ""
    lost: bool = False


@dataclass(frozen=True)
class Note:
    """What somebody does or knows: a box over one column, or from one to another."""

    first: int
    last: int
    text: str
    kind: str = ""


@dataclass(frozen=True)
class Sequence:
    """One drawing: who takes part, and what happens, from top to bottom."""

    title: str
    who: tuple[str, ...]
    steps: tuple[Arrow | Note, ...]


def _x(column: int) -> int:
    return _MARGIN + column * _COLUMN


def _text(x: float, y: float, text: str, kind: str = "", name: str = "") -> str:
    names = " ".join(part for part in (name, f"{kind}-text" if kind else "") if part)
    return f'<text class="{names}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


def _arrow(step: Arrow, y: int) -> list[str]:
    start, end = _x(step.source), _x(step.target)
    forward = 1 if end > start else -1
    if step.lost:
        end = (start + end) // 2
    names = " ".join(part for part in ("arrow", "answer" if step.answer else "", step.kind) if part)
    drawn = [f'<path class="{names}" d="M{start} {y}H{end - 7 * forward}"/>']
    if step.lost:
        drawn.append(f'<path class="arrow bad" d="M{end - 6} {y - 6}l12 12m0 -12l-12 12"/>')
    else:
        head = f"{step.kind}-head" if step.kind else "head"
        drawn.append(f'<path class="{head}" d="M{end} {y}l{-9 * forward} -4.5v9z"/>')
    return [*drawn, _text((_x(step.source) + _x(step.target)) / 2, y - 6, step.text, step.kind, "halo")]


def _note(step: Note, y: int, height: int) -> list[str]:
    lines = step.text.split("\n")
    width = max((_x(step.last) - _x(step.first)) + 150, max(map(len, lines)) * 7.2 + 20)
    middle = (_x(step.first) + _x(step.last)) / 2
    names = f"note {step.kind}".strip()
    place = f'x="{middle - width / 2:g}" y="{y}" width="{width:g}" height="{height}"'
    box = f'<rect class="{names}" {place} rx="5"/>'
    first = y + 18
    return [box, *(_text(middle, first + _LINE * n, line, step.kind) for n, line in enumerate(lines))]


def draw(sequence: Sequence) -> str:
    """The drawing as SVG."""
    body: list[str] = []
    y = _TOP + 14
    for step in sequence.steps:
        if isinstance(step, Arrow):
            y += _ROW - 8
            body += _arrow(step, y)
            y += 10
        else:
            height = 12 + _LINE * len(step.text.split("\n"))
            y += 6
            body += _note(step, y, height)
            y += height + 2
    width, height = _x(len(sequence.who) - 1) + _MARGIN, y + 24
    lives = [f'<path class="life" d="M{_x(n)} {_TOP - 8}V{y + 12}"/>' for n in range(len(sequence.who))]
    heads = [
        part
        for n, name in enumerate(sequence.who)
        for part in (
            f'<rect class="box" x="{_x(n) - 78}" y="20" width="156" height="32" rx="6"/>',
            _text(_x(n), 41, name, "", "who"),
        )
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}">',
            f"<title>{escape(sequence.title)}</title>",
            f"<style>{_STYLE}</style>",
            *lives,
            *heads,
            *body,
            "</svg>",
            "",
        ]
    )


CALL = Sequence(
    "A call, and the same call again",
    ("Your loop", "Semel", "Store", "Downstream"),
    (
        Arrow(0, 1, "issue_refund(“p-1”, 500)"),
        Note(1, 1, "inside a step: key = SHA-256 of tenant,\nconversation, step, tool, arguments"),
        Arrow(1, 2, "claim the key"),
        Arrow(2, 1, "started, fence 1", answer=True),
        Note(1, 1, "from here on the lease is renewed"),
        Arrow(1, 3, "your function runs: refund, with the key"),
        Arrow(3, 1, "re-1", answer=True),
        Arrow(1, 2, "settle: done, re-1"),
        Arrow(2, 1, "on disk", answer=True),
        Arrow(1, 0, "re-1", answer=True),
        Note(0, 3, "the loop dies, is replayed, and asks again"),
        Arrow(0, 1, "issue_refund(“p-1”, 500)"),
        Arrow(1, 2, "claim the key"),
        Arrow(2, 1, "done before: re-1", answer=True, kind="good"),
        Arrow(1, 0, "re-1; nothing ran", answer=True, kind="good"),
    ),
)

RETAKE = Sequence(
    "A retake after a crash",
    ("Process A", "Process B", "Store", "Downstream"),
    (
        Arrow(0, 2, "claim the key"),
        Arrow(2, 0, "started, fence 1", answer=True),
        Arrow(0, 3, "refund, with the key"),
        Note(0, 0, "killed before it could\nrecord the answer", "bad"),
        Note(2, 2, "A is seen to be gone, or its lease\nlapses: in doubt, never absent"),
        Arrow(1, 2, "claim the key"),
        Arrow(2, 1, "in doubt", answer=True, kind="bad"),
        Note(1, 1, "on_unknown=“retry”: the downstream\nknows the key, for 24 h"),
        Arrow(1, 2, "retake"),
        Arrow(2, 1, "pending, fence 2", answer=True),
        Arrow(1, 3, "refund: the same key, A's arguments"),
        Arrow(3, 1, "re-1: known already, paid once", answer=True, kind="good"),
        Arrow(1, 2, "settle: done, re-1"),
        Arrow(0, 2, "had A only been frozen: settle, fence 1"),
        Arrow(2, 0, "OWNERSHIP_LOST: nothing changed", answer=True, kind="bad"),
    ),
)

ADMISSION = Sequence(
    "One admission",
    ("Client", "Gateway", "Store", "Worker"),
    (
        Arrow(0, 1, "POST …/runs, key k"),
        Note(1, 1, "who, may they, key,\nsize, JSON"),
        Arrow(1, 2, "one atomic step"),
        Note(2, 2, "key new? workflow unchanged? slot free?\nthen slot, run, jobs, message: all or nothing"),
        Arrow(2, 1, "admitted: run_1, on disk", answer=True),
        Arrow(1, 0, "200 run_1", answer=True, lost=True),
        Arrow(1, 3, "message: there is a job"),
        Arrow(3, 2, "lease the job, run it, report"),
        Arrow(0, 1, "the same again, key k"),
        Arrow(1, 2, "the same step"),
        Arrow(2, 1, "known: the stored answer", answer=True, kind="good"),
        Arrow(1, 0, "200 run_1, replayed", answer=True, kind="good"),
        Note(0, 1, "another client, key m, no slot free:"),
        Arrow(1, 0, "429: nothing kept, m works later", answer=True, kind="bad"),
    ),
)

APPROVAL = Sequence(
    "One approval",
    ("Your loop", "Semel", "Store", "Anna"),
    (
        Arrow(0, 1, "close_account(“a-1”)"),
        Arrow(1, 2, "claim: wait for a person"),
        Note(2, 2, "question job_1, with the\narguments and their hash"),
        Arrow(1, 0, "APPROVAL_REQUIRED, job_1", answer=True),
        Arrow(3, 2, "read job_1: what, by whom"),
        Arrow(3, 2, "approve, with the hash seen"),
        Note(2, 2, "one commit: decision, next state,\nmessage approval:job_1, audit"),
        Arrow(2, 3, "approved", answer=True, lost=True),
        Arrow(3, 2, "approve job_1 again"),
        Arrow(2, 3, "already_approved, at 9:41", answer=True, kind="good"),
        Arrow(0, 1, "close_account(“a-1”)"),
        Arrow(1, 2, "claim"),
        Arrow(2, 1, "pending, fence 1", answer=True),
        Note(1, 1, "your function runs, with the\narguments that Anna saw"),
        Arrow(1, 2, "settle"),
        Arrow(1, 0, "closed", answer=True, kind="good"),
    ),
)

SEQUENCES = {"call": CALL, "retake": RETAKE, "admission": ADMISSION, "approval": APPROVAL}


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, sequence in SEQUENCES.items():
        (FOLDER / f"{name}.svg").write_text(draw(sequence), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
