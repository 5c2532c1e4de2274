"""Every test is in one storey: `make test`, `make test-all` or `make soak`; the table says which."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from tests import stores, storeys
from tests.faults import places
from tests.patience import PATIENCE_S
from tests.tidy import source

NONE: frozenset[str] = frozenset()
SQLITE, REDIS = frozenset({"sqlite"}), frozenset({"redis"})


def test_every_row_names_a_folder_or_a_file_that_is_there() -> None:
    assert [row for row in storeys.ROWS if not (storeys.FOLDER / row).exists()] == []


def test_every_store_is_known() -> None:
    kinds = {kind.name for kind in (*stores.CONFORMING, stores.SPREAD)}
    assert kinds | {place.name for place in places.PLACES} == storeys.EVERY_STORE
    for allowed in storeys.ROWS.values():
        assert allowed is None or allowed <= storeys.EVERY_STORE


def test_a_test_without_a_row_is_in_make_test() -> None:
    assert not storeys.is_for_later("new/test_new.py", REDIS)


def test_a_row_says_on_which_stores_make_test_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storeys, "ROWS", {"some": SQLITE, "none": storeys.NOTHING})
    assert not storeys.is_for_later("some/test_a.py", SQLITE)
    assert not storeys.is_for_later("some/test_a.py", NONE)
    assert storeys.is_for_later("some/test_a.py", REDIS)
    assert storeys.is_for_later("some/test_a.py", SQLITE | REDIS)
    assert storeys.is_for_later("none/test_a.py", NONE)
    assert not storeys.is_for_later("something/test_a.py", REDIS)


def test_the_longer_row_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"a": storeys.NOTHING, "a/test_b.py": SQLITE}
    monkeypatch.setattr(storeys, "ROWS", rows)
    assert storeys.is_for_later("a/test_a.py", SQLITE)
    assert not storeys.is_for_later("a/test_b.py", SQLITE)


@pytest.mark.parametrize("_kind", [(stores.SPREAD, "x")])
@pytest.mark.parametrize("_place", [places.REDIS])
@pytest.mark.parametrize("_name", ["postgres"])
def test_stores_are_found_however_a_parameter_names_them(
    _kind: object, _place: object, _name: object, request: pytest.FixtureRequest
) -> None:
    assert storeys.stores_of(request.node) == {"redis-spread", "redis", "postgres"}


def marks_asked_for() -> dict[str, list[str]]:
    """The options about marks that each of the three commands gives to pytest."""
    asked: dict[str, list[str]] = {}
    for command in ("test", "test-all", "soak"):
        lines = subprocess.run(
            ["make", "--dry-run", "--always-make", command, "ARGS="],
            cwd=source.ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout
        asked[command] = shlex.split(re.findall(r"-m pytest .*?(-m (?:\w+|\"[^\"]+\"))", lines)[-1])
    return asked


def collected(*words: str) -> set[str]:
    """What pytest would run, of two files that have tests in all storeys."""
    files = ("tests/model/test_stores_agree.py", "tests/faults/test_crashes.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *words, *files],
        cwd=source.ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_each_test_is_run_by_one_of_the_three_commands() -> None:
    found = [collected(*marks) for marks in marks_asked_for().values()]
    assert all(found)
    assert set.union(*found) == collected("-m", "")
    assert sum(map(len, found)) == len(set.union(*found))
