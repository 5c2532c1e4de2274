"""The bare call is an honest yardstick: it leaves what Semel leaves, field by field, and replays the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import semel
from bench import bare, workload
from semel.audit.events import Event
from semel.errors import InvalidArguments, KeyReused, NoStep, OutcomeUnknown
from semel.kernel.record import Address, Look, Record
from semel.stores.base import ReadEvents
from tests.patience import PATIENCE_S

REFUND: dict[str, Any] = {"payment_id": "p-1", "amount_minor": 1_400_000, "reason": "damaged"}

# By chance or by the clock: they differ from run to run, within a side too.
OF_ITS_OWN = {"id", "token", "fence", "created_at", "entered_at", "settled_at", "expires_at"}


@dataclass
class Sides:
    """Both in a step of the same name, which the library has used before: its catalogue knows the tools."""

    ledger: semel.Ledger
    bare: bare.Bare

    def record(self, key: str) -> Record:
        record = self.ledger.store.perform(Look(Address("default", "tool", key))).record
        assert record is not None
        return record

    def bare_record(self) -> dict[str, Any]:
        (record,) = self.bare.records.values()
        return record

    def events(self) -> list[Event]:
        self.ledger.keeper.flush()
        return [e for e in self.ledger.store.ask(ReadEvents(limit=100)) if e.conversation == "conv-42"]

    def bare_events(self) -> list[Event]:
        self.bare.write_replays()
        return [Event(*line) for line in self.bare.events]


@pytest.fixture
def sides() -> Iterator[Sides]:
    untouched: Any = workload.refund
    with semel.open("memory://") as ledger:
        with ledger.step(conversation="before", step="refund-1"):
            untouched(**REFUND)
            workload.pay(payment_id="p-1")
        ledger.sightings.merge()
        both = Sides(ledger, bare.Bare())
        try:
            with (
                ledger.step(conversation="conv-42", step="refund-1", principal="support-bot"),
                bare.BareStep("conv-42", "refund-1", "support-bot"),
            ):
                yield both
        finally:
            both.bare.close()


def fields(record: Record) -> dict[str, Any]:
    """The library's record as the bare one writes it: flat, without what it has only for other tools."""
    flat = record.request._asdict() | record._asdict()
    at = flat.pop("at")
    assert (at.tenant, at.scope) == ("default", "tool")
    assert (flat.pop("job_id"), flat.pop("by")) == ("", "")
    del flat["request"]
    return flat | {"key": at.key, "state": record.state.value}


def same_record(record: Record, barely: dict[str, Any]) -> None:
    ours = fields(record)
    assert ours.keys() == barely.keys()
    assert {name for name in ours if ours[name] != barely[name]} <= OF_ITS_OWN
    # What is of its own has the same form, and the same distance from the others.
    for name in ("id", "token"):
        assert len(ours[name]) == len(barely[name])
    assert ours["token"][16:] == barely["token"][16:]
    if ours["expires_at"] is not None:
        window_us, bare_us = (times["expires_at"] - times["settled_at"] for times in (ours, barely))
        assert window_us == bare_us
    for times in (ours, barely):
        assert times["fence"] == times["created_at"] == times["entered_at"]


def same_events(ours: list[Event], barely: list[Event]) -> None:
    def said(events: list[Event]) -> list[dict[str, Any]]:
        own = ("seq", "at_us", "record_id", "fence", "expires_at")
        return [{k: v for k, v in each._asdict().items() if k not in own} for each in events]

    assert said(ours) == said(barely)
    for events in (ours, barely):
        assert len({event.record_id for event in events}) == 1
    assert [e.expires_at is None for e in ours] == [e.expires_at is None for e in barely]
    assert [e.fence == 0 for e in ours] == [e.fence == 0 for e in barely]


def test_a_call_leaves_the_same_record_and_the_same_events(sides: Sides) -> None:
    refund: Any = workload.refund
    assert refund(**REFUND) == sides.bare.refund(**REFUND) == {"refund_id": "p-1"}
    barely = sides.bare_record()
    same_record(sides.record(barely["key"]), barely)
    same_events(sides.events(), sides.bare_events())
    assert [event.kind for event in sides.bare_events()] == ["claimed", "settled"]


