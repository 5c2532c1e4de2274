"""Ids of documents, and the indexes they stand on: the map of everything that is kept of a tenant.

document            id                    indexes, and what the score is
tenant's limits     tenant
workflow            workflow/<id>         workflows: when defined
idempotency key     rec_<hmac>            keys/<scope>: created; of no run or job yet expiry
run                 run_<random>          while it lives slots, slots/<workflow>: created
                                          waiting: runs by status, by workflow and status: created
                                          ended: runs, by status, by workflow, by both: created; expiry
event of a run      event/<run>/<seq>     timeline/<run>: seq; from the second on, the run tells the first
job, message                              (semel.questions.job_index)
handled message     inbox/<consumer>/<id> expiry
dead letter         dead_<digest>         dead: when it was put aside; expiry
the tenant's lock   lock
ages of retries     ages/<kind>/<name>    ages: 0 (semel.windows.age_counters)
tool                tool/<name>           tools: first seen; expiry (semel.ledger.catalogue)
"""

from __future__ import annotations

from semel.flow.model import LIVE_RUN, Run
from semel.stores.document_bytes import to_bytes
from semel.stores.documents import Draft, Entry
from semel.stores.index_names import EXPIRY

TENANT = "tenant"
LOCK = "lock"

RUNS, SLOTS, WORKFLOWS = "runs", "slots", "workflows"

RUNNING = "running"


def workflow_id(name: str) -> str:
    return f"workflow/{name}"


def event_id(run_id: str, seq: int) -> str:
    return f"event/{run_id}/{seq:08d}"


def timeline(run_id: str) -> str:
    return f"timeline/{run_id}"


def slots_of(workflow: str) -> str:
    return f"slots/{workflow}"


def runs(workflow: str | None, status: str | None) -> str:
    workflow_part = f"/workflow/{workflow}" if workflow else ""
    status_part = f"/status/{status}" if status else ""
    return RUNS + workflow_part + status_part


def listed_runs(workflow: str | None, status: str | None) -> tuple[str, ...]:
    """The indexes that a list of runs with these filters reads, in this order: a run leaves its slot for
    the others. Of those that run, what waits is left out by the reader.
    """
    live = slots_of(workflow) if workflow else SLOTS
    if status == RUNNING:
        return (live,)
    return (runs(workflow, status),) if status else (live, runs(workflow, None))


def run_draft(run: Run, kept_us: int | None) -> Draft:
    # A start is the write that many wait for: what lists of live runs need is read from their slots.
    workflow, status = run.workflow_id, run.status
    indexes = [SLOTS, slots_of(workflow)] if status in LIVE_RUN else [RUNS, runs(workflow, None)]
    if status != RUNNING:
        indexes += [runs(None, status), runs(workflow, status)]
    entries = [Entry(index, run.created_us) for index in indexes]
    if run.ended_us is not None and kept_us is not None:
        entries.append(Entry(EXPIRY, run.ended_us + kept_us))
    return Draft(run.run_id, to_bytes(run), tuple(entries))
