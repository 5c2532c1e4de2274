"""Records over HTTP: those of tools, and the keys of runs and jobs, as one list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import semel
from semel.errors import OutcomeUnknown
from semel.ledger import Ledger
from semel.stores.base import Store
from tests.gateway.conftest import Serve, define, refused, start_run


@semel.tool_contract(class_="write-non-idempotent")
def send(to: str) -> str:
    if to == "nobody":
        raise TimeoutError
    return f"sent to {to}"


@pytest.fixture
def ledger(store: Store) -> Iterator[Ledger]:
    opened = Ledger(store, tenant="default")
    yield opened
    opened.keeper.close()  # the store is closed by the gateway


@pytest.fixture
def client(serve: Serve, store: Store, ledger: Ledger) -> httpx.Client:
    return serve(store, dev=True).client()


def items(client: httpx.Client, **filters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/api/v1/records", params=filters).json()["items"]
    return found


def in_doubt(ledger: Ledger) -> None:
    with ledger.step(conversation="c", step="doubt"), pytest.raises(TimeoutError):
        send("nobody")


def test_records_of_tools_and_keys_are_one_list_newest_first(client: httpx.Client, ledger: Ledger) -> None:
    define(client)
    with ledger.step(conversation="c", step="1"):
        send("ann")
    run = start_run(client, {}, "order-1").json()
    client.post("/api/v1/jobs", json={"topic": "t", "input": 1}, headers={"Idempotency-Key": "job-1"})
    with ledger.step(conversation="c", step="2"):
        send("bob")
    found = items(client)
    assert [item["scope"] for item in found] == ["tool", "job", "run", "tool"]
    assert found[2]["run_id"] == run["run_id"]
    for item in found:
        assert client.get(f"/api/v1/records/{item['id']}").json() == item
    pages, cursor = [], None
    for _ in found:
        page = client.get(
            "/api/v1/records", params={"limit": 1} | ({"cursor": cursor} if cursor else {})
        ).json()
        pages += page["items"]
        cursor = page["next_cursor"]
    assert pages == found


def test_records_are_found_by_scope_state_and_key(client: httpx.Client, ledger: Ledger) -> None:
    define(client)
    start_run(client, {}, "order-1")
    in_doubt(ledger)
    asked = semel.ToolCall(arguments={"to": "ann"}, idempotency_key="order-1")
    send.call(asked, ledger)
    assert [item["scope"] for item in items(client, key="order-1")] == ["tool", "run"]
    assert [item["scope"] for item in items(client, key="order-1", scope="run")] == ["run"]
    assert [item["state"] for item in items(client, state="in_doubt")] == ["in_doubt"]
    assert {item["scope"] for item in items(client, state="done")} == {"tool", "run"}
    assert items(client, scope="job") == []
    assert items(client, key="unheard-of") == []


def test_what_happened_is_said_by_a_person_and_replayed(client: httpx.Client, ledger: Ledger) -> None:
    in_doubt(ledger)
    [record] = items(client, state="in_doubt")
    path = f"/api/v1/records/{record['id']}/resolve"
    body = {"outcome": "happened", "result": "sent to nobody"}
    resolved = client.post(path, json=body, headers={"X-Principal-Id": "ann"}).json()
    assert (resolved["state"], resolved["by"]) == ("done", "ann")
    with ledger.step(conversation="c", step="doubt"):
        assert send("nobody") == "sent to nobody"
    refused(client.post(path, json={"outcome": "did_not_happen"}), 409, "record_not_in_doubt")


def test_what_did_not_happen_makes_the_key_free(client: httpx.Client, ledger: Ledger) -> None:
    in_doubt(ledger)
    with ledger.step(conversation="c", step="doubt"), pytest.raises(OutcomeUnknown):
        send("nobody")
    [record] = items(client, state="in_doubt")
    client.post(f"/api/v1/records/{record['id']}/resolve", json={"outcome": "did_not_happen"})
    in_doubt(ledger)  # it ran again


def test_the_key_of_a_run_is_never_in_doubt(client: httpx.Client) -> None:
    define(client)
    start_run(client, {}, "order-1")
    [record] = items(client)
    path = f"/api/v1/records/{record['id']}/resolve"
    refused(client.post(path, json={"outcome": "happened"}), 409, "record_not_in_doubt")


def test_an_empty_or_steering_key_finds_nothing_and_breaks_nothing(client: httpx.Client) -> None:
    refused(client.get("/api/v1/records", params={"key": ""}), 400, "request_invalid")
    refused(client.get("/api/v1/records", params={"key": "a\nb"}), 400, "request_invalid")
