"""A record: what is known, what to ask, and what a person may answer."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from semel.console.result_fields import result_fields, result_in
from semel.console.visit import PageVisit
from semel.flow.problems import Refused
from semel.gateway import strict_json
from semel.ledger.probing import UNDECIDED
from semel.questions.job import job_in
from semel.questions.refusals import Refusal


async def show(visit: PageVisit, refused: Refusal | None = None) -> Response:
    record = await visit.operations.get("get_record", record_id=visit.path["record_id"])
    prober = visit.services.prober
    askable = (
        prober is not None and record["scope"] == "tool" and prober.knows(record["tool"], record["version"])
    )
    wanted = record["explanation"].get("result") or {}
    return visit.page(
        "record.html",
        state=record["state"],
        record=record,
        askable=askable,
        outline=wanted.get("template") or "",
        fields=result_fields(wanted.get("schema")),
        performed=job_in(record.get("conversation") or ""),
        refused=refused,
    )


async def resolve(visit: PageVisit) -> Response:
    """The answer counts for the attempt that was shown, and for no later one."""
    outcome = visit.form.get("outcome", "")
    try:
        body: dict[str, Any] = {"outcome": outcome, "fence": int(visit.form.get("fence") or -1)}
        if outcome == "happened":
            if visit.form.get("result", "").strip():
                body["result"] = _json(visit.form["result"])
            elif filled := result_in(visit.form):
                body["result"] = filled
        answer = await visit.operations.post("resolve_record", body, record_id=visit.path["record_id"])
    except (Refusal, ValueError) as refused:
        return await show(visit, _problem(refused))
    return _done(visit, "said-before" if answer.replayed else outcome.replace("_", "-"))


async def amend(visit: PageVisit) -> Response:
    try:
        body = {"result": _json(visit.form.get("result", ""))}
        answer = await visit.operations.post("amend_record", body, record_id=visit.path["record_id"])
    except (Refusal, ValueError) as refused:
        return await show(visit, _problem(refused))
    return _done(visit, "said-before" if answer.replayed else "amended")


async def probe(visit: PageVisit) -> Response:
    """What the probe says is done, as in the background; only now, and not when it is due."""
    if not visit.operations.may("resolve_record"):
        raise Refused("forbidden", "This takes the role admin. Nothing was asked.")
    prober, id_ = visit.services.prober, visit.path["record_id"]
    end = None if prober is None else await prober.ask_about(visit.session.tenant, id_)
    if end is None:
        refused = Refused("record_not_in_doubt", "It is not in doubt any more, or no probe can be asked.")
        return await show(visit, refused)
    return _done(visit, "probe-cannot-tell" if end == UNDECIDED else "probed")


def _json(text: str) -> Any:
    """As strict as the routes are: they only see what this has made of it."""
    try:
        return strict_json.parse(text.encode(), "result")
    except Refused as wrong:
        raise Refused(
            "input_invalid", f"{wrong.message} A text stands in quotes. Nothing was changed."
        ) from None


def _problem(error: Exception) -> Refusal:
    return (
        error
        if isinstance(error, Refusal)
        else Refused("request_invalid", "The form is damaged. Nothing was changed.")
    )


def _done(visit: PageVisit, told: str) -> Response:
    return visit.then(f"/records/{visit.path['record_id']}", told)
