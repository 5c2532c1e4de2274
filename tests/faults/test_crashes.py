"""kill -9 of a real process at every point of a call, under every policy; then somebody comes again."""

from __future__ import annotations

import signal
from typing import Any, NamedTuple

import pytest

import semel
from semel.kernel.record import Record, State
from tests.faults.bank import Bank
from tests.faults.caller import Heard, call
from tests.faults.checks import all_records, assert_history_holds, assert_rising, only_record, until_in_doubt
from tests.faults.conftest import Start
from tests.faults.payment import POLICIES, payment

UNKNOWN = Heard(code="OUTCOME_UNKNOWN")


class Death(NamedTuple):
    """How a process dies, and what it leaves behind."""

    name: str
    told: dict[str, Any]
    landed: int  # payments that the bank has
    left: State | None  # of the record


DEATHS = (
    Death("before the claim is sent", {"crash": "before claim"}, 0, None),
    Death("claim sent, reply unread", {"crash": "after claim"}, 0, State.PENDING),
    Death("claimed, before the effect", {"before": "die"}, 0, State.PENDING),
    Death("effect in flight", {"after": "die"}, 1, State.PENDING),
    Death("effect done, before settle", {"crash": "before settle"}, 1, State.PENDING),
    Death("settle sent, reply unread", {"crash": "after settle"}, 1, State.DONE),
    Death("settled, before the caller saw it", {"dies_unheard": True}, 1, State.DONE),
    # So long a lease that the payment has arrived before its first renewal, however busy the machine.
    Death("before a renewal", {"crash": "before renew", "after": "pause", "lease": "3s"}, 1, State.PENDING),
    Death("after a renewal", {"crash": "after renew", "after": "pause", "lease": "3s"}, 1, State.PENDING),
)

# How it dies that gave up by itself: it could not tell, or it was told that nothing happened.
DEATHS_ON_LEAVING = (
    Death(
        "before it says that it cannot tell", {"after": "time out", "crash": "before park"}, 1, State.PENDING
    ),
    Death(
        "after it said that it cannot tell", {"after": "time out", "crash": "after park"}, 1, State.IN_DOUBT
    ),
    Death("before a release", {"before": "be declined", "crash": "before release"}, 0, State.PENDING),
    Death("after a release", {"before": "be declined", "crash": "after release"}, 0, State.RELEASED),
)


def expected_entries(death: Death, policy: str) -> int:
    """How many payments the bank has once somebody came again."""
    if death.left in (None, State.RELEASED, State.DONE):
        return 1
    match policy:
        case "park":
            return death.landed
        case "probe":
            return 1
        case _:
            return death.landed + 1


def die(start: Start, bank: Bank, ledger: semel.Ledger, death: Death, **told: Any) -> None:
    """The process called, died where it should, and left behind what that death leaves."""
    process = start("one_call", note="first", **death.told, **told)
    assert process.end() == -signal.SIGKILL
    assert len(bank.entries()) == death.landed
    left = [record.state for record in all_records(ledger)]
    # On a very busy machine the sweeper of this process has come by.
    swept = State.IN_DOUBT if death.left is State.PENDING else death.left
    assert left in ([[death.left], [swept]] if death.left else [[]])


def come_again(ledger: semel.Ledger, bank: Bank, death: Death, policy: str, asynchronous: bool) -> None:
    if death.left in (State.PENDING, State.IN_DOUBT):
        until_in_doubt(ledger)
    tool = payment(bank, policy, asynchronous=asynchronous)
    second = call(ledger, tool, note="second")
    assert len(bank.entries()) == expected_entries(death, policy)
    if policy == "park" and death.left in (State.PENDING, State.IN_DOUBT):
        assert second == UNKNOWN
    else:
        assert second.receipt is not None
        assert second.receipt.fence in [entry.fence for entry in bank.entries()]
    assert_entries_agree(bank, "second" if death.left in (None, State.RELEASED) else "first")
    assert call(ledger, tool, note="third") == second, "everyone else reads the settlement"
    assert len(bank.entries()) == expected_entries(death, policy)
    assert_history_holds(ledger)


