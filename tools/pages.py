"""The pages of the repository, and the fenced blocks in them.

A block's first line is its language and, for a file, its name: ```python title="shop.py". A block right after
the line `<!-- not run: why -->` is left out by whoever runs pages; `<!-- first: command -->` there makes what
the reader of such a page has already, a store for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What a reader types or pastes. Everything else is looked at.
RUN = frozenset({"python", "sh", "console"})
LOOKED_AT = frozenset({"text", "json", "yaml", "toml", "ini", "sql", "http", "dockerfile"})

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+|~~~+)(?P<language>[\w-]*)(?P<rest>.*)$")
_TITLE = re.compile(r'\btitle="(?P<name>[\w./-]+)"')
_NOT_RUN = re.compile(r"<!-- not run: (?P<why>.+?) -->")
_FIRST = re.compile(r"<!-- first: (?P<command>.+?) -->")
_COMMAND = re.compile(r"^(\$ |semel |curl |pip |python |make |docker |kubectl |uvicorn )")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    title: str | None
    first_line: int
    lines: tuple[str, ...]
    not_run: str | None
    first: str | None

    @property
    def runs(self) -> bool:
        return self.language in RUN and self.not_run is None

    @property
    def is_file(self) -> bool:
        return self.title is not None and self.not_run is None


def pages(root: Path = ROOT) -> list[Path]:
    """Every page of the repository: those at its top, and all under docs and examples."""
    return sorted({*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/**/*.md")})


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order; a fence left open runs to the end, as renderers have it."""
    found: list[Block] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if fence:
            block = _block(lines, number, fence)
            found.append(block)
            number += len(block.lines) + 1
        number += 1
    return found


def _block(lines: list[str], opening: int, fence: re.Match[str]) -> Block:
    indent, ticks = len(fence["indent"]), fence["ticks"]
    body: list[str] = []
    for line in lines[opening + 1 :]:
        if line.strip().startswith(ticks):
            break
        body.append(line[indent:] if not line[:indent].strip() else line)
    above = lines[opening - 1] if opening else ""
    not_run, first = _NOT_RUN.search(above), _FIRST.search(above)
    title = _TITLE.search(fence["rest"])
    return Block(
        fence["language"],
        title["name"] if title else None,
        opening + 2,
        tuple(body),
        not_run["why"] if not_run else None,
        first["command"] if first else None,
    )


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines of a page that are in no block."""
    fenced = {
        number
        for block in blocks(text)
        for number in range(block.first_line - 1, block.first_line + len(block.lines) + 1)
    }
    for number, line in enumerate(text.splitlines(), start=1):
        if number not in fenced:
            yield number, line


def unmarked_blocks(text: str) -> list[str]:
    """`line: why` for each block that is of no known language, or hides commands from whoever runs pages."""
    found = []
    for block in blocks(text):
        if block.language not in RUN | LOOKED_AT:
            found.append(f"{block.first_line - 1}: a block of the language {block.language!r}")
        elif block.language == "text" and any(map(_COMMAND.match, block.lines)):
            found.append(f"{block.first_line - 1}: commands in a text block are not run; say sh or console")
    return found
