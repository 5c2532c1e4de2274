"""Jobs for people, on every store: listed newest first by what is asked for, and cancelled once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from semel.flow.assembly import Flow
from semel.flow.job_admin import JobFilter
from semel.flow.problems import Refused
from semel.flow.values import Caller
from tests.fake_clock import FakeClock
from tests.flows import ANN, BEN, World, played, told
from tests.stores import Kind


@pytest.fixture
def world(kind: Kind, tmp_path: Path) -> World:
    return World(kind, tmp_path)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def create(flow: Flow, topic: str = "t", approval: Any = None) -> str:
    answer = await flow.jobs.create(ANN, None, topic, {"n": 1}, approval, None)
    job_id: str = orjson.loads(answer.body)["job_id"]
    return job_id


async def start(flow: Flow, *steps: dict[str, Any]) -> tuple[str, dict[str, str]]:
    await flow.workflows.put("acme", "w", {"steps": list(steps)})
    run_id = orjson.loads((await flow.runs.start(ANN, "w", None, {})).body)["run_id"]
    run = await flow.runs.get("acme", run_id)
    return run_id, {step["id"]: step["job_id"] or "" for step in run["steps"]}


async def listed(flow: Flow, limit: int = 50, **wanted: str) -> list[str]:
    """The ids of the list to its end, page by page."""
    ids: list[str] = []
    after = None
    while True:
        page = await flow.job_admin.list("acme", JobFilter(**wanted), after, limit)
        assert len(page.items) <= limit
        ids += [item["job_id"] for item in page.items]
        if (after := page.next_after) is None:
            return ids


@played
async def test_jobs_are_listed_newest_first_by_status_topic_and_run(world, clock):
    flow = world.flow(clock)
    made = []
    for topic in ("t", "u", "t", "u", "t"):
        clock.advance(1)
        made.append(await create(flow, topic))
    clock.advance(1)
    run_id, of_run = await start(flow, {"id": "a", "topic": "t"}, {"id": "b", "topic": "u", "approval": True})
    everything = sorted(of_run.values(), reverse=True) + made[::-1]
    (job,) = (await flow.jobs.lease(BEN, ["t"], 1, 60, None))["jobs"]
    await flow.jobs.result(BEN, job["job_id"], job["fence"], "succeeded", 5, None)
    for limit in (1, 2, 50):
        assert await listed(flow, limit) == everything
        assert await listed(flow, limit, status="succeeded") == [made[0]]
        assert await listed(flow, limit, topic="u") == [of_run["b"], made[3], made[1]]
        assert await listed(flow, limit, topic="u", status="queued") == [made[3], made[1]]
        assert await listed(flow, limit, run_id=run_id) == everything[:2]
        assert await listed(flow, limit, run_id=run_id, status="waiting") == [of_run["b"]]
    assert await listed(flow, status="leased") == await listed(flow, topic="v") == []
    assert await listed(flow, run_id="run_" + "0" * 32) == await listed(flow, run_id=made[0]) == []
    assert (await flow.job_admin.list("globex", JobFilter(), None, 50)).items == []


@played
async def test_a_rare_kind_among_many_is_found_though_a_page_ends_early(world, clock, monkeypatch):
    monkeypatch.setattr("semel.flow.job_admin._BATCH", 2)
    monkeypatch.setattr("semel.flow.job_admin._BATCHES_MAX", 2)
    flow = world.flow(clock)
    rare = await create(flow, "t", approval=True)
    for _ in range(12):
        clock.advance(1)
        await create(flow, "t")
    assert await listed(flow, 1, topic="t", status="waiting") == [rare]


@pytest.mark.parametrize("live", ["queued", "leased", "waiting"])
@played
async def test_whatever_is_live_can_be_cancelled_and_the_same_again_is_a_replay(world, clock, live):
    flow = world.flow(clock)
    job_id = await create(flow, approval=True if live == "waiting" else None)
    leases = (await flow.jobs.lease(BEN, ["t"], 1, 60, None))["jobs"] if live == "leased" else []
    first = await flow.job_admin.cancel(ANN, job_id)
    assert (orjson.loads(first.body)["status"], first.replayed) == ("cancelled", False)
    again = await flow.job_admin.cancel(BEN, job_id)
    assert (again.body, again.replayed) == (first.body, True)
    assert (await flow.jobs.lease(BEN, ["t"], 5, 60, None))["jobs"] == []
    for lease in leases:
        result = flow.jobs.result(BEN, job_id, lease["fence"], "succeeded", 1, None)
        assert (await told(result))[0] == "ownership_lost"
    if live == "waiting":
        assert (await flow.approvals.get("acme", job_id))["status"] == "cancelled"


@played
async def test_what_has_ended_is_not_cancelled_nor_is_another_tenants(world, clock):
    flow = world.flow(clock)
    job_id = await create(flow)
    assert (await told(flow.job_admin.cancel(Caller("globex", "ann"), job_id)))[0] == "job_not_found"
    (lease,) = (await flow.jobs.lease(BEN, ["t"], 1, 60, None))["jobs"]
    await flow.jobs.result(BEN, job_id, lease["fence"], "succeeded", 5, None)
    with pytest.raises(Refused, match="ended as succeeded"):
        await flow.job_admin.cancel(ANN, job_id)
    assert (await flow.jobs.get("acme", job_id))["result"] == 5


@played
async def test_a_run_goes_on_without_a_cancelled_job_and_fails_in_the_end(world, clock):
    flow = world.flow(clock)
    steps = (
        {"id": "a", "topic": "a"},
        {"id": "b", "topic": "b"},
        {"id": "c", "topic": "c", "depends_on": ["a"]},
    )
    run_id, jobs = await start(flow, *steps)
    await flow.job_admin.cancel(BEN, jobs["a"])
    run = await flow.runs.get("acme", run_id)
    assert [step["status"] for step in run["steps"]] == ["cancelled", "queued", "skipped"]
    assert run["status"] == "running"
    (lease,) = (await flow.jobs.lease(BEN, ["b"], 1, 60, None))["jobs"]
    await flow.jobs.result(BEN, lease["job_id"], lease["fence"], "succeeded", 5, None)
    run = await flow.runs.get("acme", run_id)
    assert (run["status"], run["error"]["code"]) == ("failed", "step_cancelled")
    timeline = (await flow.runs.timeline("acme", run_id, None, 50)).items
    assert [event["by"] for event in timeline if event["type"] == "job.cancelled"] == ["ben"]


@played
async def test_of_a_cancel_and_a_result_in_the_same_moment_one_is_heard(world, clock):
    one, other = world.flow(clock), world.flow(clock)
    for _ in range(5):
        run_id, jobs = await start(one, {"id": "a", "topic": "a"})
        (lease,) = (await one.jobs.lease(BEN, ["a"], 1, 60, None))["jobs"]
        words = await asyncio.gather(
            told(one.job_admin.cancel(ANN, jobs["a"])),
            told(other.jobs.result(BEN, jobs["a"], lease["fence"], "succeeded", 5, None)),
        )
        run = await one.runs.get("acme", run_id)
        heard = [word for word, _ in words]
        if run["status"] == "failed":
            assert heard == ["done", "ownership_lost"]
        else:
            assert (run["status"], heard) == ("succeeded", ["job_already_ended", "done"])
