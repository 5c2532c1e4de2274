"""A person resolves a record whose owner is silent; then the owner comes back.

Whatever it brings, the person's word stands: the owner is told that it lost, the record does not change, and
the next caller gets what was said.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import semel
from semel.errors import OwnershipLost, RecordNotInDoubt, ResultUnavailable
from semel.gateway.server import embedded
from semel.gateway.settings import GatewaySettings
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Record, State
from semel.ledger.ledger import Ledger
from semel.stores.urls import open_store
from tests.faults.bank import Bank
from tests.faults.caller import call
from tests.faults.checks import PATIENCE_S, assert_history_holds, only_record, until_in_doubt
from tests.faults.conftest import Start
from tests.faults.payment import payment
from tests.stores import KINDS, Kind


class Office:
    """A post office whose first caller stays inside for longer than its lease.

    Its run limit is over before the first renewal is due, so that the lease lapses and nothing revives it.
    """

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()
        self.entries = 0

    def tool(self, fails: BaseException | None = None) -> Any:
        @semel.tool_contract(
            class_="write-non-idempotent", lease="100ms", run_limit="1ms", refused=(LookupError,)
        )
        def send(to: str) -> str:
            self.entries += 1
            if self.entries > 1:
                return "sent by the second"
            self.entered.set()
            assert self.let_go.wait(PATIENCE_S)
            if fails is not None:
                raise fails
            return "sent by the first"

        return send


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    kind: Kind = request.param
    with Ledger(kind.open(tmp_path, SYSTEM, True)) as ledger:
        yield ledger


@pytest.fixture
def office() -> Iterator[Office]:
    found = Office()
    yield found
    found.let_go.set()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


def ask(ledger: Ledger, tool: Any) -> Any:
    return ledger.step(conversation="c-1", step="s-1", principal="bot").run(tool, to="ann")


def silent_owner(ledger: Ledger, office: Office, tool: Any, pool: ThreadPoolExecutor) -> Future[Any]:
    """A caller inside its tool whose lease lapsed."""
    owner = pool.submit(ask, ledger, tool)
    assert office.entered.wait(PATIENCE_S)
    until_in_doubt(ledger)
    return owner


def returns(office: Office, owner: Future[Any]) -> BaseException | None:
    """What the owner gets to hear when it comes back."""
    office.let_go.set()
    return owner.exception(PATIENCE_S)


def resolved_by(ledger: Ledger, record: Record) -> list[str]:
    return [event.by for event in ledger.records.history(record.request.id) if event.kind == "resolved"]


# What the owner brings: a result, a failure, a proof that nothing happened, or that it cannot tell.
BRINGS = [None, ValueError("no"), LookupError("nothing happened"), TimeoutError()]


@pytest.mark.parametrize("brings", BRINGS, ids=["result", "failure", "refusal", "timeout"])
def test_what_happened_stays_what_a_person_said(
    opened: Ledger, office: Office, pool: ThreadPoolExecutor, brings: BaseException | None
) -> None:
    tool = office.tool(brings)
    owner = silent_owner(opened, office, tool, pool)
    decided = opened.records.resolve(only_record(opened).request.id, "happened", by="ann", result="found")
    assert isinstance(returns(office, owner), OwnershipLost)
    assert only_record(opened) == decided
    assert ask(opened, tool) == "found"
    assert office.entries == 1
    assert resolved_by(opened, decided) == ["ann"]
    assert_history_holds(opened)


@pytest.mark.parametrize("brings", BRINGS, ids=["result", "failure", "refusal", "timeout"])
def test_what_did_not_happen_is_done_by_the_next_caller_once(
    opened: Ledger, office: Office, pool: ThreadPoolExecutor, brings: BaseException | None
) -> None:
    tool = office.tool(brings)
    owner = silent_owner(opened, office, tool, pool)
    decided = opened.records.resolve(only_record(opened).request.id, "did_not_happen", by="ann")
    assert isinstance(returns(office, owner), OwnershipLost)
    assert only_record(opened) == decided
    assert ask(opened, tool) == ask(opened, tool) == "sent by the second"
    assert office.entries == 2
    assert only_record(opened).fence > decided.fence
    assert resolved_by(opened, decided) == ["ann"]
    assert_history_holds(opened)


def test_the_owner_that_comes_back_while_its_successor_has_settled_changes_nothing(
    opened: Ledger, office: Office, pool: ThreadPoolExecutor
) -> None:
    tool = office.tool()
    owner = silent_owner(opened, office, tool, pool)
    opened.records.resolve(only_record(opened).request.id, "did_not_happen", by="ann")
    assert ask(opened, tool) == "sent by the second"
    settled = only_record(opened)
    assert isinstance(returns(office, owner), OwnershipLost)
    assert only_record(opened) == settled
    assert ask(opened, tool) == "sent by the second"
    assert_history_holds(opened)


def test_an_owner_that_came_back_first_leaves_nothing_to_resolve(
    opened: Ledger, office: Office, pool: ThreadPoolExecutor
) -> None:
    tool = office.tool()
    owner = silent_owner(opened, office, tool, pool)
    assert returns(office, owner) is None
    settled = only_record(opened)
    for outcome in ("happened", "did_not_happen"):
        with pytest.raises(RecordNotInDoubt):
            opened.records.resolve(settled.request.id, outcome, by="ann")
    assert only_record(opened) == settled
    assert ask(opened, tool) == "sent by the first"


def test_without_a_value_the_next_caller_is_told_that_it_happened(
    opened: Ledger, office: Office, pool: ThreadPoolExecutor
) -> None:
    tool = office.tool()
    owner = silent_owner(opened, office, tool, pool)
    opened.records.resolve(only_record(opened).request.id, "happened", by="ann")
    assert isinstance(returns(office, owner), OwnershipLost)
    with pytest.raises(ResultUnavailable):
        ask(opened, tool)
    assert office.entries == 1


# --- over HTTP, with an owner that is another process and really frozen -----------------------------------


@pytest.fixture
def gateway(url: str, ledger: semel.Ledger) -> Iterator[httpx.Client]:
    """A gateway on the store of the frozen owner; ann is who asks."""
    with embedded(GatewaySettings(url=url, dev=True), open_store(url)) as (where, _):
        headers = {"X-Principal-Id": "ann"}
        with httpx.Client(base_url=where, headers=headers, timeout=PATIENCE_S) as client:
            yield client


@pytest.mark.parametrize("outcome", ["happened", "did_not_happen"])
def test_a_frozen_process_wakes_after_a_person_decided_over_http(
    outcome: str, start: Start, bank: Bank, ledger: semel.Ledger, gateway: httpx.Client
) -> None:
    owner = start("one_call", policy="park", after="pause", note="first")
    owner.hear("in the tool")
    owner.freeze()
    until_in_doubt(ledger)
    [item] = gateway.get("/api/v1/records", params={"state": "in_doubt"}).json()["items"]
    body = {"outcome": outcome, "fence": item["fence"]}
    path = f"/api/v1/records/{item['id']}/resolve"
    assert gateway.post(path, json=body).json()["by"] == "ann"
    decided = only_record(ledger)
    owner.send(signal.SIGCONT)
    owner.go_on()
    assert owner.hear("heard")["code"] == "OWNERSHIP_LOST"
    assert only_record(ledger) == decided
    again = gateway.post(path, json=body)
    assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
    later = call(ledger, payment(bank, "park"), note="second")
    if outcome == "happened":
        assert later.code == "RESULT_UNAVAILABLE"
        assert len(bank.entries()) == 1
    else:
        assert later.receipt is not None
        assert only_record(ledger).state is State.DONE
    shown = gateway.get(f"/api/v1/records/{item['id']}").json()
    assert [event["by"] for event in shown["history"] if event["type"] == "resolved"] == ["ann"]
    assert_history_holds(ledger)
