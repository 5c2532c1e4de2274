"""A person has to say yes first."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import semel
from semel.contract.result import ToolCall
from semel.errors import (
    ApprovalError,
    ApprovalRejected,
    ApprovalRequired,
    ContractError,
    EffectFailed,
    OutcomeUnknown,
    StoreUnavailable,
)
from semel.flow.document_store import DocumentStore
from semel.flow.job_admin import JobAdmin
from semel.flow.problems import Refused
from semel.flow.values import Caller
from semel.ledger.ledger import Ledger
from tests.tools import a_step, declared, keyed, kinds, state, the_record


def ask(ledger: Ledger, way: Any, tool: Any, *args: Any) -> str:
    """The first call, and the job that waits for a person."""
    with a_step(ledger, principal="bot"), pytest.raises(ApprovalRequired) as asked:
        way.call(tool, *args)
    job_id: str = asked.value.details["job_id"]
    return job_id


def again(ledger: Ledger, way: Any, tool: Any, *args: Any) -> Any:
    with a_step(ledger, principal="bot"):
        return way.call(tool, *args)


@pytest.fixture
def ran():
    return []


@pytest.fixture
def pay(way, ran):
    @way.tool(approval="required", ignore=("reason",))
    def pay(to: str, reason: str = "") -> int:
        ran.append((to, reason))
        return len(ran)

    return pay


def test_the_first_call_asks_and_runs_nothing_however_often_it_is_repeated(ledger, way, pay, ran):
    jobs = {ask(ledger, way, pay, "a") for _ in range(3)}
    assert len(jobs) == 1
    assert ran == []
    [request] = ledger.approvals.list()
    assert (request.status, request.topic, request.submitted_by) == ("waiting", "pay", "bot")
    assert request.input == {"to": "a", "reason": ""}
    assert request.job_id in jobs
    assert state(ledger) == "pending"


def test_after_an_approval_the_next_call_runs_with_what_the_person_saw(ledger, way, pay, ran):
    job = ask(ledger, way, pay, "a", "first")
    decision = ledger.approvals.approve(job, by="ann", reason="fine")
    assert (decision.status, decision.by, decision.replayed) == ("approved", "ann", False)
    assert ran == []
    assert again(ledger, way, pay, "a", "second") == again(ledger, way, pay, "a", "third") == 1
    assert ran == [("a", "first")]
    [request] = ledger.approvals.list()
    assert (request.status, request.decided_by, request.reason) == ("approved", "ann", "fine")


def test_a_rejection_settles_the_key_and_replays(ledger, way, pay, ran):
    job = ask(ledger, way, pay, "a")
    ledger.approvals.reject(job, by="ann")
    for _ in range(3):
        with pytest.raises(ApprovalRejected) as rejected:
            again(ledger, way, pay, "a")
        assert rejected.value.details == {"job_id": job}
    assert (ran, state(ledger)) == ([], "failed")
    assert [kind for kind in kinds(ledger) if kind in ("rejected", "settled")] == ["rejected", "settled"]


def test_other_arguments_take_another_approval(ledger, way, pay, ran):
    ledger.approvals.approve(ask(ledger, way, pay, "a"), by="ann")
    ask(ledger, way, pay, "b")
    assert ran == []


def test_an_approval_is_asked_for_as_data(ledger, way, pay):
    result = way.ask(pay, ToolCall({"to": "a"}, idempotency_key="k"), ledger)
    assert (result.error.code, result.error.retriable) == ("APPROVAL_REQUIRED", True)
    ledger.approvals.approve(result.error.details["job_id"], by="ann")
    assert way.ask(pay, ToolCall({"to": "a"}, idempotency_key="k"), ledger).value == 1


# --- deciding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_the_same_decision_again_names_the_first_decider_and_time(ledger, clock, way, pay, decision):
    job = ask(ledger, way, pay, "a")
    decide = getattr(ledger.approvals, decision)
    first = decide(job, by="ann")
    clock.advance("1h")
    second = decide(job, by="bob")
    assert second.status == f"already_{first.status}"
    assert (second.by, second.at, second.replayed) == ("ann", first.at, True)


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_the_same_decision_replays_after_the_call_was_made_too(ledger, way, pay, decision):
    job = ask(ledger, way, pay, "a")
    decide = getattr(ledger.approvals, decision)
    decide(job, by="ann")
    way.end(pay.call(ToolCall({"to": "a"}, idempotency_key="unrelated"), ledger))
    try:
        again(ledger, way, pay, "a")
    except ApprovalRejected:
        pass
    assert decide(job, by="ann", revision=1).replayed


@pytest.mark.parametrize(("first", "other"), [("approve", "reject"), ("reject", "approve")])
def test_the_other_decision_is_a_conflict_and_changes_nothing(ledger, way, pay, first, other):
    job = ask(ledger, way, pay, "a")
    getattr(ledger.approvals, first)(job, by="ann")
    with pytest.raises(ApprovalError) as conflict:
        getattr(ledger.approvals, other)(job, by="bob")
    assert conflict.value.code == "approval_already_resolved"
    assert ledger.approvals.get(job).decided_by == "ann"


def test_nobody_decides_on_what_they_submitted(ledger, way, pay):
    job = ask(ledger, way, pay, "a")
    for decide in (ledger.approvals.approve, ledger.approvals.reject):
        with pytest.raises(ApprovalError) as denied:
            decide(job, by="bot")
        assert denied.value.code == "self_approval_denied"
    assert ledger.approvals.get(job).status == "waiting"


def test_nobody_decides_without_a_name(ledger, way, pay):
    job = ask(ledger, way, pay, "a")
    with pytest.raises(ApprovalError, match="by="):
        ledger.approvals.approve(job, by="")


def test_a_decision_is_bound_to_what_the_person_saw(ledger, way, pay, ran):
    job = ask(ledger, way, pay, "a")
    seen = ledger.approvals.get(job)
    for stale in ({"revision": 2}, {"job_hash": "0" * 64}, {"revision": 1, "job_hash": "0"}):
        with pytest.raises(ApprovalError) as refused:
            ledger.approvals.approve(job, by="ann", **stale)
        assert refused.value.code == "approval_stale_request"
    assert ledger.approvals.approve(job, by="ann", revision=seen.revision, job_hash=seen.job_hash)


def test_what_a_person_sees_has_a_hash_of_its_own(ledger, way, pay):
    hashes = {ledger.approvals.get(ask(ledger, way, pay, to)).job_hash for to in ("a", "b")}
    assert len(hashes) == 2


def test_a_decision_knows_no_other_conditions(ledger, way, pay):
    with pytest.raises(TypeError, match="revision"):
        ledger.approvals.approve(ask(ledger, way, pay, "a"), by="ann", version=3)


def test_an_unknown_job_and_one_of_another_tenant_are_the_same(ledger, way, pay):
    job = ask(ledger, way, pay, "a")
    abroad = Ledger(ledger.store, tenant="globex").approvals
    assert abroad.list() == []
    told = set()
    for approvals, name in ((abroad, job), (ledger.approvals, "job_none")):
        with pytest.raises(ApprovalError) as unknown:
            approvals.approve(name, by="ann")
        told.add((unknown.value.code, unknown.value.message))
    assert len(told) == 1


def test_of_many_decisions_at_once_one_stands_and_everyone_is_told_so(ledger, way, pay):
    job = ask(ledger, way, pay, "a")
    start, told = threading.Barrier(10), []

    def decide(number: int) -> None:
        name = "approve" if number % 2 else "reject"
        start.wait()
        try:
            told.append((name, getattr(ledger.approvals, name)(job, by=f"p{number}")))
        except ApprovalError as conflict:
            told.append((name, conflict.code))

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    decided = ledger.approvals.get(job)
    winner = "approve" if decided.status == "approved" else "reject"
    assert [answer for name, answer in told if name != winner] == ["approval_already_resolved"] * 5
    winners = [answer for name, answer in told if name == winner]
    assert {answer.by for answer in winners} == {decided.decided_by}
    assert sum(not answer.replayed for answer in winners) == 1


# --- time -----------------------------------------------------------------------------------------


def test_a_question_expires_and_the_next_call_asks_anew(ledger, clock, way, ran):
    @way.tool(approval=semel.Approval(expires_in="1h"))
    def pay(to: str) -> int:
        ran.append(to)
        return 1

    old = ask(ledger, way, pay, "a")
    clock.advance("1h")
    with pytest.raises(ApprovalError) as late:
        ledger.approvals.approve(old, by="ann")
    assert late.value.code == "approval_expired"
    assert ledger.approvals.get(old).status == "expired"
    new = ask(ledger, way, pay, "a")
    assert new != old
    ledger.approvals.approve(new, by="ann")
    assert again(ledger, way, pay, "a") == 1


def test_a_question_whose_job_is_cancelled_is_over_and_the_next_call_asks_anew(ledger, way, ran):
    @way.tool(approval="required")
    def pay(to: str) -> int:
        ran.append(to)
        return 1

    admin = JobAdmin(DocumentStore(ledger.store), None)
    old = ask(ledger, way, pay, "a")
    asyncio.run(admin.cancel(Caller("acme", "ann"), old))
    new = ask(ledger, way, pay, "a")
    assert (new == old, ran) == (False, [])
    ledger.approvals.approve(new, by="ann")
    with pytest.raises(Refused, match="approved by ann: that stands"):
        asyncio.run(admin.cancel(Caller("acme", "ann"), new))
    assert again(ledger, way, pay, "a") == 1


def test_an_approval_of_the_last_minute_can_still_be_used(ledger, clock, way, ran):
    @way.tool(approval=semel.Approval(expires_in="1h"), window="1d")
    def pay(to: str) -> int:
        ran.append(to)
        return 1

    job = ask(ledger, way, pay, "a")
    clock.advance("59m")
    ledger.approvals.approve(job, by="ann")
    clock.advance("20h")
    ledger.sweeper.run_once()
    assert again(ledger, way, pay, "a") == 1


def test_approvals_are_listed_newest_first_and_by_status(ledger, clock, way, pay):
    jobs = []
    for to in ("a", "b", "c"):
        jobs.append(ask(ledger, way, pay, to))
        clock.advance("1s")
    ledger.approvals.approve(jobs[1], by="ann")
    assert [request.job_id for request in ledger.approvals.list()] == jobs[::-1]
    assert [request.job_id for request in ledger.approvals.list("waiting")] == [jobs[2], jobs[0]]
    assert [request.job_id for request in ledger.approvals.list("approved")] == [jobs[1]]


# --- what may happen after the yes ----------------------------------------------------------------


def test_an_approved_call_that_fails_is_settled(ledger, way):
    @way.tool(approval="required")
    def pay(to: str) -> None:
        raise LookupError

    ledger.approvals.approve(ask(ledger, way, pay, "a"), by="ann")
    for _ in range(2):
        with pytest.raises(EffectFailed):
            again(ledger, way, pay, "a")


def test_an_approved_call_in_doubt_needs_no_second_approval(ledger, way, ran):
    @way.tool(approval="required", ignore=("reason",))
    def pay(to: str, reason: str) -> int:
        ran.append(reason)
        if len(ran) == 1:
            raise TimeoutError
        return len(ran)

    ledger.approvals.approve(ask(ledger, way, pay, "a", "first"), by="ann")
    with pytest.raises(TimeoutError):
        again(ledger, way, pay, "a", "second")
    with pytest.raises(OutcomeUnknown):
        again(ledger, way, pay, "a", "third")
    ledger.records.resolve(the_record(ledger).request.id, "did_not_happen", by="ann")
    assert again(ledger, way, pay, "a", "fourth") == 2
    assert ran == ["first", "first"]


def test_secret_arguments_of_an_approved_call_come_from_the_present_one(ledger, way, ran):
    @way.tool(approval="required", secret=("token",))
    def pay(to: str, token: str) -> None:
        ran.append((to, token))

    job = ask(ledger, way, pay, "a", "canary")
    assert ledger.approvals.get(job).input == {"to": "a"}
    ledger.approvals.approve(job, by="ann")
    again(ledger, way, pay, "a", "canary")
    assert ran == [("a", "canary")]


def test_a_contract_that_no_longer_asks_runs_what_waited(ledger, way, ran):
    def pay(to: str) -> int:
        ran.append(to)
        return 1

    ask(ledger, way, way.tool(approval="required")(pay), "a")
    assert again(ledger, way, way.tool()(pay), "a") == 1


def test_a_no_stands_if_the_contract_no_longer_asks(ledger, way, ran):
    def pay(to: str) -> int:
        ran.append(to)
        return 1

    job_id = ask(ledger, way, way.tool(approval="required")(pay), "a")
    ledger.approvals.reject(job_id, by="ann")
    for _ in range(2):
        with pytest.raises(ApprovalRejected):
            again(ledger, way, way.tool()(pay), "a")
    assert ran == []


def test_a_yes_is_used_up_if_the_contract_no_longer_asks(ledger, way, ran):
    def pay(to: str, note: str) -> int:
        ran.append(note)
        return 1

    job_id = ask(ledger, way, way.tool(approval="required", ignore=("note",))(pay), "a", "seen")
    ledger.approvals.approve(job_id, by="ann")
    for _ in range(2):
        assert again(ledger, way, way.tool(ignore=("note",))(pay), "a", "other") == 1
    assert ran == ["seen"]


def test_many_calls_after_one_approval_run_it_once(real):
    ran: list[str] = []

    @declared(approval="required")
    def pay(to: str) -> int:
        ran.append(to)
        return len(ran)

    step = a_step(real)
    with pytest.raises(ApprovalRequired) as asked:
        step.run(pay, "a")
    real.approvals.approve(asked.value.details["job_id"], by="ann")
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: step.run(pay, "a"), range(8)))
    assert (ran, results) == (["a"], [1] * 8)


def effect(to: str) -> int:
    return 1


def test_a_lost_reply_while_asking_leaves_one_question(shaky, flaky, way, pay):
    flaky.lose_reply("claim")
    with a_step(shaky), pytest.raises(StoreUnavailable):
        way.call(pay, "a")
    shaky.keeper.run_once()
    ask(shaky, way, pay, "a")
    assert len(shaky.approvals.list()) == 1


def test_an_approval_lasts_a_week_unless_it_says_otherwise():
    contract = declared(approval="required")(effect).contract
    assert contract.describe()["approval"] == {"expires_in": "7d"}
    with pytest.raises(ContractError):
        declared(approval=semel.Approval(expires_in="never"))(effect)


def test_retry_does_not_go_round_an_approval(ledger, ran):
    @keyed(approval="required")
    def pay(to: str, key: semel.Key) -> None:
        ran.append(to)

    for _ in range(2):
        with a_step(ledger), pytest.raises(ApprovalRequired):
            pay("a")
    assert ran == []
