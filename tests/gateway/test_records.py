"""Records over HTTP: those of tools, and the keys of runs and jobs, as one list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import semel
from semel.errors import ApprovalRequired, OutcomeUnknown
from semel.ledger.ledger import Ledger
from semel.stores.base import Store
from tests.gateway.conftest import Serve, define, refused, start_run
from tests.gateway.test_openapi import fits


@semel.tool_contract(class_="write-non-idempotent")
def send(to: str) -> str:
    if to == "nobody":
        raise TimeoutError
    return f"sent to {to}"


@semel.tool_contract(class_="write-non-idempotent")
def measure(what: str) -> list[float | int]:
    return [float("nan"), 1 << 80]


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


def whole(client: httpx.Client, **filters: Any) -> list[dict[str, Any]]:
    """The list to its end, page by page."""
    found: list[dict[str, Any]] = []
    while True:
        page = client.get("/api/v1/records", params=filters).json()
        found += page["items"]
        if page["next_cursor"] is None:
            return found
        filters["cursor"] = page["next_cursor"]


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
        shown = client.get(f"/api/v1/records/{item['id']}").json()
        assert shown.items() >= item.items()
        assert shown.keys() - item.keys() == {"explanation", "history"}
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


def test_a_result_that_the_tool_never_returns_is_refused(client: httpx.Client, ledger: Ledger) -> None:
    in_doubt(ledger)
    ledger.sightings.merge()
    [record] = items(client, state="in_doubt")
    path = f"/api/v1/records/{record['id']}"
    wanted = client.get(path).json()["explanation"]["result"]
    assert wanted == {"schema": {"type": "string"}, "template": "<string>"}
    for body in ({"outcome": "happened", "result": 5}, {"outcome": "happened", "result": None}):
        refused(client.post(f"{path}/resolve", json=body), 400, "input_invalid")
    contradiction = {"outcome": "did_not_happen", "result": "sent"}
    refused(client.post(f"{path}/resolve", json=contradiction), 400, "request_invalid")
    assert [item["state"] for item in items(client)] == ["in_doubt"]
    answer = client.post(f"{path}/resolve", json={"outcome": "happened", "result": "sent"})
    assert answer.json()["result_checked"] is True


def test_what_a_person_said_is_amended_and_replayed(client: httpx.Client, ledger: Ledger) -> None:
    in_doubt(ledger)
    ledger.sightings.merge()
    [record] = items(client, state="in_doubt")
    path = f"/api/v1/records/{record['id']}"
    refused(client.post(f"{path}/amend", json={"result": "sent"}), 409, "record_not_in_doubt")
    client.post(f"{path}/resolve", json={"outcome": "happened"}, headers={"X-Principal-Id": "ann"})
    refused(client.post(f"{path}/amend", json={"result": 5}), 400, "input_invalid")
    refused(client.post(f"{path}/amend", json={}), 400, "request_invalid")
    for text in ("first", "second"):
        ben = {"X-Principal-Id": "ben"}
        amended = client.post(f"{path}/amend", json={"result": text}, headers=ben)
        assert (amended.json()["outcome"], amended.json()["by"]) == (text, "ben")
        assert "idempotent-replayed" not in amended.headers
        with ledger.step(conversation="c", step="doubt"):
            assert send("nobody") == text
    again = client.post(f"{path}/amend", json={"result": "second"}, headers={"X-Principal-Id": "cat"})
    assert (again.headers["idempotent-replayed"], again.json()["by"]) == ("true", "ben")
    history = fits("ExplainedRecord", client.get(path))["history"]
    changes = [(line["type"], line["by"]) for line in history if line["type"] != "dedup_hit"]
    assert changes[2:] == [("resolved", "ann"), ("amended", "ben"), ("amended", "ben")]


def test_what_a_tool_settled_a_key_and_a_question_are_not_amended(
    client: httpx.Client, ledger: Ledger
) -> None:
    define(client)
    start_run(client, {}, "order-1")
    client.post("/api/v1/jobs", json={"topic": "t", "input": 1, "approval": True})
    with ledger.step(conversation="c", step="1"):
        send("ann")
    for record in items(client):
        answer = client.post(f"/api/v1/records/{record['id']}/amend", json={"result": "x"})
        refused(answer, 409, "record_not_in_doubt")
    nothing = client.post("/api/v1/records/rec_" + "0" * 32 + "/amend", json={"result": "x"})
    refused(nothing, 404, "record_not_found")


def test_the_catalogue_shows_what_the_tenants_ledgers_have_run(client: httpx.Client, ledger: Ledger) -> None:
    tools: tuple[semel.GuardedTool[[str], Any], ...] = (send, measure)
    for number, tool in enumerate(tools):
        with ledger.step(conversation="c", step=str(number)):
            tool("ann")
        ledger.sightings.merge()
    listed = fits("Tools", client.get("/api/v1/tools"))
    assert [tool["name"] for tool in listed["items"]] == ["measure", "send"]
    page = client.get("/api/v1/tools", params={"limit": 1}).json()
    rest = client.get("/api/v1/tools", params={"limit": 1, "cursor": page["next_cursor"]}).json()
    assert page["items"] + rest["items"] == listed["items"]
    shown = fits("Tool", client.get("/api/v1/tools/send"))
    assert shown == listed["items"][1]
    assert shown.items() >= send.contract.describe().items()
    assert client.get("/api/v1/tools/send", params={"version": "1"}).json() == shown
    for path in ("/api/v1/tools/other", "/api/v1/tools/send?version=2", "/api/v1/tools/%20"):
        refused(client.get(path), 404, "tool_not_found")
    other = client.get("/api/v1/tools", headers={"X-Tenant-ID": "globex"}).json()
    assert other["items"] == []


def test_the_key_of_a_run_is_never_in_doubt(client: httpx.Client) -> None:
    define(client)
    start_run(client, {}, "order-1")
    [record] = items(client)
    path = f"/api/v1/records/{record['id']}/resolve"
    refused(client.post(path, json={"outcome": "happened"}), 409, "record_not_in_doubt")


def test_an_empty_or_steering_key_finds_nothing_and_breaks_nothing(client: httpx.Client) -> None:
    refused(client.get("/api/v1/records", params={"key": ""}), 400, "request_invalid")
    refused(client.get("/api/v1/records", params={"key": "a\nb"}), 400, "request_invalid")


def test_a_record_of_a_tool_in_doubt_and_the_log_of_it_are_as_described(
    client: httpx.Client, ledger: Ledger
) -> None:
    in_doubt(ledger)
    with ledger.step(conversation="c", step="again"), pytest.raises(TimeoutError):
        send("nobody")
    [record, _] = items(client, state="in_doubt")
    shown = fits("ExplainedRecord", client.get(f"/api/v1/records/{record['id']}"))
    assert shown["explanation"].keys() == {
        "known", "attempt", "promised", "choices", "since", "question", "result",
    }  # fmt: skip
    assert [event["type"] for event in shown["history"]] == ["claimed", "parked"]
    assert fits("Events", client.get("/api/v1/audit"))["items"]
    assert fits("Duplicates", client.get("/api/v1/audit/duplicates"))["duplicates"] == 1
    assert fits("Records", client.get("/api/v1/records", params={"tool": "send"}))["items"]
    assert items(client, tool="other") == []


def test_a_result_that_json_hardly_carries_is_shown(client: httpx.Client, ledger: Ledger) -> None:
    with ledger.step(conversation="c", step="odd"):
        measure("x")
    [record] = items(client)
    assert record["outcome"] == ["NaN", 1 << 80]


@semel.tool_contract(class_="irreversible", approval="required")
def close(account: str) -> str:
    return f"closed {account}"


def test_questions_to_people_are_records_with_their_history(client: httpx.Client, ledger: Ledger) -> None:
    with ledger.step(conversation="c", step="close"), pytest.raises(ApprovalRequired) as asked:
        close("a")
    gated = client.post("/api/v1/jobs", json={"topic": "t", "input": 1, "approval": True}).json()["job_id"]
    of_call = str(asked.value.details["job_id"])
    # The clocks of gateway and ledger are near enough, not one: which of the two is the newer one is open.
    found = sorted(items(client, scope="approval"), key=lambda item: item["key"] == of_call)
    assert [(item["key"], item["state"], item["tool"]) for item in found] == [
        (gated, "pending", "t"), (of_call, "pending", "close"),
    ]  # fmt: skip
    assert items(client, key=of_call) == found[1:]
    assert [item["job_id"] for item in items(client, tool="close")] == [of_call, of_call]
    client.post(f"/api/v1/approvals/{of_call}/approve", headers={"X-Principal-Id": "ann"})
    assert [item["key"] for item in items(client, scope="approval", state="done")] == [of_call]
    shown = client.get(f"/api/v1/records/{found[1]['id']}").json()
    assert (shown["state"], shown["by"], shown["status"]) == ("done", "ann", "approved")
    assert [line["type"] for line in shown["history"]] == ["waiting", "approved"]
    assert "ann" in shown["explanation"]["known"]


def _gated(client: httpx.Client, count: int) -> list[str]:
    asked = {"topic": "t", "input": 1, "approval": True}
    return [client.post("/api/v1/jobs", json=asked).json()["job_id"] for _ in range(count)]


def test_open_questions_are_found_behind_any_number_of_decided_ones(client: httpx.Client) -> None:
    ann = {"X-Principal-Id": "ann"}
    open_, decided = _gated(client, 3), _gated(client, 5)
    for job_id in decided:
        client.post(f"/api/v1/approvals/{job_id}/approve", headers=ann)
    for filters in ({"state": "pending"}, {"state": "pending", "tool": "t"}):
        found = whole(client, limit=2, **filters)
        assert [item["job_id"] for item in found] == open_[::-1]
    _gated(client, 2)
    assert [item["job_id"] for item in whole(client, limit=1, state="done")] == decided[::-1]
    assert whole(client, limit=1, state="in_doubt") == []


def test_a_question_that_nobody_answered_is_explained_so(client: httpx.Client) -> None:
    define(client, "w", {"id": "g", "topic": "t", "approval": True})
    run_id = start_run(client, name="w").json()["run_id"]
    client.post(f"/api/v1/runs/{run_id}/cancel", headers={"X-Principal-Id": "ben"})
    (question,) = items(client, scope="approval")
    shown = client.get(f"/api/v1/records/{question['id']}").json()
    assert (shown["status"], shown["explanation"]["choices"]) == ("cancelled", [])
    assert shown["explanation"]["known"] == (
        f"Cancelled at {shown['settled_at']} before anybody decided; nobody can any more."
    )
    assert [(line["type"], line["by"]) for line in shown["history"]] == [
        ("waiting", "dev"),
        ("cancelled", "ben"),
    ]


def test_a_question_is_never_in_doubt(client: httpx.Client) -> None:
    client.post("/api/v1/jobs", json={"topic": "t", "input": 1, "approval": True})
    (found,) = items(client, scope="approval")
    answer = client.post(f"/api/v1/records/{found['id']}/resolve", json={"outcome": "happened"})
    refused(answer, 409, "record_not_in_doubt")


def test_pages_of_records_of_every_kind_show_each_once(client: httpx.Client, ledger: Ledger) -> None:
    define(client)
    for number in range(3):
        with ledger.step(conversation="c", step=str(number)):
            send("ann")
        start_run(client, {}, f"order-{number}")
        client.post("/api/v1/jobs", json={"topic": "t", "input": number, "approval": True})
    expected = items(client)
    assert len(expected) == 9
    assert whole(client, limit=2) == expected
