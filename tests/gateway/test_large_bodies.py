"""Bodies of megabytes: read apart from everybody else, and kept like small ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from semel.gateway.incoming import SMALL_BYTES_MAX
from tests.gateway.conftest import Serve, define, limit, new_tenant, refused, start_run
from tests.gateway.serving import PATIENCE_S, Gateway, gateways
from tests.gateway.test_bounds import answered_meanwhile, meanwhile

# Of every sort that has more than one spelling, or a form of its own in a key.
VALUE: dict[str, Any] = {
    "z": [1, 1.5, -0.0, 1e300, 10.0, True, None, "", 'é\u202e\U0001f600"\\'],
    "$set": {"$float": "0.1", "$": {}},
    "": [[], {}],
    "a": {"b": {"c": -1}},
}


def large(**more: Any) -> dict[str, Any]:
    return {**VALUE, "filling": "x" * SMALL_BYTES_MAX, **more}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with gateways() as start:
        yield start("memory://")


@pytest.fixture
def client(gateway: Gateway) -> httpx.Client:
    tenant = new_tenant()
    client = gateway.client(X_Tenant_ID=tenant)
    define(client)
    limit(client, 1_000)
    return client


def sent(client: httpx.Client, text: str, key: str) -> httpx.Response:
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    return client.post("/api/v1/workflows/hello/runs", content=text.encode(), headers=headers)


def test_a_large_input_is_kept_as_it_was_sent(client: httpx.Client) -> None:
    run_id = start_run(client, large()).json()["run_id"]
    assert client.get(f"/api/v1/runs/{run_id}").json()["input"] == large()


def test_a_value_is_the_same_request_however_large_its_spelling_is(client: httpx.Client) -> None:
    first = sent(client, json.dumps(VALUE), "order-1")
    padded = json.dumps(VALUE, ensure_ascii=False, sort_keys=True) + " " * (1 << 20)
    again = sent(client, padded, "order-1")
    assert (first.status_code, again.status_code) == (200, 200)
    assert (again.content, again.headers.get("idempotent-replayed")) == (first.content, "true")


def test_a_large_request_replays_to_the_byte_and_another_is_refused(client: httpx.Client) -> None:
    first, again = (sent(client, json.dumps(large()), "order-1") for _ in range(2))
    assert (again.content, again.headers.get("idempotent-replayed")) == (first.content, "true")
    refused(sent(client, json.dumps(large(more=1)), "order-1"), 422, "idempotency_key_reused")


def test_a_large_job_is_created_once_and_approved_as_it_is_shown(client: httpx.Client) -> None:
    body = {"topic": "mail", "input": large(), "approval": True}
    first, again = (
        client.post("/api/v1/jobs", json=body, headers={"Idempotency-Key": "mail-1"}) for _ in range(2)
    )
    assert first.status_code == 200
    assert first.json()["input"] == large()
    assert (again.content, again.headers.get("idempotent-replayed")) == (first.content, "true")
    shown = client.get(f"/api/v1/approvals/{first.json()['job_id']}").json()
    assert shown["input"] == large()
    decided = client.post(
        f"/api/v1/approvals/{shown['job_id']}/approve",
        json={"job_hash": shown["job_hash"], "reason": "seen"},
        headers={"X-Principal-Id": "bob"},
    )
    assert decided.status_code == 200


def test_large_results_and_definitions_are_read_too(client: httpx.Client) -> None:
    run_id = start_run(client).json()["run_id"]
    bodies = {"status": "succeeded", "result": large()}
    first, again = (client.post(f"/api/v1/runs/{run_id}/complete", json=bodies) for _ in range(2))
    assert first.json()["result"] == large()
    assert again.headers["idempotent-replayed"] == "true"
    define(client, "large", {"id": "a", "topic": "t", "input": large()})
    assert client.get("/api/v1/workflows/large").json()["steps"][0]["input"] == large()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[" + "1," * SMALL_BYTES_MAX + "1]", "request_invalid"),
        ('{"a": 1,' + " " * SMALL_BYTES_MAX + '"a": 2}', "body_not_json"),
        ('{"a": ' + " " * SMALL_BYTES_MAX, "body_not_json"),
        ("[" * SMALL_BYTES_MAX * 2, "body_too_deep"),
        ('{"a": ' + "1" * 40 + " " * SMALL_BYTES_MAX + "}", "request_invalid"),
        ('{"a": "\\u0000"' + " " * SMALL_BYTES_MAX + "}", "request_invalid"),
    ],
)
def test_a_large_body_is_read_as_strictly_as_a_small_one(client: httpx.Client, text: str, code: str) -> None:
    refused(sent(client, text, "order-1"), 400, code)
    assert start_run(client, {}, "order-1").status_code == 200


def test_an_input_that_many_steps_would_copy_is_refused(client: httpx.Client) -> None:
    define(client, "wide", *({"id": f"s{number}", "topic": "t"} for number in range(200)))
    refused(start_run(client, {"a": "x" * (1 << 20)}, "k", "wide"), 413, "body_too_large")
    assert start_run(client, {"a": "x"}, "k", "wide").status_code == 200


def test_a_list_of_large_runs_comes_in_pages_that_can_be_carried(client: httpx.Client) -> None:
    started = [start_run(client, {"n": number, "a": "x" * (1 << 20)}).json()["run_id"] for number in range(9)]
    pages: list[list[str]] = []
    query: dict[str, Any] = {"limit": 200}
    while True:
        page = client.get("/api/v1/runs", params=query)
        assert len(page.content) < 6 << 20
        pages.append([run["run_id"] for run in page.json()["items"]])
        if page.json()["next_cursor"] is None:
            break
        query["cursor"] = page.json()["next_cursor"]
    assert [run_id for page in pages for run_id in page] == started[::-1]
    assert len(pages) > 1


def test_large_bodies_of_one_tenant_do_not_hold_up_another(gateway: Gateway) -> None:
    numbers = ",".join(["1"] * (1 << 19))  # a million bytes that are half a million objects

    def attack(number: int) -> None:
        with httpx.Client(
            base_url=gateway.url, headers={"X-Tenant-ID": "worst"}, timeout=PATIENCE_S
        ) as client:
            for _ in range(3):
                answer = sent(client, f'{{"n": {number}, "a": [{numbers}]}}', f"order-{number}")
                assert answer.status_code == 200, answer.text

    define(gateway.client(X_Tenant_ID="worst"))

    def attacks() -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(attack, range(4)))

    with meanwhile(attacks) as still:
        answered_meanwhile(gateway, still)


def test_a_tenant_that_sends_more_large_bodies_than_may_wait_is_told_to_come_back(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.gateway.app.LARGE_BODIES_MAX", 0)
    client = serve(dev=True).client(X_Tenant_ID="acme")
    define(client)
    assert int(refused(start_run(client, large()), 429, "too_many_requests")["status"]) == 429
    assert start_run(client, VALUE).status_code == 200


def test_a_large_body_costs_a_tenants_share_by_its_size(serve: Serve) -> None:
    served = serve(tenant_rate_per_s=0.001, tenant_burst=20)
    ann, bob = served.holder("admin"), served.holder("admin", tenant="other")
    define(ann)
    for _ in range(5):
        assert start_run(ann, {}).status_code == 200
    assert start_run(ann, {"a": "x" * (1 << 20)}).status_code == 200
    refused(ann.get("/api/v1/runs"), 429, "too_many_requests")
    assert bob.get("/api/v1/runs").status_code == 200
