"""`python -m bench` is what `make bench` runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.__main__ import main
from bench.servers import REPOSITORY


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def test_a_wrong_row_lists_what_there_is() -> None:
    result = run("--rows", "nothing")
    assert result.exit_code == 2
    assert "memory" in result.stderr


def test_the_bench_answers_with_json(tmp_path: Path) -> None:
    result = run("--quick", "--rows", "memory", "--dir", str(tmp_path), "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["comparable"] is False
    assert answer["figures"][0]["row"] == "memory-call-bare"


def test_the_bench_answers_with_the_table_of_its_page(tmp_path: Path) -> None:
    result = run("--quick", "--rows", "cache-plain , cache-rich", "--dir", str(tmp_path), "--markdown")
    assert result.exit_code == 0
    heading, _, *lines = result.stdout.splitlines()
    assert heading == "| work | goal | here | |"
    assert [line.startswith("| ") for line in lines[:3]] == [True, True, False]


def test_what_was_measured_earlier_is_shown_and_drawn_again(tmp_path: Path) -> None:
    kept, drawn = tmp_path / "kept.json", tmp_path / "drawn.svg"
    kept.write_text(run("--quick", "--rows", "cache", "--dir", str(tmp_path), "--json").stdout)
    result = run("--from", str(kept), "--markdown", "--picture", str(drawn))
    assert result.exit_code == 0, result.output
    assert "replays of a rich model" in result.stdout
    assert "(drawn.svg)" in result.stdout
    assert drawn.read_text().startswith("<svg ")


def test_files_may_be_made_in_a_directory_that_is_named_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes that the bench starts are not where we are."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    result = run("--quick", "--rows", "gateway-start", "--dir", "here", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["left_out"] == []


def test_the_package_is_the_command() -> None:
    command = [sys.executable, "-m", "bench", "--help"]
    shown = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("Usage: python -m bench [OPTIONS]")
