"""Tools, gated steps and jobs ask people in one way: either side sees, decides and replays for the other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

import semel
from semel.audit import events
from semel.audit.verify import verify
from semel.errors import ApprovalError, ApprovalRejected, ApprovalRequired, EffectFailed
from semel.flow.assembly import Flow
from semel.flow.run_progress import HAND_BACK_S
from semel.kernel.answers import LeasedJobJson
from semel.ledger.ledger import Ledger
from semel.questions import job_index
from semel.stores.base import ReadEvents, Store
from semel.stores.documents import Count
from semel.stores.index_names import EXPIRY
from tests.fake_clock import FakeClock
from tests.flows import ANN, BEN, World, played, told
from tests.stores import Kind

HOUR_S, DAY_S = 3_600, 86_400

# Amounts that cannot be paid, and that may have been.
FAILING, UNSURE = 13, 666


@semel.tool_contract(class_="write-non-idempotent", name="pay", approval=semel.Approval(expires_in="1h"))
def pay(account: str, amount: int) -> str:
    if amount == FAILING:
        raise ValueError(amount)
    if amount == UNSURE:
        raise TimeoutError(amount)
    return f"paid {amount} to {account}"


@pytest.fixture
def world(kind: Kind, tmp_path: Path) -> World:
    return World(kind, tmp_path)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Scene:
    """A ledger and a gateway's flow on one store."""

    def __init__(self, world: World, clock: FakeClock) -> None:
        self.flow: Flow = world.flow(clock)
        self.store: Store = self.flow.document_store.store
        self.ledger = Ledger(self.store, tenant="acme")

    async def call(self, amount: int = 5, conversation: str = "c", principal: str = "bot") -> str:
        return await asyncio.to_thread(self._call, amount, conversation, principal)

    def _call(self, amount: int, conversation: str, principal: str) -> str:
        step = self.ledger.step(conversation=conversation, step="s", principal=principal)
        answer: str = step.run(pay, account="a", amount=amount)
        return answer

    async def ask(self, **terms: Any) -> str:
        """The first call; the job that waits for a person."""
        with pytest.raises(ApprovalRequired) as asked:
            await self.call(**terms)
        return str(asked.value.details["job_id"])

    async def question(self, how: str) -> semel.Question:
        """The question alone, asked for in one of the two ways."""
        request = semel.ToolCall({"account": "a", "amount": 5})
        with self.ledger.step(conversation="c", step="s", principal="bot"):
            if how == "aask":
                return await pay.aask(request)
            return await asyncio.to_thread(pay.ask, request)

    async def decide(self, verb: str, job_id: str, by: str) -> Any:
        return await asyncio.to_thread(getattr(self.ledger.approvals, verb), job_id, by=by)

    async def questions(self) -> list[events.Event]:
        lanes = [await self.store.aask(ReadEvents(tenant="acme", lane=n)) for n in range(self.store.lanes)]
        return [event for lane in lanes for event in lane if event.kind in events.DECIDED]


@pytest.fixture
def scene(world: World, clock: FakeClock) -> Scene:
    return Scene(world, clock)


# --- a tool's question, decided at the gateway -----------------------------------------------------------


@played
async def test_a_gateway_shows_what_a_tool_asks(world, scene):
    job_id = await scene.ask()
    shown = await scene.flow.approvals.get("acme", job_id)
    assert (shown["topic"], shown["input"]) == ("pay", {"account": "a", "amount": 5})
    assert (shown["status"], shown["submitted_by"]) == ("waiting", "bot")
    page = await scene.flow.approvals.list("acme", "waiting", None, 50)
    assert [item["job_id"] for item in page.items] == [job_id]