def assert_entries_agree(bank: Bank, note: str) -> None:
    """Every entry carried one key, one set of arguments (whose note this is), and a larger fence."""
    entries = bank.entries()
    assert len({entry.key for entry in entries}) <= 1
    assert {entry.note for entry in entries} <= {note}
    assert_rising([entry.fence for entry in entries])


# One policy that leaves the doubt to people and one that goes on tell a death apart.
TELLING = [
    policy if policy in ("park", "retry") else pytest.param(policy, marks=pytest.mark.full)
    for policy in POLICIES
]


@pytest.mark.parametrize("policy", TELLING)
@pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.name)
def test_a_caller_dies_and_the_next_one_goes_by_the_contract(
    death: Death, policy: str, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    die(start, bank, ledger, death, policy=policy)
    come_again(ledger, bank, death, policy, asynchronous=False)


@pytest.mark.full
@pytest.mark.parametrize("policy", ["retry", "park"])
@pytest.mark.parametrize("death", DEATHS, ids=lambda death: death.name)
def test_an_asynchronous_caller_dies_and_the_next_one_goes_by_the_contract(
    death: Death, policy: str, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    die(start, bank, ledger, death, policy=policy, asynchronous=True)
    come_again(ledger, bank, death, policy, asynchronous=True)


@pytest.mark.parametrize("policy", ["retry", "park"])
@pytest.mark.parametrize("death", DEATHS_ON_LEAVING, ids=lambda death: death.name)
def test_a_caller_dies_while_it_gives_up(
    death: Death, policy: str, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    die(start, bank, ledger, death, policy=policy)
    come_again(ledger, bank, death, policy, asynchronous=False)


IN_FLIGHT = DEATHS[3]


@pytest.mark.full
@pytest.mark.parametrize(
    ("policy", "point", "entries", "attempts"),
    [
        ("retry", "before retake", 2, 2),
        ("retry", "after retake", 2, 3),
        ("rerun", "after retake", 2, 3),
        ("probe", "before resolve", 1, 1),
        ("probe", "after resolve", 1, 1),
    ],
)
def test_whoever_takes_over_from_the_dead_dies_as_well(
    policy: str, point: str, entries: int, attempts: int, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    die(start, bank, ledger, IN_FLIGHT, policy=policy)
    until_in_doubt(ledger)
    assert start("one_call", policy=policy, crash=point, note="second").end() == -signal.SIGKILL
    assert len(bank.entries()) == 1
    if only_record(ledger).state is not State.DONE:
        until_in_doubt(ledger)
    third = call(ledger, payment(bank, policy), note="third")
    assert third.receipt is not None
    assert third.receipt.note == "first"
    assert len(bank.entries()) == entries
    assert only_record(ledger).attempts == attempts
    assert_entries_agree(bank, "first")
    assert_history_holds(ledger)


def test_three_owners_die_in_flight_and_the_fourth_settles(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    for note in ("first", "second", "third"):
        assert start("one_call", policy="retry", after="die", note=note).end() == -signal.SIGKILL
        until_in_doubt(ledger)
    fourth = call(ledger, payment(bank, "retry"), note="fourth")
    assert fourth.receipt is not None
    record: Record = only_record(ledger)
    assert (record.state, record.attempts, record.entries) == (State.DONE, 4, 4)
    assert len(bank.entries()) == 4
    assert_entries_agree(bank, "first")
    assert_history_holds(ledger)


@pytest.mark.full
def test_a_parked_call_stays_parked_however_often_somebody_comes(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    die(start, bank, ledger, IN_FLIGHT, policy="park")
    until_in_doubt(ledger)
    others = [start("one_call", policy="park", note="other") for _ in range(3)]
    assert [other.hear("heard")["code"] for other in others] == ["OUTCOME_UNKNOWN"] * 3
    assert len(bank.entries()) == 1


def test_a_person_settles_what_the_dead_left_and_everyone_reads_that(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    die(start, bank, ledger, IN_FLIGHT, policy="park")
    until_in_doubt(ledger)
    known = {"account": "acc-1", "amount": 1_400, "note": "seen at the bank", "fence": 0}
    ledger.records.resolve(only_record(ledger).request.id, "happened", by="ann", result=known)
    other = start("one_call", policy="park", note="other").hear("heard")
    assert other["receipt"] == known
    assert len(bank.entries()) == 1
    assert_history_holds(ledger)
