"""A numbered step whose call is unfinished meets the same keys in the next turn, on every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.audit.events import SKIPPED
from semel.audit.verify import verify
from semel.ledger.ledger import Ledger
from semel.stores.base import ReadEvents
from tests.fake_clock import FakeClock
from tests.stores import Kind

TURNS = 4


@pytest.fixture
def ledger(kind: Kind, tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(kind.open(tmp_path, FakeClock(), True), tenant="acme") as opened:
        yield opened


class Provider:
    """Pays at once, and answers the first time too late. It remembers keys."""

    def __init__(self) -> None:
        self.by_key: dict[str, str] = {}
        self.late = True

    def pay(self, key: str, payment: str) -> str:
        self.by_key.setdefault(key, payment)
        if self.late:
            self.late = False
            raise TimeoutError
        return payment


def refund_tool(provider: Provider, **said: Any) -> Any:
    @semel.tool_contract(class_="write-non-idempotent", name="refund", downstream_window="1h", **said)
    def refund(payment: str, key: semel.Key) -> str:
        return provider.pay(key, payment)

    return refund


def test_a_model_that_calls_again_in_its_next_turn_refunds_once(ledger):
    provider, conversation = Provider(), ledger.conversation("conv-42")
    refund = refund_tool(provider)
    answers: list[semel.ToolResult[str]] = []
    while conversation.position == 0 and len(answers) < TURNS:
        with conversation.step():  # a turn: the answer goes to the model as data, and it calls again
            answers.append(refund.call(semel.ToolCall({"payment": "p-1"})))
    assert [answer.ok for answer in answers] == [False, True]
    assert list(provider.by_key.values()) == ["p-1"]


def test_an_approved_call_runs_in_a_later_turn_and_its_question_is_put_once(ledger):
    provider, conversation = Provider(), ledger.conversation("conv-42")
    provider.late = False
    refund = refund_tool(provider, approval="required")
    for turn in range(TURNS):
        with conversation.step():
            refund.call(semel.ToolCall({"payment": "p-1"}))
        if turn == 1:
            [question] = ledger.approvals.list()
            ledger.approvals.approve(question.job_id, by="ann")
        if conversation.position:
            break
    assert (turn, list(provider.by_key.values())) == (2, ["p-1"])
    assert len(ledger.approvals.list()) == 1


def test_a_skipped_call_is_in_the_log_and_the_log_is_whole(kind, tmp_path):
    clock = FakeClock()
    with Ledger(kind.open(tmp_path, clock, True), tenant="acme") as ledger:
        conversation = ledger.conversation("conv-42")
        with conversation.step():
            refund_tool(Provider()).call(semel.ToolCall({"payment": "p-1"}))
        [call] = conversation.unfinished
        conversation.skip()
        if not kind.shared:
            ledger.keeper.flush()
            assert skipped(ledger) == [call.record_id]
            return
    with Ledger(kind.open(tmp_path, clock, True), tenant="acme") as reader:
        assert skipped(reader) == [call.record_id]
        assert verify(reader.store, tenants=["acme"]).whole


def skipped(ledger: Ledger) -> list[str]:
    events = ledger.store.ask(ReadEvents(tenant="acme"))
    return [event.record_id for event in events if event.kind == SKIPPED]
