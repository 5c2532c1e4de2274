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
from tools import readme_figures


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


def of_a_page(folder: Path, monkeypatch: pytest.MonkeyPatch, wanted: str) -> list[Path]:
    """A page of figures, its picture, and a README with one row of it, all in this folder."""
    paths = [folder / name for name in ("figures.md", "figures.svg", "README.md")]
    for name, path in zip(("FIGURES", "PICTURE", "README"), paths, strict=True):
        monkeypatch.setattr(readme_figures, name, path)
    paths[0].write_text("Before\n\n<!-- figures -->\nold\n<!-- /figures -->\nAfter\n")
    paths[1].write_text("old")
    paths[2].write_text(f"| {wanted} | ≥ 1 × | old | missed |\n")
    return paths


def test_what_was_measured_becomes_the_page_its_picture_and_the_rows_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, wanted = tmp_path / "kept.json", "replays of a rich model from the cache per second / bare"
    page, picture, readme = of_a_page(tmp_path, monkeypatch, wanted)
    kept.write_text(run("--quick", "--rows", "cache", "--dir", str(tmp_path), "--json").stdout)
    result = run("--from", str(kept), "--write")
    assert result.exit_code == 0, result.output
    written = page.read_text()
    assert "old" not in written
    assert written.startswith("Before\n\n<!-- figures -->\n\n![Each figure beside its goal](figures.svg)\n")
    assert written.endswith("\n\n<!-- /figures -->\nAfter\n")
    assert picture.read_text().startswith("<svg ")
    assert readme.read_text().strip() in written


def test_a_report_without_a_row_of_the_readme_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.json"
    paths = of_a_page(tmp_path, monkeypatch, "something else")
    before = [path.read_text() for path in paths]
    kept.write_text(run("--quick", "--rows", "cache", "--dir", str(tmp_path), "--json").stdout)
    result = run("--from", str(kept), "--write")
    assert result.exit_code == 1
    assert "something else" in result.stderr
    assert [path.read_text() for path in paths] == before


@pytest.mark.parametrize("words", [["--quick"], ["--rows", "cache"]])
def test_the_page_is_not_made_of_a_part(words: list[str]) -> None:
    assert run("--write", *words).exit_code == 2


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
