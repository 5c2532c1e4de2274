"""`/openapi.json` says what the gateway does: made from the same table, and requests made from it fit."""

from __future__ import annotations

import asyncio
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
from typing_extensions import is_typeddict

import semel
from semel.flow.dead_letters import letter
from semel.flow.document_store import DocumentStore
from semel.flow.model import Message
from semel.flow.problems import KINDS
from semel.gateway import openapi
from semel.gateway.problems import STATUS
from semel.gateway.routes import ROUTES
from semel.kernel import answers
from semel.kernel.clock import SYSTEM
from semel.ledger.ledger import Ledger
from semel.stores.memory import MemoryStore
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
        assert {"200", "401", "403", "429", "431", "500", "503"} <= operation["responses"].keys()


def test_the_front_page_may_lead_to_the_console() -> None:
    assert DOCUMENT["paths"]["/"]["get"]["responses"].keys() == {"200", "303"}


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


@semel.tool_contract(class_="write-non-idempotent")
def send(to: str, note: str = "") -> str:
    if to == "nobody":
        raise TimeoutError
    return f"sent to {to}"


class Checked:
    """Requests of a client. Every answer has what the schema of its route says, and not a member more."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.seen: set[str] = set()

    def __call__(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        answer = self.client.request(method, f"/api/v1/{path}", **request)
        (name,) = (name for name, operation in OPERATIONS.items() if is_of(answer.request, *operation))
        self.seen.add(name)
        return fits(name_of_schema(*OPERATIONS[name]), answer)


def is_of(request: httpx.Request, method: str, path: str) -> bool:
    address = re.sub(r"{\w+}", "[^/]+", path)
    return request.method.lower() == method and bool(re.fullmatch(address, request.url.path))


def name_of_schema(method: str, path: str) -> str:
    content = DOCUMENT["paths"][path][method]["responses"]["200"]["content"]
    return str(content["application/json"]["schema"]["$ref"]).rpartition("/")[2]


def test_the_answers_of_every_route_have_exactly_the_members_of_their_schemas(serve: Serve) -> None:
    """Made-up ids find nothing, so the good answers are looked at here."""
    store = MemoryStore()
    client = serve(store, dev=True).client(X_Principal_Id="ann")
    ask = Checked(client)
    live_through_a_workflow(ask)
    live_through_a_job(ask)
    doubt_a_call(ask, store)
    retry_a_dead_letter(ask, store)
    lists = ("runs", "jobs", "approvals", "records", "tools", "windows", "audit", "workflows", "dead-letters")
    assert [path for path in lists if not ask("GET", path)["items"]] == []
    for record in ask("GET", "records")["items"]:
        ask("GET", f"records/{record['id']}")
    report = ask("GET", "audit/duplicates")
    assert report["tools"]
    assert report["near_tools"]
    ask("DELETE", "workflows/w")
    assert ask.seen == OPERATIONS.keys()
    for path in ("/healthz", "/readyz"):
        fits("Health", client.get(path))


def live_through_a_workflow(ask: Checked) -> None:
    gated = {"id": "pay", "topic": "pay", "approval": True, "input": 1}
    limits = {"max_concurrent_runs": 3, "input_schema": {"type": "object"}}
    ask("PUT", "workflows/w", json={"steps": [gated, {"id": "tell", "topic": "t"}], **limits})
    ask("GET", "workflows/w")
    ask("PUT", "tenants/default", json={"max_concurrent_runs": 5})
    ask("GET", "tenant")
    run_id = ask("POST", "workflows/w/runs", json={"n": 1}, headers={"Idempotency-Key": "k"})["run_id"]
    job_id = ask("GET", f"runs/{run_id}")["steps"][0]["job_id"]
    ask("GET", f"approvals/{job_id}")
    ask("POST", f"approvals/{job_id}/approve", headers={"X-Principal-Id": "boss"})
    for topic in ("pay", "t"):
        end_a_job(ask, topic)
    again = ask("POST", f"runs/{run_id}/rerun", json={"from_step": "pay"})["run_id"]
    ask("POST", f"runs/{again}/cancel")
    assert ask("GET", f"runs/{run_id}/timeline")["items"]
    ask("PUT", "workflows/outside", json={"steps": []})
    outside = ask("POST", "workflows/outside/runs", json={})["run_id"]
    ask("POST", f"runs/{outside}/complete", json={"status": "succeeded", "result": 5})


def end_a_job(ask: Checked, topic: str) -> None:
    (job,) = ask("POST", "leases", json={"topics": [topic], "max": 1, "lease_s": 30})["jobs"]
    ask("POST", f"jobs/{job['job_id']}/heartbeat", json={"fence": job["fence"]})
    error = {"code": "late", "message": "too late", "retriable": False, "traceback": "a.py"}
    told = {"status": "succeeded", "result": 1} if topic == "pay" else {"status": "failed", "error": error}
    ask("POST", f"jobs/{job['job_id']}/result", json={"fence": job["fence"], **told})


def live_through_a_job(ask: Checked) -> None:
    job = {"topic": "t", "input": 1, "approval": {"reason": "large"}, "labels": {"a": "b"}}
    job_id = ask("POST", "jobs", json=job, headers={"Idempotency-Key": "k"})["job_id"]
    ask("GET", f"jobs/{job_id}")
    ask("POST", f"approvals/{job_id}/reject", headers={"X-Principal-Id": "boss"})
    other = ask("POST", "jobs", json={"topic": "t", "input": 1})["job_id"]
    ask("POST", f"jobs/{other}/cancel")


def doubt_a_call(ask: Checked, store: MemoryStore) -> None:
    ledger = Ledger(store, tenant="default")
    for step in ("1", "1", "2"):  # once more, which is a retry, and once under another key
        with ledger.step(conversation="c", step=step):
            send("to ann", note="as a model words it")
            send("to ann", note="as it words it anew")
    with ledger.step(conversation="c", step="3"), pytest.raises(TimeoutError):
        send("nobody")
    ledger.keeper.close()  # whatever it counted is in the store, which the gateway closes
    (record,) = ask("GET", "records?state=in_doubt")["items"]
    ask("POST", f"records/{record['id']}/resolve", json={"outcome": "happened"})
    ask("POST", f"records/{record['id']}/amend", json={"result": "sent"})
    ask("GET", "tools/send")


def retry_a_dead_letter(ask: Checked, store: MemoryStore) -> None:
    now_us = SYSTEM.now_us()
    dead = letter("mailer", Message("m", "default", "job.queued", now_us, topic="t"), 5, "no", now_us)
    asyncio.run(DocumentStore(store).commit("default", {dead.id: None}, (dead.draft(),)))
    ask("GET", f"dead-letters/{dead.id}")
    ask("POST", f"dead-letters/{dead.id}/retry", headers={"Idempotency-Key": "k"})


def fits(name: str, answer: httpx.Response) -> dict[str, Any]:
    """The answer, after checking that it has what the schema says and no member that it does not name."""
    assert answer.status_code == 200, answer.text
    schema = {"$ref": f"#/components/schemas/{name}", "components": closed(DOCUMENT["components"])}
    Draft202012Validator(schema).validate(answer.json())
    body: dict[str, Any] = answer.json()
    return body


def closed(part: Any) -> Any:
    """The same schemas, where an object has no other members than those that are named."""
    if isinstance(part, list):
        return [closed(each) for each in part]
    if not isinstance(part, dict):
        return part
    named = {"additionalProperties": False} if part.get("type") == "object" and "properties" in part else {}
    return {name: closed(each) for name, each in part.items()} | named


def test_a_schema_has_every_member_of_its_model_and_no_other() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for model in vars(answers).values():
        name = getattr(model, "__name__", "").removesuffix("Json")
        if is_typeddict(model) and name in schemas:
            assert schemas[name]["properties"].keys() == model.__annotations__.keys()


def test_every_model_is_part_of_the_answer_of_a_route() -> None:
    models = {name.removesuffix("Json") for name, each in vars(answers).items() if is_typeddict(each)}
    generic_or_base = {"List", "_Class", "Contract"}
    assert models - generic_or_base <= DOCUMENT["components"]["schemas"].keys()


def test_the_model_of_a_tool_has_what_a_contract_describes() -> None:
    assert send.contract.describe().keys() == answers.ContractJson.__annotations__.keys()


# --- the page that people read --------------------------------------------------------------------


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_page_names_every_route_and_every_code_and_no_others() -> None:
    text = page("reference/gateway.md")
    rows = re.findall(r"^\| `(GET|PUT|POST|DELETE) (/\S+?)` \|", text, re.MULTILINE)
    shown = {(method, re.sub(r"{\w+}", "{}", path)) for method, path in rows}
    assert shown == {(route.method, re.sub(r"{\w+}", "{}", route.path)) for route in ROUTES}
    codes = set(re.findall(r"^\| `([a-z_]+)` \| \d{3} \|", text, re.MULTILINE))
    assert codes == KINDS.keys()


def test_the_page_gives_every_code_its_status() -> None:
    for code, status in re.findall(
        r"^\| `([a-z_]+)` \| (\d{3}) \|", page("reference/gateway.md"), re.MULTILINE
    ):
        assert STATUS[code] == int(status)
