"""One decision per job, bound to what the person saw: every row and the order of checks, on every store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest

from semel import Ledger
from semel.errors import ApprovalError
from semel.flow import indexes
from semel.flow.assembly import Flow
from semel.flow.model import run_of
from semel.flow.values import Caller, JsonAnswer
from semel.kernel.clock import rfc3339
from semel.questions import job_index
from semel.questions.refusals import Refusal
from semel.stores.base import Query
from semel.stores.documents import Fetch
from semel.testing import WrappedStore
from tests.fake_clock import START_US, FakeClock
from tests.flows import ANN, BEN, World, index, played, told
from tests.stores import Kind

T = TypeVar("T")

CAT = Caller("acme", "cat")
WEEK_S = 7 * 86_400
ROUNDS = 3

OTHER = {"approved": "rejected", "rejected": "approved"}
both = pytest.mark.parametrize("status", ["approved", "rejected"])


@pytest.fixture
def world(kind: Kind, tmp_path: Path) -> World:
    return World(kind, tmp_path)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def ask_about_a_job(flow: Flow, **approval: Any) -> str:
    answer = await flow.jobs.create(ANN, None, "t", {"amount": 5}, approval or True, {"team": "x"})
    job_id: str = orjson.loads(answer.body)["job_id"]
    return job_id


async def ask_about_a_step(flow: Flow, *after: str) -> tuple[str, str]:
    """A run whose first step is gated, and the ids of run and job; `after` are steps that follow it."""
    steps: list[dict[str, Any]] = [{"id": "gated", "topic": "t", "approval": True}]
    steps += [{"id": name, "topic": "t", "depends_on": ["gated"]} for name in after]
    await flow.workflows.put("acme", "w", {"steps": steps})
    run_id = orjson.loads((await flow.runs.start(ANN, "w", None, {})).body)["run_id"]
    run = await flow.runs.get("acme", run_id)
    return run_id, run["steps"][0]["job_id"] or ""


async def refusal(asked: Awaitable[JsonAnswer]) -> str:
    word, _ = await told(asked)
    assert word not in ("done", "replayed")
    return word


async def work(flow: Flow, status: str, **error: Any) -> None:
    (job,) = (await flow.jobs.lease(BEN, ["t"], 1, 60, None))["jobs"]
    await flow.jobs.result(BEN, job["job_id"], job["fence"], status, None, error or None)


# --- who decides without a gateway ---------------------------------------------------------------------


async def decide_by_ledger(flow: Flow, verb: str, job_id: str) -> None:
    """What plain code does, beside the gateway, on the same store."""
    approvals = Ledger(flow.document_store.store, tenant="acme").approvals
    await asyncio.to_thread(getattr(approvals, verb), job_id, by="ben")


@played
async def test_a_ledger_s_approval_of_a_step_moves_its_run_on(world, clock):
    flow = world.flow(clock)
    run_id, job_id = await ask_about_a_step(flow, "next")
    await decide_by_ledger(flow, "approve", job_id)
    run = await flow.runs.get("acme", run_id)
    assert (run["status"], [step["status"] for step in run["steps"]]) == ("running", ["queued", "pending"])
    timeline = (await flow.runs.timeline("acme", run_id, None, 50)).items
    assert [event["type"] for event in timeline][-2:] == ["step.approved", "run.running"]


@played
async def test_a_ledger_s_rejection_of_a_step_ends_its_run(world, clock):
    flow = world.flow(clock)
    run_id, job_id = await ask_about_a_step(flow, "next")
    await decide_by_ledger(flow, "reject", job_id)
    run = await flow.runs.get("acme", run_id)
    assert (run["status"], [step["status"] for step in run["steps"]]) == ("failed", ["denied", "skipped"])


@played
async def test_a_ledger_decides_on_no_step_whose_run_has_ended(world, clock):
    flow = world.flow(clock)
    run_id, job_id = await ask_about_a_step(flow)
    document = (await flow.document_store.fetch("acme", run_id))[run_id]
    ended = replace(run_of(document.body), status="failed", ended_us=START_US)
    await flow.document_store.commit("acme", {run_id: document.tag}, (indexes.run_draft(ended, None),))
    with pytest.raises(ApprovalError) as refused:
        await decide_by_ledger(flow, "approve", job_id)
    assert refused.value.code == "approval_terminal_run"


# --- each row --------------------------------------------------------------------------------------------


@both
@played
async def test_the_first_decision_is_told_with_person_time_and_revision(world, clock, status):
    flow = world.flow(clock)
    job_id = await ask_about_a_job(flow)
    clock.advance(5)
    answer = await flow.approvals.decide(BEN, job_id, status, "because")
    at = rfc3339(START_US + 5_000_000)
    expected = {"job_id": job_id, "status": status, f"{status}_by": "ben", f"{status}_at": at, "revision": 1}
    assert (orjson.loads(answer.body), answer.replayed) == (expected, False)
    shown = await flow.approvals.get("acme", job_id)
    assert (shown["status"], shown["decided_by"], shown["decided_at"]) == (status, "ben", at)
    assert shown["reason"] == "because"


@both
@played
async def test_the_same_decision_again_names_the_first_decider_and_time(world, clock, status):
    flow, other = world.flow(clock), world.flow(clock)
    job_id = await ask_about_a_job(flow)
    first = orjson.loads((await flow.approvals.decide(BEN, job_id, status)).body)
    clock.advance(60)
    for person in (BEN, CAT):
        answer = await other.approvals.decide(person, job_id, status, "another reason")
        assert orjson.loads(answer.body) == {**first, "status": f"already_{status}"}
        assert answer.replayed


@both
@played
async def test_the_other_decision_is_a_conflict_and_changes_nothing(world, status):
    flow = world.flow()
    job_id = await ask_about_a_job(flow)
    await flow.approvals.decide(BEN, job_id, status)
    before = await flow.approvals.get("acme", job_id)
    assert await refusal(flow.approvals.decide(CAT, job_id, OTHER[status])) == "approval_already_resolved"
    assert await flow.approvals.get("acme", job_id) == before


@pytest.mark.parametrize("ending", ["leased", "succeeded", "failed", "cancelled"])
@played
async def test_an_approval_is_replayed_in_every_later_state_of_the_job(world, ending):
    flow = world.flow()
    run_id, job_id = await ask_about_a_step(flow)
    await flow.approvals.decide(BEN, job_id, "approved")
    if ending == "leased":
        await flow.jobs.lease(BEN, ["t"], 1, 60, None)
    elif ending == "cancelled":
        await flow.runs.cancel(ANN, run_id)
    else:
        await work(flow, ending, code="x", message="", retriable=False)
    assert (await flow.jobs.get("acme", job_id))["status"] == ending
    word, said = await told(flow.approvals.decide(CAT, job_id, "approved"))
    assert (word, said["status"], said["approved_by"]) == ("replayed", "already_approved", "ben")
    assert await refusal(flow.approvals.decide(CAT, job_id, "rejected")) == "approval_already_resolved"


@both
@played
async def test_a_job_that_nobody_is_asked_about_cannot_be_decided_on(world, status):
    flow = world.flow()
    answer = await flow.jobs.create(ANN, None, "t", {}, False, {})
    job_id = orjson.loads(answer.body)["job_id"]
    assert await refusal(flow.approvals.decide(BEN, job_id, status)) == "approval_not_actionable"
    with pytest.raises(Refusal, match="Nobody is asked"):
        await flow.approvals.get("acme", job_id)


@both
@played
async def test_a_cancelled_job_cannot_be_decided_on(world, status):
    flow = world.flow()
    run_id, job_id = await ask_about_a_step(flow)
    await flow.runs.cancel(ANN, run_id)
    assert await refusal(flow.approvals.decide(BEN, job_id, status)) == "approval_not_actionable"
    assert (await flow.approvals.get("acme", job_id))["status"] == "cancelled"


@both
@played
async def test_a_question_whose_run_has_ended_by_itself_is_terminal(world, clock, status):
    flow = world.flow(clock)
    _, job_id = await ask_about_a_step(flow)
    clock.advance(WEEK_S)
    await flow.upkeep.run_once()
    assert await refusal(flow.approvals.decide(BEN, job_id, status)) == "approval_terminal_run"


@both
@pytest.mark.parametrize("swept", [False, True], ids=["not swept yet", "swept"])
@played
async def test_a_late_decision_is_told_so_and_a_denial_by_time_is_no_rejection(world, clock, status, swept):
    flow = world.flow(clock)
    job_id = await ask_about_a_job(flow, expires_in="1h")
    clock.advance(3_600)
    if swept:
        assert await flow.upkeep.run_once() == 1
        assert (await flow.jobs.get("acme", job_id))["status"] == "denied"
        assert (await flow.approvals.get("acme", job_id))["status"] == "expired"
    assert await refusal(flow.approvals.decide(BEN, job_id, status)) == "approval_expired"


@both
@played
async def test_a_decision_in_the_last_moment_counts(world, clock, status):
    flow = world.flow(clock)
    job_id = await ask_about_a_job(flow, expires_in="1h")
    clock.advance(3_599.999999)
    assert await flow.upkeep.run_once() == 0
    assert (await told(flow.approvals.decide(BEN, job_id, status)))[0] == "done"


@pytest.mark.parametrize(
    "stale", [{"revision": 2}, {"revision": 0}, {"job_hash": "0" * 64}, {"job_hash": ""}]
)
@played
async def test_a_decision_on_something_else_than_what_is_there_is_stale(world, stale):
    flow = world.flow()
    job_id = await ask_about_a_job(flow)
    assert await refusal(flow.approvals.decide(BEN, job_id, "approved", **stale)) == "approval_stale_request"
    assert (await flow.jobs.get("acme", job_id))["status"] == "waiting"


@both
@played
async def test_a_client_may_resend_its_original_body(world, status):
    flow = world.flow()
    job_id = await ask_about_a_job(flow)
    seen = await flow.approvals.get("acme", job_id)
    body = {"revision": seen["revision"], "job_hash": seen["job_hash"]}
    assert (await told(flow.approvals.decide(BEN, job_id, status, **body)))[0] == "done"
    assert (await told(flow.approvals.decide(BEN, job_id, status, **body)))[0] == "replayed"
    after = await flow.approvals.get("acme", job_id)
    assert {name: after[name] for name in body} == body


@both
@played
async def test_nobody_decides_on_what_they_submitted(world, status):
    flow = world.flow()
    job_id = await ask_about_a_job(flow)
    _, step_job_id = await ask_about_a_step(flow)
    for each in (job_id, step_job_id):
        assert await refusal(flow.approvals.decide(ANN, each, status)) == "self_approval_denied"
        assert (await flow.jobs.get("acme", each))["status"] == "waiting"


@both
@played
async def test_a_job_of_another_tenant_is_as_unknown_as_one_that_never_was(world, status):
    flow = world.flow()
    job_id = await ask_about_a_job(flow)
    for asked in (job_id, "job_" + "0" * 32, "run_x", ""):
        with pytest.raises(Refusal) as told_:
            await flow.approvals.decide(Caller("globex", "ben"), asked, status)
        assert (told_.value.code, told_.value.message) == (
            "job_not_found",
            "There is no such job in this tenant.",
        )


# --- the order of the checks -----------------------------------------------------------------------------


@played
async def test_own_submission_comes_before_the_decision_on_file(world):
    flow = world.flow()
    job_id = await ask_about_a_job(flow)
    await flow.approvals.decide(BEN, job_id, "approved")
    for status in OTHER:
        assert await refusal(flow.approvals.decide(ANN, job_id, status)) == "self_approval_denied"


@played
async def test_the_decision_on_file_comes_before_an_ended_run_a_late_time_and_a_stale_body(world, clock):
    flow = world.flow(clock)
    run_id, job_id = await ask_about_a_step(flow)
    await flow.approvals.decide(BEN, job_id, "rejected")
    assert (await flow.runs.get("acme", run_id))["status"] == "failed"
    clock.advance(2 * WEEK_S)
    assert (await told(flow.approvals.decide(CAT, job_id, "rejected", revision=9)))[0] == "replayed"
    conflict = flow.approvals.decide(CAT, job_id, "approved", revision=9)
    assert await refusal(conflict) == "approval_already_resolved"


@played
async def test_own_submission_comes_before_gated_and_gated_before_a_stale_body(world):
    flow = world.flow()
    answer = await flow.jobs.create(ANN, None, "t", {}, False, {})
    job_id = orjson.loads(answer.body)["job_id"]
    assert await refusal(flow.approvals.decide(ANN, job_id, "approved")) == "self_approval_denied"
    asked = flow.approvals.decide(BEN, job_id, "approved", revision=9)
    assert await refusal(asked) == "approval_not_actionable"


@played
async def test_an_ended_run_comes_before_expiry_and_expiry_before_a_stale_body(world, clock):
    flow = world.flow(clock)
    job_id = await ask_about_a_job(flow)
    _, step_job_id = await ask_about_a_step(flow)
    clock.advance(WEEK_S)
    late = flow.approvals.decide(BEN, job_id, "approved", revision=9)
    assert await refusal(late) == "approval_expired"
    await flow.upkeep.run_once()
    ended = flow.approvals.decide(BEN, step_job_id, "approved", revision=9)
    assert await refusal(ended) == "approval_terminal_run"


# --- what follows ----------------------------------------------------------------------------------------


@played
async def test_a_waiting_job_is_invisible_to_workers_until_it_is_approved(world):
    flow = world.flow()
    job_id = await ask_about_a_job(flow)
    assert (await flow.jobs.lease(BEN, ["t"], 10, 60, None))["jobs"] == []
    await flow.approvals.decide(BEN, job_id, "approved")
    (job,) = (await flow.jobs.lease(BEN, ["t"], 10, 60, None))["jobs"]
    assert job["job_id"] == job_id


@both
@played
async def test_the_decision_is_announced_by_one_message_with_a_stable_id(world, status):
    flow = world.flow()
    job_id = await ask_about_a_job(flow)
    await flow.outbox.run_once()
    for _ in range(3):
        await told(flow.approvals.decide(BEN, job_id, status))
        await told(flow.approvals.decide(CAT, job_id, OTHER[status]))
    await flow.outbox.run_once()
    await flow.outbox.run_once()
    announced = [message for message in world.sent if message.type.startswith("approval.")]
    assert [(each.id, each.type) for each in announced] == [(f"approval:{job_id}", f"approval.{status}")]
    assert (await flow.jobs.get("acme", job_id))["bus_msg_id"] == f"approval:{job_id}"


@played
async def test_a_rejected_step_skips_what_depends_on_it_and_fails_the_run(world):
    flow = world.flow()
    run_id, job_id = await ask_about_a_step(flow, "next", "after")
    assert (await flow.runs.get("acme", run_id))["status"] == "waiting"
    await flow.approvals.decide(BEN, job_id, "rejected", "no")
    run = await flow.runs.get("acme", run_id)
    assert [step["status"] for step in run["steps"]] == ["denied", "skipped", "skipped"]
    assert (run["status"], run["error"]["code"]) == ("failed", "step_denied")
    assert await index(flow, indexes.SLOTS) == []
    assert (await flow.jobs.get("acme", job_id))["error"]["code"] == "approval_rejected"


@played
async def test_a_question_stands_in_the_index_of_its_status(world, clock):
    flow = world.flow(clock)
    ids = [await ask_about_a_job(flow, expires_in="1h") for _ in range(4)]
    await flow.approvals.decide(BEN, ids[0], "approved")
    await flow.approvals.decide(BEN, ids[1], "rejected")
    assert await listed(flow, "waiting") == {ids[2], ids[3]}
    clock.advance(3_600)
    await flow.upkeep.run_once()
    assert [await listed(flow, status) for status in ("waiting", "approved", "rejected", "expired")] == [
        set(),
        {ids[0]},
        {ids[1]},
        {ids[2], ids[3]},
    ]
    assert await listed(flow, None) == set(ids)


async def listed(flow: Flow, status: str | None) -> set[str]:
    return {item["job_id"] for item in (await flow.approvals.list("acme", status, None, 50)).items}


# --- many at once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gated", ["job", "step"])
@played
async def test_of_forty_deciders_at_once_one_decides_and_everyone_is_told_the_truth(world, gated):
    flows = (world.flow(), world.flow())
    for _ in range(ROUNDS):
        job_id = await ask_about_a_job(flows[0]) if gated == "job" else (await ask_about_a_step(flows[0]))[1]
        results = await asyncio.gather(
            *(
                told(flows[n % 2].approvals.decide(Caller("acme", f"p{n}"), job_id, status))
                for n in range(20)
                for status in OTHER
            )
        )
        check_truth(results)
        shown = await flows[1].approvals.get("acme", job_id)
        (first,) = (said for word, said in results if word == "done")
        assert shown["status"] == first["status"]
    announced = [each for each in await index(flows[0], job_index.OUTBOX) if "approval:" in each.id]
    assert len(announced) == ROUNDS


def check_truth(results: list[tuple[str, dict[str, Any]]]) -> None:
    words = Counter(word for word, _ in results)
    assert words == {"done": 1, "replayed": 19, "approval_already_resolved": 20}
    (first,) = (said for word, said in results if word == "done")
    for word, said in results:
        if word == "replayed":
            assert said == {**first, "status": f"already_{first['status']}"}
        elif word != "done":
            assert said == {"decided": first["status"]}


class Interrupted(WrappedStore):
    """Lets `meanwhile` happen right after the next documents were fetched."""

    meanwhile: Callable[[], Awaitable[Any]] | None = None

    async def aask(self, query: Query[T]) -> T:
        answer = await self.inner.aask(query)
        if isinstance(query, Fetch) and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return answer


@both
@played
async def test_a_decision_that_ends_the_run_under_another_decider_is_still_told_as_it_is(world, status):
    slow, quick = world.flow(wrap=Interrupted), world.flow()
    store = slow.document_store.store
    assert isinstance(store, Interrupted)
    _, job_id = await ask_about_a_step(quick)
    store.meanwhile = lambda: quick.approvals.decide(BEN, job_id, "rejected")
    word, said = await told(slow.approvals.decide(CAT, job_id, status))
    expected = "replayed" if status == "rejected" else "approval_already_resolved"
    assert word == expected
    assert said.get("rejected_by", "ben") == "ben"


@played
async def test_approve_reject_and_cancel_at_once_leave_one_truth(world, clock):
    flows = (world.flow(clock), world.flow(clock))
    for _ in range(ROUNDS):
        run_id, job_id = await ask_about_a_step(flows[0])
        results = await asyncio.gather(
            told(flows[0].approvals.decide(BEN, job_id, "approved")),
            told(flows[1].approvals.decide(CAT, job_id, "rejected")),
            told(flows[1].runs.cancel(ANN, run_id)),
        )
        words = [word for word, _ in results]
        job = await flows[0].jobs.get("acme", job_id)
        run = await flows[1].runs.get("acme", run_id)
        assert words[:2].count("done") <= 1
        if words[2] == "done":
            assert (job["status"], run["status"]) == ("cancelled", "cancelled")
        else:
            assert (words[1:], run["status"]) == (["done", "run_already_ended"], "failed")
