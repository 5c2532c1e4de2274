"""The window of an entity: what is new, what is forgotten, what a restart and a clock may do to it."""

from __future__ import annotations

import ast
import json
import sys
import tracemalloc
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import semel
from semel.windows import entity as module
from semel.windows.entity import FORMAT, DedupWindow

MONDAY = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
TICK = timedelta(microseconds=1)


def restored(window: DedupWindow, **changed: Any) -> DedupWindow:
    """The window after a restart: its state went through JSON."""
    return DedupWindow.from_state(json.loads(json.dumps(window.to_state())), **changed)


# --- new, or seen ---------------------------------------------------------------------------------


def test_a_key_is_new_once() -> None:
    window = semel.DedupWindow(max_age=timedelta(days=3), max_keys=None)
    assert window.push("e-1", now=MONDAY) is True
    assert window.push("e-1", now=MONDAY) is False
    assert window.push("e-2", now=MONDAY) is True


def test_the_window_lasts_three_days_unless_it_is_told_otherwise() -> None:
    assert semel.DedupWindow().max_age == timedelta(days=3)
    assert semel.DedupWindow().max_keys is None


def test_a_key_exactly_as_old_as_the_window_is_inside_and_a_tick_later_is_new() -> None:
    window = DedupWindow("3d")
    window.push("e-1", MONDAY)
    assert window.push("e-1", MONDAY + 3 * DAY) is False
    assert window.push("e-1", MONDAY + 3 * DAY + TICK) is True


def test_a_duplicate_does_not_make_the_window_longer() -> None:
    window = DedupWindow("3d")
    window.push("e-1", MONDAY)
    window.push("e-1", MONDAY + 2 * DAY)
    assert window.first_seen("e-1") == MONDAY
    assert window.push("e-1", MONDAY + 4 * DAY) is True


def test_an_event_without_a_key_is_always_new_and_never_kept() -> None:
    window = DedupWindow()
    assert window.push(None, MONDAY) is True
    assert window.push(None, now=MONDAY) is True
    assert window.push(None) is True
    assert len(window) == 0


def test_an_event_without_a_key_still_tells_the_time() -> None:
    window = DedupWindow("1d")
    window.push("e-1", MONDAY)
    window.push(None, MONDAY + 2 * DAY)
    assert "e-1" not in window


def test_a_key_without_a_time_is_refused() -> None:
    with pytest.raises(ValueError, match="no clock of its own"):
        DedupWindow().push("e-1")


@pytest.mark.parametrize("now", [MONDAY.replace(tzinfo=None), MONDAY.date(), 1_772_442_000.0, "2026-03-02"])
def test_a_time_without_a_zone_is_refused_and_changes_nothing(now: Any) -> None:
    window = DedupWindow()
    with pytest.raises(ValueError, match="time zone"):
        window.push("e-1", now)
    assert len(window) == 0
    assert window.covered_since is None


@pytest.mark.parametrize("key", [7, b"e-1", ("e", 1)])
def test_a_key_that_is_no_text_is_refused(key: Any) -> None:
    with pytest.raises(TypeError, match="is a text"):
        DedupWindow().push(key, MONDAY)
    assert key not in DedupWindow()


def test_every_zone_means_the_same_instant() -> None:
    window = DedupWindow("1h")
    window.push("e-1", MONDAY.astimezone(ZoneInfo("America/New_York")))
    assert window.first_seen("e-1") == MONDAY
    assert window.push("e-1", (MONDAY + HOUR).astimezone(timezone(timedelta(hours=9)))) is False
    assert window.push("e-1", MONDAY + HOUR + TICK) is True


def test_the_hour_that_a_zone_repeats_in_autumn_is_two_hours_here() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=0)
    again = datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=1)
    window = DedupWindow("30m")
    window.push("e-1", first)
    assert window.push("e-1", again) is True


# --- a clock that steps back ----------------------------------------------------------------------


