"""`/openapi.json`: the table of routes, the models of bodies and of answers, said in OpenAPI 3.1."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import orjson
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

import semel
from semel.flow.problems import KINDS
from semel.gateway import problems
from semel.gateway.bodies import NoQuery
from semel.gateway.exchange import JSON
from semel.gateway.preferences import WAIT_MAX_S
from semel.gateway.routes import PATH_NAMES, ROUTES, Route
from semel.kernel.answers import HealthJson, ProblemJson
from semel.kernel.limits import KEY_BYTES_MAX

Schema = dict[str, Any]
References = Mapping[Any, Schema]  # of each model, where its schema stands

_REF = "#/components/schemas/{model}"
_TEXT: Schema = {"type": "string"}

# What every route may answer, before it does anything of its own.
_ALWAYS = (
    "request_invalid",
    "unauthenticated",
    "forbidden",
    "tenant_mismatch",
    "too_many_requests",
    "headers_too_large",
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
    references, schemas = _schemas(routes)
    paths = _operate(references)
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, references)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Semel", "version": semel.__version__, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
                "Bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{"ApiKey": []}, {"Bearer": []}],
    }


class _SchemaWriter(GenerateJsonSchema):
    """`RunJson` is called Run, `ListJson[RunJson]` Runs. Titles, which repeat names, are left out."""

    def normalize_name(self, name: str) -> str:
        return re.sub(r"^List_(\w+)_$", r"\1s", super().normalize_name(name).replace("Json", ""))

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False


def _schemas(routes: Iterable[Route]) -> tuple[References, Schema]:
    """Where the schema of every model stands, and the schemas."""
    bodies = {route.body for route in routes if route.body is not None}
    answers = {route.answer for route in routes} | {HealthJson, ProblemJson}
    modes: dict[Any, Literal["validation", "serialization"]] = {
        **dict.fromkeys(bodies, "validation"), **dict.fromkeys(answers, "serialization")
    }  # fmt: skip
    chosen = [(model, mode, TypeAdapter(model)) for model, mode in modes.items()]
    references, document = TypeAdapter.json_schemas(chosen, ref_template=_REF, schema_generator=_SchemaWriter)
    schemas = document["$defs"]
    for schema in schemas.values():
        schema.pop("title", None)
    schemas["Problem"]["properties"]["code"]["enum"] = sorted(KINDS)
    return {model: reference for (model, _), reference in references.items()}, schemas


def _operation(route: Route, references: References) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": route.name,
        "summary": f"Roles: {', '.join(sorted(route.roles))}.",
        "parameters": [
            *_path_parameters(route),
            *_query_parameters(route.query),
            *_key_parameters(route),
            *_wait_parameters(route),
        ],
        "responses": _responses(route, references),
    }
    if route.any_object or route.body is not None:
        schema = references[route.body] if route.body else {"type": "object"}
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
    parameters = (
        ("Idempotency-Key", "header"),
        ("X-Idempotency-Key", "header"),
        ("idempotency_key", "query"),
    )
    return [
        {"name": name, "in": part, "required": False, "schema": key, "description": _ABOUT_KEYS}
        for name, part in parameters
    ]


def _wait_parameters(route: Route) -> list[Schema]:
    if not route.admits:
        return []
    schema = {"type": "string", "examples": ["wait=10"]}
    return [
        {"name": "Prefer", "in": "header", "required": False, "schema": schema, "description": _ABOUT_WAITING}
    ]


# --- what comes out -------------------------------------------------------------------------------


def _responses(route: Route, references: References) -> dict[str, Any]:
    headers = {
        "Idempotent-Replayed": {"description": "true: an earlier answer again", "schema": _TEXT},
        "X-Request-Id": {"description": "what the request calls itself", "schema": _TEXT},
        "X-Tenant-ID": {"description": "the tenant of the credential", "schema": _TEXT},
    }
    if route.admits:
        headers["Preference-Applied"] = {"description": "wait=S: it would have waited", "schema": _TEXT}
    ok = {"description": "Done.", "headers": headers, "content": {JSON: {"schema": references[route.answer]}}}
    codes = [*_ALWAYS, *route.problems]
    if route.any_object or route.body is not None:
        codes += _WITH_BODY
    if route.keyed:
        codes.append("idempotency_key_invalid")
    by_status: dict[str, list[str]] = {}
    for code in dict.fromkeys(codes):
        by_status.setdefault(str(problems.STATUS[code]), []).append(code)
    content = {problems.MEDIA: {"schema": references[ProblemJson]}}
    refusals = {
        status: {"description": _description(each), "content": content}
        for status, each in sorted(by_status.items())
    }
    return {"200": ok} | refusals


def _description(codes: list[str]) -> str:
    return "\n".join(f"- `{code}`: {KINDS[code].title}" for code in codes)


def _open(what: str, media: str, schema: Schema, **others: str) -> Schema:
    responses: dict[str, Any] = {"200": {"description": what, "content": {media: {"schema": schema}}}}
    for status, why in others.items():
        content = {media: {"schema": schema}}
        responses[status.removeprefix("s")] = {"description": why, "content": content}
    return {"get": {"summary": what, "security": [], "responses": responses}}


def _operate(references: References) -> dict[str, Any]:
    health, unready = references[HealthJson], "It may not; `reasons` says why."
    return {
        "/healthz": _open("The process answers.", JSON, health),
        "/readyz": _open("Work may be sent here.", JSON, health, s503=unready),
        "/metrics": _open("Metrics for Prometheus.", "text/plain", _TEXT),
        "/openapi.json": _open("This document.", JSON, {"type": "object"}),
        "/": _open("For people: what is here.", "text/html", _TEXT, s303="The console is there."),
    }


_ABOUT = (
    "AI agents retry; side effects must land once. Refusals are problem details (RFC 9457) with a `code`."
)
_ABOUT_KEYS = (
    "Any of three places; quoted and bare are equal. The same key with the same body has the first answer, "
    "to the byte; with another body it is refused."
)
_ABOUT_WAITING = (
    "`wait=S` (RFC 7240): if no slot is free, wait for one for at most S seconds, and never more than "
    f"{WAIT_MAX_S}; first come, first served."
)
