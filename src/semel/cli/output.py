"""What a person or a program reads: rich on a terminal, plain text elsewhere, JSON where it is asked for."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from pydantic_core import to_json
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from semel.cli.table import screen_width, table_lines

Cell = str | Text

# The eye sees ten changes a second; drawing each of a million would be most of the work.
_EVERY = 500

# Ids, paths and addresses are copied.
_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def clean(text: str) -> str:
    """The text without what would steer a terminal: names and notes come from outside."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def compact(value: Any) -> str:
    """JSON on one line; numbers that JSON does not know are written as text."""
    return to_json(value, inf_nan_mode="strings", fallback=str).decode()


class Output:
    """Where one command writes to."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._rich = self._console.is_terminal

    def data(self, content: Any) -> None:
        """The whole answer for a program."""
        click.echo(to_json(content, indent=2, inf_nan_mode="strings", fallback=str))

    def say(self, text: str = "", style: str = "") -> None:
        """A sentence; on a terminal it is folded between words, below its beginning."""
        text = clean(text)
        if not self._rich:
            click.echo(text)
            return
        indent = " " * (len(text) - len(text.lstrip()))
        for line in textwrap.wrap(text, screen_width(), subsequent_indent=indent, **_WHOLE_WORDS) or [""]:
            self._console.print(Text(line, style), soft_wrap=True)

    def command(self, text: str, style: str = "bold") -> None:
        """Something to type: one line, however long, so that it can be copied whole."""
        line = f"  {clean(text)}"
        if self._rich:
            self._console.print(Text(line, style), soft_wrap=True)
        else:
            click.echo(line)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Rows under their headings, as wide as the screen at most (cli/table.py)."""
        cells = [[_cleaned(cell) for cell in row] for row in rows]
        for line in table_lines([Text(name, "bold") for name in columns], cells, screen_width()):
            if self._rich:
                self._console.print(line, soft_wrap=True)
            else:
                click.echo(line.plain)

    def facts(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Name and text, one under the other."""
        width = max(len(name) for name, _ in pairs)
        for name, text in pairs:
            if self._rich:
                grid = Table.grid(padding=(0, 2))
                grid.add_column(width=width, style="bold")
                grid.add_column(overflow="fold")
                grid.add_row(name, Text(clean(text)))
                self._console.print(grid)
            else:
                click.echo(f"{name:<{width}}  {clean(text)}")

    def either(self, renderable: RenderableType, text: str) -> None:
        """The one on a terminal, the other elsewhere."""
        if self._rich:
            self._console.print(renderable)
        else:
            click.echo(text)

    @contextmanager
    def steps(self, doing: str) -> Iterator[Callable[[str, int, int], None]]:
        """Like `progress`, for work whose end is known: what is going on, steps done, of how many."""
        with self.progress(doing) as show:
            yield lambda what, done, total: show(f"{what} ({done} of {total})")

    @contextmanager
    def progress(self, doing: str) -> Iterator[Callable[[int | str], None]]:
        """How far a long piece of work is, on a terminal's standard error; silent elsewhere."""
        console = Console(stderr=True, highlight=False, markup=False)
        if self.as_json or not console.is_terminal:
            yield lambda _: None
            return
        with console.status(doing) as status:

            def show(done: int | str) -> None:
                if isinstance(done, str):
                    status.update(f"{doing}: {done}")
                elif done % _EVERY == 0:
                    status.update(f"{doing}: {done:,}")

            yield show


def _cleaned(cell: Cell) -> Text:
    return Text(clean(cell)) if isinstance(cell, str) else Text(clean(cell.plain), cell.style)


def complain(code: str, message: str, corrective_action: str, as_json: bool) -> None:
    """What happened, what was not done, what to do next: on standard error."""
    if as_json:
        error = {"code": code, "message": message, "corrective_action": corrective_action}
        click.echo(to_json({"error": error}, indent=2), err=True)
        return
    print(f"semel: {clean(message)} ({clean(code)})", file=sys.stderr)
    if corrective_action:
        print(f"       {clean(corrective_action)}", file=sys.stderr)
