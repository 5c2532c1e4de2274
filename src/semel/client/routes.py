"""Every request that the client makes, one line each: may it be made again if nobody knows what became of it?

`docs/reference/client.md` shows this table; a test holds it against the gateway's own table of routes.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Repeat(Enum):
    """When a request is made a second time."""

    SAME = "same"  # the same again means the same
    KEYED = "keyed"  # its key makes it one
    NOT_BEGUN = "not begun"  # only if the first one certainly did nothing


class ClientRoute(NamedTuple):
    """Which method of the client asks for what."""

    name: str
    method: str
    path: str
    repeat: Repeat
    because: str
    gone: str = ""  # what a repeat is told if it was done before, and that is as good as done


_READS = "it reads"
_KEY = "the key is given or made before the first try, and kept"
_AGAIN = "the same again is answered as a replay"
_PUTS = "it puts the same"
_JOB = "the job is the key"

_V1 = "/api/v1"


def _route(name: str, request: str, repeat: Repeat, because: str, gone: str = "") -> ClientRoute:
    method, path = request.split()
    return ClientRoute(name, method, _V1 + path, repeat, because, gone)


START_RUN = _route("runs.start", "POST /workflows/{workflow_id}/runs", Repeat.KEYED, _KEY)
GET_RUN = _route(
    "runs.get", "GET /runs/{run_id}", Repeat.SAME, f"{_READS}; `runs.wait` asks it again and again"
)
LIST_RUNS = _route("runs.list", "GET /runs", Repeat.SAME, _READS)
TIMELINE = _route("runs.timeline", "GET /runs/{run_id}/timeline", Repeat.SAME, _READS)
COMPLETE_RUN = _route("runs.complete", "POST /runs/{run_id}/complete", Repeat.SAME, _AGAIN)
CANCEL_RUN = _route("runs.cancel", "POST /runs/{run_id}/cancel", Repeat.SAME, _AGAIN)
RERUN = _route("runs.rerun", "POST /runs/{run_id}/rerun", Repeat.KEYED, _KEY)
CREATE_JOB = _route("jobs.create", "POST /jobs", Repeat.KEYED, _KEY)
GET_JOB = _route("jobs.get", "GET /jobs/{job_id}", Repeat.SAME, _READS)
LIST_JOBS = _route("jobs.list", "GET /jobs", Repeat.SAME, _READS)
CANCEL_JOB = _route("jobs.cancel", "POST /jobs/{job_id}/cancel", Repeat.SAME, _AGAIN)
LEASE = _route("jobs.lease", "POST /leases", Repeat.NOT_BEGUN,
               "a second lease gives other jobs, and those of the first wait until it lapses")  # fmt: skip
HEARTBEAT = _route("jobs.heartbeat", "POST /jobs/{job_id}/heartbeat", Repeat.SAME,
                   "the lease lasts as long, from the later one on")  # fmt: skip
RESULT = _route("jobs.result", "POST /jobs/{job_id}/result", Repeat.SAME, _AGAIN)
LIST_APPROVALS = _route("approvals.list", "GET /approvals", Repeat.SAME, _READS)
GET_APPROVAL = _route("approvals.get", "GET /approvals/{job_id}", Repeat.SAME, _READS)
APPROVE = _route("approvals.approve", "POST /approvals/{job_id}/approve", Repeat.SAME, _JOB)
REJECT = _route("approvals.reject", "POST /approvals/{job_id}/reject", Repeat.SAME, _JOB)
LIST_RECORDS = _route("records.list", "GET /records", Repeat.SAME, _READS)
GET_RECORD = _route("records.get", "GET /records/{record_id}", Repeat.SAME, _READS)
RESOLVE = _route("records.resolve", "POST /records/{record_id}/resolve", Repeat.SAME, _AGAIN)
AMEND = _route("records.amend", "POST /records/{record_id}/amend", Repeat.SAME, _AGAIN)
LIST_LETTERS = _route("dead_letters.list", "GET /dead-letters", Repeat.SAME, _READS)
GET_LETTER = _route("dead_letters.get", "GET /dead-letters/{letter_id}", Repeat.SAME, _READS)
RETRY_LETTER = _route("dead_letters.retry", "POST /dead-letters/{letter_id}/retry", Repeat.KEYED, _KEY)
PUT_WORKFLOW = _route("workflows.put", "PUT /workflows/{workflow_id}", Repeat.SAME, _PUTS)
GET_WORKFLOW = _route("workflows.get", "GET /workflows/{workflow_id}", Repeat.SAME, _READS)
LIST_WORKFLOWS = _route("workflows.list", "GET /workflows", Repeat.SAME, _READS)
DELETE_WORKFLOW = _route("workflows.delete", "DELETE /workflows/{workflow_id}", Repeat.SAME,
                         "it is gone then; a repeat that finds none is answered as a replay",
                         "workflow_not_found")  # fmt: skip
PUT_TENANT = _route("tenants.put", "PUT /tenants/{tenant}", Repeat.SAME, _PUTS)
GET_TENANT = _route("tenants.get", "GET /tenant", Repeat.SAME, _READS)
LIST_TOOLS = _route("tools.list", "GET /tools", Repeat.SAME, _READS)
GET_TOOL = _route("tools.get", "GET /tools/{tool_name}", Repeat.SAME, _READS)
LIST_WINDOWS = _route("windows.list", "GET /windows", Repeat.SAME, _READS)
LIST_EVENTS = _route("audit.list", "GET /audit", Repeat.SAME, _READS)
DUPLICATES = _route("audit.duplicates", "GET /audit/duplicates", Repeat.SAME, _READS)

ROUTES = tuple(route for route in globals().values() if isinstance(route, ClientRoute))
