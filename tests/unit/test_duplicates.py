"""What ran again although somebody meant it once: after its window, or because a word was other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import BaseModel

import semel
from semel.audit import duplicates, export
from semel.audit.duplicate_report import find_duplicates, late_by_tool
from semel.cli import main
from semel.errors import EffectFailed
from semel.kernel.answers import DuplicatesJson
from semel.ledger.ledger import Ledger
from semel.testing import FakeClock
from semel.windows.advice import advise, as_data
from tests.tools import a_step, declared


@declared(window="24h", refused=(ValueError,))
def refund(payment: str, amount: int = 5, reason: str = "") -> str:
    if reason == "refused":
        raise ValueError(reason)
    if reason == "failed":
        raise RuntimeError(reason)
    return payment


@declared(window="24h", ignore=("reason", "order.note"))
def careful(payment: str, order: dict[str, str], reason: str) -> str:
    return payment


@declared(window="24h", secret=("token",))
def signed(payment: str, token: str) -> str:
    return payment


class Order(BaseModel):
    payment: str
    amount: int
    why: str


@declared(window="24h")
def ordered(order: Order) -> str:
    return order.payment


@declared(window="24h")
def counted(payment: str, by_person: dict[str, int]) -> str:
    return payment


@declared(window="24h")
def notify(person: str) -> str:
    return person


def call(ledger: Ledger, step: str, payment: str = "p-1", **said: Any) -> None:
    with a_step(ledger, step):
        refund(payment, **said)


# --- after the window ---------------------------------------------------------------------------------


@pytest.mark.parametrize("swept", [True, False])
def test_a_key_that_comes_again_after_its_window_is_reported(
    ledger: Ledger, clock: FakeClock, swept: bool
) -> None:
    call(ledger, "1")
    clock.advance("25h")
    if swept:
        ledger.sweeper.run_once()
    call(ledger, "1")
    found = find_duplicates(ledger.store, "acme")
    assert (found.calls, found.count, found.late_count, found.any) == (2, 0, 1, True)
    late = found.late["refund"]
    [example] = late.examples
    assert (late.window_us, example.window_us) == (86_400_000_000, 86_400_000_000)
    assert example.again.at_us - example.settled_us == 25 * 3_600_000_000
    assert example.again.step == '["1"]'
    assert "30h would have covered all of them" in late.meaning


def test_a_key_that_comes_late_twice_is_reported_twice(ledger: Ledger, clock: FakeClock) -> None:
    for _ in range(3):
        call(ledger, "1")
        clock.advance("2d")
    assert find_duplicates(ledger.store, "acme").late_count == 2


def test_within_its_window_a_key_is_no_late_repeat(ledger: Ledger, clock: FakeClock) -> None:
    call(ledger, "1")
    clock.advance("23h")
    call(ledger, "1")
    with pytest.raises(ValueError, match="refused"):
        call(ledger, "2", reason="refused")
    clock.advance("40d")
    with pytest.raises(ValueError, match="refused"):
        call(ledger, "2", reason="refused")  # it never took effect, so its key is free at any time
    call(ledger, "3")
    assert find_duplicates(ledger.store, "acme").late_count == 0


def test_late_repeats_of_other_tenants_are_theirs(ledger: Ledger, clock: FakeClock) -> None:
    other = Ledger(ledger.store, tenant="umbra")
    for _ in range(2):
        call(other, "1")
        clock.advance("25h")
    assert (late_by_tool(ledger.store, "acme"), len(late_by_tool(ledger.store, "umbra"))) == ({}, 1)


def test_keys_that_share_a_bit_with_another_are_no_late_repeats(
    ledger: Ledger, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "_BITS", 8)
    for number in range(20):
        call(ledger, f"{number}", payment=f"p-{number}")
    clock.advance("25h")
    call(ledger, "7", payment="p-7")
    [late] = find_duplicates(ledger.store, "acme").late["refund"].examples
    assert late.again.step == '["7"]'


def test_windows_tell_what_came_after_them(ledger: Ledger, clock: FakeClock) -> None:
    call(ledger, "1")
    clock.advance("25h")
    call(ledger, "1")
    [advice] = advise(ledger.store, "acme")
    assert (advice.name, advice.after, advice.later, advice.too_short) == ("refund", 1, 0, True)
    assert as_data(advice)["after_window"] == 1
    assert "1 of 1 retries came after their window" in advice.remarks()[0]
    assert "The window is too short: 30h would cover 99.9 %." in advice.remarks()


def test_windows_know_the_window_of_a_tool_whose_records_are_all_gone(
    ledger: Ledger, clock: FakeClock
) -> None:
    call(ledger, "1")
    clock.advance("25h")
    call(ledger, "1")
    clock.advance("25h")
    ledger.sweeper.run_once()
    [found] = advise(ledger.store, "acme")
    assert (found.window_words, found.too_short) == ("1d", True)


def test_what_came_after_a_shorter_window_does_not_make_the_present_one_too_short(
    ledger: Ledger, clock: FakeClock
) -> None:
    def once(window: str) -> None:
        @declared(name="pay", window=window)
        def pay(to: str) -> str:
            return to

        with a_step(ledger, "1"):
            pay("ann")

    once("1h")
    clock.advance("2h")
    once("7d")
    [advice] = advise(ledger.store, "acme", "pay")
    assert (advice.after, advice.too_short) == (1, False)


# --- one argument -------------------------------------------------------------------------------------


def test_calls_of_one_step_that_differ_in_one_argument_are_reported_with_its_name(ledger: Ledger) -> None:
    for reason in ("damaged", "arrived damaged", "it came damaged"):
        call(ledger, "1", reason=reason)
    found = find_duplicates(ledger.store, "acme")
    assert found.any
    [near] = found.near.tools.values()
    assert (near.tool, near.argument, near.count) == ("refund", "reason", 2)
    assert "ignore=('reason',)" in near.meaning
    first, second = near.examples[0]
    assert first.record_id != second.record_id


def test_a_member_of_an_argument_that_differs_is_named_as_ignore_takes_it(ledger: Ledger) -> None:
    with a_step(ledger, "1"):
        ordered(Order(payment="p-1", amount=5, why="damaged"))
        ordered(Order(payment="p-1", amount=5, why="arrived damaged"))
        ordered(Order(payment="p-2", amount=6, why="late"))  # in more than one
    [near] = find_duplicates(ledger.store, "acme").near.tools.values()
    assert (near.tool, near.argument, near.count) == ("ordered", "order.why", 1)
    assert "ignore=('order.why',)" in near.meaning


def test_names_that_callers_choose_are_not_in_the_report(ledger: Ledger) -> None:
    with a_step(ledger, "1"):
        for count in (1, 2):
            counted("p-1", {"ann@example.test": count, "ben": 1})
    [near] = find_duplicates(ledger.store, "acme").near.tools.values()
    assert near.argument == "by_person"


def test_neither_arguments_nor_results_are_in_the_report(ledger: Ledger) -> None:
    for reason in ("damaged", "arrived damaged"):
        call(ledger, "1", reason=reason)
    told = json.dumps(audit_data(ledger))
    assert "reason" in told
    assert "damaged" not in told


def audit_data(ledger: Ledger) -> DuplicatesJson:
    return export.duplicates(find_duplicates(ledger.store, "acme"))


def test_what_differs_more_or_elsewhere_is_not_reported(ledger: Ledger) -> None:
    call(ledger, "1", reason="damaged")
    call(ledger, "1", reason="lost", amount=6)  # in two arguments
    call(ledger, "2", reason="late")  # another step
    with a_step(ledger, "3"):
        notify("ann")  # nothing else is equal
        notify("ben")
    assert find_duplicates(ledger.store, "acme").near.count == 0


def test_a_call_that_took_no_effect_may_be_made_again_otherwise(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="refused"):
        call(ledger, "1", reason="refused")
    with pytest.raises(EffectFailed, match="failed"):
        call(ledger, "1", reason="failed")
    call(ledger, "1", reason="damaged")
    assert find_duplicates(ledger.store, "acme").near.count == 0


def test_ignored_arguments_do_not_hide_the_one_that_differs(ledger: Ledger) -> None:
    with a_step(ledger, "1"):
        careful("p-1", {"id": "7", "note": "first"}, "damaged")
        careful("p-1", {"id": "7", "note": "second"}, "lost")  # the same action
        assert find_duplicates(ledger.store, "acme").near.count == 0
        careful("p-2", {"id": "7", "note": "third"}, "broken")
    [near] = find_duplicates(ledger.store, "acme").near.tools.values()
    assert near.argument == "payment"


def test_secrets_are_not_compared_because_they_are_not_kept(ledger: Ledger) -> None:
    with a_step(ledger, "1"):
        signed("p-1", "a")
        signed("p-1", "b")
    assert find_duplicates(ledger.store, "acme").near.count == 0


def test_what_is_held_is_bounded_and_said(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "HELD_MAX", 4)
    for number in range(4):
        call(ledger, f"{number}", payment=f"p-{number}")
    assert find_duplicates(ledger.store, "acme").near.flooded


# --- the commands -------------------------------------------------------------------------------------


@pytest.fixture
def late(tmp_path: Path, clock: FakeClock) -> str:
    """A file in which one key came late, and one word was other."""
    url = f"sqlite:///{tmp_path}/semel.db"
    with semel.open(url, tenant="acme", clock=clock) as ledger:
        call(ledger, "1")
        clock.advance("25h")
        call(ledger, "1")
        call(ledger, "2", reason="damaged")
        call(ledger, "2", reason="arrived damaged")
    return url


def run(url: str, *words: str) -> Any:
    return CliRunner().invoke(main, (*words, "--url", url, "--tenant", "acme"))


def test_the_command_shows_both_and_fails_the_check(late: str) -> None:
    shown = run(late, "audit", "duplicates", "--within", "1s")
    assert shown.exit_code == 0
    assert "1 key came again after its window" in shown.stdout
    assert "1 call differs in reason only" in shown.stdout
    assert run(late, "audit", "duplicates", "--within", "1s", "--check").exit_code == 1
    told = json.loads(run(late, "audit", "duplicates", "--within", "1s", "--json").stdout)
    assert (told["duplicates"], told["late_repeats"], told["near_repeats"]) == (0, 1, 1)
    assert told["late_tools"][0]["covering"] == "30h"


def test_windows_show_late_repeats(late: str) -> None:
    shown = run(late, "windows")
    assert "came after their window" in shown.stdout
    assert "TOO SHORT" in shown.stdout
