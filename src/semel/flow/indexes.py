"""Ids of documents, and the indexes they stand on: the map of everything that is kept of a tenant.

document            id                    indexes, and what the score is
tenant's limits     tenant
workflow            workflow/<id>         workflows: when defined
idempotency key     rec_<hmac>            keys, keys/<scope>: created; expiry: when its window may close
run                 run_<random>          runs, by status, by workflow, by both: created
                                          while it lives slots, slots/<workflow>: created; then expiry
event of a run      event/<run>/<seq>     timeline/<run>: seq
job                 job_<random>          while it lives live: created; queued ready/<topic>: since when
                                          leased or waiting due: until when; ended, of no run: expiry
                                          gated approvals, by status: created
                                          jobs, by status, by topic: created
question of a call  job_<random>          approvals, by status; jobs, by status, by topic: created
                                          waiting due/calls: until when; then expiry
                                          approved due/calls: when somebody looks whether the call was made
                                          waiting in a worker's job asked/<job>: created
message             message/<id>          outbox: when
handled message     inbox/<consumer>/<id> expiry
dead letter         dead_<digest>         dead: when it was put aside; expiry
the tenant's lock   lock
ages of retries     ages/<kind>/<name>    ages: 0 (semel.windows.age_counters)
tool                tool/<name>           tools: first seen; expiry (semel.ledger.catalogue)
"""

from __future__ import annotations

from semel.flow.model import LIVE_JOB, LIVE_RUN, Message, Run, StoredJob, to_bytes
from semel.stores.documents import Draft, Entry

TENANT = "tenant"
LOCK = "lock"

RUNS, SLOTS, KEYS, WORKFLOWS = "runs", "slots", "keys", "workflows"
JOBS = "jobs"
LIVE, DUE, EXPIRY, OUTBOX, APPROVALS = "live", "due", "expiry", "outbox", "approvals"

# Of tool calls, which may be made where no gateway is: every ledger looks after these.
DUE_CALLS = "due/calls"

# A decision on a call is replayed for as long as the longest retry horizon we know of. Whatever a gateway is
# told to keep of its own, the call that waits elsewhere has to find its answer.
CALLS_KEPT_US = 90 * 86_400_000_000

# A call that was approved is made within seconds, if its caller waits for the answer.
_LOOK_US = 5_000_000


def workflow_id(name: str) -> str:
    return f"workflow/{name}"


def message_id(name: str) -> str:
    return f"message/{name}"


def event_id(run_id: str, seq: int) -> str:
    return f"event/{run_id}/{seq:08d}"


def timeline(run_id: str) -> str:
    return f"timeline/{run_id}"


def ready(topic: str) -> str:
    return f"ready/{topic}"


def asked_in(job_id: str) -> str:
    """Open questions of the calls that the job's worker makes."""
    return f"asked/{job_id}"


def slots_of(workflow: str) -> str:
    return f"slots/{workflow}"


def runs(workflow: str | None, status: str | None) -> str:
    """The index of runs that a list with these filters reads."""
    workflow_part = f"/workflow/{workflow}" if workflow else ""
    status_part = f"/status/{status}" if status else ""
    return RUNS + workflow_part + status_part


def approvals(status: str | None) -> str:
    return f"{APPROVALS}/{status}" if status else APPROVALS


def jobs(topic: str | None, status: str | None) -> str:
    """The index of jobs that a list with these filters reads; what it does not narrow, the reader sifts."""
    if topic is not None:
        return f"{JOBS}/topic/{topic}"
    return f"{JOBS}/status/{status}" if status else JOBS


def run_draft(run: Run, kept_us: int | None) -> Draft:
    indexes = [
        runs(None, None),
        runs(None, run.status),
        runs(run.workflow_id, None),
        runs(run.workflow_id, run.status),
    ]
    if run.status in LIVE_RUN:
        indexes += [SLOTS, slots_of(run.workflow_id)]
    entries = [Entry(index, run.created_us) for index in indexes]
    if run.ended_us is not None and kept_us is not None:
        entries.append(Entry(EXPIRY, run.ended_us + kept_us))
    return Draft(run.run_id, to_bytes(run), tuple(entries))


def job_draft(job: StoredJob, kept_us: int | None) -> Draft:
    listed = _listed(job)
    if job.record_id is not None:
        return Draft(job.job_id, to_bytes(job), (*listed, *_gated(job), *_of_call(job)))
    entries = [*listed]
    if job.status in LIVE_JOB:
        entries.append(Entry(LIVE, job.created_us))
    elif job.run_id is None and job.ended_us is not None and kept_us is not None:
        entries.append(Entry(EXPIRY, job.ended_us + kept_us))
    if job.status == "queued":
        entries.append(Entry(ready(job.topic), job.queued_us))
    if (due_us := due(job)) is not None:
        entries.append(Entry(DUE, due_us))
    return Draft(job.job_id, to_bytes(job), (*entries, *_gated(job)))


def _listed(job: StoredJob) -> tuple[Entry, ...]:
    """Where lists of jobs find it. Only the second changes while it lives."""
    indexes = (jobs(None, None), jobs(None, job.status), jobs(job.topic, None))
    return tuple(Entry(index, job.created_us) for index in indexes)


def _gated(job: StoredJob) -> tuple[Entry, ...]:
    if job.question is None:
        return ()
    return tuple(Entry(index, job.created_us) for index in (APPROVALS, approvals(question_status(job))))


def _of_call(job: StoredJob) -> tuple[Entry, ...]:
    """Until when its question is open, or its answer kept."""
    assert job.question is not None
    if job.status == "waiting":
        inside = () if job.within is None else (Entry(asked_in(job.within), job.created_us),)
        return (Entry(DUE_CALLS, job.question.expires_us), *inside)
    decided_us = job.decision.at_us if job.decision else job.question.expires_us
    looked_at = (Entry(DUE_CALLS, decided_us + _LOOK_US),) if job.status == "queued" else ()
    return (Entry(EXPIRY, decided_us + CALLS_KEPT_US), *looked_at)


def due(job: StoredJob) -> int | None:
    """When time changes the job if nobody else does."""
    if job.status == "leased":
        return job.lease_until_us
    if job.status == "waiting" and job.question is not None:
        return job.question.expires_us
    return None


def question_status(job: StoredJob) -> str:
    """waiting, approved, rejected, expired or cancelled."""
    if job.decision is not None:
        return job.decision.status
    return {"waiting": "waiting", "cancelled": "cancelled"}.get(job.status, "expired")


def message_draft(message: Message, unsent_until_us: int | None = None) -> Draft:
    entries = [Entry(OUTBOX, message.at_us)]
    if unsent_until_us is not None:
        entries.append(Entry(EXPIRY, unsent_until_us))
    return Draft(message_id(message.id), to_bytes(message), tuple(entries))
