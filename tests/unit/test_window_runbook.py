"""`semel runbook window` does what it says. Time is not tested."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from semel.cli import main
from semel.lab.runbooks import entity_traffic as traffic
from semel.lab.runbooks import window as runbook
from semel.lab.runbooks import window_report as page
from semel.lab.runbooks import window_work
from semel.lab.runbooks.runbook import Runbook
from semel.windows.entity import DedupWindow

DAYS, SIZES = 70, (100, 20_000, 25_000)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runbook with a short life and small windows."""
    monkeypatch.setattr(runbook.window, "__defaults__", (DAYS, SIZES))


def said(*words: str) -> Any:
    return CliRunner().invoke(main, ["runbook", "window", *words])


def test_the_runbook_shows_both_tables_and_that_all_checks_hold(quick: None) -> None:
    done = said()
    assert done.exit_code == 0, done.output
    assert "10 of 10 checks hold." in done.output
    assert "hostile" in done.output
    assert "EVICT µs PER KEY" in done.output


@pytest.mark.full
def test_the_runbook_writes_its_plot_into_a_new_folder(quick: None, tmp_path: Path) -> None:
    done = said("--report", str(tmp_path / "made"))
    assert done.exit_code == 0, done.output
    assert (tmp_path / "made" / "window.png").read_bytes().startswith(b"\x89PNG")


def test_the_runbook_takes_a_server_that_it_does_not_need_and_answers_with_json(quick: None) -> None:
    told = json.loads(said("--server", "http://127.0.0.1:9", "--json").output)
    assert told["ok"] is True
    assert [life["traffic"] for life in told["lives"]] == ["daily", "hostile"]
    assert [cost["keys"] for cost in told["costs"]] == list(SIZES)


def test_the_runbook_fails_where_the_window_forgets_too_much(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "DedupWindow", lambda _, keys: DedupWindow("1h", keys))
    done = said()
    assert done.exit_code == 1
    assert "FAILED  daily: every repeat is dropped" in done.output


def test_the_runbook_fails_where_the_window_grows(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "DedupWindow", lambda *_: DedupWindow("36500d"))
    book = Runbook()
    runbook.window(book, DAYS, SIZES)
    failed = [check.name for check in book.checks if not check.ok]
    assert "daily: never more keys than three days bring" in failed
    assert "hostile: never more keys than the bound" in failed


class _Searching(DedupWindow):
    """Looks for each key among all of them, as quickly as C does."""

    def push(self, key: str | None, now: datetime | None = None) -> bool:
        return super().push(key, now) if key not in self._keys else False


def test_the_runbook_fails_where_a_push_searches_its_keys(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_work, "DedupWindow", _Searching)
    few, many = window_work.measure(100), window_work.measure(1_000)
    book = Runbook()
    runbook._check_works(book, few, many)
    assert [check.ok for check in book.checks] == [False, True]


def test_no_time_decides_whether_the_runbook_holds(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = iter(range(0, 10**9, 3_600))
    monkeypatch.setattr(runbook, "perf_counter", lambda: next(hours) ** 2)  # ever slower
    done = said()
    assert (done.exit_code, "10 of 10 checks hold." in done.output) == (0, True), done.output


def test_the_same_work_is_counted_on_every_run() -> None:
    assert window_work.measure(500) == window_work.measure(500)


def test_the_map_of_the_comparison_is_as_large_as_it_says() -> None:
    forever = traffic.ForeverMap()
    for name, at in traffic.DAILY.of_day(3):
        forever.push(name, at)
    written = json.dumps(forever.seen, separators=(",", ":"))
    # A comma for each key, also for the last.
    assert forever.state_bytes == len(written) + 1


def test_the_traffic_is_as_it_says() -> None:
    life = traffic.live(traffic.DAILY, days=10, every=5)
    assert [sample.day for sample in life.samples] == [5, 10]
    assert life.last.map_keys == 10 * traffic.DAILY.per_day
    assert life.events == life.last.map_keys + life.map_dropped
    # Every fifth, but for those of the first six hours.
    assert life.map_dropped == life.last.map_keys // 5 - 1
    fresh = traffic.live(traffic.HOSTILE, days=4)
    assert fresh.map_dropped == 0
    assert fresh.map_too_large_after is None


def test_a_full_window_stays_as_full_as_it_is() -> None:
    window = traffic.full_window(50)
    for key, at in traffic.next_events(50, 10):
        assert window.push(key, at) is True
    assert len(window) == 50


def test_the_tables_have_a_cell_for_each_column(quick: None) -> None:
    seen = runbook.window(Runbook(), DAYS, SIZES)
    assert {len(row) for row in page.growth_rows(seen)} == {len(page.GROWTH)}
    assert {len(row) for row in page.cost_rows(seen)} == {len(page.COSTS)}
