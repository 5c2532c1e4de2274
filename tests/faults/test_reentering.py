"""Code that comes back into Semel on a thread that is in the middle of it: signal handlers, finalisers."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import semel
from semel.kernel.clock import SYSTEM
from tests.faults.bank import Bank
from tests.faults.checks import assert_history_holds, until
from tests.faults.payment import LONG_LEASE
from tests.faults.places import PLACES, Place
from tests.faults.process import Process

MEMORY = Place("memory", lambda folder: "memory://")

# A call has a few hundred steps: one in so many in each run, and all of them in the soak.
EVERY = 5

Play = Callable[..., Process]


@pytest.fixture
def play(url: str, bank: Bank) -> Iterator[Play]:
    processes: list[Process] = []

    def begin(scene: str, **told: Any) -> Process:
        told = {"url": url, "bank": bank.path, "policy": "park", "lease": LONG_LEASE, **told}
        processes.append(Process(scene, told, module="tests.faults.reentered"))
        return processes[-1]

    yield begin
    for process in processes:
        process.clean_up()


def all_said(process: Process, word: str = "still well") -> list[Any]:
    said = []
    while (told := process.hear(word)) is not None:
        said.append(told)
    assert process.end() == 0
    return said


def paid(bank: Bank) -> Counter[str]:
    return Counter(entry.account for entry in bank.entries())


def check_deeds(deed: str, process: Process, bank: Bank, least: int) -> None:
    moments = all_said(process)
    assert len(moments) > least
    payments = paid(bank)
    for moment, number, first, inside, again, inside_again in moments:
        assert first["receipt"] is not None, (moment, first)
        assert again == first, moment
        assert payments[f"acc-{number}"] == 1, moment
        if deed == "pay":
            assert inside["receipt"] is not None or inside["code"] == "STORE_UNAVAILABLE", (moment, inside)
            assert inside_again["receipt"] is not None, moment
            assert payments[f"acc-{number}-inner"] == 1, moment
        elif deed == "list":
            assert inside in (0, 1, "STORE_UNAVAILABLE"), (moment, inside)
        else:
            assert inside == 1, moment


def check_closes(exits: bool, process: Process, bank: Bank, least: int) -> None:
    moments = all_said(process)
    assert len(moments) > least
    payments = paid(bank)
    for moment, number, first, late, again in moments:
        if exits:
            assert first["raised"] == "SystemExit", (moment, first)
        else:
            ended = first["receipt"] is not None
            assert ended or first["code"] in ("STORE_UNAVAILABLE", "OUTCOME_UNKNOWN"), (moment, first)
        assert late["code"] == "STORE_UNAVAILABLE", (moment, late)
        assert payments[f"acc-{number}"] <= 1, moment
        if again["receipt"] is None:
            assert again["code"] == "OUTCOME_UNKNOWN", (moment, again)
        else:
            assert payments[f"acc-{number}"] == 1, moment


EVERYWHERE = pytest.mark.parametrize("url", [MEMORY, *PLACES], ids=lambda place: place.name, indirect=True)
ON_BOTH = pytest.mark.parametrize("main", [True, False], ids=["main thread", "other thread"])


@EVERYWHERE
@ON_BOTH
@pytest.mark.parametrize("deed", ["pay", "list", "step"])
def test_code_that_comes_back_in_at_any_moment_of_a_call_is_served_or_refused_at_once(
    deed: str, main: bool, play: Play, bank: Bank
) -> None:
    process = play("comes_back", deed=deed, main=main, every=EVERY, first=len(deed) + main)
    check_deeds(deed, process, bank, 20)


@EVERYWHERE
def test_code_that_comes_back_in_on_the_thread_of_an_event_loop_is_served_or_refused_at_once(
    play: Play, bank: Bank
) -> None:
    process = play("comes_back", deed="pay", asynchronous=True, every=EVERY)
    check_deeds("pay", process, bank, 20)


@EVERYWHERE
def test_a_ledger_that_is_closed_on_the_thread_of_an_event_loop_is_closed(play: Play, bank: Bank) -> None:
    process = play("closes", exits=False, asynchronous=True, every=EVERY)
    check_closes(False, process, bank, 20)


@EVERYWHERE
@ON_BOTH
@pytest.mark.parametrize("exits", [True, False], ids=["and exits", "and goes on"])
def test_a_ledger_that_is_closed_at_any_moment_of_a_call_is_closed_and_the_call_ends_as_it_should(
    exits: bool, main: bool, play: Play, bank: Bank
) -> None:
    process = play("closes", exits=exits, main=main, every=EVERY, first=exits + 2 * main)
    check_closes(exits, process, bank, 20)


@pytest.mark.slow
@EVERYWHERE
@ON_BOTH
@pytest.mark.parametrize("deed", ["pay", "list"])
def test_code_that_comes_back_in_at_every_moment_of_a_call_is_served_or_refused_at_once(
    deed: str, main: bool, play: Play, bank: Bank
) -> None:
    check_deeds(deed, play("comes_back", deed=deed, main=main, every=1), bank, 100)


@pytest.mark.slow
@EVERYWHERE
@ON_BOTH
@pytest.mark.parametrize("exits", [True, False], ids=["and exits", "and goes on"])
def test_a_ledger_that_is_closed_at_every_moment_of_a_call_is_closed(
    exits: bool, main: bool, play: Play, bank: Bank
) -> None:
    check_closes(exits, play("closes", exits=exits, main=main, every=1), bank, 100)


@EVERYWHERE
@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "sync"])
def test_a_finaliser_on_semels_own_threads_strands_nobody(asynchronous: bool, play: Play, bank: Bank) -> None:
    process = play("in_the_background", deed="pay", rounds=3, asynchronous=asynchronous)
    answers: list[Any] = []
    places: set[str] = set()
    while (line := process.next_line()) is not None and line[0] != "all":
        if line[0] == "paid":
            answers.extend(line[1])
        else:
            thread, _, answer = line[1]
            places.add(thread)
            assert answer["receipt"] is not None or answer["code"] == "STORE_UNAVAILABLE", line
    assert line is not None, process.complaints()
    assert process.end() == 0
    assert "semel-keeper" in places
    assert all(isinstance(receipt, dict) for _, receipt in answers), answers
    assert max(paid(bank).values()) == 1


@pytest.mark.parametrize("crowd", [0, 2])
def test_a_handler_of_sigterm_closes_the_ledger_and_its_exit_is_the_end(
    crowd: int, play: Play, bank: Bank, url: str
) -> None:
    for number in range(3):
        # Other accounts each time: the call that was cut short in its effect stays in doubt.
        caller = play("closed_by_a_signal", crowd=crowd, bearer=f"{number}")
        caller.hear("calling")
        count = len(bank.entries())
        until(lambda count=count: len(bank.entries()) > count, "it pays")  # type: ignore[misc]
        SYSTEM.sleep(SYSTEM.random() * 0.01)  # somewhere within a call or two
        caller.send(signal.SIGTERM)
        assert caller.end() == 7, caller.complaints()
        with semel.open(url) as ledger:
            assert ledger.records.list(state="pending") == []
    assert max(Counter(entry.key for entry in bank.entries()).values()) == 1


def test_what_came_back_in_leaves_a_history_that_holds(play: Play, bank: Bank, url: str) -> None:
    all_said(play("comes_back", deed="pay", main=True, every=4 * EVERY))
    with semel.open(url) as ledger:
        assert_history_holds(ledger)
