"""Every command of `semel` starts, reaches an empty store, and ends as it should."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import semel
from semel.cli import main
from tests.storeys import FOLDER, is_for_later

FINE, NOT_THERE = 0, 3

# On a store without records; what is asked for by its id is not there.
COMMANDS = {
    "approvals approve job_1": NOT_THERE,
    "approvals list": FINE,
    "approvals reject job_1": NOT_THERE,
    "approvals show job_1": NOT_THERE,
    "audit duplicates": FINE,
    "audit export": FINE,
    "audit verify": FINE,
    "dead-letters list": FINE,
    "dead-letters retry dead_1": NOT_THERE,
    "dead-letters show dead_1": NOT_THERE,
    "doctor": FINE,
    "jobs cancel job_1": NOT_THERE,
    "jobs list": FINE,
    "jobs show job_1": NOT_THERE,
    "keys create --tenant acme --principal ann --role admin": FINE,
    "keys list": FINE,
    "keys revoke key_1": NOT_THERE,
    "records amend rec_1 --result 1": NOT_THERE,
    "records list": FINE,
    "records resolve rec_1 --happened": NOT_THERE,
    "records show rec_1": NOT_THERE,
    "runs cancel run_1": NOT_THERE,
    "runs list": FINE,
    "runs rerun run_1 --from-step a": NOT_THERE,
    "runs show run_1": NOT_THERE,
    "tools list": FINE,
    "tools show send": NOT_THERE,
    "windows": FINE,
}

# What is more than a look at a store has tests of its own.
ELSEWHERE = {
    "completion": "unit/test_cli_screen.py",
    "demo": "faults/test_demo.py",
    "runbook admission": "gateway/test_runbooks.py",
    "runbook approvals": "gateway/test_runbooks.py",
    "runbook contention": "gateway/test_runbooks.py",
    "runbook window": "unit/test_window_runbook.py",
    "console": "console/test_alone.py",
    "serve": "gateway/test_serve.py",
    "worker": "faults/test_worker_killed.py",
}


def commands(group: click.Command = main, *path: str) -> Iterator[str]:
    """Every command that does something, by its words."""
    if not isinstance(group, click.Group):
        yield " ".join(path)
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from commands(command, *path, name)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("SEMEL_URL", "SEMEL_SERVER", "SEMEL_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path}/semel.db"
    semel.open(url).close()
    return url


@pytest.mark.parametrize("words", COMMANDS)
def test_on_an_empty_store_it_ends_as_it_should(words: str, url: str) -> None:
    result = CliRunner().invoke(main, [*words.split(), "--url", url])
    assert result.exit_code == COMMANDS[words], result.output
    assert result.stderr or COMMANDS[words] == FINE


@pytest.mark.parametrize("command", [*commands()])
def test_it_says_what_it_is_for(command: str) -> None:
    result = CliRunner().invoke(main, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage:")


def test_no_command_is_left_out() -> None:
    tried = {command for command in commands() if any(words.startswith(command) for words in COMMANDS)}
    assert set(commands()) - tried - ELSEWHERE.keys() == set()


@pytest.mark.parametrize("path", sorted(set(ELSEWHERE.values())))
def test_what_is_tested_elsewhere_is_in_make_test(path: str) -> None:
    assert (FOLDER / path).exists()
    assert not is_for_later(path, frozenset({"sqlite"}))
