"""Ids of documents, and the indexes they stand on: the map of everything that is kept of a tenant.

document            id                    indexes, and what the score is
tenant's limits     tenant
workflow            workflow/<id>         workflows: when defined
idempotency key     rec_<hmac>            keys, keys/<scope>: created; expiry: when its window may close
run                 run_<random>          runs, by status, by workflow, by both: created
                                          while it lives slots, slots/<workflow>: created; then expiry
event of a run      event/<run>/<seq>     timeline/<run>: seq
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


def workflow_id(name: str) -> str:
    return f"workflow/{name}"


def event_id(run_id: str, seq: int) -> str:
    return f"event/{run_id}/{seq:08d}"


def timeline(run_id: str) -> str:
    return f"timeline/{run_id}"


def slots_of(workflow: str) -> str:
    return f"slots/{workflow}"


def runs(workflow: str | None, status: str | None) -> str:
    """The index of runs that a list with these filters reads."""
    workflow_part = f"/workflow/{workflow}" if workflow else ""
    status_part = f"/status/{status}" if status else ""
    return RUNS + workflow_part + status_part


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
