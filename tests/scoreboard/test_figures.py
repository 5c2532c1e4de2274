"""What is measured is measured on both sides, and says all that it saw. How long it took is nobody's test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from scoreboard.caller import nursery
from scoreboard.cells import TRIALS, Colour, Trial
from scoreboard.libraries import Row, library
from scoreboard.run import tried
from scoreboard.trials import figures
from tests.missing import cannot

CORRECT = library(Path(__file__).parent / "correct.py", Path(sys.executable))


@pytest.fixture
def sleepers() -> Iterator[list[int]]:
    started = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(3)]
    yield [each.pid for each in started]
    for each in started:
        each.communicate(b"\n")


@pytest.mark.full
@pytest.mark.parametrize(
    "trial", [pytest.param(each, id=each.name) for each in TRIALS if each.group == figures.GROUP]
)
def test_a_figure_is_seen(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "install", lambda _: None)
    monkeypatch.setattr(figures, "library", partial(library, python=Path(sys.executable)))
    few = {"CALLS": 4, "ROUNDS": 1, "MANY": 4, "TRACED": 4, "FEW": 4, "MORE": 64, "STEP": 8, "FILL_S": 0.01}
    for name, number in few.items():
        monkeypatch.setattr(figures, name, number)
    row = Row(CORRECT, "sqlite")
    with nursery(row, tmp_path / "n") as forks:
        seen = tried(trial, row, forks, tmp_path / "t")
    if seen.seen in (figures.NO_STRACE, figures.NO_TRACING):
        cannot(seen.seen)
    assert seen.colour is Colour.MEASURED, seen
    assert all(each > 0 for each in seen.facts.values()), seen


@pytest.mark.skipif(len(os.sched_getaffinity(0)) == 1, reason="there is one core for all")
def test_server_and_callers_share_no_core(sleepers: list[int]) -> None:
    server, *callers = sleepers
    figures.keep_apart([server], callers)
    first, second = (os.sched_getaffinity(each) for each in callers)
    assert first == second
    assert not first & os.sched_getaffinity(server)


def test_callers_of_a_file_have_all_cores(sleepers: list[int]) -> None:
    figures.keep_apart([], sleepers)
    assert {frozenset(os.sched_getaffinity(each)) for each in sleepers} == {
        frozenset(os.sched_getaffinity(0))
    }