@pytest.mark.parametrize("how", ["ask", "aask"])
@played
async def test_a_question_asked_for_alone_is_the_one_of_the_call_and_stands_as_it_was_answered(
    world, scene, how
):
    question = await scene.question(how)
    shown = await scene.flow.approvals.get("acme", question.job_id)
    assert (shown["job_hash"], shown["expires_at"]) == (question.job_hash, question.expires_at)
    assert (question.tool, question.arguments) == (shown["topic"], shown["input"])
    assert await scene.question(how) == question
    assert await scene.ask() == question.job_id
    await scene.decide("approve", question.job_id, "ann")
    assert (await scene.question(how)).status == "approved"
    assert await scene.call() == "paid 5 to a"
    assert (await scene.question(how)).status == "approved"


@played
async def test_a_no_is_on_record_once_somebody_asks_for_the_question(world, scene):
    question = await scene.question("ask")
    await scene.decide("reject", question.job_id, "ann")
    assert (await scene.question("ask")).status == "rejected"
    assert (await scene.question("aask")).status == "rejected"
    record = await record_of(scene)
    assert record.state.value == "failed"


@pytest.mark.parametrize("how", ["ask", "aask"])
@played
async def test_a_question_that_expired_is_put_anew_by_asking_alone(world, clock, scene, how):
    old = await scene.question(how)
    clock.advance(HOUR_S)
    new = await scene.question(how)
    assert (new.status, new.job_id == old.job_id) == ("waiting", False)


@played
async def test_a_tool_runs_after_a_gateway_s_yes_and_the_yes_is_replayed(world, scene):
    job_id = await scene.ask()
    shown = await scene.flow.approvals.get("acme", job_id)
    word, answer = await told(
        scene.flow.approvals.decide(ANN, job_id, "approved", "ok", 1, shown["job_hash"])
    )
    assert (word, answer["approved_by"]) == ("done", "ann")
    assert await scene.call() == "paid 5 to a"
    word, again = await told(scene.flow.approvals.decide(BEN, job_id, "approved"))
    assert (word, again["status"], again["approved_by"]) == ("replayed", "already_approved", "ann")


@played
async def test_a_tool_is_settled_by_a_gateway_s_no(world, scene):
    job_id = await scene.ask()
    await scene.flow.approvals.decide(ANN, job_id, "rejected")
    for _ in range(2):
        with pytest.raises(ApprovalRejected):
            await scene.call()


@played
async def test_nobody_leases_the_job_of_a_call(world, scene):
    job_id = await scene.ask()
    await scene.flow.approvals.decide(ANN, job_id, "approved")
    assert (await scene.flow.jobs.lease(BEN, ["pay"], 10, 60, None))["jobs"] == []
    assert (await told(scene.flow.jobs.result(BEN, job_id, 0, "succeeded", None, None)))[
        0
    ] == "ownership_lost"


@played
async def test_who_calls_a_tool_does_not_decide_at_the_gateway_either(world, scene):
    job_id = await scene.ask()
    bot = ANN._replace(principal="bot")
    assert (await told(scene.flow.approvals.decide(bot, job_id, "approved")))[0] == "self_approval_denied"


@played
async def test_who_submits_a_job_does_not_decide_on_what_its_worker_calls(world, scene):
    answer = await scene.flow.jobs.create(ANN, None, "t", {}, None, None)
    outer = orjson.loads(answer.body)["job_id"]
    job_id = await scene.ask(conversation=f"job:{outer}", principal="worker-1")
    assert (await scene.flow.approvals.get("acme", job_id))["submitted_by"] == "ann"
    assert (await told(scene.flow.approvals.decide(ANN, job_id, "approved")))[0] == "self_approval_denied"
    assert (await told(scene.flow.approvals.decide(BEN, job_id, "approved")))[0] == "done"


@played
async def test_a_conversation_that_only_sounds_like_a_job_has_its_own_principal(world, scene):
    for name in ("job:", "job:job_0", "jobs"):
        job_id = await scene.ask(conversation=name, principal="bot")
        assert (await scene.flow.approvals.get("acme", job_id))["submitted_by"] == "bot"