def test_time_that_steps_back_does_not_bring_a_key_back() -> None:
    window = DedupWindow("1d")
    window.push("e-1", MONDAY)
    window.push("e-2", MONDAY + 2 * DAY)
    assert window.push("e-1", MONDAY) is True


def test_time_that_steps_back_does_not_shorten_the_window() -> None:
    window = DedupWindow("1d")
    window.push("e-1", MONDAY)
    window.push("e-2", MONDAY - 5 * DAY)
    assert window.first_seen("e-2") == MONDAY
    assert window.push("e-2", MONDAY + DAY) is False
    assert window.push("e-1", MONDAY + DAY) is False


def test_evicting_with_an_earlier_time_evicts_nothing() -> None:
    window = DedupWindow("1d")
    window.push("e-1", MONDAY)
    assert window.evict(MONDAY - 9 * DAY) == 0
    assert window.push("e-1", MONDAY - 9 * DAY) is False


# --- forgetting -----------------------------------------------------------------------------------


def test_evict_forgets_what_is_too_old_and_says_how_much_that_was() -> None:
    window = DedupWindow("1d")
    for hour in range(6):
        window.push(f"e-{hour}", MONDAY + hour * HOUR)
    assert window.evict(MONDAY + DAY + 3 * HOUR) == 3
    assert [f"e-{hour}" in window for hour in range(6)] == [False] * 3 + [True] * 3
    assert len(window) == 3
    assert window.first_seen("e-0") is None


def test_the_oldest_keys_give_way_when_there_are_too_many() -> None:
    window = DedupWindow("3d", max_keys=2)
    for hour, key in enumerate("abc"):
        window.push(key, MONDAY + hour * HOUR)
    assert [key in window for key in "abc"] == [False, True, True]


def test_covered_since_says_from_when_on_nothing_was_dropped() -> None:
    window = DedupWindow("3d", max_keys=2)
    assert window.covered_since is None
    window.push("a", MONDAY)
    window.push("b", MONDAY + HOUR)
    assert window.covered_since == MONDAY + HOUR - 3 * DAY
    window.push("c", MONDAY + 2 * HOUR)
    assert window.covered_since == MONDAY + HOUR


def test_a_moment_of_which_one_key_was_dropped_is_not_covered() -> None:
    window = DedupWindow("3d", max_keys=2)
    for key in "abc":
        window.push(key, MONDAY)
    assert window.covered_since == MONDAY + TICK


def test_a_dropped_key_stops_to_matter_once_it_would_be_too_old_anyway() -> None:
    window = DedupWindow("3d", max_keys=1)
    window.push("a", MONDAY)
    window.push("b", MONDAY + HOUR)
    window.evict(MONDAY + 9 * DAY)
    assert window.covered_since == MONDAY + 6 * DAY


def test_a_window_may_reach_back_beyond_the_first_year() -> None:
    window = DedupWindow("36500d")
    window.push("e-1", datetime(2, 1, 1, tzinfo=UTC))
    assert window.covered_since == datetime.min.replace(tzinfo=UTC)


def test_a_client_that_sends_only_fresh_keys_cannot_make_it_grow() -> None:
    window = DedupWindow("3d", max_keys=100)
    for number in range(10_000):
        window.push(f"fresh-{number}", MONDAY + number * TICK)
    assert len(window) == 100
    assert len(window.to_state()["keys"]) == 100


@pytest.mark.parametrize("key", ["k" * 1_000_000, "clé", "\x00", "\ud800", "\n" * 10])
def test_a_long_or_odd_key_takes_no_more_state_than_another_and_is_still_known(key: str) -> None:
    window = DedupWindow()
    assert window.push(key, MONDAY) is True
    again = restored(window)
    assert again.push(key, MONDAY) is False
    assert key in again
    assert again.first_seen(key) == MONDAY
    assert len(json.dumps(window.to_state()["keys"], ensure_ascii=False).encode()) < 100


