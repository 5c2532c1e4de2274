"""A question to a person: what exactly is approved, and its one decision."""

from __future__ import annotations

from starlette.responses import Response

from semel.console.visit import PageVisit
from semel.questions.refusals import Refusal
from semel.questions.views import question_record_id

# Ended without a decision.
_OVER = ("cancelled", "expired")


async def show(visit: PageVisit, refused: Refusal | None = None) -> Response:
    question = await visit.operations.get("get_approval", job_id=visit.path["job_id"])
    ended = None
    if question["status"] in _OVER:
        # Its events tell who withdrew it, and when: there are none where the audit is off.
        record_id = question_record_id(question["job_id"])
        history = (await visit.operations.get("get_record", record_id=record_id))["history"]
        ended = history[-1] if history and history[-1]["type"] == question["status"] else None
    return visit.page(
        "question.html", state=question["status"], question=question, ended=ended, refused=refused
    )


async def approve(visit: PageVisit) -> Response:
    return await _decide(visit, "approve_job")


async def reject(visit: PageVisit) -> Response:
    return await _decide(visit, "reject_job")


async def _decide(visit: PageVisit, route: str) -> Response:
    """Of what was shown: if the job is another by now, nothing is decided."""
    job_id = visit.path["job_id"]
    body = {"job_hash": visit.form.get("job_hash", ""), "reason": visit.form.get("reason", "").strip()}
    try:
        answer = await visit.operations.post(route, body, job_id=job_id)
    except Refusal as refused:
        return await show(visit, refused)
    return visit.then(f"/approvals/{job_id}", answer.data["status"].replace("_", "-"))
