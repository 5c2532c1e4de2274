"""What follows what in a run: no store, no clock; a change is made, and its drafts are looked at."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import orjson
import pytest

from semel.flow import indexes, run_progress
from semel.flow.model import Run, WorkflowStep, run_of
from semel.flow.run_progress import ATTEMPTS_MAX, LEASES_MAX, Change
from semel.questions import job_index
from semel.questions.change import decide, expire, open_job
from semel.questions.job import Decision, Gate, StoredJob, job_of, question_status
from semel.stores.document_bytes import to_bytes
from semel.stores.index_names import EXPIRY

NOW = 1_000_000
LATER = 2_000_000
GATE = Gate(500, "are you sure")


def step(id_: str, *depends_on: str, gate: Gate | None = None, **more: Any) -> WorkflowStep:
    return WorkflowStep(id_, f"topic-{id_}", depends_on, gate, **more)


class Played:
    """A run and its jobs, taken from one change to the next as a store would keep them."""

    def __init__(self, *steps: WorkflowStep) -> None:
        self._numbers = itertools.count(1)
        self.jobs: dict[str, StoredJob] = {}
        self.change = self.at(NOW, None)
        run_progress.begin(self.change, Run("run_1", "w", "running", {"n": 1}, steps, "ann", NOW))
        self.keep()

    def at(self, now_us: int, run: Run | None) -> Change:
        self.change = Change("acme", now_us, lambda kind: f"{kind}_{next(self._numbers)}", run)
        return self.change

    def keep(self) -> None:
        assert self.change.run is not None
        self.run = self.change.run
        self.jobs |= self.change.jobs

    def job(self, step_id: str) -> StoredJob:
        return self.jobs[str(self.run.step(step_id).job_id)]

    def leased(self, step_id: str) -> StoredJob:
        job = run_progress.lease(self.job(step_id), NOW, 100, "worker", "ben")
        self.jobs[job.job_id] = job
        return job

    def succeed(self, step_id: str, result: Any = None) -> None:
        run_progress.succeed(self.at(LATER, self.run), self.leased(step_id), result)
        self.keep()

    def fail(self, step_id: str, retriable: bool = False) -> None:
        error = {"code": "x", "message": "m", "retriable": retriable}
        run_progress.fail(self.at(LATER, self.run), self.leased(step_id), error)
        self.keep()

    def decide(self, step_id: str, status: str) -> None:
        decision = Decision(status, "ben", LATER, "why")
        decide(self.at(LATER, self.run), self.job(step_id), decision)
        self.keep()

    @property
    def statuses(self) -> dict[str, str]:
        return {step.id: step.status for step in self.run.steps}

    @property
    def events(self) -> list[str]:
        return [orjson.loads(draft.body)["type"] for draft in self.change.events]

    @property
    def rung(self) -> list[str]:
        return [message.id for message in self.change.messages]


# --- a run begins ----------------------------------------------------------------------------------------


def test_what_depends_on_nothing_is_queued_at_once_with_the_runs_input():
    played = Played(step("a"), step("b", "a"), step("c", own_input=True, input=None))
    assert played.statuses == {"a": "queued", "b": "pending", "c": "queued"}
    assert (played.job("a").input, played.job("c").input) == ({"n": 1}, None)
    assert played.run.status == "running"
    assert played.rung == ["acme:run_1:started", "acme:job_1:queued", "acme:job_2:queued"]
    # That it was started is told by the run itself.
    assert (played.run.seq, played.events) == (3, ["step.queued", "step.queued"])


def test_a_run_without_steps_runs_until_someone_ends_it():
    played = Played()
    assert (played.run.status, played.run.ended_us) == ("running", None)


def test_a_run_waits_only_while_everything_alive_in_it_waits_for_a_person():
    played = Played(step("a", gate=GATE), step("b"))
    assert (played.statuses, played.run.status) == ({"a": "waiting", "b": "queued"}, "running")
    played.succeed("b")
    assert played.run.status == "waiting"
    assert played.events == ["step.succeeded", "run.waiting"]
    played.decide("a", "approved")
    assert (played.run.status, played.events) == ("running", ["step.approved", "run.running"])


def test_a_question_ends_when_its_gate_says_and_shows_the_reason():
    question = Played(step("a", gate=GATE)).job("a").question
    assert question is not None
    assert (question.expires_us, question.reason, question.revision) == (NOW + 500, "are you sure", 1)


# --- and goes on -----------------------------------------------------------------------------------------


def test_a_step_begins_when_all_that_it_depends_on_has_succeeded():
    played = Played(step("c", "a", "b"), step("a"), step("b"))
    played.succeed("a")
    assert played.statuses["c"] == "pending"
    played.succeed("b")
    assert played.statuses["c"] == "queued"


def test_a_failed_step_skips_all_that_leads_on_from_it_in_whatever_order_they_are_written():
    played = Played(step("c", "b"), step("b", "a"), step("a"), step("other"))
    played.fail("a")
    assert played.statuses == {"a": "failed", "b": "skipped", "c": "skipped", "other": "queued"}
    assert played.events == ["step.failed", "step.skipped", "step.skipped"]
    assert played.run.status == "running"


def test_the_run_fails_only_when_nothing_can_still_run():
    played = Played(step("a"), step("b"), step("c", "b"))
    played.fail("a")
    played.succeed("b")
    assert played.run.status == "running"
    played.succeed("c")
    assert (played.run.status, played.run.ended_us) == ("failed", LATER)
    assert played.run.error == {"code": "step_failed", "step_id": "a", "job_id": "job_1"}
    assert played.rung == ["acme:run_1:ended"]


def test_a_run_whose_steps_all_succeeded_has_succeeded():
    played = Played(step("a"), step("b", "a"))
    played.succeed("a")
    played.succeed("b")
    assert (played.run.status, played.run.error) == ("succeeded", None)


def test_an_ended_run_has_no_slot_and_a_day_on_which_it_is_forgotten():
    played = Played(step("a"))
    live = {entry.index_name for entry in indexes.run_draft(played.run, 10).entries}
    assert live == {indexes.SLOTS, indexes.slots_of("w")}
    assert EXPIRY not in live
    played.succeed("a")
    ended = dict(indexes.run_draft(played.run, 10).entries)
    assert ended[EXPIRY] == LATER + 10
    assert ended.keys().isdisjoint({indexes.SLOTS, indexes.slots_of("w"), "runs/status/running"})
    assert EXPIRY not in dict(indexes.run_draft(played.run, None).entries)


def test_cancelling_ends_what_lives_and_skips_what_never_began():
    played = Played(step("a"), step("b"), step("c", "b"), step("d", gate=GATE))
    played.succeed("a")
    jobs = [played.jobs[id_] for id_ in played.run.live_jobs]
    run_progress.cancel_run(played.at(LATER, played.run), jobs, "ann")
    played.keep()
    assert played.statuses == {"a": "succeeded", "b": "cancelled", "c": "skipped", "d": "cancelled"}
    assert {job.status for job in jobs} == {"queued", "waiting"}
    assert [played.job(id_).status for id_ in "bd"] == ["cancelled", "cancelled"]
    assert (played.run.status, played.rung) == ("cancelled", ["acme:run_1:ended"])


# --- jobs ------------------------------------------------------------------------------------------------


def test_a_failure_by_chance_is_tried_again_until_chance_is_no_excuse():
    played = Played(step("a"))
    rung = []
    for _ in range(ATTEMPTS_MAX - 1):
        played.fail("a", retriable=True)
        assert played.job("a").status == "queued"
        rung += played.rung
    assert rung == ["acme:job_1:queued:1", "acme:job_1:queued:2"]
    played.fail("a", retriable=True)
    assert (played.job("a").status, played.run.status) == ("failed", "failed")
    assert played.job("a").attempt == ATTEMPTS_MAX


def test_a_success_after_a_failure_shows_no_error():
    played = Played(step("a"))
    played.fail("a", retriable=True)
    assert played.job("a").error is not None
    played.succeed("a", 7)
    assert (played.job("a").result, played.job("a").error) == (7, None)


def test_each_lease_has_a_larger_fence_and_leaves_no_trace_of_the_last_worker():
    played = Played(step("a"))
    first = played.leased("a")
    run_progress.lapse(played.at(LATER, played.run), first)
    played.keep()
    queued = played.job("a")
    assert (queued.status, queued.worker_id, queued.lease_until_us) == ("queued", None, None)
    assert (queued.queued_us, played.events) == (LATER, ["job.lapsed"])
    assert played.leased("a").fence == first.fence + 1


def test_a_job_that_takes_its_workers_down_is_given_up():
    played = Played(step("a"), step("b", "a"))
    for _ in range(LEASES_MAX - 1):
        run_progress.lapse(played.at(LATER, played.run), played.leased("a"))
        played.keep()
        assert played.job("a").status == "queued"
    run_progress.lapse(played.at(LATER, played.run), played.leased("a"))
    played.keep()
    assert (played.job("a").status, played.statuses["b"]) == ("failed", "skipped")
    assert played.job("a").error["code"] == "attempts_exhausted"


def test_an_approved_job_keeps_the_id_of_the_message_that_announced_it():
    played = Played(step("a", gate=GATE))
    assert played.job("a").bus_msg_id is None
    played.decide("a", "approved")
    assert played.rung == ["approval:job_1"]
    played.fail("a", retriable=True)
    assert played.rung == ["acme:job_1:queued:1"]
    assert played.job("a").bus_msg_id == "approval:job_1"


def test_a_question_that_nobody_answered_denies_the_step():
    played = Played(step("a", gate=GATE), step("b", "a"))
    expire(played.at(LATER, played.run), played.job("a"))
    played.keep()
    assert played.statuses == {"a": "denied", "b": "skipped"}
    assert (played.run.status, played.job("a").decision) == ("failed", None)
    assert question_status(played.job("a")) == "expired"


def test_a_rejection_is_told_with_the_persons_name_and_reason():
    played = Played(step("a", gate=GATE))
    played.decide("a", "rejected")
    assert played.events == ["step.rejected", "step.denied", "run.failed"]
    event = orjson.loads(played.change.events[0].body)
    assert (event["by"], event["data"], event["step_id"]) == ("ben", {"reason": "why"}, "a")
    assert played.rung == ["approval:job_1", "acme:run_1:ended"]


def test_events_are_numbered_without_a_gap_over_all_changes():
    played = Played(step("a"), step("b", "a"))
    seen = [draft.id for draft in played.change.events]
    for name in ("a", "b"):
        played.succeed(name)
        seen += [draft.id for draft in played.change.events]
    # The first one is told by the run itself.
    assert seen == [indexes.event_id("run_1", seq) for seq in range(2, played.run.seq + 1)]


@pytest.mark.parametrize("gated", [False, True])
def test_a_job_of_its_own_has_no_timeline_and_is_forgotten_by_itself(gated):
    change = Change("acme", NOW, lambda kind: kind)
    job = open_job(change, StoredJob("job_9", "t", {}, "queued", "ann", NOW), GATE if gated else None)
    assert (change.events, len(change.messages)) == ([], 1)
    assert EXPIRY not in dict(job_index.job_draft(job, 10).entries)
    ended = replace(job, status="succeeded", ended_us=LATER)
    assert dict(job_index.job_draft(ended, 10).entries)[EXPIRY] == LATER + 10
    of_a_run = replace(ended, run_id="run_1")
    assert EXPIRY not in dict(job_index.job_draft(of_a_run, 10).entries)


# --- again -----------------------------------------------------------------------------------------------


def test_a_rerun_keeps_what_succeeded_elsewhere_and_begins_the_rest_anew():
    played = Played(step("a"), step("b", "a"), step("c", "b"), step("d", "a"), step("e", "x"), step("x"))
    for name in ("a", "b", "c", "d"):
        played.succeed(name)
    played.fail("x")
    kept = {each.id: each.job_id for each in run_progress.rerun_steps(played.run, "b") if each.job_id}
    assert kept == {"a": played.run.step("a").job_id, "d": played.run.step("d").job_id}
    anew = {each.id for each in run_progress.rerun_steps(played.run, "b") if each.status == "pending"}
    assert anew == {"b", "c", "e", "x"}


def test_a_rerun_of_a_rerun_still_knows_the_first_results():
    played = Played(step("a"), step("b", "a"))
    played.succeed("a")
    played.fail("b")
    first_job = played.run.step("a").job_id
    again = Played(*run_progress.rerun_steps(played.run, "b"))
    again.fail("b")
    third = Played(*run_progress.rerun_steps(again.run, "b"))
    assert third.run.step("a").job_id == first_job
    assert third.statuses == {"a": "succeeded", "b": "queued"}


# --- as bytes --------------------------------------------------------------------------------------------


def test_runs_and_jobs_come_back_from_their_bytes_as_they_were():
    played = Played(step("a", gate=GATE), step("b", "a"))
    played.decide("a", "approved")
    job = replace(played.leased("a"), told=(1, "digest"))
    assert run_of(to_bytes(played.run)) == played.run
    assert job_of(to_bytes(job)) == job
