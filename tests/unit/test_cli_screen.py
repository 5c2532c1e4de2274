"""What the command line shows on a screen of 80 columns."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import semel
from semel.cli import main
from semel.cli.summaries import first_sentence


@semel.tool_contract()
def send_the_monthly_statement(to: str) -> str:
    raise TimeoutError


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from commands(each, (*words, name))


def shown(*words: str) -> str:
    result = CliRunner(env={"COLUMNS": "80", "SEMEL_SERVER": ""}).invoke(main, words)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("words", list(commands(main)), ids=" ".join)
def test_help_fits_and_cuts_nothing(words: tuple[str, ...]) -> None:
    lines = shown(*words, "--help").splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert [line for line in lines if line.endswith("...") and not line.startswith("Usage")] == []


def test_a_list_of_commands_says_what_each_does_in_a_whole_sentence() -> None:
    for name, command in main.commands.items():
        sentence = first_sentence(command.help or "")
        assert sentence in " ".join(shown("--help").split()), name


def test_records_with_long_names_fit(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/semel.db"
    with semel.open(url) as ledger:
        for number in range(3):
            step = ledger.step(conversation="the-conversation-of-a-customer", step=f"statement-{number}")
            with step, pytest.raises(TimeoutError):
                send_the_monthly_statement(to="ann")
    ids = re.findall(r"rec_[0-9a-f]{32}", shown("records", "list", "--url", url))
    assert len(ids) == 3
    for words in (("records", "list"), ("records", "list", "--all-tenants"), ("tools", "list")):
        text = shown(*words, "--url", url)
        assert [line for line in text.splitlines() if len(line) > 80] == []
        assert "send_the_monthly_statement" in text
    assert "the-conversation-of-a-customer / statement-2" in shown("records", "list", "--url", url)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(shell: str) -> None:
    assert "_SEMEL_COMPLETE" in shown("completion", shell)
    words = {"COMP_WORDS": "semel rec", "COMP_CWORD": "1" if shell != "fish" else "rec"}
    asked = subprocess.run(
        [sys.executable, "-c", "from semel.cli import main; main(prog_name='semel')"],
        env={**words, "_SEMEL_COMPLETE": f"{shell}_complete", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "records" in asked.stdout
