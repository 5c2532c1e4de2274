"""Tables that fit the screen, so that no line of them has to be pieced together.

What does not fit beside the rest is folded within its column; where too little width is left for that, the
last columns are written below their row, each on a line with its name. The first column is never folded: it
holds what is copied into the next command.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_GAP = 2
_INDENT = 2

# Narrower than this a sentence is a ladder of words.
_NARROWEST = 20

# Text is folded by a console; nothing is written to this one.
_FOLDING = Console(width=10_000)


def screen_width() -> int:
    """That of the terminal, or COLUMNS; 80 where there is neither."""
    return shutil.get_terminal_size((80, 24)).columns


def table_lines(names: Sequence[Text], rows: Sequence[Sequence[Text]], width: int) -> Iterator[Text]:
    """The table line by line. A column without a single entry is left out."""
    filled = [number for number in range(len(names)) if any(row[number].plain for row in rows)]
    names = [names[number] for number in filled]
    rows = [[row[number] for number in filled] for row in rows]
    columns = [_Column.of([row[number] for row in (names, *rows)]) for number in range(len(names))]
    beside, widths = _fitting(columns, width)
    yield from _side_by_side(names[:beside], widths)
    for row in rows:
        yield from _side_by_side(row[:beside], widths)
        for name, cell in zip(names[beside:], row[beside:], strict=True):
            yield from _below(name, cell, width)


class _Column(NamedTuple):
    natural: int  # as wide as its widest cell
    narrowest: int  # no narrower than its longest word

    @classmethod
    def of(cls, cells: Sequence[Text]) -> _Column:
        longest_word = max((cell_len(word) for cell in cells for word in cell.plain.split()), default=0)
        return cls(max(cell.cell_len for cell in cells), max(_NARROWEST, longest_word))


def _fitting(columns: Sequence[_Column], width: int) -> tuple[int, list[int]]:
    """How many columns stand beside each other, and how wide each may be."""
    for beside in range(len(columns), 1, -1):
        widths = [column.natural for column in columns[:beside]]
        excess = sum(widths) + _GAP * (beside - 1) - width
        if excess <= 0:
            return beside, widths
        widest = max(range(1, beside), key=widths.__getitem__)
        widths[widest] -= excess
        if widths[widest] >= columns[widest].narrowest:
            return beside, widths
    return min(1, len(columns)), [column.natural for column in columns[:1]]


def _side_by_side(cells: Sequence[Text], widths: Sequence[int]) -> Iterator[Text]:
    folded = [_folded(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, folded), default=0)):
        line = Text()
        for lines, width in zip(folded, widths, strict=True):
            cell = lines[number] if number < len(lines) else Text()
            line.append_text(cell).append(" " * (width - cell.cell_len + _GAP))
        line.rstrip()
        yield line


def _folded(cell: Text, width: int) -> Sequence[Text]:
    lines = cell.wrap(_FOLDING, width, overflow="fold")
    for line in lines:
        line.rstrip()
    return list(lines)


def _below(name: Text, cell: Text, width: int) -> Iterator[Text]:
    if not cell.plain:
        return
    label = Text(f"{' ' * _INDENT}{name.plain.lower()}: ", "dim")
    rest = _folded(cell, max(_NARROWEST, width - label.cell_len))
    for number, line in enumerate(rest):
        yield (label.copy() if number == 0 else Text(" " * label.cell_len)).append_text(line)
