"""What the command line shows on a screen of 80 columns."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
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


def on_a_terminal(folder: Path, *words: str) -> list[str]:
    """What the command writes to a terminal of 80 columns, without what colours it."""
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, "-m", "semel", *words],
        cwd=folder,
        env=environment | {"TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        shown = b""
        with suppress(OSError):  # its other end is closed
            while part := os.read(ours, 65_536):
                shown += part
    os.close(ours)
    assert process.returncode == 0, shown
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).replace("\r\n", "\n").splitlines()
    return [line.rpartition("\r")[2] for line in lines]


@pytest.mark.parametrize(
    "words", ["records list", "tools list", "tools show send_the_monthly_statement", "audit verify", "doctor"]
)
def test_on_a_terminal_of_80_columns_nothing_is_torn(tmp_path: Path, words: str) -> None:
    with semel.open(f"sqlite:///{tmp_path}/semel.db") as ledger:
        step = ledger.step(conversation="the-conversation-of-a-customer", step="statement-1")
        with step, pytest.raises(TimeoutError):
            send_the_monthly_statement(to="ann")
    lines = on_a_terminal(tmp_path, *words.split())
    assert [line for line in lines if len(line) > 80] == []
    elsewhere = shown(*words.split(), "--url", f"sqlite:///{tmp_path}/semel.db")
    # Ages and sizes may have changed in between.
    assert {word for word in elsewhere.split() if word.isalpha()} <= set(" ".join(lines).split())


def test_a_command_to_type_is_one_line_on_a_terminal(tmp_path: Path) -> None:
    with semel.open(f"sqlite:///{tmp_path}/semel.db") as ledger:
        with ledger.step(conversation="c", step="s"), pytest.raises(TimeoutError):
            send_the_monthly_statement(to="ann")
        [record] = ledger.records.list()
    lines = on_a_terminal(tmp_path, "records", "show", record.request.id)
    commands = [line for line in lines if line.startswith("  semel records resolve")]
    assert [line for line in lines if len(line) > 80 and line not in commands] == []
    assert len(commands) == 2
    assert all(re.search(r"--fence \d+$", line) for line in commands)


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
