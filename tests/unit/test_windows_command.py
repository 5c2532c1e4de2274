"""`semel windows`: what the ages of retries say about windows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import semel
from semel.cli import main
from semel.ledger.ledger import Ledger
from semel.stores.base import Store
from semel.stores.memory import MemoryStore
from semel.testing import FakeClock
from semel.windows.advice import advise
from semel.windows.age_counters import KEY, TOOL, AgeCounters, Subject
from semel.windows.ages import Ages
from tests.tools import a_step, another_process, declared

SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000


@declared(name="pay", window="24h")
def pay(to: str) -> int:
    return 1


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("SEMEL_URL", raising=False)
    return f"sqlite:///{tmp_path}/semel.db"


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with semel.open(url) as opened:
        yield opened


def keep(
    store: Store, *ages_us: int, name: str = "pay", kind: str = TOOL, window_us: int | None = DAY
) -> None:
    """Retries of these ages are in the store, under a window of that length."""
    ages, book = Ages(), AgeCounters()
    for age_us in ages_us:
        ages.met([age_us], 0, window_us)
    book.add(Subject("default", kind, name), ages)
    assert book.merge(store)


def run(*words: str) -> Result:
    result = CliRunner().invoke(main, ["windows", *words])
    assert result.exit_code == 0, result.output
    return result


def items(*words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(*words, "--json").stdout)["items"]
    return found


def test_a_store_without_retries_says_so(ledger, url):
    assert "No retries were seen in tenant default" in run("--url", url).stdout
    assert "No retries of pay were seen" in run("--url", url, "--tool", "pay").stdout
    assert items("--url", url) == []


def test_a_tool_is_shown_with_its_retries_the_covering_window_and_the_present_one(ledger, url):
    keep(ledger.store, *[30 * SECOND] * 1_999, 5 * HOUR)
    said = run("--url", url).stdout
    [row] = [line.split("  ") for line in said.splitlines() if line.startswith("pay")]
    cells = [cell.strip() for cell in row if cell.strip()]
    assert cells == ["pay", "2,000", "··█··▁·····", "45s", "1d", "-", "-"]
    assert "TOO SHORT" not in said
    assert "last tenth" not in said


def test_one_tool_alone_is_shown_with_all_its_ages(ledger, url):
    keep(ledger.store, SECOND, SECOND, 90 * SECOND)
    keep(ledger.store, DAY, name="send")
    said = run("--url", url, "--tool", "pay").stdout
    assert [line.split()[:2] for line in said.splitlines() if "██" in line][-2:] == [["2s", "2"], ["2m", "1"]]
    assert "send" not in said


def test_many_retries_at_the_end_of_a_window_say_that_it_is_too_short(ledger, url):
    keep(ledger.store, *[SECOND] * 990, *[23 * HOUR] * 10)
    [found] = items("--url", url)
    assert (found["too_short"], found["late_in_window"], found["met_window"]) == (True, 10, 1_000)
    assert "10 of 1000 retries came in the last tenth of the window of 1d" in found["remarks"][0]
    assert "try 2d" in found["remarks"][0]
    assert "TOO SHORT" in run("--url", url).stdout


@pytest.mark.parametrize(("late", "too_short"), [(1, False), (2, True)])
def test_more_than_one_late_retry_in_a_thousand_is_too_many(late: int, too_short: bool) -> None:
    store = MemoryStore(clock=FakeClock())
    keep(store, *[SECOND] * (1_000 - late), *[DAY - 1] * late)
    [found] = advise(store, "default")
    assert found.cut_off is found.too_short is too_short


def test_retries_later_than_the_window_are_named(ledger, url):
    ages, book = Ages(), AgeCounters()
    ages.met([SECOND] * 983, 0, DAY)
    ages.saw([5 * DAY] * 17, 0)
    book.add(Subject("default", TOOL, "pay"), ages)
    assert book.merge(ledger.store)
    [found] = items("--url", url)
    assert found["later_than_window"] == 17
    assert "17 of 1000 retries came later than 1d" in found["remarks"][0]
    assert (found["covering"], found["too_short"]) == ("6d", True)


def test_a_window_that_was_made_longer_is_no_longer_called_too_short() -> None:
    store = MemoryStore(clock=FakeClock())
    keep(store, *[SECOND] * 10, *[DAY - SECOND] * 10)
    assert advise(store, "default")[0].too_short
    ages, book = Ages(), AgeCounters()
    ages.met([3 * DAY], 2 * DAY, 9 * DAY)
    book.add(Subject("default", TOOL, "pay"), ages)
    book.merge(store)
    [found] = advise(store, "default")
    assert (found.window_us, found.too_short) == (7 * DAY, False)


def test_keys_of_a_gateway_are_shown_apart_from_a_tool_of_the_same_name(ledger, url):
    keep(ledger.store, SECOND, name="run")
    keep(ledger.store, HOUR, name="run", kind=KEY, window_us=None)
    tool, key = items("--url", url)
    assert (tool["kind"], tool["window"]) == ("tool", "1d")
    assert (key["kind"], key["window"], key["too_short"]) == ("key", "for ever", False)
    said = run("--url", url).stdout
    assert "run (keys of clients)" in said
    assert "for ever" in said


def test_another_tenant_sees_nothing(ledger, url):
    keep(ledger.store, SECOND)
    assert items("--url", url, "--tenant", "acme") == []


def test_what_windows_keep_follows_from_the_records_of_the_last_days() -> None:
    clock = FakeClock()
    ledger = Ledger(MemoryStore(clock=clock))
    for number in range(40):
        with a_step(ledger, f"s-{number}"):
            pay("a")
        clock.advance("30m")
    with a_step(ledger, "s-39"):
        pay("a")
    clock.advance("3h")
    ledger.keeper.close()
    [found] = advise(ledger.store, "default")
    # Forty in less than a day are forty a day: the window keeps them, and a third of it a third.
    assert found.stock is not None
    assert (found.stock.kept(DAY), found.stock.kept(8 * HOUR)) == (40, 13)
    assert 100 < found.stock.bytes_each < 1_000
    assert found.stock.kept_bytes(DAY) == round(40 * found.stock.bytes_each)
    ledger.close()


def test_a_busy_first_minute_is_not_taken_for_a_whole_day() -> None:
    clock = FakeClock()
    ledger = Ledger(MemoryStore(clock=clock))
    for number in range(10):
        with a_step(ledger, f"s-{number}"):
            pay("a"), pay("a")
        clock.advance("1s")
    ledger.keeper.close()
    [found] = advise(ledger.store, "default")
    assert found.stock is not None
    assert found.stock.kept(DAY) == 10
    ledger.close()


def test_the_present_window_is_what_the_newest_record_says() -> None:
    clock = FakeClock()
    ledger = Ledger(MemoryStore(clock=clock))
    longer = declared(name="pay", window="7d")(lambda: 1)
    with a_step(ledger):
        pay("a"), pay("a")
    clock.advance("1m")
    with a_step(another_process(ledger)):
        longer()
    ledger.keeper.close()
    [found] = advise(ledger.store, "default")
    assert (found.window_us, found.ages.window_us) == (7 * DAY, DAY)
    ledger.close()


def test_a_few_retries_are_called_a_few(ledger, url):
    keep(ledger.store, SECOND, SECOND)
    assert "Only 2 retries were seen" in run("--url", url).stdout
