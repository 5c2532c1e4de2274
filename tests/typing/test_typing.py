"""What type checkers say of code that users write: `users/` is checked by mypy and by pyright, both strict.

A line that says `# refused` has to be reported, and no other line may be. What is not refused also runs.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import semel

USERS = Path(__file__).parent / "users"
SOURCE = Path(semel.__file__).parents[1]

Lines = set[tuple[str, int]]


def run(checker: str, *arguments: str | Path) -> str:
    # Both answer 1 when there is something to report, which here there is.
    made = subprocess.run(
        [sys.executable, "-m", checker, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert made.returncode == 1, made.stdout + made.stderr
    return made.stdout


def reported_by_mypy(tmp_path: Path, cache: Path) -> Lines:
    settings = tmp_path / "mypy.ini"
    settings.write_text(f"[mypy]\nstrict = True\nmypy_path = {SOURCE}\ncache_dir = {cache}\n")
    found = [
        json.loads(line) for line in run("mypy", "--config-file", settings, "-O", "json", USERS).splitlines()
    ]
    return {(Path(each["file"]).name, each["line"]) for each in found if each["severity"] == "error"}


def reported_by_pyright(tmp_path: Path, _cache: Path) -> Lines:
    settings = tmp_path / "pyrightconfig.json"
    # As pyright's strict mode has it: an expression whose value is not used is a warning at most.
    chosen = {"typeCheckingMode": "strict", "reportUnusedExpression": False, "reportUnusedCoroutine": False}
    settings.write_text(json.dumps({"include": [str(USERS)], "extraPaths": [str(SOURCE)], **chosen}))
    found = json.loads(
        run("basedpyright", "--project", settings, "--pythonpath", sys.executable, "--outputjson")
    )
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1)
        for each in found["generalDiagnostics"]
        if each["severity"] == "error"
    }


@pytest.mark.parametrize("reported", [reported_by_mypy, reported_by_pyright], ids=["mypy", "pyright"])
def test_a_checker_refuses_the_marked_lines_and_no_others(
    reported: Callable[[Path, Path], Lines], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    marked = {
        (path.name, number)
        for path in USERS.glob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "# refused" in line
    }
    cache = pytestconfig.cache
    assert cache is not None
    assert len(marked) > 30
    assert reported(tmp_path, cache.mkdir("mypy")) == marked


@pytest.mark.parametrize("file", ["functions", "methods", "first_minute", "gateway_client"])
def test_what_checkers_accept_also_runs(file: str) -> None:
    # By name: the checker of these tests is not to follow it there.
    users = importlib.import_module(f"tests.typing.users.{file}")
    with semel.open("memory://") as ledger:
        with ledger.step(conversation="c", step="1"):
            users.accepted()
        with ledger.step(conversation="c", step="2"):
            asyncio.run(users.accepted_on_a_loop())
