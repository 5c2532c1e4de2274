"""`/openapi.json` says what the gateway does: made from the same table, and requests made from it fit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

from semel.flow.problems import KINDS
from semel.gateway import openapi
from semel.gateway.problems import STATUS
from semel.gateway.routes import ROUTES
from tests.gateway.conftest import Serve, Served

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
DOCUMENT: dict[str, Any] = json.loads(openapi.document())
OPERATIONS = {
    operation["operationId"]: (method, path)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if "operationId" in operation
}


def references(part: Any) -> set[str]:
    if isinstance(part, dict):
        own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
        return own.union(*map(references, part.values()))
    return set().union(*map(references, part)) if isinstance(part, list) else set()


def test_every_route_is_described_and_nothing_else() -> None:
    described = {(method.upper(), path) for method, path in OPERATIONS.values()}
    assert described == {(route.method, route.path) for route in ROUTES}
    assert {"/metrics", "/healthz", "/readyz", "/openapi.json"} <= DOCUMENT["paths"].keys()


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert {name.rpartition("/")[2] for name in references(DOCUMENT)} <= schemas.keys()
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)


def test_every_refusal_that_a_route_names_exists() -> None:
    for route in ROUTES:
        assert set(route.problems) <= KINDS.keys()


def test_what_a_route_may_answer_follows_from_what_it_takes() -> None:
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        takes_body = route.body is not None or route.any_object
        assert ("413" in operation["responses"]) == ("requestBody" in operation) == takes_body
        assert ("idempotency_key_invalid" in operation["responses"]["400"]["description"]) == bool(
            route.keyed
        )
        assert {"200", "401", "403", "429", "500", "503"} <= operation["responses"].keys()


def test_the_document_is_served(dev: httpx.Client) -> None:
    assert dev.get("/openapi.json").json() == DOCUMENT


@pytest.fixture(scope="module")
def schema(shared: dict[str, Served]) -> Any:
    return schemathesis.openapi.from_url(f"{shared['memory'].url}/openapi.json")


CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.mark.parametrize("name", OPERATIONS)
def test_answers_to_made_up_requests_are_as_described(schema: Any, name: str) -> None:
    method, path = OPERATIONS[name]
    operation = schema[path][method.upper()]

    # Few examples each: there are many operations.
    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy())
    def answers_as_described(case: Any) -> None:
        if name == "lease_jobs" and isinstance(case.body, dict):
            case.body["wait_s"] = 0  # a minute for each example would be a long test
        case.call_and_validate(checks=CHECKS)

    answers_as_described()


def test_answers_of_a_whole_life_fit_their_schemas(serve: Serve) -> None:
    """Made-up ids find nothing, so the good answers are looked at here."""
    client = serve(dev=True).client(X_Principal_Id="ann")
    gated = {"id": "pay", "topic": "pay", "approval": True}
    fits("Workflow", client.put("/api/v1/workflows/w", json={"steps": [gated], "max_concurrent_runs": 3}))
    fits("Tenant", client.put("/api/v1/tenants/default", json={"max_concurrent_runs": 5}))
    started = client.post("/api/v1/workflows/w/runs", json={"n": 1}, headers={"Idempotency-Key": "k"})
    run = f"/api/v1/runs/{fits('RunStarted', started)['run_id']}"
    job_id = fits("Run", client.get(run))["steps"][0]["job_id"]
    fits("Job", client.get(f"/api/v1/jobs/{job_id}"))
    fits("Approvals", client.get("/api/v1/approvals"))
    fits("Approval", client.get(f"/api/v1/approvals/{job_id}"))
    boss = {"X-Principal-Id": "boss"}
    fits("Decision", client.post(f"/api/v1/approvals/{job_id}/approve", headers=boss))
    leased = client.post("/api/v1/leases", json={"topics": ["pay"], "max": 1, "lease_s": 30})
    fence = fits("Leases", leased)["jobs"][0]["fence"]
    fits("Heartbeat", client.post(f"/api/v1/jobs/{job_id}/heartbeat", json={"fence": fence}))
    fits("Job", client.post(f"/api/v1/jobs/{job_id}/result", json={"fence": fence, "status": "succeeded"}))
    again = client.post(f"{run}/rerun", json={"from_step": "pay"})
    fits("Run", client.post(f"/api/v1/runs/{fits('RunStarted', again)['run_id']}/cancel"))
    lists = {"Runs": "runs", "Records": "records", "Workflows": "workflows"}
    for name, path in lists.items():
        assert fits(name, client.get(f"/api/v1/{path}"))["items"]
    assert fits("Timeline", client.get(f"{run}/timeline"))["items"]
    for record in client.get("/api/v1/records").json()["items"]:
        fits("ExplainedRecord", client.get(f"/api/v1/records/{record['id']}"))
    fits("Events", client.get("/api/v1/audit"))
    fits("Duplicates", client.get("/api/v1/audit/duplicates"))
    fits("Deleted", client.delete("/api/v1/workflows/w"))


def fits(name: str, answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    Draft202012Validator(schema).validate(answer.json())
    body: dict[str, Any] = answer.json()
    return body


# --- the page that people read --------------------------------------------------------------------


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_page_names_every_route_and_every_code_and_no_others() -> None:
    text = page("gateway.md")
    rows = re.findall(r"^\| `(GET|PUT|POST|DELETE) (/\S+?)` \|", text, re.MULTILINE)
    shown = {(method, re.sub(r"{\w+}", "{}", path)) for method, path in rows}
    assert shown == {(route.method, re.sub(r"{\w+}", "{}", route.path)) for route in ROUTES}
    codes = set(re.findall(r"^\| `([a-z_]+)` \| \d{3} \|", text, re.MULTILINE))
    assert codes == KINDS.keys()


def test_the_page_gives_every_code_its_status() -> None:
    for code, status in re.findall(r"^\| `([a-z_]+)` \| (\d{3}) \|", page("gateway.md"), re.MULTILINE):
        assert STATUS[code] == int(status)
