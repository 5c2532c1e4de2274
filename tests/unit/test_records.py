"""Records for people: list, look at, resolve, amend."""

import json

import pytest

import semel
from semel.contract.result import ToolCall
from semel.errors import RecordNotFound, RecordNotInDoubt, StoreUnavailable
from semel.ledger.ledger import Ledger
from semel.ledger.records import NO_RESULT
from tests.tools import a_step, another_process, declared, the_record


@pytest.fixture
def pay():
    """Pays, or times out for the unlucky, or is refused by the broken."""

    @declared()
    def pay(to: str) -> str:
        if to == "unlucky":
            raise TimeoutError
        if to == "broken":
            raise LookupError
        if to == "half":
            raise semel.PartialSuccess(done=1, remaining=2)
        return to

    return pay


@pytest.fixture
def several(ledger, clock, pay):
    """A record in every state, a second apart."""
    with a_step(ledger):
        for to in ("done", "broken", "half", "unlucky"):
            pay.call(ToolCall({"to": to}))
            clock.advance("1s")
    return ledger


def shown(ledger: Ledger, **asked: object) -> list[str]:
    return [ledger.records.effective_state(record) for record in ledger.records.list(**asked)]  # type: ignore[arg-type]


def test_records_are_listed_newest_first(several):
    assert shown(several) == ["in_doubt", "partial", "failed", "done"]


@pytest.mark.parametrize("state", ["in_doubt", "partial", "failed", "done"])
def test_records_are_listed_by_state(several, state):
    assert shown(several, state=state) == [state]


def test_an_unknown_state_is_refused(several):
    with pytest.raises(ValueError, match="in_doubt"):
        several.records.list(state="lost")


def test_records_are_listed_page_by_page(several):
    first = several.records.list(limit=3)
    last = first[-1]
    rest = several.records.list(limit=3, before=(last.created_at, last.request.id))
    assert [len(first), len(rest)] == [3, 1]
    assert {record.request.id for record in first}.isdisjoint(record.request.id for record in rest)


def test_records_are_found_by_tool_by_key_and_by_the_key_that_a_caller_gave(ledger, pay):
    result = pay.call(ToolCall({"to": "a"}, idempotency_key="order-1"), ledger)
    for asked in ({"tool": "pay"}, {"key": result.key}, {"key": "order-1"}, {"scope": "tool"}):
        assert len(ledger.records.list(**asked)) == 1
    for asked in ({"tool": "charge"}, {"key": "order-2"}, {"scope": "run"}):
        assert ledger.records.list(**asked) == []


def test_a_lapsed_record_is_shown_as_in_doubt_before_any_sweep(ledger, clock):
    @declared(lease="10s")
    def pay(to: str) -> None:
        assert shown(ledger) == ["pending"]
        clock.advance("10s")
        assert shown(ledger) == shown(ledger, state="in_doubt") == ["in_doubt"]

    with a_step(ledger):
        pay("a")


def test_tenants_see_their_own_records_only(several):
    other = Ledger(several.store, tenant="globex")
    known = several.records.list()[0].request.id
    assert other.records.list() == []
    with pytest.raises(RecordNotFound):
        other.records.get(known)
    with pytest.raises(RecordNotFound):
        other.records.resolve(known, "happened", by="ann")
    assert list(other.records.history(known)) == []


def test_a_record_is_shown_as_json_with_everything_a_person_needs(several):
    for record in several.records.list():
        told = json.loads(json.dumps(several.records.show(record)))
        assert told["id"].startswith("rec_")
        assert (told["tool"], told["scope"], told["step"]) == ("pay", "tool", ["refund-1"])
        assert told["created_at"].endswith("Z")
        assert told["contract"]["on_unknown"] == "park"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1 << 80, -0.0])
