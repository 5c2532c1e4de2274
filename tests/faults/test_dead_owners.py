"""An owner that was killed is not waited for by those who can see that it is gone; a frozen one is.

The leases here are of ten minutes: whoever waits for one fails by the patience of the test.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from typing import Any

import pytest

import semel
from semel.audit.verify import verify
from semel.kernel import owner
from semel.kernel.record import OWNER_GONE, State
from semel.ledger.explain import explained
from tests.faults.bank import Bank
from tests.faults.caller import Heard, acall, call
from tests.faults.checks import assert_history_holds, only_record, until
from tests.faults.conftest import Start
from tests.faults.payment import LONG_LEASE, POLICIES, payment
from tests.faults.places import SQLITE
from tests.faults.process import Process
from tests.missing import cannot

# In front of a command: its processes are numbered anew, so their numbers mean others here.
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


# What is seen of a process does not depend on the store.
one_store = pytest.mark.parametrize("url", [SQLITE], indirect=True, ids=["sqlite"])


def own_namespace() -> tuple[str, ...]:
    for command in (NAMESPACE, (*NAMESPACE, "--user", "--map-root-user")):
        if shutil.which(command[0]) and subprocess.run([*command, "true"], check=False).returncode == 0:
            return command
    return cannot("no process namespace can be made here: it takes `unshare` and the right to use it")


def killed_in_its_tool(start: Start, policy: str, **told: Any) -> Process:
    process = start("one_call", policy=policy, after="die", lease=LONG_LEASE, note="first", **told)
    assert process.end() == -signal.SIGKILL
    return process


@pytest.mark.parametrize(
    ("policy", "asynchronous"), [*((policy, False) for policy in POLICIES), ("retry", True)]
)
def test_the_next_caller_goes_by_the_contract_at_once(
    policy: str, asynchronous: bool, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    killed_in_its_tool(start, policy)
    tool = payment(bank, policy, lease=LONG_LEASE, asynchronous=asynchronous)
    second = call(ledger, tool, note="second")
    entries = {"retry": 2, "rerun": 2, "probe": 1, "park": 1}[policy]
    assert second.code == ("OUTCOME_UNKNOWN" if policy == "park" else None)
    assert len(bank.entries()) == entries
    assert call(ledger, tool, note="third") == second
    parked = [
        event for event in ledger.records.history(only_record(ledger).request.id) if event.kind == "parked"
    ]
    assert [event.note for event in parked] == [OWNER_GONE]
    assert_history_holds(ledger)
    assert verify(ledger.store, tenants=["default"]).whole


@one_store
def test_a_caller_that_refuses_to_wait_is_not_told_that_somebody_is_at_it(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    killed_in_its_tool(start, "park")

    @semel.tool_contract(class_="write-non-idempotent", name="pay", ignore=("note",), in_flight="refuse")
    def pay(account: str, amount: int, note: str) -> str:
        raise AssertionError("entered twice")

    assert call(ledger, pay).code == "OUTCOME_UNKNOWN"


@pytest.mark.parametrize("manner", ["sync", "async"])
def test_who_waits_for_an_owner_notices_its_death(
    manner: str, start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    process = start("one_call", policy="retry", after="pause", lease=LONG_LEASE, note="first")
    process.hear("in the tool")
    tool = payment(bank, "retry", lease=LONG_LEASE, wait="10m", asynchronous=manner == "async")

    async def killed_while_we_wait() -> Heard:
        waiting = asyncio.create_task(
            acall(ledger, tool, note="second")
            if manner == "async"
            else asyncio.to_thread(call, ledger, tool, note="second")
        )
        await asyncio.to_thread(until, lambda: bool(ledger.store.waiters), "somebody waits")
        process.send(signal.SIGKILL)
        return await waiting

    assert asyncio.run(killed_while_we_wait()).receipt is not None
    assert [entry.note for entry in bank.entries()] == ["first", "first"]
    assert_history_holds(ledger)


@one_store
def test_a_frozen_owner_is_not_taken_for_dead(start: Start, bank: Bank, ledger: semel.Ledger) -> None:
    process = start("one_call", policy="retry", after="pause", lease=LONG_LEASE, note="first")
    process.hear("in the tool")
    process.freeze()
    assert not owner.is_gone(only_record(ledger).token)
    tool = payment(bank, "retry", lease=LONG_LEASE, wait="100ms")
    assert call(ledger, tool, note="second").code == "RETRY_IN_FLIGHT"
    process.send(signal.SIGCONT)
    process.go_on()
    assert process.hear("heard")["receipt"] is not None
    assert len(bank.entries()) == 1


@one_store
def test_a_zombie_is_taken_for_dead(start: Start, bank: Bank, ledger: semel.Ledger) -> None:
    process = start("one_call", policy="retry", after="die", lease=LONG_LEASE, note="first")
    until(lambda: _state_of(process.pid) == "Z", "it is dead, and nobody has asked how it ended")
    assert call(ledger, payment(bank, "retry", lease=LONG_LEASE), note="second").receipt is not None
    assert _state_of(process.pid) == "Z"


@one_store
def test_an_owner_in_another_namespace_is_not_judged_by_its_number(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    # The first process of a namespace cannot kill itself, but it can go without a word.
    told = {"policy": "retry", "after": "os._exit", "lease": LONG_LEASE, "note": "first"}
    start("one_call", under=own_namespace(), **told).end()
    assert len(bank.entries()) == 1
    tool = payment(bank, "retry", lease=LONG_LEASE, wait="100ms")
    assert call(ledger, tool, note="second").code == "RETRY_IN_FLIGHT"


def test_an_owner_that_settled_before_it_died_is_replayed(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    process = start("one_call", policy="retry", crash="after settle", lease=LONG_LEASE, note="first")
    assert process.end() == -signal.SIGKILL
    heard = call(ledger, payment(bank, "retry", lease=LONG_LEASE), note="second")
    assert heard.receipt is not None
    assert heard.receipt.note == "first"
    assert len(bank.entries()) == 1


def test_many_who_come_after_a_death_enter_once(start: Start, bank: Bank, ledger: semel.Ledger) -> None:
    killed_in_its_tool(start, "retry")
    others = [start("one_call", policy="retry", lease=LONG_LEASE, note="other") for _ in range(4)]
    heard = [other.hear("heard")["receipt"] for other in others]
    assert all(receipt == heard[0] for receipt in heard)
    assert len(bank.entries()) == 2
    assert_history_holds(ledger)


def test_a_person_is_told_of_the_death_and_may_answer_at_once(
    start: Start, bank: Bank, ledger: semel.Ledger
) -> None:
    killed_in_its_tool(start, "park")
    record = only_record(ledger)
    told = explained(record, ledger.records.history(record.request.id), ledger.clock.now_us())
    assert record.state is State.PENDING
    assert OWNER_GONE in told["known"].lower()
    assert told["choices"] == ["happened", "did_not_happen"]
    assert "did it take effect" in told["question"]
    ledger.records.resolve(record.request.id, "did_not_happen", by="ann")
    assert call(ledger, payment(bank, "park", lease=LONG_LEASE), note="second").receipt is not None
    assert_history_holds(ledger)


def _state_of(pid: int) -> str:
    stat = owner._stat(pid)
    assert stat is not None
    return stat.state