def test_keys_that_differ_only_in_what_a_digest_stands_for_are_two_keys() -> None:
    window = DedupWindow()
    assert window.push("k" * 1_000 + "a", MONDAY) is True
    assert window.push("k" * 1_000 + "b", MONDAY) is True


# --- memory ---------------------------------------------------------------------------------------


def filled(keys: int) -> DedupWindow:
    window = DedupWindow("1d")
    for number in range(keys):
        window.push(f"event-{number:020d}", MONDAY + number * TICK)
    return window


def test_the_memory_of_forgotten_keys_is_given_back() -> None:
    tracemalloc.start()
    try:
        window = filled(50_000)
        full, _ = tracemalloc.get_traced_memory()
        window.evict(MONDAY + 2 * DAY)
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(window) == 0
    assert left < full / 50


def test_the_table_shrinks_while_some_keys_stay() -> None:
    window = filled(50_000)
    full = sys.getsizeof(window._times)
    window.evict(MONDAY + DAY + 49_900 * TICK)
    assert len(window) == 100
    assert sys.getsizeof(window._times) < full / 100


def test_the_table_shrinks_where_the_bound_is_lowered_on_restore() -> None:
    window = restored(filled(20_000), max_keys=10)
    assert len(window) == 10
    assert sys.getsizeof(window._times) < 2_000


def test_a_window_that_keeps_its_size_is_not_copied_at_each_push() -> None:
    window = filled(1_000)
    table = window._times
    for number in range(5_000):
        window.push(f"later-{number}", MONDAY + DAY + number * TICK)
    assert window._times is table


# --- a restart ------------------------------------------------------------------------------------


def test_a_restart_changes_nothing() -> None:
    window = DedupWindow("3d", max_keys=3)
    for hour, key in enumerate("abcd"):
        window.push(key, MONDAY + hour * HOUR)
    again = restored(window)
    assert again.to_state() == window.to_state()
    assert (again.max_age, again.max_keys) == (timedelta(days=3), 3)
    assert again.covered_since == window.covered_since
    assert again.push("b", MONDAY + 3 * DAY) is False


def test_a_restart_keeps_the_latest_time() -> None:
    window = restored(filled(3))
    window.push("late", MONDAY - 9 * DAY)
    assert window.first_seen("late") == MONDAY + 2 * TICK


def test_an_empty_window_survives_a_restart() -> None:
    window = restored(DedupWindow("5m"))
    assert len(window) == 0
    assert window.covered_since is None
    assert window.push("e-1", MONDAY) is True


def test_a_shorter_window_forgets_at_the_restart() -> None:
    window = DedupWindow("3d")
    window.push("old", MONDAY)
    window.push("young", MONDAY + DAY)
    shorter = restored(window, max_age="1h")
    assert "old" not in shorter
    assert "young" in shorter
    assert shorter.covered_since == MONDAY + DAY - HOUR


def test_a_longer_window_holds_from_now_on_and_says_what_it_cannot_know() -> None:
    window = DedupWindow("1h")
    window.push("forgotten", MONDAY)
    window.push("known", MONDAY + DAY)
    longer = restored(window, max_age=timedelta(days=7))
    assert longer.covered_since == MONDAY + DAY - HOUR
    assert longer.push("known", MONDAY + 7 * DAY) is False
    assert longer.push("forgotten", MONDAY + 7 * DAY) is True
    longer.evict(MONDAY + 30 * DAY)
    assert longer.covered_since == MONDAY + 23 * DAY


def test_the_bound_may_change_at_the_restart() -> None:
    window = DedupWindow("3d", max_keys=2)
    for hour, key in enumerate("ab"):
        window.push(key, MONDAY + hour * HOUR)
    assert restored(window, max_keys=None).max_keys is None
    fewer = restored(window, max_keys=1)
    assert [key in fewer for key in "ab"] == [False, True]
    assert fewer.covered_since == MONDAY + HOUR


