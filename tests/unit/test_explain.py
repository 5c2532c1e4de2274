"""A record is explained: what is known, what the contract says, what to ask, what may be answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from semel import Key
from semel.errors import ApprovalRequired, RecordNotInDoubt
from semel.kernel.answers import ExplanationJson
from semel.kernel.clock import rfc3339
from semel.ledger.explain import explained, happening
from semel.ledger.ledger import Ledger
from semel.testing import FakeClock
from tests.tools import a_step, declared, keyed, the_record


def told(ledger: Ledger) -> ExplanationJson:
    record = the_record(ledger)
    found = explained(record, ledger.records.history(record.request.id), ledger.clock.now_us())
    assert json.loads(json.dumps(found)) == found  # it goes over HTTP as it is
    return found


def answers(ledger: Ledger, tool: Any, **arguments: Any) -> None:
    with a_step(ledger, principal="bot"):
        tool(**arguments)


def times_out(ledger: Ledger, tool: Any) -> None:
    with pytest.raises(TimeoutError):
        answers(ledger, tool, to="ann")


@pytest.fixture
def pay() -> Any:
    @declared(lease="10s", window="24h")
    def pay(to: str) -> str:
        raise TimeoutError

    return pay


def test_doubt_is_explained_with_its_attempt_since_when_and_what_to_ask(
    ledger: Ledger, clock: FakeClock, pay: Any
) -> None:
    entered_us = clock.now_us()
    times_out(ledger, pay)
    parked_us = clock.now_us()
    clock.advance("1h")
    found = told(ledger)
    record = the_record(ledger)
    assert found["attempt"] == 1
    assert found["since"] == rfc3339(parked_us)
    assert f"In doubt since {rfc3339(parked_us)}" in found["known"]
    assert f"attempt 1 (fence {record.fence})" in found["known"]
    assert "TimeoutError" in found["known"]
    assert found["promised"] == (
        "write-non-idempotent, window 1d, lease 10s. "
        "In doubt: nobody enters again until a person resolves it."
    )
    assert f"since {rfc3339(entered_us)}" in found["question"]
    assert record.request.at.key in found["question"]
    assert found["choices"] == ["happened", "did_not_happen"]


def test_a_silent_owner_is_in_doubt_since_its_lease_ended(ledger: Ledger, clock: FakeClock) -> None:
    seen: list[ExplanationJson] = []

    @declared(lease="10s")
    def pay(to: str) -> str:
        seen.append(told(ledger))
        clock.advance("1h")
        seen.append(told(ledger))
        ledger.sweeper.run_once()
        seen.append(told(ledger))
        return to

    start_us = clock.now_us()
    answers(ledger, pay, to="ann")
    alive, lapsed, swept = seen
    lease_ended = rfc3339(start_us + 10_000_000)
    assert "question" not in alive
    assert "since" not in alive
    assert f"alive until at least {lease_ended}" in alive["known"]
    assert lapsed["since"] == lease_ended
    assert "without a sign of life" in lapsed["known"]
    assert "without a sign of life" in swept["known"]
    assert swept["choices"] == lapsed["choices"] == ["happened", "did_not_happen"]


def test_a_settled_record_asks_nothing(ledger: Ledger) -> None:
    @declared()
    def pay(to: str) -> str:
        return to

    answers(ledger, pay, to="ann")
    found = told(ledger)
    assert "Settled as done" in found["known"]
    assert "this answer is replayed" in found["known"]
    assert found["choices"] == []
    assert found.keys() == {"known", "attempt", "promised", "choices"}


def test_who_said_so_is_told_and_that_no_value_was_kept(ledger: Ledger, pay: Any) -> None:
    times_out(ledger, pay)
    ledger.records.resolve(the_record(ledger).request.id, "happened", by="ann")
    known = told(ledger)["known"]
    assert "as ann said" in known
    assert "its value was not kept" in known


def test_a_cleared_key_is_free_and_says_who_freed_it(ledger: Ledger, pay: Any) -> None:
    times_out(ledger, pay)
    ledger.records.resolve(the_record(ledger).request.id, "did_not_happen", by="ann")
    assert told(ledger)["known"] == "ann said that it did not happen: the key is free."


def test_a_call_that_waits_for_a_person_offers_the_decision(ledger: Ledger) -> None:
    @declared(class_="irreversible", approval="required")
    def wire(to: str) -> str:
        return to

    with pytest.raises(ApprovalRequired):
        answers(ledger, wire, to="ann")
    found = told(ledger)
    assert "nothing ran" in found["known"]
    assert found["choices"] == ["approve", "reject"]


def test_a_key_that_the_downstream_forgot_is_not_promised_a_retry(ledger: Ledger, clock: FakeClock) -> None:
    @keyed(lease="10s")
    def pay(to: str, key: Key) -> str:
        raise TimeoutError

    times_out(ledger, pay)
    assert "enters again with the same key, until" in told(ledger)["promised"]
    clock.advance("1h")
    assert "the downstream forgot the key at" in told(ledger)["promised"]


def test_a_line_of_history_names_the_person(ledger: Ledger, pay: Any) -> None:
    times_out(ledger, pay)
    id_ = the_record(ledger).request.id
    ledger.records.resolve(id_, "happened", by="ann")
    lines = [happening(event) for event in ledger.records.history(id_)]
    assert [line["type"] for line in lines] == ["claimed", "parked", "resolved"]
    assert lines[-1]["by"] == "ann"
    assert lines[-1]["at"].endswith("Z")


# --- an answer is bound to the attempt that it was given for ----------------------------------------------


def test_an_answer_for_an_earlier_attempt_does_not_resolve_a_later_one(ledger: Ledger, pay: Any) -> None:
    times_out(ledger, pay)
    first = the_record(ledger)
    said = ledger.records.resolution(first.request.id, "did_not_happen", by="ann", fence=first.fence)
    assert not said.replayed
    times_out(ledger, pay)  # it ran again, and nobody knows again
    with pytest.raises(RecordNotInDoubt, match="another attempt"):
        ledger.records.resolution(first.request.id, "did_not_happen", by="ann", fence=first.fence)
    assert ledger.records.effective_state(the_record(ledger)) == "in_doubt"


def test_the_same_answer_again_is_a_replay_and_leaves_no_event(ledger: Ledger, pay: Any) -> None:
    times_out(ledger, pay)
    record = the_record(ledger)
    for outcome in ("happened", "happened"):
        said = ledger.records.resolution(record.request.id, outcome, by="ann", fence=record.fence)
    assert said.replayed
    again = ledger.records.resolution(record.request.id, "happened", by="bob")
    assert (again.replayed, again.record.by) == (True, "ann")
    assert [event.kind for event in ledger.records.history(record.request.id)].count("resolved") == 1
    with pytest.raises(RecordNotInDoubt):
        ledger.records.resolution(record.request.id, "did_not_happen", by="bob")
