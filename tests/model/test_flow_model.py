"""Runs, jobs and approvals as Hypothesis thinks of them, in memory: what holds after every single step.

Two gateways share a store. After each rule all documents are read and held against each other: whatever was
done, by whom and when, they have to tell one story.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from typing import Any, TypeVar

import orjson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from semel.flow import indexes
from semel.flow.assembly import Flow, Policy
from semel.flow.model import LIVE_RUN, Message, Run, WorkflowStep, run_of
from semel.flow.values import Caller, JsonAnswer
from semel.ledger.request_keys import KeyRecord
from semel.questions import job_index
from semel.questions.job import LIVE_JOB, StoredJob, job_of
from semel.questions.refusals import Refusal
from semel.stores.base import Query, Store
from semel.stores.documents import Commit, Committed, Draft
from semel.stores.memory import MemoryStore
from semel.testing import WrappedStore
from tests.fake_clock import FakeClock

T = TypeVar("T")

KEPT_S = 1_000
QUESTION_S = 300
LEASE_S = 60
STEPS = ["a", "b", "c", "d", "e"]
TOPICS = ["t", "u"]
WORKFLOWS = ["w", "w:2"]
UNSUCCESSFUL = {"failed", "denied", "cancelled", "skipped"}
PEOPLE = [Caller("acme", name) for name in ("ann", "ben", "cat")]

people = st.sampled_from(PEOPLE)
keys = st.sampled_from([None, None, "k1", "k2", "k3"])
bodies = st.sampled_from([{}, {"n": 1}])
picks = st.integers(0, 30)


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Steps in any order, each depending on some that come before it in the alphabet."""
    names = STEPS[: draw(st.integers(0, len(STEPS)))]
    steps: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        before = st.lists(st.sampled_from(names[:number]), unique=True, max_size=2) if number else st.just([])
        step: dict[str, Any] = {
            "id": name,
            "topic": draw(st.sampled_from(TOPICS)),
            "depends_on": draw(before),
        }
        if draw(st.integers(0, 2)) == 0:
            step["approval"] = {"expires_in": f"{QUESTION_S}s"}
        steps.append(step)
    return draw(st.permutations(steps)) if steps else []


