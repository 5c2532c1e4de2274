"""What `--help` says of each command in a list: its whole first sentence, not what fits a line."""

from __future__ import annotations

import inspect
import re

import click

_END_OF_SENTENCE = re.compile(r"\.(?=\s|$)|\n\n")


def whole_summaries(command: click.Command) -> None:
    """Give the command and all below it a summary of its own, which click then folds and does not cut."""
    command.short_help = command.short_help or first_sentence(command.help or "")
    if isinstance(command, click.Group):
        for each in command.commands.values():
            whole_summaries(each)


def first_sentence(text: str) -> str:
    text = inspect.cleandoc(text)
    end = _END_OF_SENTENCE.search(text)
    return " ".join((text[: end.start()] if end else text).split()) + "."