@played
async def test_a_person_sees_every_digit_of_what_they_decide_on(world, scene):
    amount = 2**70 + 1
    job_id = await scene.ask(amount=amount)
    shown = await scene.flow.approvals.get("acme", job_id)
    assert shown["input"] == {"account": "a", "amount": str(amount)}
    (record,) = await asyncio.to_thread(scene.ledger.records.list, scope="tool")
    assert scene.ledger.records.show(record)["arguments"]["amount"] == amount
    await scene.flow.approvals.decide(ANN, job_id, "approved")
    assert await scene.call(amount=amount) == f"paid {amount} to a"


@played
async def test_a_decision_on_a_call_is_announced_once_under_the_job_s_own_id(world, scene):
    job_id = await scene.ask()
    await scene.flow.approvals.decide(ANN, job_id, "approved")
    await scene.flow.outbox.run_once()
    await scene.flow.outbox.run_once()
    assert [message.id for message in world.sent].count(f"approval:{job_id}") == 1
    assert (await scene.flow.jobs.get("acme", job_id))["bus_msg_id"] == f"approval:{job_id}"


# --- a gateway's question, decided without it ------------------------------------------------------------


@played
async def test_a_gated_job_can_be_leased_after_a_yes_in_plain_code(world, scene):
    answer = await scene.flow.jobs.create(ANN, None, "t", {}, True, None)
    job_id = orjson.loads(answer.body)["job_id"]
    decision = await scene.decide("approve", job_id, "ben")
    assert (decision.status, decision.by) == ("approved", "ben")
    (leased,) = (await scene.flow.jobs.lease(BEN, ["t"], 1, 60, None))["jobs"]
    assert leased["job_id"] == job_id
    assert (await scene.decide("approve", job_id, "cat")).status == "already_approved"


@played
async def test_a_gated_step_is_denied_and_its_run_fails_after_a_no_in_plain_code(world, scene):
    await scene.flow.workflows.put("acme", "w", {"steps": [{"id": "g", "topic": "t", "approval": True}]})
    run_id = orjson.loads((await scene.flow.runs.start(ANN, "w", None, {})).body)["run_id"]
    job_id = (await scene.flow.runs.get("acme", run_id))["steps"][0]["job_id"]
    await scene.decide("reject", job_id, "ben")
    run = await scene.flow.runs.get("acme", run_id)
    assert (run["status"], run["steps"][0]["status"]) == ("failed", "denied")


@played
async def test_plain_code_is_refused_as_the_gateway_refuses(world, scene):
    answer = await scene.flow.jobs.create(ANN, None, "t", {}, None, None)
    job_id = orjson.loads(answer.body)["job_id"]
    with pytest.raises(ApprovalError) as ungated:
        await scene.decide("approve", job_id, "ben")
    assert ungated.value.code == "approval_not_actionable"


# --- the audit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["approved", "rejected"])
@played
async def test_question_and_decision_are_in_the_sealed_log_once_with_the_person_s_name(world, scene, status):
    job_id = await scene.ask()
    seen = await scene.flow.approvals.get("acme", job_id)
    for caller in (ANN, BEN, ANN):
        await scene.flow.approvals.decide(caller, job_id, status, "checked")
    asked, decided = await scene.questions()
    assert (asked.kind, asked.by, asked.key, asked.tool) == ("waiting", "bot", job_id, "pay")
    assert (decided.kind, decided.by, decided.note) == (status, "ann", "checked")
    assert decided.digest.hex() == seen["job_hash"]
    await asyncio.to_thread(scene.ledger.sweeper.run_once)
    report = await asyncio.to_thread(verify, scene.store, tenants=("acme",))
    assert report.whole
    assert report.unsealed == 0


@played
async def test_a_refused_decision_is_not_in_the_log(world, scene):
    job_id = await scene.ask()
    await scene.flow.approvals.decide(ANN, job_id, "approved")
    assert (await told(scene.flow.approvals.decide(BEN, job_id, "rejected")))[
        0
    ] == "approval_already_resolved"
    assert [event.kind for event in await scene.questions()] == ["waiting", "approved"]


