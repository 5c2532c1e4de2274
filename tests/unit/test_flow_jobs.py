"""Leases, results and messages of the flow, in memory: who may still speak for a job, what is repeated."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from semel.errors import StoreCorrupt
from semel.flow.assembly import Flow
from semel.flow.problems import Refused
from semel.kernel.answers import LeasedJobJson
from semel.questions import job_index
from semel.questions.job import job_of
from semel.questions.views import job_hash
from semel.stores.documents import Document, Draft
from tests.fake_clock import FakeClock
from tests.flows import ANN, BEN, World, index, played, told
from tests.stores import BY_NAME

LEASE_S = 60


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(BY_NAME["memory"], tmp_path)


async def leased(flow: Flow) -> LeasedJobJson:
    (job,) = (await flow.jobs.lease(BEN, ["t"], 1, LEASE_S, None))["jobs"]
    return job


async def retaken(flow: Flow, clock: FakeClock) -> tuple[LeasedJobJson, LeasedJobJson]:
    """Two leases of one job: the first has lapsed, the second holds."""
    await flow.jobs.create(ANN, None, "t", {}, None, {})
    stale = await leased(flow)
    clock.advance(LEASE_S)
    assert await flow.upkeep.run_once() == 1
    return stale, await leased(flow)


@played
async def test_a_worker_whose_job_went_to_another_can_neither_renew_nor_end_it(world):
    clock = FakeClock()
    flow = world.flow(clock)
    stale, present = await retaken(flow, clock)
    assert (stale["key"], stale["fence"] + 1) == (present["key"], present["fence"])
    with pytest.raises(Refused, match="lease was lost"):
        await flow.jobs.heartbeat(BEN, stale["job_id"], stale["fence"], LEASE_S)
    for status in ("succeeded", "failed"):
        ended = flow.jobs.result(BEN, stale["job_id"], stale["fence"], status, 1, None)
        assert (await told(ended))[0] == "ownership_lost"
    assert (await flow.jobs.get("acme", stale["job_id"]))["status"] == "leased"
    ended = flow.jobs.result(BEN, present["job_id"], present["fence"], "succeeded", 2, None)
    assert (await told(ended))[1]["result"] == 2


@played
async def test_a_lease_is_the_principals_who_took_it_whoever_guesses_its_fence(world):
    clock = FakeClock()
    flow, thief = world.flow(clock), ANN._replace(principal="mallory")
    stale, present = await retaken(flow, clock)
    for fence in (stale["fence"], present["fence"]):
        renewing = told(flow.jobs.heartbeat(thief, present["job_id"], fence, 86_400))
        assert (await renewing)[0] == "ownership_lost"
        for status in ("succeeded", "failed"):
            ending = flow.jobs.result(thief, present["job_id"], fence, status, "forged", None)
            assert (await told(ending))[0] == "ownership_lost"
    ending = present["job_id"], present["fence"], "succeeded", 2, None
    word, said = await told(flow.jobs.result(BEN, *ending))
    assert (word, said["result"]) == ("done", 2)
    # Not even what was said is said again for somebody else.
    assert (await told(flow.jobs.result(thief, *ending)))[0] == "ownership_lost"
    assert await told(flow.jobs.result(BEN, *ending)) == ("replayed", said)


@played
async def test_whoever_leases_a_job_next_owns_it_though_it_was_anothers(world):
    clock = FakeClock()
    flow = world.flow(clock)
    stale, present = await retaken(flow, clock)
    clock.advance(LEASE_S)
    await flow.upkeep.run_once()
    (mine,) = (await flow.jobs.lease(ANN, ["t"], 1, LEASE_S, None))["jobs"]
    assert mine["fence"] > present["fence"] > stale["fence"]
    lost = flow.jobs.result(BEN, mine["job_id"], mine["fence"], "succeeded", "late", None)
    assert (await told(lost))[0] == "ownership_lost"
    assert (await told(flow.jobs.result(ANN, mine["job_id"], mine["fence"], "succeeded", 3, None)))[
        0
    ] == "done"


@played
async def test_a_job_that_was_leased_before_owners_were_kept_is_ended_by_its_fence(world):
    flow = world.flow()
    await flow.jobs.create(ANN, None, "t", {}, None, {})
    job = await leased(flow)
    document = await flow.jobs.document("acme", job["job_id"])
    body = orjson.loads(document.body)
    del body["leased_by"]
    old = Draft(document.id, orjson.dumps(body), document.entries)
    assert (await flow.document_store.commit("acme", {document.id: document.tag}, (old,))).done
    assert (await told(flow.jobs.result(BEN, job["job_id"], job["fence"], "succeeded", 1, None)))[0] == "done"


@played
async def test_a_lapsed_lease_that_nobody_took_is_still_its_owners(world):
    clock = FakeClock()
    flow = world.flow(clock)
    await flow.jobs.create(ANN, None, "t", {}, None, {})
    job = await leased(flow)
    clock.advance(2 * LEASE_S)
    await flow.jobs.heartbeat(BEN, job["job_id"], job["fence"], LEASE_S)
    assert await flow.upkeep.run_once() == 0


@played
async def test_the_same_result_again_is_replayed_and_another_one_is_refused(world):
    flow = world.flow()
    await flow.jobs.create(ANN, None, "t", {}, None, {})
    job = await leased(flow)
    result = (BEN, job["job_id"], job["fence"], "succeeded", {"a": 1})
    word, said = await told(flow.jobs.result(*result, None))
    assert word == "done"
    assert await told(flow.jobs.result(*result, None)) == ("replayed", said)
    other = flow.jobs.result(*result[:-1], {"a": 2}, None)
    assert (await told(other))[0] == "ownership_lost"


@pytest.mark.parametrize("ending", ["cancel", "complete"])
@played
async def test_an_ending_again_is_replayed_to_the_byte_and_another_is_refused(world, ending):
    flow = world.flow()
    await flow.workflows.put("acme", "w", {"steps": []})
    _, run = await told(flow.runs.start(ANN, "w", None, {}))
    calls = {
        "cancel": lambda: flow.runs.cancel(ANN, run["run_id"]),
        "complete": lambda: flow.runs.complete(ANN, run["run_id"], "succeeded", 1),
    }
    again = calls.pop(ending)
    first = await again()
    assert (first.replayed, await again()) == (False, (first.body, True))
    (other,) = calls.values()
    assert (await told(other()))[0] == "run_already_ended"


@pytest.mark.parametrize("changed", ["labels", "input", "topic"])
@played
async def test_the_hash_that_a_decision_is_bound_to_covers_what_a_person_sees(world, changed):
    flow = world.flow()
    await flow.jobs.create(ANN, None, "t", {"n": 1}, True, {"team": "x"})
    (document,) = await index(flow, job_index.LIVE)
    seen = job_of(document.body)
    data = orjson.loads(document.body)
    data[changed] = "u" if changed == "topic" else {"n": "another"}
    assert job_hash(job_of(orjson.dumps(data))) != job_hash(seen)


@played
async def test_a_message_that_the_bus_took_is_sent_once_and_forgotten(world):
    flow = world.flow()
    await flow.jobs.create(ANN, None, "t", {}, None, {})
    assert [await flow.outbox.run_once() for _ in range(2)] == [1, 0]
    assert (len(world.sent), await index(flow, job_index.OUTBOX)) == (1, [])


# --- damage --------------------------------------------------------------------------------------------


async def _damage(flow: Flow, document: Document) -> None:
    """Its entries stay, what it says cannot be read any more."""
    await flow.document_store.commit("acme", {}, put=(Draft(document.id, b"{", document.entries),))


@played
async def test_a_damaged_document_is_not_an_absent_one_and_stops_nothing_else(world):
    clock = FakeClock()
    flow = world.flow(clock)
    for _ in range(3):
        await flow.jobs.create(ANN, None, "t", {}, {"expires_in": "1m"}, {})
    first, *others = await index(flow, job_index.DUE)
    await _damage(flow, first)
    with pytest.raises(StoreCorrupt):
        await flow.approvals.get("acme", first.id)
    clock.advance(60)
    assert await flow.upkeep.run_once() == 2
    assert [each.id for each in await index(flow, job_index.DUE)] == [first.id]
    for document in others:
        assert (await flow.jobs.get("acme", document.id))["status"] == "denied"


@played
async def test_a_damaged_message_holds_up_no_other(world):
    flow = world.flow(FakeClock())
    for _ in range(3):
        await flow.jobs.create(ANN, None, "t", {}, None, {})
    damaged = (await index(flow, job_index.OUTBOX))[0]
    await _damage(flow, damaged)
    assert await flow.outbox.run_once() == 2
    assert [each.id for each in await index(flow, job_index.OUTBOX)] == [damaged.id]