def test_results_that_json_hardly_carries_are_shown(ledger, value):
    def measure(what: str) -> float:
        return value

    measure.__annotations__["return"] = type(value)
    with a_step(ledger):
        declared()(measure)("a")
    assert repr(ledger.records.show(the_record(ledger))["outcome"]) == repr(value)


def test_the_history_of_a_record_is_told_oldest_first(several):
    [record] = several.records.list(state="in_doubt")
    several.records.resolve(record.request.id, "happened", by="ann")
    history = several.records.history(record.request.id)
    assert [event.kind for event in history] == ["claimed", "parked", "resolved"]
    assert [event.seq for event in history] == sorted(event.seq for event in history)
    assert history[-1].by == "ann"


# --- resolving ------------------------------------------------------------------------------------


def test_the_same_answer_again_changes_nothing(several):
    [record] = several.records.list(state="in_doubt")
    first = several.records.resolve(record.request.id, "happened", by="ann", result="r-1")
    second = several.records.resolve(record.request.id, "happened", by="bob", result="r-1")
    assert first == second
    assert second.by == "ann"


HAPPENED = {"outcome": "happened", "result": "r-1"}
HAPPENED_OTHERWISE = {"outcome": "happened", "result": "r-2"}
DID_NOT = {"outcome": "did_not_happen"}


@pytest.mark.parametrize(
    ("first", "other"), [(HAPPENED, DID_NOT), (HAPPENED, HAPPENED_OTHERWISE), (DID_NOT, HAPPENED)], ids=str
)
def test_another_answer_is_refused_and_changes_nothing(several, first, other):
    [record] = several.records.list(state="in_doubt")
    resolved = several.records.resolve(record.request.id, by="ann", **first)
    with pytest.raises(RecordNotInDoubt):
        several.records.resolve(record.request.id, by="bob", **other)
    assert several.records.get(record.request.id) == resolved


def test_what_did_not_happen_keeps_no_result(several):
    [record] = several.records.list(state="in_doubt")
    assert (
        several.records.resolve(record.request.id, "did_not_happen", by="ann", result="r-1").outcome is None
    )


@pytest.mark.parametrize("state", ["done", "failed", "partial"])
def test_what_is_settled_cannot_be_resolved(several, state):
    [record] = several.records.list(state=state)
    for outcome in ("happened", "did_not_happen"):
        with pytest.raises(RecordNotInDoubt):
            several.records.resolve(record.request.id, outcome, by="ann")
    assert several.records.get(record.request.id) == record


def test_resolving_takes_a_known_outcome_and_a_name(several):
    [record] = several.records.list(state="in_doubt")
    with pytest.raises(ValueError, match="did_not_happen"):
        several.records.resolve(record.request.id, "maybe", by="ann")
    with pytest.raises(ValueError, match="by="):
        several.records.resolve(record.request.id, "happened", by="")
    assert several.records.get(record.request.id) == record


def test_an_unknown_record_is_not_found(ledger):
    with pytest.raises(RecordNotFound, match="rec_none"):
        ledger.records.get("rec_none")


def test_a_resolved_record_is_honoured_for_the_contracts_window_from_then_on(ledger, clock):
    ran = []

    @declared(window="1h")
    def pay(to: str) -> int:
        ran.append(to)
        raise TimeoutError

    with a_step(ledger):
        with pytest.raises(TimeoutError):
            pay("a")
        clock.advance("5h")
        ledger.records.resolve(the_record(ledger).request.id, "happened", by="ann", result=7)
        clock.advance("59m")
        assert pay("a") == 7
        clock.advance("1m")
        with pytest.raises(TimeoutError):
            pay("a")
    assert ran == ["a", "a"]


# --- amending -------------------------------------------------------------------------------------