def test_a_state_of_the_first_format_is_read() -> None:
    state = {
        "format": 1,
        "max_age_us": 259_200_000_000,
        "max_keys": 5,
        "latest_us": 1_772_442_000_000_000,
        "since_us": None,
        "seen": [["a", 1_772_438_400_000_000], ["b", 1_772_442_000_000_000]],
    }
    window = DedupWindow.from_state(state)
    assert window.first_seen("a") == MONDAY - HOUR
    assert window.push("b", MONDAY) is False
    assert window.push("c", MONDAY) is True
    assert window.to_state()["format"] == FORMAT


def test_the_present_format_stays_as_it_is_written_here() -> None:
    window = DedupWindow("1d", max_keys=2)
    for second, key in enumerate("abc"):
        window.push(key, MONDAY + timedelta(seconds=second))
    text = (
        '{"format":2,"max_age_us":86400000000,"max_keys":2,"latest_us":1772442002000000,'
        '"since_us":1772442001000000,"keys":["b","c"],"gaps_us":[1772442001000000,1000000],'
        '"stats":{"pushes":3,"ages_us":[],"evicted_early":1}}'
    )
    assert json.dumps(window.to_state(), separators=(",", ":")) == text
    assert DedupWindow.from_state(json.loads(text)).to_state() == window.to_state()


def test_a_state_of_a_newer_format_is_refused_and_the_text_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"format 3.* up to 2.*newer"):
        DedupWindow.from_state({**DedupWindow().to_state(), "format": 3})


def sound() -> dict[str, Any]:
    window = DedupWindow("1d")
    window.push("a", MONDAY)
    window.push("b", MONDAY + HOUR)
    return window.to_state()


@pytest.mark.parametrize(
    "damage",
    [
        {"format": None},
        {"format": True},
        {"format": 0},
        {"format": "2"},
        {"max_age_us": None},
        {"max_age_us": 0},
        {"max_age_us": 10**30},
        {"max_age_us": "3d"},
        {"max_keys": 0},
        {"max_keys": 1.5},
        {"latest_us": None},
        {"latest_us": 5},
        {"latest_us": 10**30},
        {"since_us": "monday"},
        {"since_us": 10**30},
        {"keys": ["a"]},
        {"keys": ["a", "a"]},
        {"keys": ["a", 7]},
        {"keys": "ab"},
        {"gaps_us": [1, -1]},
        {"gaps_us": [1.0, 2.0]},
        {"gaps_us": [-(10**30), 1]},
        {"gaps_us": None},
        {"format": 1},
        {"format": 1, "seen": [["a"]]},
        {"format": 1, "seen": [["a", 2], ["b", 1]]},
        {"format": 1, "seen": [["a", "x"]]},
        {"format": 1, "seen": ["ab"]},
    ],
    ids=str,
)
def test_a_damaged_state_is_refused(damage: dict[str, Any]) -> None:
    DedupWindow.from_state(sound())
    with pytest.raises(ValueError, match=r"damaged|max_age|max_keys"):
        DedupWindow.from_state({**sound(), **damage})


@pytest.mark.parametrize(
    "name", ["format", "max_age_us", "max_keys", "latest_us", "since_us", "keys", "gaps_us"]
)
def test_a_state_that_lacks_something_is_refused(name: str) -> None:
    state = sound()
    del state[name]
    with pytest.raises(ValueError, match="damaged"):
        DedupWindow.from_state(state)


@pytest.mark.parametrize("state", [None, [], "{}", 5])
def test_what_is_no_state_at_all_is_refused(state: Any) -> None:
    with pytest.raises(ValueError, match="no mapping"):
        DedupWindow.from_state(state)


def test_the_state_shares_nothing_with_the_window() -> None:
    window = DedupWindow()
    window.push("a", MONDAY)
    state = window.to_state()
    window.push("b", MONDAY)
    assert state["keys"] == ["a"]
    state["keys"].clear()
    assert "a" in window


