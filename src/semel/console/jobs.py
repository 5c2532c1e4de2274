"""A job, and a message that was put aside: why it failed, and how it goes on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from semel.console.visit import PageVisit
from semel.errors import OutcomeUnknown
from semel.questions.refusals import Refusal

LIVE = ("waiting", "queued", "leased")

_RECORD = re.compile(r"\brec_[0-9a-f]{32}\b")


async def show(visit: PageVisit, refused: Refusal | None = None) -> Response:
    job = await visit.operations.get("get_job", job_id=visit.path["job_id"])
    return visit.page(
        "job.html",
        state=job["status"],
        job=job,
        live=job["status"] in LIVE,
        doubtful=_doubtful(job["error"]),
        refused=refused,
    )


def _doubtful(error: Any) -> str | None:
    """The record of the call that ended the job in doubt, as its error names it."""
    if not isinstance(error, Mapping) or error.get("code") != OutcomeUnknown.code:
        return None
    named = _RECORD.search(str(error.get("message")))
    return named and named[0]


async def cancel(visit: PageVisit) -> Response:
    job_id = visit.path["job_id"]
    try:
        answer = await visit.operations.post("cancel_job", {}, job_id=job_id)
    except Refusal as refused:
        return await show(visit, refused)
    return visit.then(f"/jobs/{job_id}", "cancelled-before" if answer.replayed else "cancelled")


async def show_letter(visit: PageVisit, refused: Refusal | None = None) -> Response:
    letter = await visit.operations.get("get_dead_letter", letter_id=visit.path["letter_id"])
    key = visit.services.clock.token().hex()
    return visit.page("letter.html", letter=letter, key=key, refused=refused)


async def retry_letter(visit: PageVisit) -> Response:
    letter_id = visit.path["letter_id"]
    try:
        answer = await visit.operations.post(
            "retry_dead_letter", {}, key=visit.form.get("key", ""), letter_id=letter_id
        )
    except Refusal as refused:
        return await show_letter(visit, refused)
    return visit.then(f"/dead-letters/{letter_id}", "retried-before" if answer.replayed else "retried")