class Watched(WrappedStore):
    """A store, and every document that was written and not dropped."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.documents: dict[str, Draft] = {}

    async def aask(self, query: Query[T]) -> T:
        answer = await self.inner.aask(query)
        if isinstance(query, Commit) and isinstance(answer, Committed) and answer.done:
            for id_ in query.drop:
                self.documents.pop(id_, None)
            self.documents.update({draft.id: draft for draft in query.put})
        return answer


class FlowMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.store = Watched(MemoryStore(clock=self.clock))
        self.runner = asyncio.Runner()
        self.sent: list[Message] = []
        self.flows = [self.open_flow(), self.open_flow()]
        self.turn = 0
        self.limit = 10
        self.answers: dict[tuple[str, str], tuple[object, bytes, int]] = {}
        self.leased: list[dict[str, Any]] = []
        self.ended: dict[str, bytes] = {}

    def open_flow(self) -> Flow:
        policy = Policy(kept_us=KEPT_S * 1_000_000)
        return Flow(self.store, policy, send=self.take, wait=self.no_bell)

    async def take(self, message: Message) -> None:
        self.sent.append(message)

    async def no_bell(self, *_: Any) -> None:
        await asyncio.sleep(0)

    @property
    def flow(self) -> Flow:
        self.turn += 1
        return self.flows[self.turn % 2]

    def play(self, asked: Awaitable[T]) -> T | Refusal:
        async def caught() -> T | Refusal:
            try:
                return await asked
            except Refusal as problem:
                return problem

        return self.runner.run(caught())

    # --- what is on file -----------------------------------------------------------------------------

    @property
    def documents(self) -> dict[str, Draft]:
        return self.store.documents

    def of_kind(self, prefix: str) -> Iterator[Draft]:
        return (document for id_, document in sorted(self.documents.items()) if id_.startswith(prefix))

    @property
    def runs(self) -> list[Run]:
        return [run_of(document.body) for document in self.of_kind("run_")]

    @property
    def jobs(self) -> list[StoredJob]:
        return [job_of(document.body) for document in self.of_kind("job_")]

    def on_index(self, index: str) -> set[str]:
        return {
            document.id
            for document in self.documents.values()
            if any(entry.index_name == index for entry in document.entries)
        }

    # Most interesting things need a workflow and a run.
    @initialize(steps=graphs(), others=graphs(), who=people)
    def begin(self, steps, others, who):
        for workflow, graph in zip(WORKFLOWS, (steps, others), strict=True):
            self.define(workflow, graph, None)
            self.start(who, workflow, None, {})

    # --- rules ---------------------------------------------------------------------------------------

    @rule(workflow=st.sampled_from(WORKFLOWS), steps=graphs(), limit=st.sampled_from([None, 1, 2]))
    def define(self, workflow, steps, limit):
        definition = {"steps": steps} | ({} if limit is None else {"max_concurrent_runs": limit})
        assert not isinstance(self.play(self.flow.workflows.put("acme", workflow, definition)), Refusal)

    @rule(limit=st.integers(1, 4))
    def set_limit(self, limit):
        self.play(self.flow.workflows.put_tenant("acme", limit))
        self.limit = limit

    @rule(workflow=st.sampled_from(WORKFLOWS))
    def delete(self, workflow):
        self.play(self.flow.workflows.delete("acme", workflow))

    @rule(who=people, workflow=st.sampled_from(WORKFLOWS), key=keys, body=bodies)
    def start(self, who, workflow, key, body):
        asked = self.flow.runs.start(who, workflow, key, body)
        self.admitted("run", key, (workflow, body), self.play(asked))

    @rule(who=people, pick=picks, step=st.sampled_from(STEPS), key=keys)
    def rerun(self, who, pick, step, key):
        if run := picked(self.runs, pick):
            asked = self.flow.runs.rerun(who, run.run_id, step, key)
            self.admitted("rerun", key, (run.run_id, step), self.play(asked))

    @rule(who=people, topic=st.sampled_from(TOPICS), key=keys, gated=st.booleans())
    def create_job(self, who, topic, key, gated):
        approval = {"expires_in": f"{QUESTION_S}s"} if gated else None
        asked = self.flow.jobs.create(who, key, topic, {}, approval, {})
        self.settled("job", key, (topic, gated), self.play(asked))

    def admitted(self, scope: str, key: str | None, what: object, answer: JsonAnswer | Refusal) -> None:
        self.settled(scope, key, what, answer)
        if isinstance(answer, JsonAnswer) and not answer.replayed:
            assert len(self.on_index(indexes.SLOTS)) <= self.limit

    def settled(self, scope: str, key: str | None, what: object, answer: JsonAnswer | Refusal) -> None:
        """A key gives its first answer to the byte, to nobody else, until its window closes."""
        known = self.answers.get((scope, key)) if key is not None else None
        if known is not None and (self.clock.now_us() < known[2] or self.is_kept(known[1])):
            if known[0] == what:
                assert answer == JsonAnswer(known[1], replayed=True)
            else:
                assert isinstance(answer, Refusal)
                assert answer.code in ("idempotency_key_reused", "run_not_found")
        elif isinstance(answer, JsonAnswer):
            assert not answer.replayed
            if key is not None:
                self.answers[scope, key] = (what, answer.body, self.clock.now_us() + KEPT_S * 1_000_000)

    def is_kept(self, answer: bytes) -> bool:
        """Whether the run or job of this answer lives, or ended within the window."""
        names = orjson.loads(answer)
        document = self.documents.get(names.get("run_id") or names.get("job_id"))
        ended_us = None if document is None else orjson.loads(document.body)["ended_us"]
        if document is None or ended_us is None:
            return document is not None
        return bool(self.clock.now_us() < ended_us + KEPT_S * 1_000_000)

    @rule(
        who=people, topics=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=2), most=st.integers(1, 3)
    )
    def lease(self, who, topics, most):
        given = self.play(self.flow.jobs.lease(who, topics, most, LEASE_S, "worker"))
        assert isinstance(given, dict)
        assert len(given["jobs"]) <= most
        self.leased += [job | {"by": who} for job in given["jobs"]]

    @rule(
        who=st.sampled_from([None, None, *PEOPLE]),
        pick=picks,
        how=st.sampled_from(["succeeded", "succeeded", "retriable", "failed"]),
    )
    def tell_result(self, who, pick, how):
        """By whoever took the lease, or by somebody who knows its fence."""
        if lease := picked(self.leased, pick):
            status = "succeeded" if how == "succeeded" else "failed"
            error = (
                None if how == "succeeded" else {"code": "x", "message": "", "retriable": how == "retriable"}
            )
            who = who or lease["by"]
            holds = self.holds(lease) and who == lease["by"]
            asked = (who, lease["job_id"], lease["fence"], status, how, error)
            answer = self.play(self.flow.jobs.result(*asked))
            # Only whoever holds it ends the job; others may at most hear again what they said themselves.
            assert holds if isinstance(answer, JsonAnswer) and not answer.replayed else not holds
            if holds:
                again = self.play(self.flow.jobs.result(*asked))
                assert isinstance(again, JsonAnswer)
                assert again.replayed

    @rule(who=people, pick=picks)
    def heartbeat(self, who, pick):
        if lease := picked(self.leased, pick):
            holds = self.holds(lease) and who == lease["by"]
            answer = self.play(self.flow.jobs.heartbeat(who, lease["job_id"], lease["fence"], LEASE_S))
            assert isinstance(answer, dict) == holds

    def holds(self, lease: dict[str, Any]) -> bool:
        document = self.documents.get(lease["job_id"])
        job = document and job_of(document.body)
        return job is not None and job.status == "leased" and job.fence == lease["fence"]

    @rule(who=people, pick=picks, status=st.sampled_from(["approved", "rejected"]))
    def decide(self, who, pick, status):
        if job := picked([job for job in self.jobs if job.question], pick):
            answer = self.play(self.flow.approvals.decide(who, job.job_id, status))
            if job.submitted_by == who.principal:
                assert isinstance(answer, Refusal)
                assert answer.code == "self_approval_denied"
            elif job.decision is not None:
                assert isinstance(answer, JsonAnswer) == (job.decision.status == status)

    @rule(who=people, pick=picks)
    def cancel(self, who, pick):
        if run := picked(self.runs, pick):
            answer = self.play(self.flow.runs.cancel(who, run.run_id))
            assert isinstance(answer, JsonAnswer) == (run.status in LIVE_RUN or run.status == "cancelled")

    @rule(who=people, pick=picks, status=st.sampled_from(["succeeded", "failed"]))
    def complete(self, who, pick, status):
        if run := picked(self.runs, pick):
            answer = self.play(self.flow.runs.complete(who, run.run_id, status, None))
            may = not run.steps and (run.status in LIVE_RUN or run.status == status)
            assert isinstance(answer, JsonAnswer) == may

    @rule(seconds=st.sampled_from([1, LEASE_S, LEASE_S + 1, QUESTION_S, KEPT_S]))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @rule()
    def sweep(self):
        self.play(self.flow.upkeep.run_once())

    @rule()
    def send(self):
        self.play(self.flow.outbox.run_once())

    # --- what always holds ---------------------------------------------------------------------------

    @invariant()
    def slots_are_the_live_runs(self):
        live = [run for run in self.runs if run.status in LIVE_RUN]
        assert self.on_index(indexes.SLOTS) == {run.run_id for run in live}
        for workflow in WORKFLOWS:
            held = {run.run_id for run in live if run.workflow_id == workflow}
            assert self.on_index(indexes.slots_of(workflow)) == held

    @invariant()
    def a_run_is_what_its_steps_make_of_it(self):
        for run in self.runs:
            assert run.status in possible(run)
            assert (run.ended_us is None) == (run.status in LIVE_RUN)
            for step in run.steps:
                self.check_step(run, step)

    def check_step(self, run: Run, step: WorkflowStep) -> None:
        before = {run.step(name).status for name in step.depends_on}
        if step.status == "pending":
            assert run.status in LIVE_RUN
            assert not before & UNSUCCESSFUL
            assert before - {"succeeded"}
        elif step.status == "skipped":
            assert before & UNSUCCESSFUL or run.status == "cancelled"
        else:
            assert before <= {"succeeded"}
            assert step.job_id is not None

    @invariant()
    def what_has_ended_never_changes(self):
        for document in (*self.of_kind("run_"), *self.of_kind("job_")):
            live = LIVE_RUN if document.id.startswith("run_") else LIVE_JOB
            if orjson.loads(document.body)["status"] not in live:
                assert self.ended.setdefault(document.id, document.body) == document.body
            else:
                assert document.id not in self.ended

    @invariant()
    def jobs_stand_where_they_are_looked_for(self):
        jobs = self.jobs
        for topic in TOPICS:
            queued = {job.job_id for job in jobs if job.status == "queued" and job.topic == topic}
            assert self.on_index(job_index.ready(topic)) == queued
        due = {job.job_id for job in jobs if job.status in ("leased", "waiting")}
        assert self.on_index(job_index.DUE) == due
        assert self.on_index(job_index.LIVE) == {job.job_id for job in jobs if job.status in LIVE_JOB}
        assert self.on_index(job_index.approvals("waiting")) == {
            job.job_id for job in jobs if job.status == "waiting"
        }

    @invariant()
    def runs_and_jobs_agree(self):
        runs = {run.run_id: run for run in self.runs}
        for job in self.jobs:
            if job.run_id is not None:
                step = runs[job.run_id].step(str(job.step_id))
                assert step.job_id == job.job_id
                assert step.status == ("queued" if job.status == "leased" else job.status)

    @invariant()
    def nothing_refers_to_what_is_not_there(self):
        documents = self.documents
        for run in self.runs:
            for step in run.steps:
                assert step.job_id is None or step.job_id in documents
        for document in self.of_kind("rec_"):
            record = KeyRecord(**orjson.loads(document.body))
            assert (record.run_id or record.job_id) in documents

    @invariant()
    def a_timeline_has_no_gap_and_ends_with_its_run(self):
        # The first event is told by the run itself.
        events = Counter(document.id.split("/")[1] for document in self.of_kind("event/"))
        assert events == {run.run_id: run.seq - 1 for run in self.runs if run.seq > 1}
        for run in self.runs:
            assert self.on_index(indexes.timeline(run.run_id)) == {
                indexes.event_id(run.run_id, seq) for seq in range(2, run.seq + 1)
            }

    @invariant()
    def each_message_is_written_once(self):
        waiting = [orjson.loads(document.body)["id"] for document in self.of_kind("message/")]
        counts = Counter([*waiting, *(message.id for message in self.sent)])
        assert set(counts.values()) <= {1}

    # --- the end -------------------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            self.end_everything()
            self.forget_everything()
        finally:
            self.runner.close()

    def forget_everything(self) -> None:
        """After all windows nothing is left but definitions."""
        for _ in range(3):
            self.clock.advance(KEPT_S)
            self.sweep()
            self.send()
        assert {id_ for id_ in self.documents if not id_.startswith("workflow/")} <= {indexes.TENANT}

    def end_everything(self) -> None:
        for run in self.runs:
            self.play(self.flow.runs.cancel(PEOPLE[0], run.run_id))
        self.clock.advance(QUESTION_S)
        self.sweep()
        given = self.play(self.flow.jobs.lease(PEOPLE[0], TOPICS, 1_000, LEASE_S, None))
        assert isinstance(given, dict)
        for job in given["jobs"]:
            self.play(self.flow.jobs.result(PEOPLE[0], job["job_id"], job["fence"], "succeeded", 1, None))
        assert not self.on_index(job_index.LIVE)


def picked(items: list[T], pick: int) -> T | None:
    return items[pick % len(items)] if items else None


def possible(run: Run) -> set[str]:
    """What a run with these steps may be."""
    if not run.steps:
        return {"running", "succeeded", "failed", "cancelled"}
    statuses = {step.status for step in run.steps}
    live = statuses & LIVE_JOB
    if live:
        return {"waiting"} if live == {"waiting"} else {"running"}
    if "cancelled" in statuses:
        return {"cancelled"}
    return {"failed"} if statuses & {"failed", "denied"} else {"succeeded"}


def test_whatever_is_done_runs_jobs_and_keys_tell_one_story():
    run_state_machine_as_test(FlowMachine, settings=settings(max_examples=40, stateful_step_count=40))