# --- declared -------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_age", [timedelta(0), -HOUR, "3 days", "forever", "0s", 3, None])
def test_a_window_without_a_sensible_length_is_refused(max_age: Any) -> None:
    with pytest.raises(ValueError, match="max_age"):
        DedupWindow(max_age)


@pytest.mark.parametrize("max_keys", [0, -1, 1.5, True, "7"])
def test_a_bound_that_bounds_nothing_is_refused(max_keys: Any) -> None:
    with pytest.raises(ValueError, match="max_keys"):
        DedupWindow(max_keys=max_keys)


def test_it_says_what_it_is() -> None:
    window = DedupWindow("3d", max_keys=10)
    window.push("a", MONDAY)
    assert repr(window) == "<DedupWindow of 3d, max_keys=10: 1 keys>"


def test_it_reads_no_clock_and_needs_only_the_standard_library() -> None:
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    origins = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    origins |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    allowed = {"__future__", "collections", "collections.abc", "datetime", "hashlib", "types", "typing"}
    assert origins == {*allowed, "semel.kernel.durations", "semel.windows.ages"}


# --- what it counts -------------------------------------------------------------------------------


def test_it_counts_pushes_duplicates_with_their_ages_and_keys_that_gave_way() -> None:
    window = DedupWindow("3d", max_keys=2)
    for key, at in (("a", MONDAY), ("a", MONDAY), ("a", MONDAY + 2 * DAY), ("b", MONDAY + 2 * DAY)):
        window.push(key, at)
    window.push(None, MONDAY + 2 * DAY)
    window.push("c", MONDAY + 2 * DAY)
    stats = window.stats()
    assert stats == (6, 2, {timedelta(seconds=1): 1, timedelta(hours=60): 1}, 1)
    assert sum(stats.ages.values()) == stats.duplicates


def test_keys_that_are_forgotten_for_their_age_did_not_give_way() -> None:
    window = DedupWindow("1d", max_keys=2)
    window.push("a", MONDAY)
    window.push("b", MONDAY + 2 * DAY)
    window.evict(MONDAY + 9 * DAY)
    assert window.stats().evicted_early == 0


def test_a_push_that_was_refused_is_not_counted() -> None:
    window = DedupWindow()
    with pytest.raises(ValueError, match="no clock of its own"):
        window.push("e-1")
    with pytest.raises(TypeError):
        window.push(7, MONDAY)  # type: ignore[arg-type]
    assert window.stats().pushes == 0


def test_counts_survive_a_restart_and_a_shorter_bound_drops_young_keys() -> None:
    window = DedupWindow("3d")
    for key in ("a", "b", "c", "a"):
        window.push(key, MONDAY)
    assert restored(window).stats() == window.stats() == (4, 1, {timedelta(seconds=1): 1}, 0)
    assert restored(window, max_keys=1).stats().evicted_early == 2


def test_a_state_from_before_there_were_counts_still_loads() -> None:
    window = DedupWindow("3d")
    window.push("a", MONDAY)
    state = window.to_state()
    del state["stats"]
    again = DedupWindow.from_state(state)
    assert again.stats() == (0, 0, {}, 0)
    assert again.push("a", MONDAY) is False


def test_the_format_is_still_the_one_that_older_versions_read() -> None:
    assert DedupWindow().to_state()["format"] == FORMAT == 2


@pytest.mark.parametrize(
    "stats", [7, {}, {"pushes": "1", "ages_us": [], "evicted_early": 0},
              {"pushes": 1, "ages_us": [[1]], "evicted_early": 0},
              {"pushes": 1, "ages_us": [[1, 2.5]], "evicted_early": 0},
              {"pushes": 1, "ages_us": [[10**30, 1]], "evicted_early": 0}]
)  # fmt: skip
def test_damaged_counts_are_refused(stats: Any) -> None:
    with pytest.raises(ValueError, match="damaged"):
        DedupWindow.from_state({**DedupWindow().to_state(), "stats": stats})
