"""Each trial is able to tell: it is green for an adapter that is right, and not for one that is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from scoreboard.caller import Nursery, nursery
from scoreboard.cells import TRIALS, Cell, Colour, Trial
from scoreboard.libraries import Row, library
from scoreboard.run import tried
from scoreboard.stores import SqliteStore
from scoreboard.trials import ends, outages
from tests.faults.checks import until

HERE = Path(__file__).parent
JUDGED = [each for each in TRIALS if not each.alone]

# What takes a second or two is seen in each `make test`; the others wait for leases and many processes.
QUICK = {"other-payload", "exiting", "interrupted", "cancelled", "async", "result-types"}


def trials(*without: str) -> list[object]:
    return [
        pytest.param(each, id=each.name, marks=[] if each.name in QUICK else pytest.mark.full)
        for each in JUDGED
        if each.name not in without
    ]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Row, Nursery]]]:
    made: dict[str, tuple[Row, Nursery]] = {}
    with ExitStack() as stack:

        class Started(dict[str, tuple[Row, Nursery]]):
            def __missing__(self, name: str) -> tuple[Row, Nursery]:
                row = Row(library(HERE / f"{name}.py", Path(sys.executable)), "sqlite")
                folder = tmp_path_factory.mktemp(name[0]) / "n"
                self[name] = row, stack.enter_context(nursery(row, folder))
                return self[name]

        made = Started()
        yield made


def cell(started: dict[str, tuple[Row, Nursery]], name: str, trial: Trial, folder: Path) -> Cell:
    row, forks = started[name]
    return tried(trial, row, forks, folder / "t")


@pytest.mark.parametrize("trial", trials())
def test_a_correct_adapter_is_green(
    trial: Trial, started: dict[str, tuple[Row, Nursery]], tmp_path: Path
) -> None:
    seen = cell(started, "correct", trial, tmp_path)
    assert seen.colour is Colour.KEPT, seen


# A store that comes back is nothing to an adapter without one.
@pytest.mark.parametrize("trial", trials("store-back"))
def test_an_adapter_that_guards_nothing_is_not(
    trial: Trial, started: dict[str, tuple[Row, Nursery]], tmp_path: Path
) -> None:
    seen = cell(started, "unguarded", trial, tmp_path)
    assert seen.colour is Colour.BROKEN, seen


@pytest.mark.parametrize("trial", trials())
def test_an_adapter_that_does_not_work_could_not_be_tried(
    trial: Trial, started: dict[str, tuple[Row, Nursery]], tmp_path: Path
) -> None:
    seen = cell(started, "failing", trial, tmp_path)
    assert seen.colour is Colour.ABSENT, seen
    assert seen.seen.startswith("could not be tried: "), seen


@pytest.mark.full
def test_a_second_effect_after_the_store_is_back_is_seen(
    started: dict[str, tuple[Row, Nursery]], tmp_path: Path
) -> None:
    (trial,) = (each for each in JUDGED if each.name == "store-back")
    assert cell(started, "twice", trial, tmp_path).colour is Colour.BROKEN


@pytest.mark.full
def test_nobody_answering_is_seen_and_is_no_second_effect(
    started: dict[str, tuple[Row, Nursery]], tmp_path: Path
) -> None:
    (trial,) = (each for each in JUDGED if each.name == "exiting")
    seen = cell(started, "silent", trial, tmp_path)
    assert (seen.colour, seen.seen) == (Colour.WEAK, "1 effect; then no answer")


def test_who_waits_for_a_store_that_is_away_did_not_run_without_it(
    started: dict[str, tuple[Row, Nursery]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "HELD_S", 1.0)
    monkeypatch.setattr(SqliteStore, "find", lets_the_caller_go_on)
    (trial,) = (each for each in JUDGED if each.run is outages.store_away)
    seen = cell(started, "patient", trial, tmp_path)
    assert (seen.colour, seen.seen) == (Colour.WEAK, "no effect; no answer in 1 s")


def lets_the_caller_go_on(store: SqliteStore) -> None:
    """Until it has done what it waited to do."""
    store.let_go()
    effects = store.directory.parent / "effects"
    until(lambda: "a " in effects.read_text(), "the caller went on")


def test_a_store_that_keeps_no_file_is_not_held(
    started: dict[str, tuple[Row, Nursery]], tmp_path: Path
) -> None:
    (trial,) = (each for each in JUDGED if each.run is outages.store_away)
    seen = cell(started, "silent", trial, tmp_path)
    assert seen.colour is Colour.ABSENT
    assert seen.seen == (
        "could not be tried: the library keeps no SQLite file that another process could lock"
    )


def test_what_nobody_promised_is_no_failure(started: dict[str, tuple[Row, Nursery]], tmp_path: Path) -> None:
    (trial,) = (each for each in JUDGED if each.run is ends.exiting)
    seen = cell(started, "twice", trial, tmp_path)
    assert seen.colour is Colour.UNPROMISED
    assert seen.facts["effects"] > 1
