"""`/openapi.json`: the table of routes and the models of bodies, said in OpenAPI 3.1."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import orjson
from pydantic.json_schema import models_json_schema

import semel
from semel.flow.problems import KINDS
from semel.gateway import problems
from semel.gateway.bodies import Model, NoQuery
from semel.gateway.routes import PATH_NAMES, ROUTES, Route
from semel.kernel.limits import KEY_BYTES_MAX

Schema = dict[str, Any]

_REF = "#/components/schemas/{model}"

# What every route may answer, before it does anything of its own.
_ALWAYS = (
    "request_invalid",
    "unauthenticated",
    "forbidden",
    "tenant_mismatch",
    "too_many_requests",
    "internal_error",
    "store_corrupt",
    "store_unavailable",
)
_WITH_BODY = (
    "body_not_json",
    "body_too_deep",
    "body_too_large",
    "request_timeout",
    "gateway_stopping",
    "check_unavailable",
)


def document() -> bytes:
    return orjson.dumps(described(ROUTES), option=orjson.OPT_SORT_KEYS)


def described(routes: Iterable[Route]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Semel", "version": semel.__version__, "description": _ABOUT},
        "paths": paths | _OPERATE,
        "components": {
            "schemas": _request_schemas(routes) | _ANSWERS | {"Problem": _PROBLEM},
            "securitySchemes": {
                "ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
                "Bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{"ApiKey": []}, {"Bearer": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": route.name,
        "summary": f"Roles: {', '.join(sorted(route.roles))}.",
        "parameters": [*_path_parameters(route), *_query_parameters(route.query), *_key_parameters(route)],
        "responses": _responses(route),
    }
    if route.any_object or route.body is not None:
        schema = _reference(route.body.__name__) if route.body else {"type": "object"}
        content = {"application/json": {"schema": schema}}
        described["requestBody"] = {"required": not route.body_optional, "content": content}
    return described


# --- what goes in ---------------------------------------------------------------------------------


def _path_parameters(route: Route) -> list[Schema]:
    names = re.findall(r"{(\w+)}", route.path)
    return [
        {"name": name, "in": "path", "required": True,
         "schema": {"type": "string", "pattern": PATH_NAMES[name][0].pattern}}
        for name in names
    ]  # fmt: skip


def _query_parameters(query: type[NoQuery]) -> list[Schema]:
    members: dict[str, Schema] = query.model_json_schema().get("properties", {})
    return [
        {"name": name, "in": "query", "required": False, "schema": _not_null(schema)}
        for name, schema in members.items()
    ]


def _not_null(schema: Schema) -> Schema:
    """A query has no null: what may be left out is left out."""
    plain = {name: value for name, value in schema.items() if name not in ("title", "default", "anyOf")}
    choices = [each for each in schema.get("anyOf", []) if each.get("type") != "null"]
    return plain | choices[0] if choices else plain


def _key_parameters(route: Route) -> list[Schema]:
    if route.keyed is None:
        return []
    key = {"type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX, "pattern": "^[!#-~][!-~]*$"}
    places = (("Idempotency-Key", "header"), ("X-Idempotency-Key", "header"), ("idempotency_key", "query"))
    return [
        {"name": name, "in": place, "required": False, "schema": key, "description": _ABOUT_KEYS}
        for name, place in places
    ]


def _request_schemas(routes: Iterable[Route]) -> Schema:
    bodies: set[type[Model]] = {route.body for route in routes if route.body is not None}
    chosen = [(model, "validation") for model in sorted(bodies, key=lambda model: model.__name__)]
    _, schema = models_json_schema(chosen, ref_template=_REF)  # type: ignore[arg-type]
    defined: Schema = schema["$defs"]
    return defined


# --- what comes out -------------------------------------------------------------------------------


def _responses(route: Route) -> dict[str, Any]:
    headers = {
        "Idempotent-Replayed": {"description": "true: an earlier answer again", "schema": _TEXT},
        "X-Tenant-ID": {"description": "the tenant of the credential", "schema": _TEXT},
    }
    ok = {"description": "Done.", "headers": headers, "content": _content(route.answer)}
    codes = [*_ALWAYS, *route.problems]
    if route.any_object or route.body is not None:
        codes += _WITH_BODY
    if route.keyed:
        codes.append("idempotency_key_invalid")
    by_status: dict[str, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(str(problems.STATUS[code]), []).append(code)
    return {"200": ok} | {status: _refusal(each) for status, each in sorted(by_status.items())}


def _refusal(codes: list[str]) -> dict[str, Any]:
    said = "\n".join(f"- `{code}`: {KINDS[code].title}" for code in codes)
    return {"description": said, "content": {problems.MEDIA: {"schema": _reference("Problem")}}}


def _content(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": _reference(name)}}


def _reference(name: str) -> Schema:
    return {"$ref": _REF.format(model=name)}


def _object(**members: Schema) -> Schema:
    return {"type": "object", "properties": members, "required": list(members)}


def _page(of: Schema) -> Schema:
    return _object(items={"type": "array", "items": of}, next_cursor=_TEXT_OR_NULL)


_TEXT: Schema = {"type": "string"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_TIME: Schema = {"type": "string", "format": "date-time"}
_TIME_OR_NULL: Schema = {"type": ["string", "null"], "format": "date-time"}
_INTEGER: Schema = {"type": "integer"}
_INTEGER_OR_NULL: Schema = {"type": ["integer", "null"]}
_ANY: Schema = {}
_LABELS: Schema = {"type": "object", "additionalProperties": _TEXT}
_SCHEMA_OR_NULL: Schema = {"type": ["object", "null"]}
_NAMES: Schema = {"type": "array", "items": _TEXT}

_STEP = _object(id=_TEXT, status=_TEXT, job_id=_TEXT_OR_NULL, depends_on=_NAMES)
_RUN = _object(
    run_id=_TEXT, workflow_id=_TEXT, status=_TEXT, input=_ANY, result=_ANY, error=_ANY, created_at=_TIME,
    started_at=_TIME_OR_NULL, ended_at=_TIME_OR_NULL, rerun_of=_TEXT_OR_NULL,
    steps={"type": "array", "items": _STEP},
)  # fmt: skip
_JOB = _object(
    job_id=_TEXT, run_id=_TEXT_OR_NULL, step_id=_TEXT_OR_NULL, topic=_TEXT, input=_ANY, labels=_LABELS,
    status=_TEXT, attempt=_INTEGER, submitted_by=_TEXT, bus_msg_id=_TEXT_OR_NULL, result=_ANY, error=_ANY,
    created_at=_TIME, ended_at=_TIME_OR_NULL,
)  # fmt: skip
_LEASED = _object(
    job_id=_TEXT, run_id=_TEXT_OR_NULL, step_id=_TEXT_OR_NULL, topic=_TEXT, input=_ANY, labels=_LABELS,
    attempt=_INTEGER, fence=_INTEGER, key=_TEXT, lease_expires_at=_TIME, submitted_by=_TEXT,
)  # fmt: skip
_APPROVAL = _object(
    job_id=_TEXT, run_id=_TEXT_OR_NULL, topic=_TEXT, input=_ANY, labels=_LABELS, status=_TEXT,
    revision=_INTEGER, job_hash=_TEXT, submitted_by=_TEXT, created_at=_TIME, expires_at=_TIME_OR_NULL,
    decided_by=_TEXT_OR_NULL, decided_at=_TIME_OR_NULL, reason=_TEXT_OR_NULL,
)  # fmt: skip
_RECORD = _object(
    id=_TEXT, scope=_TEXT, tool=_TEXT_OR_NULL, key=_TEXT, state=_TEXT, fence=_INTEGER_OR_NULL,
    attempts=_INTEGER, created_at=_TIME, settled_at=_TIME_OR_NULL, expires_at=_TIME_OR_NULL,
    run_id=_TEXT_OR_NULL, job_id=_TEXT_OR_NULL,
)  # fmt: skip
_EXPLANATION: Schema = {
    "type": "object",
    "properties": {
        "known": _TEXT, "attempt": _INTEGER, "choices": _NAMES,
        "promised": _TEXT, "since": _TIME_OR_NULL, "question": _TEXT,
        "result": {"type": "object"},
    },
    "required": ["known", "attempt", "choices"],
}  # fmt: skip
_HAPPENING = _object(
    seq=_INTEGER, at=_TIME, type=_TEXT, state=_TEXT, fence=_INTEGER, by=_TEXT, note=_TEXT, times=_INTEGER,
)  # fmt: skip
_EXPLAINED = {
    "allOf": [
        _reference("Record"),
        _object(explanation=_EXPLANATION, history={"type": "array", "items": _HAPPENING}),
    ]
}
_NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
_KEEPS: Schema = {"anyOf": [_object(records=_INTEGER, bytes=_INTEGER), {"type": "null"}]}
_WINDOW = _object(
    tool=_TEXT, kind=_TEXT, retries=_INTEGER, first_at=_TIME_OR_NULL, last_at=_TIME_OR_NULL,
    ages={"type": "array", "items": _object(under=_TEXT, retries=_INTEGER)}, covering=_TEXT,
    window=_TEXT_OR_NULL, later_than_window=_INTEGER, after_window=_INTEGER, met_window=_INTEGER,
    late_in_window=_INTEGER, too_short={"type": "boolean"}, records_a_day=_NUMBER_OR_NULL,
    record_bytes=_NUMBER_OR_NULL, window_keeps=_KEEPS, covering_keeps=_KEEPS, remarks=_NAMES,
)  # fmt: skip
_LINE = _object(
    lane=_INTEGER, seq=_INTEGER, at=_TIME, tenant=_TEXT, type=_TEXT, scope=_TEXT, key=_TEXT, record_id=_TEXT,
    state=_TEXT, fence=_INTEGER, tool=_TEXT, version=_TEXT, digest=_TEXT, expires_at=_TIME_OR_NULL,
    conversation=_TEXT, step=_NAMES, by=_TEXT, note=_TEXT, times=_INTEGER,
)  # fmt: skip
_MADE = _object(at=_TIME, record_id=_TEXT, key=_TEXT, conversation=_TEXT, step=_NAMES)
_CATALOGUED = _object(
    name=_TEXT, version=_TEXT, owner=_TEXT, purpose=_TEXT, recorded={"type": "boolean"},
    window=_TEXT_OR_NULL, schema=_SCHEMA_OR_NULL, result_schema=_SCHEMA_OR_NULL, first_seen_at=_TIME,
    last_seen_at=_TIME, versions={
        "type": "array", "items": _object(version=_TEXT, first_seen_at=_TIME, last_seen_at=_TIME),
    },
)  # fmt: skip
_TOOL = _object(
    tool=_TEXT, count=_INTEGER, same_conversation=_INTEGER, meaning=_TEXT,
    examples={"type": "array", "items": _object(first=_MADE, second=_MADE)},
)  # fmt: skip
_LATE_TOOL = _object(
    tool=_TEXT, count=_INTEGER, window=_TEXT, covering=_TEXT, meaning=_TEXT,
    examples={"type": "array", "items": _object(settled_at=_TIME, closed_at=_TIME, again=_MADE)},
)  # fmt: skip
_NEAR_TOOL = _object(
    tool=_TEXT, argument=_TEXT, count=_INTEGER, meaning=_TEXT,
    examples={"type": "array", "items": _object(first=_MADE, second=_MADE)},
)  # fmt: skip
_DUPLICATES = _object(
    within=_TEXT, calls=_INTEGER, duplicates=_INTEGER, flooded={"type": "boolean"},
    tools={"type": "array", "items": _TOOL}, late_repeats=_INTEGER,
    late_tools={"type": "array", "items": _LATE_TOOL}, near_repeats=_INTEGER,
    near_tools={"type": "array", "items": _NEAR_TOOL},
)  # fmt: skip
_DEAD_LETTER = _object(
    id=_TEXT, message_id=_TEXT, type=_TEXT, topic=_TEXT_OR_NULL, run_id=_TEXT_OR_NULL, job_id=_TEXT_OR_NULL,
    consumer=_TEXT, deliveries=_INTEGER, error=_TEXT, created_at=_TIME, dead_at=_TIME,
    retried_at=_TIME_OR_NULL, retried_by=_TEXT_OR_NULL,
)  # fmt: skip
_EVENT = _object(seq=_INTEGER, at=_TIME, type=_TEXT, data=_ANY)
_WORKFLOW = _object(workflow_id=_TEXT, steps={"type": "array", "items": {"type": "object"}})

_ANSWERS: Schema = {
    "RunStarted": _object(run_id=_TEXT, workflow_id=_TEXT, status=_TEXT),
    "Run": _RUN,
    "Runs": _page(_reference("Run")),
    "Timeline": _page(_EVENT),
    "Job": _JOB,
    "Jobs": _page(_reference("Job")),
    "Leases": _object(jobs={"type": "array", "items": _LEASED}),
    "Heartbeat": _object(job_id=_TEXT, fence=_INTEGER, lease_expires_at=_TIME),
    "Approval": _APPROVAL,
    "Approvals": _page(_reference("Approval")),
    "Decision": _object(job_id=_TEXT, status=_TEXT, revision=_INTEGER),
    "Record": _RECORD,
    "ExplainedRecord": _EXPLAINED,
    "Records": _page(_reference("Record")),
    "Tool": _CATALOGUED,
    "Tools": _page(_reference("Tool")),
    "Windows": _page(_WINDOW),
    "Events": _page(_LINE),
    "Duplicates": _DUPLICATES,
    "DeadLetter": _DEAD_LETTER,
    "DeadLetters": _page(_reference("DeadLetter")),
    "Workflow": _WORKFLOW,
    "Workflows": _page(_reference("Workflow")),
    "Deleted": _object(workflow_id=_TEXT, deleted={"type": "boolean"}),
    "Tenant": _object(tenant=_TEXT, max_concurrent_runs=_INTEGER),
}

_PROBLEM = _object(
    type=_TEXT, title=_TEXT, status=_INTEGER, detail=_TEXT, code={"type": "string", "enum": sorted(KINDS)},
    retriable={"type": "boolean"},
)  # fmt: skip

_STATE = _object(status=_TEXT)


def _open(what: str, media: str, schema: Schema, **refusals: str) -> Schema:
    responses: dict[str, Any] = {"200": {"description": what, "content": {media: {"schema": schema}}}}
    for status, why in refusals.items():
        content = {media: {"schema": schema}}
        responses[status.removeprefix("s")] = {"description": why, "content": content}
    return {"get": {"summary": what, "security": [], "responses": responses}}


_OPERATE: Schema = {
    "/healthz": _open("The process answers.", "application/json", _STATE),
    "/readyz": _open(
        "Work may be sent here.", "application/json", _STATE, s503="It may not; `reasons` says why."
    ),
    "/metrics": _open("Metrics for Prometheus.", "text/plain", _TEXT),
    "/openapi.json": _open("This document.", "application/json", {"type": "object"}),
}

_ABOUT = (
    "AI agents retry; side effects must land once. Refusals are problem details (RFC 9457) with a `code`."
)
_ABOUT_KEYS = (
    "Any of three places; quoted and bare are equal. The same key with the same body has the first answer, "
    "to the byte; with another body it is refused."
)
