"""What a tenant may keep: full is refused for what is new, and everything else goes on."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from semel.flow import storage
from semel.stores.base import Store
from tests.gateway.conftest import Serve, Served, define, limit, refused, start_run

BOUND = 200_000
PIECE = {"a": "x" * 30_000}


class Unclosed:
    """A store that outlives the gateways on it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def aclose(self) -> None:
        pass


@pytest.fixture(params=["atomic", "lock"])
def full(
    request: pytest.FixtureRequest, serve: Serve, store: Store
) -> tuple[Served, httpx.Client, list[str]]:
    """A gateway, a client of its full tenant, and the runs that it has: the keys are their places."""
    served = serve(Unclosed(store), dev=True, tenant_bytes=BOUND, admission=request.param)
    client = served.client(X_Tenant_ID="acme")
    define(client)
    limit(client, 1_000)
    started: list[str] = []
    while (answer := start_run(client, PIECE, str(len(started)))).status_code == 200:
        started.append(answer.json()["run_id"])
    assert refused(answer, 507, "tenant_storage_full")["limit"] == BOUND
    assert 3 <= len(started) <= 6
    return served, client, started


def test_what_is_new_is_refused_and_leaves_nothing_behind(full) -> None:
    served, client, started = full
    refused(start_run(client, PIECE, "new"), 507, "tenant_storage_full")
    refused(client.post("/api/v1/jobs", json={"topic": "t", "input": PIECE}), 507, "tenant_storage_full")
    refused(
        client.put("/api/v1/workflows/more", json={"steps": [{"id": "a", "topic": "t", "input": PIECE}]}),
        507,
        "tenant_storage_full",
    )
    assert [run["run_id"] for run in client.get("/api/v1/runs").json()["items"]] == started[::-1]
    assert client.get("/api/v1/records", params={"scope": "run", "key": "new"}).json()["items"] == []
    other = served.client(X_Tenant_ID="other")
    define(other)
    assert start_run(other, PIECE).status_code == 200


def test_replays_reads_and_ends_go_on(full) -> None:
    _, client, started = full
    again = start_run(client, PIECE, "0")
    assert (again.status_code, again.headers.get("idempotent-replayed")) == (200, "true")
    assert again.json()["run_id"] == started[0]
    assert client.get(f"/api/v1/runs/{started[0]}").json()["input"] == PIECE
    ended = client.post(f"/api/v1/runs/{started[0]}/complete", json={"status": "succeeded", "result": PIECE})
    assert ended.status_code == 200
    assert client.post(f"/api/v1/runs/{started[1]}/cancel").status_code == 200


def test_a_gateway_that_begins_on_a_full_tenant_knows_it_and_a_larger_bound_helps(
    full, serve: Serve, store: Store
) -> None:
    restarted = serve(Unclosed(store), dev=True, tenant_bytes=BOUND).client(X_Tenant_ID="acme")
    refused(start_run(restarted, PIECE, "new"), 507, "tenant_storage_full")
    larger = serve(Unclosed(store), dev=True, tenant_bytes=2 * BOUND).client(X_Tenant_ID="acme")
    assert start_run(larger, PIECE, "new").status_code == 200


def test_what_is_only_replaced_does_not_fill_a_tenant(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    # However long a look took on a busy machine, the next one may follow.
    monkeypatch.setattr(storage, "_REST", 0)
    client = serve(dev=True, tenant_bytes=BOUND).client(X_Tenant_ID="acme")
    for _ in range(20):
        define(client, "hello", {"id": "a", "topic": "t", "input": PIECE})


def test_a_job_that_was_created_replays_on_a_full_tenant(serve: Serve) -> None:
    client = serve(dev=True, tenant_bytes=BOUND).client(X_Tenant_ID="acme")
    answers = [
        client.post("/api/v1/jobs", json={"topic": "t", "input": PIECE}, headers={"Idempotency-Key": key})
        for key in ("0", "1", "2", "3", "4", "5", "0")
    ]
    assert [answer.status_code for answer in answers[:6]].count(507) > 0
    assert (answers[-1].status_code, answers[-1].content) == (200, answers[0].content)