@played
async def test_a_question_that_is_cancelled_with_its_run_ends_in_the_log_too(world, scene):
    steps = [{"id": "g", "topic": "t", "approval": True}, {"id": "h", "topic": "t"}]
    await scene.flow.workflows.put("acme", "w", {"steps": steps})
    run_id = orjson.loads((await scene.flow.runs.start(ANN, "w", None, {})).body)["run_id"]
    for _ in range(2):
        await scene.flow.runs.cancel(BEN, run_id)
    asked, cancelled = await scene.questions()
    assert (cancelled.kind, cancelled.by, cancelled.key) == ("cancelled", "ben", asked.key)
    await asyncio.to_thread(scene.ledger.sweeper.run_once)
    assert (await asyncio.to_thread(verify, scene.store, tenants=("acme",))).whole


# --- the job of a call, after the yes ----------------------------------------------------------------------


async def status(scene: Scene, job_id: str) -> str:
    return str((await scene.flow.jobs.get("acme", job_id))["status"])


async def record_of(scene: Scene) -> Any:
    (record,) = await asyncio.to_thread(scene.ledger.records.list, scope="tool")
    return record


@played
async def test_the_job_of_a_call_ends_with_the_call(world, scene):
    job_id = await scene.ask()
    await scene.flow.approvals.decide(ANN, job_id, "approved")
    assert await status(scene, job_id) == "queued"
    await scene.call()
    job = await scene.flow.jobs.get("acme", job_id)
    assert (job["status"], job["result"]) == ("succeeded", {"record_id": (await record_of(scene)).request.id})
    assert job["ended_at"] is not None
    # The decision is replayed in every later state of the job, and the call too.
    assert (await told(scene.flow.approvals.decide(BEN, job_id, "approved")))[1]["approved_by"] == "ann"
    await scene.call()
    assert await scene.flow.jobs.get("acme", job_id) == job


@played
async def test_the_job_of_a_call_that_fails_has_failed_and_names_its_record(world, scene):
    job_id = await scene.ask(amount=FAILING)
    await scene.flow.approvals.decide(ANN, job_id, "approved")
    with pytest.raises(EffectFailed):
        await scene.call(amount=FAILING)
    job = await scene.flow.jobs.get("acme", job_id)
    assert (job["status"], job["error"]["code"]) == ("failed", "call_failed")
    assert (await record_of(scene)).request.id in job["error"]["message"]


@played
async def test_the_job_of_a_call_that_somebody_else_settled_ends_by_the_sweep(world, clock, scene):
    job_id = await scene.ask(amount=UNSURE)
    await scene.flow.approvals.decide(ANN, job_id, "approved")
    with pytest.raises(TimeoutError):
        await scene.call(amount=UNSURE)
    for seconds in (10, 10, HOUR_S):
        clock.advance(seconds)
        await scene.flow.upkeep.run_once()
        assert await status(scene, job_id) == "queued"  # in doubt: nobody knows
    id_ = (await record_of(scene)).request.id
    await asyncio.to_thread(scene.ledger.records.resolve, id_, "happened", by="eve", result="paid")
    clock.advance(HOUR_S)
    await asyncio.to_thread(scene.ledger.sweeper.run_once)
    assert await status(scene, job_id) == "succeeded"


@played
async def test_the_job_of_a_call_that_nobody_made_ends_when_its_record_is_forgotten(world, clock, scene):
    job_id = await scene.ask()
    await scene.flow.approvals.decide(ANN, job_id, "approved")
    clock.advance(30 * DAY_S)
    for _ in range(2):
        await asyncio.to_thread(scene.ledger.sweeper.run_once)
        clock.advance(HOUR_S)
    job = await scene.flow.jobs.get("acme", job_id)
    assert (job["status"], job["error"]["code"]) == ("cancelled", "call_not_made")
    assert (await scene.flow.approvals.get("acme", job_id))["status"] == "approved"


# --- a job that waits for a person by a call of its handler -----------------------------------------------

RESTARTS = 25  # more than leases may lapse


async def leased(scene: Scene) -> LeasedJobJson:
    (job,) = (await scene.flow.jobs.lease(BEN, ["t"], 1, 60, "w"))["jobs"]
    return job


