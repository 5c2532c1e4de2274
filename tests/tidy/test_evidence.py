"""The page of evidence says what was counted, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools import evidence, pages

pytest_plugins = ("pytester",)

ROW: dict[str, Any] = {
    "test": "test_a_storm_breaks_no_promise",
    "file": "tests/faults/test_storm.py",
    "store": "redis",
    "seconds": 40.2,
    "violations": 0,
    "counts": {"operations": 1_200, "kills": 3},
}
FAILOVER: dict[str, Any] = {
    **ROW,
    "test": "test_failovers",
    "store": "",
    "failover": "Redis, Sentinel; it followed",
    "expected": "the last ones",
    "counts": {"operations": 10, "acknowledged": 10, "lost": 1, "twice": 1, "noticed": 1},
}


def report(*rows: dict[str, Any]) -> dict[str, Any]:
    machine = {"cores": "2", "system": "Linux", "python": "CPython 3.11", "built with": "gcc"}
    return {
        "date": "2024-01-07",
        "commit": "abc",
        "machine": {**machine, "load before": "0.1"},
        "storm_s": 40.0,
        "short": True,
        "seconds": 120,
        "rows": evidence.joined(rows),
    }


def test_the_page_is_made_of_the_figures_beside_it() -> None:
    told = json.loads(evidence.JSON.read_text(encoding="utf-8"))
    assert evidence.JSON.with_suffix(".md").read_text(encoding="utf-8") == evidence.rendered(told)


def test_runs_of_one_test_on_one_store_are_added_up() -> None:
    (row,) = evidence.joined([ROW, {**ROW, "violations": 1}])
    assert (row["runs"], row["violations"], row["seconds"]) == (2, 1, 80)
    assert row["counts"] == {"operations": 2_400, "kills": 6}
    assert len(evidence.joined([ROW, {**ROW, "store": "postgres"}])) == 2


def test_a_soak_is_a_row_with_its_sentence_and_its_counts() -> None:
    page = evidence.rendered(report(ROW))
    link = "[a storm breaks no promise](../tests/faults/test_storm.py)"
    assert f"| {link} | redis | 1 | 1 200 | – | 3 | – | – | – | – | 0 |" in page
    assert "2024-01-07, commit `abc`: in 2 minutes no violation was found." in page
    assert "Altogether: 1 200 operations, 0 effects, 3 kills," in page


def test_a_failover_says_what_was_expected_before_what_was_seen() -> None:
    page = evidence.rendered(report(FAILOVER))
    assert "| Redis, Sentinel; it followed | the last ones | 10 | 1 | 1 | 1 | 0 |" in page


def test_a_violation_is_not_overlooked() -> None:
    assert "**violations found: 2**" in evidence.rendered(report({**ROW, "violations": 2}))


def test_what_was_skipped_is_said() -> None:
    told = report(ROW) | {"untried": ["test_a_storm_breaks_no_promise[redis]"]}
    page = evidence.rendered(told)
    assert "Not tried, because something is missing here: test_a_storm_breaks_no_promise[redis]." in page


_SOAKS = """
import pytest

@pytest.fixture
def server():
    yield
    assert False, "it does not end"

@pytest.mark.slow
@pytest.mark.parametrize("store", ["redis", "sqlite"])
def test_it_holds(store, evidence):
    evidence.count(operations=5, kills=1)
    assert store == "redis"

@pytest.mark.slow
def test_its_end_fails(server, evidence):
    evidence.count(operations=3)

@pytest.mark.slow
def test_it_lacks_a_server(evidence):
    pytest.skip("no server here")

def test_it_is_no_soak(evidence):
    evidence.count(operations=7)
"""

_INTERRUPTED = """
import pytest

@pytest.mark.slow
def test_it_holds(evidence):
    evidence.count(operations=5)

@pytest.mark.slow
def test_it_is_interrupted(evidence):
    raise KeyboardInterrupt
"""


@pytest.fixture
def soaked(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Runs these soaks; gives where their evidence would be."""

    def run(soaks: str) -> Path:
        pytester.makeconftest("from tests.evidence import evidence, pytest_addoption, pytest_configure")
        pytester.makeini("[pytest]\nmarkers = slow: a soak")
        pytester.makepyfile(soaks)
        monkeypatch.setenv("PYTHONPATH", str(pages.ROOT))
        target = pytester.path / "evidence.json"
        pytester.runpytest_subprocess("--evidence", str(target), "-p", "no:cacheprovider")
        return target

    return run


def test_a_run_of_soaks_writes_what_they_counted_and_what_did_not_hold(
    soaked: Callable[[str], Path],
) -> None:
    target = soaked(_SOAKS)
    told = json.loads(target.read_text(encoding="utf-8"))
    rows = {(row["test"], row["store"]): row for row in told["rows"]}
    held, broken = rows["test_it_holds", "redis"], rows["test_it_holds", "sqlite"]
    assert held["counts"] == broken["counts"] == {"operations": 5, "kills": 1}
    assert (held["violations"], broken["violations"]) == (0, 1)
    ended = rows["test_its_end_fails", ""]
    assert (ended["runs"], ended["violations"], ended["counts"]) == (1, 1, {"operations": 3})
    assert len(rows) == 3
    assert told["untried"] == ["test_it_lacks_a_server"]
    assert target.with_suffix(".md").read_text(encoding="utf-8") == evidence.rendered(told)


def test_soaks_that_were_interrupted_write_no_page(soaked: Callable[[str], Path]) -> None:
    assert not soaked(_INTERRUPTED).exists()
