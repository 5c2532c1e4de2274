"""Runs and refused decisions are lines of the audit log, in the commit that they tell of, on every store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from semel.audit.events import Event
from semel.audit.leaves import newest, read
from semel.audit.verify import verify
from semel.flow.assembly import Flow
from semel.flow.values import Caller
from semel.ledger.doctor import examine
from semel.ledger.sweep import Sweeper
from semel.questions.job import job_of
from semel.stores.base import ReadEvents, ReadSeals, Store
from semel.stores.documents import Commit, Draft, Fetch
from tests.fake_clock import FakeClock
from tests.faults.checks import until
from tests.flows import ANN, BEN, World, played, told
from tests.stores import Kind


@pytest.fixture
def world(kind: Kind, tmp_path: Path) -> World:
    return World(kind, tmp_path)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def log(flow: Flow) -> list[Event]:
    events = await flow.document_store.store.aask(ReadEvents(tenant="acme"))
    return list(events)


async def started(flow: Flow, key: str | None = None, **workflow: Any) -> str:
    await flow.workflows.put("acme", "w", workflow or {"steps": []})
    answer = await flow.runs.start(ANN, "w", key, {"order": 7})
    run_id: str = orjson.loads(answer.body)["run_id"]
    return run_id


async def work(flow: Flow) -> None:
    (job,) = (await flow.jobs.lease(BEN, ["t"], 1, 60, None))["jobs"]
    await flow.jobs.result(BEN, job["job_id"], job["fence"], "succeeded", None, None)


@pytest.mark.parametrize("admission", ["atomic", "lock"])
@played
async def test_a_run_is_in_the_log_from_its_start_to_its_end(world, clock, admission):
    world.admission = admission
    flow = world.flow(clock)
    run_id = await started(flow, key="k-1")
    assert await started(flow, key="k-1") == run_id
    await flow.runs.complete(BEN, run_id, "succeeded", {"ok": True})
    first, last = await log(flow)
    assert (first.scope, first.kind, first.state, first.key, first.tool, first.by) == (
        *("run", "started", "running", run_id),
        *("w", "ann"),
    )
    assert (last.kind, last.state, last.record_id, last.by) == ("ended", "succeeded", run_id, "ben")
    assert len(first.digest) == len(last.digest) == 32
    assert first.digest != last.digest


@played
async def test_a_cancelled_run_and_its_rerun_are_in_the_log(world, clock):
    flow = world.flow(clock)
    run_id = await started(flow, steps=[{"id": "a", "topic": "t"}])
    await flow.runs.cancel(BEN, run_id)
    again = orjson.loads((await flow.runs.rerun(ANN, run_id, "a", None)).body)["run_id"]
    await work(flow)
    assert [(each.kind, each.state, each.key, each.note) for each in await log(flow)] == [
        ("started", "running", run_id, ""),
        ("ended", "cancelled", run_id, ""),
        ("started", "running", again, f"rerun of {run_id}"),
        ("ended", "succeeded", again, ""),
    ]


@played
async def test_a_run_that_is_refused_leaves_no_line(world, clock):
    flow = world.flow(clock)
    await flow.workflows.put("acme", "w", {"steps": [], "max_concurrent_runs": 1})
    assert (await told(flow.runs.start(ANN, "w", None, {})))[0] == "done"
    assert (await told(flow.runs.start(ANN, "w", None, {})))[0] == "max_concurrent_runs_reached"
    assert [each.kind for each in await log(flow)] == ["started"]


@pytest.mark.parametrize("status", ["approved", "rejected"])
@played
async def test_whoever_tries_to_decide_on_their_own_submission_is_in_the_log(world, clock, status):
    flow = world.flow(clock)
    created = await flow.jobs.create(ANN, None, "t", {"amount": 5}, True, {})
    job_id = orjson.loads(created.body)["job_id"]
    assert (await told(flow.approvals.decide(ANN, job_id, status)))[0] == "self_approval_denied"
    waiting, refused = await log(flow)
    assert (refused.kind, refused.state, refused.by, refused.note) == (
        *("refused", "self_approval_denied"),
        *("ann", status),
    )
    assert (refused.key, refused.digest) == (job_id, waiting.digest)
    assert (await told(flow.approvals.decide(BEN, job_id, status)))[0] == "done"
    assert [each.kind for each in await log(flow)] == ["waiting", "refused", status]
    assert (await asyncio.to_thread(verify, flow.document_store.store, tenants=("acme",))).whole


@played
async def test_nobody_else_hears_of_a_refusal_of_a_rule(world, clock):
    """The others are late, or somebody was quicker."""
    flow = world.flow(clock)
    created = await flow.jobs.create(ANN, None, "t", {"amount": 5}, True, {})
    job_id = orjson.loads(created.body)["job_id"]
    await flow.approvals.decide(BEN, job_id, "approved")
    assert (await told(flow.approvals.decide(BEN, job_id, "rejected")))[0] == "approval_already_resolved"
    assert [each.kind for each in await log(flow)] == ["waiting", "approved"]


# --- sealed and compared on every store -----------------------------------------------------------------


def _sealed(store: Store) -> None:
    # PostgreSQL seals once no older transaction is open, whoever's it is.
    until(lambda: Sweeper(store).seal() or not store.ask(ReadEvents()), "the events are sealed")


@played
async def test_what_a_seal_was_made_over_is_kept_beside_it(world, clock):
    flow = world.flow(clock)
    await started(flow)
    store = flow.document_store.store
    await asyncio.to_thread(_sealed, store)
    [seal] = await store.aask(ReadSeals())
    leaves = await asyncio.to_thread(read, store, 0, 1)
    assert leaves is not None
    assert (leaves.hash, len(leaves.each)) == (seal.hash, seal.events)
    assert (await asyncio.to_thread(newest, store, 0), seal.leaves) == (1, b"")
    found = await asyncio.to_thread(verify, store)
    assert (found.whole, found.unsealed) == (True, 0)


@played
async def test_an_edited_decision_is_a_finding(world, clock):
    flow = world.flow(clock)
    created = await flow.jobs.create(ANN, None, "t", {"amount": 5}, True, {})
    job_id = orjson.loads(created.body)["job_id"]
    await flow.approvals.decide(BEN, job_id, "rejected")
    store = flow.document_store.store
    document = (await store.aask(Fetch("acme", (job_id,)))).documents[job_id]
    body = document.body.replace(b'"status":"rejected"', b'"status":"approved"')
    assert job_of(body).decision != job_of(document.body).decision
    draft = Draft(job_id, body, document.entries)
    assert (await store.aask(Commit("acme", "ab" * 16, {job_id: document.tag}, (draft,)))).done
    found = await asyncio.to_thread(verify, store)
    [difference] = found.differences
    assert "status is 'approved', by its events 'rejected'" in difference.text


@played
async def test_the_doctor_counts_keys_of_runs_and_jobs_of_every_tenant_among_what_would_be_lost(world, clock):
    flow = world.flow(clock)
    await started(flow, key="k-1")
    await flow.jobs.create(ANN, "k-2", "t", {}, None, {})
    await flow.jobs.create(Caller("umbra", "eve"), "k-3", "t", {}, None, {})
    findings = await asyncio.to_thread(examine, flow.document_store.store, "acme")
    [loss] = [finding for finding in findings if finding.subject == "loss"]
    assert "0 settled and 0 open keys of tools and 3 keys of runs and jobs are forgotten" in loss.text