def test_while_the_tool_runs_the_record_is_pending_for_as_long_as_the_lease(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[dict[str, Any], Any]] = []

    def look(payment_id: str, amount_minor: int, reason: str, key: str) -> dict[str, str]:
        seen.append((dict(sides.bare.records[key]), bare.running.get()))
        return {"refund_id": payment_id}

    monkeypatch.setattr(bare, "perform_refund", look)
    sides.bare.refund(**REFUND)
    ((record, running),) = seen
    assert record["state"] == "pending"
    assert record["lease_until"] - record["created_at"] == workload.refund.contract.lease_us
    assert running == (record["key"], record["fence"])
    assert bare.running.get() is None


def test_a_replay_is_the_same_value_anew_and_counted_alike(sides: Sides) -> None:
    refund: Any = workload.refund
    for side in (refund, sides.bare.refund):
        first, *again = [side(**REFUND) for _ in range(4)]
        assert again == [first] * 3
        assert len({id(value) for value in (first, *again)}) == 4
    same_events(sides.events(), sides.bare_events())
    assert [(event.kind, event.times) for event in sides.bare_events()][-1] == ("dedup_hit", 3)


def test_a_replayed_model_is_equal_and_of_its_type(sides: Sides) -> None:
    for side in (workload.pay, sides.bare.pay):
        first, again = side(payment_id="p-1"), side(payment_id="p-1")
        assert type(again) is workload.Receipt
        assert again == first == workload.RECEIPT
        assert again is not first
    same_record(sides.record(sides.bare_record()["key"]), sides.bare_record())
    same_events(sides.events(), sides.bare_events())


def test_a_call_that_nobody_knows_the_end_of_is_in_doubt_on_both(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(**_: Any) -> dict[str, str]:
        raise TimeoutError

    monkeypatch.setattr(workload.refund.contract, "function", late)
    monkeypatch.setattr(bare, "perform_refund", lambda *_: late())
    refund: Any = workload.refund
    for side in (refund, sides.bare.refund):
        with pytest.raises(TimeoutError):
            side(**REFUND)
    same_record(sides.record(sides.bare_record()["key"]), sides.bare_record())
    same_events(sides.events(), sides.bare_events())
    with pytest.raises(OutcomeUnknown):
        sides.bare.refund(**REFUND)


def test_arguments_of_another_type_do_not_reach_the_tool(sides: Sides) -> None:
    for wrong in ({"payment_id": 1}, {"amount_minor": True}, {"reason": None}, {"reason": "\0"}):
        with pytest.raises(InvalidArguments):
            sides.bare.refund(**REFUND | wrong)
    assert sides.bare.records == {}


def test_a_key_that_another_payload_has_is_refused(sides: Sides) -> None:
    sides.bare.refund(**REFUND)
    record = sides.bare_record()
    record["fingerprint"], record["state"] = bytes(32), "pending"
    with pytest.raises(KeyReused):
        sides.bare.refund(**REFUND)


def test_a_step_that_was_left_makes_no_more_keys(sides: Sides) -> None:
    step = bare.BareStep("conv-42", "later")
    with step:
        step.left = True
        with pytest.raises(NoStep):
            sides.bare.refund(**REFUND)


def test_a_second_caller_waits_for_the_first_and_reads_its_result(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, finish, answers = threading.Event(), threading.Event(), []

    def slow(payment_id: str, *_: Any) -> dict[str, str]:
        entered.set()
        assert finish.wait(PATIENCE_S)
        return {"refund_id": payment_id}

    def call() -> None:
        with bare.BareStep("conv-42", "refund-1", "support-bot"):
            answers.append(sides.bare.refund(**REFUND))

    monkeypatch.setattr(bare, "perform_refund", slow)
    callers = [threading.Thread(target=call) for _ in range(2)]
    callers[0].start()
    assert entered.wait(PATIENCE_S)
    entered.clear()
    callers[1].start()
    finish.set()
    for caller in callers:
        caller.join(PATIENCE_S)
    assert answers == [{"refund_id": "p-1"}] * 2
    assert not entered.is_set()


def test_a_running_call_is_renewed_and_a_settled_one_is_not(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    def long(payment_id: str, amount_minor: int, reason: str, key: str) -> dict[str, str]:
        record = sides.bare.records[key]
        record["lease_until"] = 0
        sides.bare.renew(0.0)
        assert record["lease_until"] == 0  # not due yet
        sides.bare.renew(float("inf"))
        assert record["lease_until"] > record["created_at"]
        return {"refund_id": payment_id}

    monkeypatch.setattr(bare, "perform_refund", long)
    sides.bare.refund(**REFUND)
    sides.bare.renew(float("inf"))
    assert sides.bare_record()["lease_until"] is None