def test_every_ledger_replays_what_was_amended_however_often_it_replayed_the_old_value(ledger, clock, pay):
    other = Ledger(ledger.store, tenant="acme")
    with a_step(ledger), pytest.raises(TimeoutError):
        pay("unlucky")
    record = ledger.records.resolve(the_record(ledger).request.id, "happened", by="ann", result="wrong")
    for value in ("wrong", "right"):
        if value == "right":
            clock.advance("1m")
            amended = other.records.amend(record.request.id, by="bob", result=value)
        for each in (ledger, other, ledger, other):
            with a_step(each):
                assert pay("unlucky") == value
    assert (amended.settled_at, amended.expires_at) == (record.settled_at, record.expires_at)
    kinds = [event.kind for event in ledger.records.history(record.request.id) if event.kind != "dedup_hit"]
    assert kinds == ["claimed", "parked", "resolved", "amended"]


def test_the_same_amendment_again_is_a_replay_and_another_one_is_not(several):
    [record] = several.records.list(state="in_doubt")
    several.records.resolve(record.request.id, "happened", by="ann")
    said = [several.records.amendment(record.request.id, by="bob", result=value) for value in ("a", "a", "b")]
    assert [each.replayed for each in said] == [False, True, False]
    assert said[1].record == said[0].record
    again = several.records.resolution(record.request.id, "happened", by="cat", result="b")
    assert (again.replayed, again.record.by) == (True, "bob")


def test_an_amendment_whose_reply_was_lost_is_made_once(shaky, flaky, pay):
    with a_step(shaky), pytest.raises(TimeoutError):
        pay("unlucky")
    id_ = the_record(shaky).request.id
    shaky.records.resolve(id_, "happened", by="ann")
    flaky.lose_reply("amend")
    with pytest.raises(StoreUnavailable):
        shaky.records.amend(id_, by="bob", result="r-1")
    assert shaky.records.amendment(id_, by="bob", result="r-1").replayed
    assert [event.kind for event in shaky.records.history(id_)].count("amended") == 1


@pytest.mark.parametrize("state", ["done", "failed", "partial", "in_doubt"])
def test_only_a_persons_word_can_be_amended(several, state):
    [record] = several.records.list(state=state)
    with pytest.raises(RecordNotInDoubt, match="by a person"):
        several.records.amend(record.request.id, by="ann", result="x")
    assert several.records.get(record.request.id) == record


def test_what_a_probe_said_is_not_amended(ledger):
    @declared(probe=lambda key, to: semel.Happened("probed"))
    def pay(to: str) -> str:
        raise TimeoutError

    with a_step(ledger):
        with pytest.raises(TimeoutError):
            pay("a")
        assert pay("a") == "probed"
        with pytest.raises(RecordNotInDoubt):
            ledger.records.amend(the_record(ledger).request.id, by="ann", result="else")
        assert pay("a") == "probed"


def test_what_did_not_happen_and_what_is_over_is_not_amended(several, clock):
    [record] = several.records.list(state="in_doubt")
    several.records.resolve(record.request.id, "did_not_happen", by="ann")
    with pytest.raises(RecordNotInDoubt):
        several.records.amend(record.request.id, by="ann", result="x")
    with a_step(another_process(several)), pytest.raises(TimeoutError):
        declared(name="pay")(_times_out)("unlucky")
    several.records.resolve(record.request.id, "happened", by="ann", result="x")
    clock.advance("1d")
    with pytest.raises((RecordNotInDoubt, RecordNotFound)):
        several.records.amend(record.request.id, by="ann", result="y")


def _times_out(to: str) -> str:
    raise TimeoutError


def test_amending_takes_a_name_and_a_result(several):
    [record] = several.records.list(state="in_doubt")
    several.records.resolve(record.request.id, "happened", by="ann")
    with pytest.raises(ValueError, match="by="):
        several.records.amend(record.request.id, by="", result="x")
    with pytest.raises(ValueError, match="result="):
        several.records.amend(record.request.id, by="ann", result=NO_RESULT)
    with pytest.raises(RecordNotInDoubt, match="semel records amend"):
        several.records.resolve(record.request.id, "happened", by="bob", result="x")
