"""A run: its steps as a graph, its timeline, and how it is ended or begun anew."""

from __future__ import annotations

from starlette.responses import Response

from semel.console.graph import drawn
from semel.console.visit import PageVisit
from semel.questions.refusals import Refusal

# What a page shows of a timeline; the rest is a page further.
_EVENTS = "100"


async def show(visit: PageVisit, refused: Refusal | None = None) -> Response:
    run_id = visit.path["run_id"]
    run = await visit.operations.get("get_run", run_id=run_id)
    query = {"limit": _EVENTS, "cursor": visit.query.get("cursor", "")}
    timeline = await visit.operations.get("run_timeline", query, run_id=run_id)
    return visit.page(
        "run.html",
        state=run["status"],
        run=run,
        graph=drawn(run["steps"]),
        timeline=timeline,
        live=run["ended_at"] is None,
        # Made with the page: the same click twice begins one run.
        key=visit.services.clock.token().hex(),
        refused=refused,
    )


async def cancel(visit: PageVisit) -> Response:
    run_id = visit.path["run_id"]
    try:
        answer = await visit.operations.post("cancel_run", {}, run_id=run_id)
    except Refusal as refused:
        return await show(visit, refused)
    return visit.then(f"/runs/{run_id}", "cancelled-before" if answer.replayed else "cancelled")


async def rerun(visit: PageVisit) -> Response:
    body, key = {"from_step": visit.form.get("from_step", "")}, visit.form.get("key", "")
    try:
        answer = await visit.operations.post("rerun_run", body, key=key, run_id=visit.path["run_id"])
    except Refusal as refused:
        return await show(visit, refused)
    return visit.then(f"/runs/{answer.data['run_id']}", "rerun-before" if answer.replayed else "rerun")
