"""`semel runbook approvals`: a decision is taken once, and whoever repeats it is told what was decided."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from semel.client import Answer, AsyncGateway, DecisionAnswer, Problem
from semel.kernel.clock import SYSTEM
from semel.lab.runbooks.runbook import Runbook
from semel.lab.runbooks.served import ServedGateway, outcome, seen

_OTHER = {"approve": "reject", "reject": "approve"}
_PAST = {"approve": "approved", "reject": "rejected"}

# Where the job is right after the decision: workers may have it, or nobody ever will.
_NEXT = {"approve": "queued", "reject": "denied"}

_RETRIES = 5


class People(NamedTuple):
    """Who asks, and who decides."""

    submitter: AsyncGateway
    approver: AsyncGateway


async def approvals(server: ServedGateway, book: Runbook) -> None:
    """Two runs of a workflow of its own, each with a step that waits: one is approved, one rejected."""
    workflow = f"runbook-{SYSTEM.token().hex()[:12]}"
    async with (
        server.gateway("submitter") as submitter,
        server.gateway("approver", approver=True) as approver,
    ):
        step = {"id": "pay", "topic": workflow, "approval": {"reason": "runbook"}}
        defined = await outcome(submitter.workflows.put(workflow, [step]))
        if not book.check(
            "a workflow whose step waits for a person", isinstance(defined, Answer), seen(defined)
        ):
            return
        try:
            for verb in _PAST:
                await _in_a_run(People(submitter, approver), book, workflow, verb)
        finally:
            await outcome(submitter.workflows.delete(workflow))


async def _in_a_run(people: People, book: Runbook, workflow: str, verb: str) -> None:
    """The decision in a run of its own, which has ended afterwards."""
    started = await outcome(people.submitter.runs.start(workflow, {"amount_minor": 1_400_000}))
    waiting = isinstance(started, Answer) and started.status == "waiting"
    book.check(f"{verb}: a run waits", waiting, seen(started))
    if isinstance(started, Problem) or not waiting:
        return
    try:
        run = await people.submitter.runs.get(started.run_id)
        await _once(people, book, verb, str(run.steps[0].job_id))
    finally:
        await outcome(people.submitter.runs.cancel(started.run_id))


async def _once(people: People, book: Runbook, verb: str, job_id: str) -> None:
    """Not by who asked; then by somebody else, five times more at once, and the other way round."""
    past = _PAST[verb]
    own = await _decide(people.submitter, verb, job_id, {})
    forbidden = isinstance(own, Problem) and own.code in ("self_approval_denied", "forbidden")
    book.check(f"{verb}: not by who submitted it", forbidden, seen(own))
    shown = await outcome(people.approver.approvals.get(job_id))
    book.check(f"{verb}: the question is shown", isinstance(shown, Answer), seen(shown))
    if isinstance(shown, Problem):
        return
    decision = {"reason": "runbook", "revision": shown.revision, "job_hash": shown.job_hash}
    first = await _decide(people.approver, verb, job_id, decision)
    book.check(f"{verb}: decided", isinstance(first, Answer) and first.status == past, seen(first))
    repeated = await asyncio.gather(
        *(_decide(people.approver, verb, job_id, decision) for _ in range(_RETRIES))
    )
    wrong = [seen(answer) for answer in repeated if not _repeats(answer, first, past)]
    book.check(f"{verb}: {_RETRIES} parallel retries are told already_{past}", not wrong, wrong)
    other = await _decide(people.approver, _OTHER[verb], job_id, decision)
    conflict = isinstance(other, Problem) and other.code == "approval_already_resolved"
    book.check(f"{verb}: the other decision conflicts", conflict, seen(other))
    await _afterwards(people, book, verb, job_id)


async def _decide(
    gateway: AsyncGateway, verb: str, job_id: str, decision: Mapping[str, Any]
) -> DecisionAnswer | Problem:
    decide = gateway.approvals.approve if verb == "approve" else gateway.approvals.reject
    return await outcome(decide(job_id, **decision))


async def _afterwards(people: People, book: Runbook, verb: str, job_id: str) -> None:
    """What is kept of it: the next state of the job, and the id of the one message."""
    job = await people.submitter.jobs.get(job_id)
    message_id = job.bus_msg_id
    book.check(
        f"{verb}: the message's id is approval:<job_id>", message_id == f"approval:{job_id}", message_id
    )
    book.check(f"{verb}: the job is {_NEXT[verb]}", job.status == _NEXT[verb], job.status)


def _repeats(answer: DecisionAnswer | Problem, first: DecisionAnswer | Problem, past: str) -> bool:
    """Whether it tells of the first decision, with its person and time, and says that it is a replay."""
    if isinstance(answer, Problem) or isinstance(first, Problem):
        return False
    return answer.replayed and answer.raw == {**first.raw, "status": f"already_{past}"}
