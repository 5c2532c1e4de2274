"""A start writes few documents in few indexes, and lists, timelines and windows are as if it wrote them all.

Runs and keys of earlier releases stand in more indexes; gateways of both are at work on one store.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest

from semel.flow import indexes, run_progress
from semel.flow.assembly import Flow
from semel.flow.job_admin import JobFilter
from semel.flow.model import LIVE_RUN, run_of
from semel.flow.values import Caller
from semel.ledger.request_keys import key_record
from semel.questions import job_index
from semel.questions.job import job_of
from semel.stores.base import Query
from semel.stores.documents import Commit, Count, Draft, Entry, Scan
from semel.stores.index_names import EXPIRY, KEYS, keys_of
from semel.testing import WrappedStore
from tests.fake_clock import FakeClock
from tests.flows import ANN, World, index, played, told
from tests.stores import Kind

T = TypeVar("T")

STATUSES = ("running", "waiting", "succeeded", "failed", "cancelled")
MINUTE_US = 60_000_000


@pytest.fixture
def world(kind: Kind, tmp_path: Path) -> World:
    return World(kind, tmp_path)


async def define(flow: Flow, *names: str, limit: int = 1_000) -> None:
    await flow.workflows.put_tenant("acme", limit)
    for name in names:
        await flow.workflows.put("acme", name, {"steps": []})
        await flow.workflows.put(
            "acme", f"{name}-asks", {"steps": [{"id": "a", "topic": "t", "approval": True}]}
        )


async def begun(flow: Flow, workflow: str, status: str = "running", key: str | None = None) -> str:
    """The id of a run that has come to this status."""
    _, said = await told(flow.runs.start(ANN, workflow, key, {"status": status}))
    run_id: str = said["run_id"]
    if status == "cancelled":
        await flow.runs.cancel(ANN, run_id)
    elif status in ("succeeded", "failed"):
        await flow.runs.complete(ANN, run_id, status, None)
    return run_id


async def rewritten(flow: Flow, id_: str, *entries: Entry, **changes: Any) -> None:
    """The document as another release would have written it."""
    document = (await flow.document_store.fetch("acme", id_))[id_]
    body = orjson.dumps(orjson.loads(document.body) | changes)
    committed = await flow.document_store.commit(
        "acme", {id_: document.tag}, (Draft(id_, body, tuple(entries) or document.entries),)
    )
    assert committed.done


async def as_before(flow: Flow, run_id: str) -> None:
    """The run stands in every index that runs stood in, and its first event is a document."""
    run = run_of((await flow.document_store.fetch("acme", run_id))[run_id].body)
    names = [indexes.runs(*each) for each in ((None, None), (None, run.status))]
    names += [indexes.runs(run.workflow_id, status) for status in (None, run.status)]
    names += [indexes.SLOTS, indexes.slots_of(run.workflow_id)] if run.status in LIVE_RUN else []
    await rewritten(flow, run_id, *(Entry(name, run.created_us) for name in names))
    first = run_progress.event_draft(run_id, 1, run.created_us, "run.started", by=run.submitted_by)
    assert (await flow.document_store.commit("acme", {}, (first,))).done


async def listed(flow: Flow, workflow: str | None, status: str | None, limit: int = 50) -> list[str]:
    """What all pages of the list show."""
    found: list[str] = []
    after = None
    while True:
        page = await flow.runs.list("acme", workflow, status, after, limit)
        assert len(page.items) <= limit
        found += [item["run_id"] for item in page.items]
        after = page.next_after
        if after is None:
            return found


async def is_gone(flow: Flow, run_id: str) -> bool:
    return run_id not in await flow.document_store.fetch("acme", run_id)


# --- what is written ------------------------------------------------------------------------------------


@played
async def test_a_start_with_a_key_writes_three_documents_in_four_indexes(world: World) -> None:
    written: list[Commit] = []

    class Heard(WrappedStore):
        async def aask(self, query: Query[T]) -> T:
            if isinstance(query, Commit):
                written.append(query)
            return await super().aask(query)

    flow = world.flow(wrap=Heard)
    await define(flow, "w")
    written.clear()
    await begun(flow, "w", key="k")
    (commit,) = written
    names = {draft.id.split("_")[0].split("/")[0]: {*dict(draft.entries)} for draft in commit.put}
    assert names == {"run": {"slots", "slots/w"}, "message": {"outbox"}, "rec": {"keys/run"}}


@played
async def test_a_job_stands_in_three_indexes_while_it_is_queued_and_when_it_is_leased(world: World) -> None:
    flow = world.flow()
    await flow.jobs.create(ANN, None, "t", {}, None, None)
    (job,) = await index(flow, job_index.LIVE)
    assert {*dict(job.entries)} == {"live", "jobs/topic/t", "ready/t"}
    await flow.jobs.lease(ANN, ["t"], 1, 60, None)
    (job,) = await index(flow, job_index.LIVE)
    assert {*dict(job.entries)} == {"live", "jobs/topic/t", "due"}


# --- lists ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3, 50])
@played
async def test_every_list_of_runs_shows_those_of_both_releases_newest_first_and_once(
    world: World, limit: int
) -> None:
    clock = FakeClock()
    flow = world.flow(clock)
    await define(flow, "w", "v")
    made: list[tuple[str, str, str]] = []
    for number, status in enumerate(STATUSES * 2):
        for name in ("w", "v"):
            workflow = f"{name}-asks" if status == "waiting" else name
            made.append((await begun(flow, workflow, status), workflow, status))
            clock.advance(0 if number % 3 == 0 else 0.001)
            if number % 2:
                await as_before(flow, made[-1][0])
    order = {run_id: number for number, run_id in enumerate(await listed(flow, None, None))}
    assert {*order} == {run_id for run_id, _, _ in made}
    created = {run_id: (await _run(flow, run_id)).created_us for run_id in order}
    assert [*order] == sorted(order, key=lambda run_id: (created[run_id], run_id), reverse=True)
    for one_workflow in (None, "w", "v", "w-asks", "v-asks", "none"):
        for one_status in (None, *STATUSES):
            fitting = [
                run_id
                for run_id, workflow, status in made
                if one_workflow in (None, workflow) and one_status in (None, status)
            ]
            shown = await listed(flow, one_workflow, one_status, limit)
            assert shown == sorted(fitting, key=order.__getitem__)


async def _run(flow: Flow, run_id: str) -> Any:
    return run_of((await flow.document_store.fetch("acme", run_id))[run_id].body)


@pytest.mark.parametrize("moment", [indexes.SLOTS, indexes.RUNS])
@played
async def test_a_run_that_ends_while_a_list_is_read_is_in_the_list(world: World, moment: str) -> None:
    """It leaves one index for another between two readings."""
    other = world.flow()
    await define(other, "w")
    run_id = await begun(other, "w")

    class EndsBefore(WrappedStore):
        async def aask(self, query: Query[T]) -> T:
            if isinstance(query, Scan) and query.index == moment:
                await other.runs.complete(ANN, run_id, "succeeded", None)
            return await super().aask(query)

    items = (await world.flow(wrap=EndsBefore).runs.list("acme", None, None, None, 10)).items
    assert [(item["run_id"], item["status"]) for item in items] == [(run_id, "succeeded")]


@played
async def test_what_runs_is_found_among_many_that_wait(world: World) -> None:
    clock = FakeClock()
    flow = world.flow(clock)
    await define(flow, "w")
    first, last = await begun(flow, "w"), ""
    for _ in range(40):
        clock.advance(0.001)
        last = await begun(flow, "w-asks", "waiting")
    assert await listed(flow, None, "running", limit=2) == [first]
    assert (await listed(flow, None, "waiting", limit=2))[0] == last
    assert len(await listed(flow, None, "waiting", limit=7)) == 40


@pytest.mark.parametrize("limit", [1, 3, 50])
@played
async def test_every_list_of_jobs_shows_those_of_both_releases_newest_first_and_once(
    world: World, limit: int
) -> None:
    clock = FakeClock()
    flow = world.flow(clock)
    made: list[tuple[str, str, str]] = []
    for number, wanted in enumerate(("queued", "leased", "waiting", "succeeded", "denied", "cancelled") * 2):
        for topic in ("t", "u"):
            clock.advance(0.001)
            made.append((await job_that_is(flow, wanted, topic), topic, wanted))
            if number % 2:
                await job_as_before(flow, made[-1][0])
    for one_topic in (None, "t", "u", "none"):
        for one_status in (None, "queued", "leased", "waiting", "succeeded", "denied", "cancelled", "failed"):
            fitting = [
                job_id
                for job_id, topic, status in made[::-1]
                if one_topic in (None, topic) and one_status in (None, status)
            ]
            assert await listed_jobs(flow, one_topic, one_status, limit) == fitting


async def job_that_is(flow: Flow, status: str, topic: str) -> str:
    asked = True if status in ("waiting", "denied") else None
    _, job = await told(flow.jobs.create(ANN, None, topic, {}, asked, None))
    job_id: str = job["job_id"]
    if status == "denied":
        await flow.approvals.decide(Caller("acme", "ben"), job_id, "rejected")
    elif status == "cancelled":
        await flow.job_admin.cancel(ANN, job_id)
    elif status in ("leased", "succeeded"):
        document = (await flow.document_store.fetch("acme", job_id))[job_id]
        leased = run_progress.lease(job_of(document.body), 1, MINUTE_US, None, "ann")
        draft = job_index.job_draft(leased, None)
        assert (await flow.document_store.commit("acme", {job_id: document.tag}, (draft,))).done
        if status == "succeeded":
            await flow.jobs.result(ANN, job_id, leased.fence, "succeeded", 1, None)
    return job_id


async def job_as_before(flow: Flow, job_id: str) -> None:
    """The job stands in every index that jobs stood in."""
    document = (await flow.document_store.fetch("acme", job_id))[job_id]
    job = job_of(document.body)
    names = (job_index.JOBS, job_index.jobs(None, job.status), job_index.jobs(job.topic, None))
    others = [entry for entry in document.entries if entry.index_name not in names]
    await rewritten(flow, job_id, *(Entry(name, job.created_us) for name in names), *others)


async def listed_jobs(flow: Flow, topic: str | None, status: str | None, limit: int) -> list[str]:
    found: list[str] = []
    after = None
    while True:
        page = await flow.job_admin.list("acme", JobFilter(status, topic), after, limit)
        found += [item["job_id"] for item in page.items]
        after = page.next_after
        if after is None:
            return found


@pytest.mark.parametrize("moment", [job_index.LIVE, job_index.JOBS])
@played
async def test_a_job_that_ends_while_a_list_is_read_is_in_the_list(world: World, moment: str) -> None:
    other = world.flow()
    _, job = await told(other.jobs.create(ANN, None, "t", {}, None, None))

    class EndsBefore(WrappedStore):
        async def aask(self, query: Query[T]) -> T:
            if isinstance(query, Scan) and query.index == moment:
                await other.job_admin.cancel(ANN, job["job_id"])
            return await super().aask(query)

    assert await listed_jobs(world.flow(wrap=EndsBefore), None, None, 10) == [job["job_id"]]


@pytest.mark.parametrize("limit", [1, 2, 10])
@played
async def test_a_list_of_keys_shows_those_of_all_scopes_newest_first_and_once(
    world: World, limit: int
) -> None:
    clock = FakeClock()
    flow = world.flow(clock)
    await define(flow, "w")
    made = []
    for number in range(4):
        clock.advance(0.001)
        await begun(flow, "w", key=f"run-{number}")
        made.append(f"run-{number}")
        clock.advance(0.001)
        await flow.jobs.create(ANN, f"job-{number}", "t", {}, None, None)
        made.append(f"job-{number}")
    early = (await index(flow, keys_of("run")))[0]
    created_us = key_record(early).created_us
    await rewritten(flow, early.id, Entry("keys", created_us), *early.entries, Entry(EXPIRY, 1 << 52))
    found: list[str] = []
    after = None
    while True:
        page = await flow.keys.list("acme", None, after, limit)
        found += [str(item["key"]) for item in page.items]
        after = page.next_after
        if after is None:
            break
    assert found == made[::-1]
    assert [each["key"] for each in (await flow.keys.list("acme", "job", None, 10)).items] == [
        name for name in made[::-1] if name.startswith("job")
    ]


# --- timeline -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 10])
@played
async def test_a_timeline_begins_with_the_start_of_the_run_and_shows_each_event_once(
    world: World, limit: int, early: bool
) -> None:
    clock = FakeClock()
    flow = world.flow(clock)
    await define(flow, "w")
    run_id = await begun(flow, "w-asks")
    if early:
        await as_before(flow, run_id)
    clock.advance(1)
    await flow.runs.cancel(ANN, run_id)
    events: list[Any] = []
    after = None
    while True:
        page = await flow.runs.timeline("acme", run_id, after, limit)
        assert len(page.items) <= limit
        events += page.items
        after = page.next_after
        if after is None:
            break
    assert [each["type"] for each in events] == [
        "run.started",
        "step.waiting",
        "run.waiting",
        "run.cancelled",
    ]
    assert [each["seq"] for each in events] == [1, 2, 3, 4]
    created = (await flow.runs.get("acme", run_id))["created_at"]
    assert events[0] == {"seq": 1, "at": created, "type": "run.started", "by": "ann", "data": {}}


# --- windows --------------------------------------------------------------------------------------------


async def swept(flow: Flow, clock: FakeClock, seconds: float) -> None:
    clock.advance(seconds)
    await flow.upkeep.run_once()


@played
async def test_a_key_is_forgotten_with_its_run_and_not_before(world: World) -> None:
    clock = FakeClock()
    flow = world.flow(clock, kept_us=MINUTE_US)
    await define(flow, "w")
    run_id = await begun(flow, "w", key="k")
    await begun(flow, "w", key="another")  # in the same microsecond, and it goes on
    await swept(flow, clock, 90)
    await flow.runs.complete(ANN, run_id, "succeeded", None)
    await swept(flow, clock, 59)
    assert (await told(flow.runs.start(ANN, "w", "k", {"status": "running"})))[0] == "replayed"
    await swept(flow, clock, 1)
    kept = {str(item["key"]) for item in (await flow.keys.list("acme", None, None, 10)).items}
    assert kept == {"another"}
    assert await is_gone(flow, run_id)


@played
async def test_a_job_of_its_own_takes_its_key_along(world: World) -> None:
    clock = FakeClock()
    flow = world.flow(clock, kept_us=MINUTE_US)
    _, job = await told(flow.jobs.create(ANN, "k", "t", {}, None, None))
    await flow.job_admin.cancel(ANN, job["job_id"])
    await swept(flow, clock, 60)
    assert [await index(flow, name) for name in KEYS] == [[], [], []]


@played
async def test_a_key_with_a_longer_window_than_its_run_is_kept_until_that_closes(world: World) -> None:
    """The gateway was told to keep less since."""
    clock = FakeClock()
    long, short = world.flow(clock, kept_us=10 * MINUTE_US), world.flow(clock, kept_us=MINUTE_US)
    await define(long, "w")
    run_id = await begun(long, "w", key="k")
    await short.runs.complete(ANN, run_id, "succeeded", None)
    await swept(short, clock, 60)
    assert await is_gone(short, run_id)
    assert (await told(short.runs.start(ANN, "w", "k", {"status": "running"})))[0] == "replayed"
    await swept(short, clock, 9 * 60)
    assert [await index(short, name) for name in (*KEYS, EXPIRY)] == [[], [], [], []]


@played
async def test_a_key_that_stands_for_another_run_since_is_not_forgotten_with_the_first(world: World) -> None:
    clock = FakeClock()
    flow = world.flow(clock, kept_us=MINUTE_US)
    await define(flow, "w")
    first = await begun(flow, "w", key="k")
    await flow.runs.complete(ANN, first, "succeeded", None)
    clock.advance(60)
    second = await begun(flow, "w", key="k")
    assert second != first
    await flow.upkeep.run_once()
    assert await is_gone(flow, first)
    assert (await told(flow.runs.start(ANN, "w", "k", {"status": "running"})))[1]["run_id"] == second


@played
async def test_a_key_of_an_earlier_release_is_forgotten_in_its_time_as_well(world: World) -> None:
    clock = FakeClock()
    flow = world.flow(clock, kept_us=MINUTE_US)
    await define(flow, "w")
    run_id = await begun(flow, "w", key="k")
    (key,) = await index(flow, keys_of("run"))
    record = key_record(key)
    assert record.expires_us is not None
    early = (Entry("keys", record.created_us), *key.entries, Entry(EXPIRY, record.expires_us))
    await rewritten(flow, key.id, *early)
    await swept(flow, clock, 90)  # its run goes on: it is put off
    await flow.runs.complete(ANN, run_id, "succeeded", None)
    await swept(flow, clock, 60)
    await swept(flow, clock, 60)
    assert [await index(flow, name) for name in ("keys", *KEYS, EXPIRY)] == [[], [], [], [], []]


# --- limits ---------------------------------------------------------------------------------------------


@played
async def test_a_limit_that_is_set_later_counts_the_runs_that_are_active(world: World) -> None:
    flow = world.flow()
    await define(flow, "w")
    for _ in range(2):
        await begun(flow, "w")
    await flow.workflows.put("acme", "w", {"steps": [], "max_concurrent_runs": 2})
    word, details = await told(flow.runs.start(ANN, "w", None, {}))
    assert (word, details["current"], details["scope"]) == ("max_concurrent_runs_reached", 2, "workflow")
    assert await flow.document_store.ask(Count("acme", indexes.SLOTS)) == 2