@played
async def test_workers_that_die_while_a_person_is_asked_cost_the_job_nothing(world, clock, scene):
    await scene.flow.jobs.create(ANN, None, "t", {}, None, None)
    job = await leased(scene)
    question = await scene.ask(conversation=f"job:{job['job_id']}", principal="w")
    for _ in range(RESTARTS):
        clock.advance(60)
        await scene.flow.upkeep.run_once()
        job = await leased(scene)
        assert job["attempt"] == 1
    await scene.flow.approvals.decide(BEN, question, "approved")
    clock.advance(60)
    await scene.flow.upkeep.run_once()
    # Nobody is asked any more: from now on it is the job that takes its workers down.
    assert (await leased(scene))["attempt"] == 2


@played
async def test_a_job_that_is_handed_back_can_be_leased_at_once_and_has_lost_nothing(world, clock, scene):
    await scene.flow.workflows.put("acme", "s", {"steps": [{"id": "a", "topic": "t"}]})
    _, run = await told(scene.flow.runs.start(ANN, "s", None, {}))
    fences = []
    for _ in range(RESTARTS):
        job = await leased(scene)
        assert job["attempt"] == 1
        fences.append(job["fence"])
        await scene.flow.jobs.heartbeat(BEN, job["job_id"], job["fence"], HAND_BACK_S)
    assert fences == sorted(set(fences))
    lost = scene.flow.jobs.result(BEN, job["job_id"], job["fence"], "succeeded", 1, None)
    assert (await told(lost))[0] == "ownership_lost"
    timeline = (await scene.flow.runs.timeline("acme", run["run_id"], None, 100)).items
    assert [event["type"] for event in timeline].count("job.handed_back") == RESTARTS


# --- time ------------------------------------------------------------------------------------------------


@played
async def test_a_ledger_s_own_sweep_ends_late_questions_and_says_so(world, clock, scene):
    job_id = await scene.ask()
    clock.advance(HOUR_S)
    assert (await scene.flow.approvals.get("acme", job_id))["status"] == "expired"
    assert (await scene.flow.approvals.list("acme", "waiting", None, 50)).items == []
    await asyncio.to_thread(scene.ledger.sweeper.run_once)
    assert (await scene.flow.jobs.get("acme", job_id))["status"] == "denied"
    assert [event.kind for event in await scene.questions()] == ["waiting", "expired"]
    assert (await told(scene.flow.approvals.decide(ANN, job_id, "approved")))[0] == "approval_expired"


@played
async def test_where_no_gateway_runs_nothing_of_old_questions_is_left(world, clock, scene):
    for status in ("approved", "rejected", None):
        job_id = await scene.ask()
        if status is not None:
            await scene.flow.approvals.decide(ANN, job_id, status)
        clock.advance(100 * DAY_S)
        for _ in range(3):  # what is late ends first, and is forgotten later
            await asyncio.to_thread(scene.ledger.sweeper.run_once)
            clock.advance(100 * DAY_S)
    for index in (job_index.APPROVALS, job_index.DUE_CALLS, job_index.OUTBOX, EXPIRY):
        assert await scene.store.aask(Count("acme", index)) == 0, index


@pytest.mark.parametrize("status", ["approved", "rejected"])
@played
async def test_a_gateway_that_keeps_its_own_for_an_hour_keeps_the_answer_to_a_call(
    world, clock, scene, status
):
    job_id = await scene.ask()
    hasty = world.flow(clock, kept_us=HOUR_S * 1_000_000)
    await hasty.approvals.decide(ANN, job_id, status)
    clock.advance(2 * HOUR_S)
    await hasty.upkeep.run_once()
    answered = await asyncio.gather(scene.call(), return_exceptions=True)
    assert [type(each) for each in answered] == [str if status == "approved" else ApprovalRejected]
    await hasty.outbox.run_once()  # the bus was away all the time
    assert f"approval:{job_id}" in [message.id for message in world.sent]
