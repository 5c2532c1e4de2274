"""Runs, jobs and approvals over HTTP, on every embedded store."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from semel.errors import StoreUnavailable
from semel.stores.base import Query
from semel.stores.documents import Commit
from semel.stores.memory import MemoryStore
from semel.testing import FlakyStore
from tests.gateway.conftest import Serve, Served, define, limit, refused, start_run

STEPS = ({"id": "check", "topic": "check"}, {"id": "pay", "topic": "pay", "depends_on": ["check"]})


def lease(client: httpx.Client, *topics: str, **more: Any) -> list[dict[str, Any]]:
    answer = client.post("/api/v1/leases", json={"topics": list(topics), "max": 5, "lease_s": 30, **more})
    assert answer.status_code == 200, answer.text
    jobs: list[dict[str, Any]] = answer.json()["jobs"]
    return jobs


def done(client: httpx.Client, job: dict[str, Any], result: Any = None) -> httpx.Response:
    body = {"fence": job["fence"], "status": "succeeded", "result": result}
    return client.post(f"/api/v1/jobs/{job['job_id']}/result", json=body)


# --- starting a run, row by row -------------------------------------------------------------------


def test_an_admitted_run_is_answered_with_its_id(client: httpx.Client) -> None:
    define(client)
    answer = start_run(client, {"n": 1})
    assert answer.status_code == 200
    assert answer.json().keys() == {"run_id", "workflow_id", "status"}
    assert "idempotent-replayed" not in answer.headers
    assert client.get(f"/api/v1/runs/{answer.json()['run_id']}").json()["input"] == {"n": 1}


def test_the_same_key_and_payload_get_the_same_bytes_whatever_happened_since(client: httpx.Client) -> None:
    define(client)
    first = start_run(client, {"a": 1, "b": [1.0]}, "order-1")
    run = f"/api/v1/runs/{first.json()['run_id']}"
    limit(client, 1)
    for happens in (
        lambda: None,
        lambda: client.post(f"{run}/complete", json={"status": "succeeded"}),
        lambda: start_run(client),  # the only slot is taken by somebody else
        lambda: define(client, "hello", input_schema={"required": ["c"]}),
        lambda: client.delete("/api/v1/workflows/hello"),
    ):
        happens()
        again = client.post(
            "/api/v1/workflows/hello/runs",
            content=b'{"b":[1], "a":1}',
            headers={"Idempotency-Key": "order-1"},
        )
        assert (again.status_code, again.content) == (200, first.content)
        assert again.headers["idempotent-replayed"] == "true"


def test_the_same_key_with_another_payload_or_workflow_is_refused(client: httpx.Client) -> None:
    define(client)
    define(client, "other")
    start_run(client, {"n": 1}, "order-1")
    refused(start_run(client, {"n": 2}, "order-1"), 422, "idempotency_key_reused")
    refused(start_run(client, {"n": 1}, "order-1", "other"), 422, "idempotency_key_reused")


def test_the_same_key_in_another_tenant_is_unrelated(shared: dict[str, Served]) -> None:
    for served in shared.values():
        acme, umbra = served.client(X_Tenant_ID="acme"), served.client(X_Tenant_ID="umbra")
        define(acme)
        define(umbra)
        first, other = start_run(acme, {"n": 1}, "order-1"), start_run(umbra, {"n": 2}, "order-1")
        assert other.status_code == 200
        assert first.json()["run_id"] != other.json()["run_id"]


def test_without_a_slot_nothing_is_kept_and_the_same_key_works_once_one_is_free(client: httpx.Client) -> None:
    define(client)
    limit(client, 1)
    running = start_run(client).json()["run_id"]
    answer = start_run(client, {"n": 1}, "order-1")
    problem = refused(answer, 429, "max_concurrent_runs_reached")
    assert (problem["current"], problem["limit"], problem["scope"]) == (1, 1, "tenant")
    assert int(answer.headers["retry-after"]) >= 1
    assert client.post(f"/api/v1/runs/{running}/cancel").status_code == 200
    again = start_run(client, {"n": 1}, "order-1")
    assert again.status_code == 200
    assert "idempotent-replayed" not in again.headers


def test_an_unknown_workflow_and_a_wrong_input_start_nothing_and_spend_no_key(client: httpx.Client) -> None:
    refused(start_run(client, {"n": "x"}, "order-1"), 404, "workflow_not_found")
    define(client, input_schema={"properties": {"n": {"type": "integer"}}})
    refused(start_run(client, {"n": "x"}, "order-1"), 400, "input_invalid")
    assert start_run(client, {"n": 1}, "order-1").status_code == 200


@pytest.mark.parametrize("strategy", ["atomic", "lock"])
def test_ten_starts_at_once_with_two_slots_admit_two(serve: Serve, strategy: str) -> None:
    served = serve(dev=True, admission=strategy)
    client = served.client(X_Tenant_ID="acme")
    define(client)
    limit(client, 2)
    statuses: list[int] = []
    clients = [served.client(X_Tenant_ID="acme") for _ in range(10)]
    threads = [
        threading.Thread(target=lambda c=c: statuses.append(start_run(c).status_code)) for c in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * 2 + [429] * 8


class Stubborn(FlakyStore):
    """A store that takes everything, but gives no reservation back while it is stubborn."""

    stubborn = False
    refusals = 0

    async def aask(self, query: Query[Any]) -> Any:
        if self.stubborn and isinstance(query, Commit) and any(id_.startswith("rec_") for id_ in query.drop):
            self.refusals += 1
            raise StoreUnavailable
        return await super().aask(query)


def test_a_reservation_that_cannot_be_taken_back_is_counted_and_goes_later(serve: Serve) -> None:
    store = Stubborn(MemoryStore())
    client = serve(store, dev=True, admission="lock").client(X_Tenant_ID="acme")
    define(client)
    limit(client, 1)
    run_id = start_run(client).json()["run_id"]
    store.stubborn = True
    refused(start_run(client, {}, "order-1"), 429, "max_concurrent_runs_reached")
    refused(start_run(client, {}, "order-1"), 409, "idempotency_in_flight")
    while store.refusals < 3:  # tries in the background go on, and are no further reservations
        client.get("/healthz")
    counted = 'semel_idempotency_cleanup_failures_total{context="limit_reached"} 1.0'
    assert counted in client.get("/metrics").text
    store.stubborn = False
    client.post(f"/api/v1/runs/{run_id}/cancel")
    answer = start_run(client, {}, "order-1")
    while answer.status_code == 409:  # until the cleanup in the background has had its turn
        answer = start_run(client, {}, "order-1")
    assert answer.status_code == 200


# --- runs -----------------------------------------------------------------------------------------


def test_a_run_without_steps_ends_when_it_is_told_to(client: httpx.Client) -> None:
    define(client)
    run = f"/api/v1/runs/{start_run(client).json()['run_id']}"
    ended = client.post(f"{run}/complete", json={"status": "succeeded", "result": {"paid": True}})
    assert (ended.json()["status"], ended.json()["result"]) == ("succeeded", {"paid": True})
    again = client.post(f"{run}/complete", json={"status": "succeeded", "result": {"paid": True}})
    assert again.headers["idempotent-replayed"] == "true"
    refused(client.post(f"{run}/complete", json={"status": "failed"}), 409, "run_already_ended")
    other = client.post(f"{run}/complete", json={"status": "succeeded", "result": {"paid": False}})
    refused(other, 409, "run_already_ended")
    refused(client.post(f"{run}/cancel"), 409, "run_already_ended")


def test_a_list_does_not_say_that_a_run_with_steps_had_no_results(client: httpx.Client) -> None:
    define(client, "hello", {"id": "pay", "topic": "pay"})
    run_id = start_run(client).json()["run_id"]
    (job,) = lease(client, "pay")
    done(client, job, {"paid": True})
    assert client.get(f"/api/v1/runs/{run_id}").json()["result"] == {"pay": {"paid": True}}
    (listed,) = client.get("/api/v1/runs").json()["items"]
    assert (listed["status"], listed["result"]) == ("succeeded", None)


def test_a_run_is_completed_again_with_the_same_json_value_alone(client: httpx.Client) -> None:
    """To Python `true` equals 1; to whoever reads the result it does not."""
    define(client)
    run = f"/api/v1/runs/{start_run(client).json()['run_id']}"
    client.post(f"{run}/complete", json={"status": "succeeded", "result": [1]})
    again = client.post(f"{run}/complete", json={"status": "succeeded", "result": [1.0]})
    assert again.headers["idempotent-replayed"] == "true"
    other = client.post(f"{run}/complete", json={"status": "succeeded", "result": [True]})
    refused(other, 409, "run_already_ended")


def test_a_run_with_steps_ends_with_its_last_job(client: httpx.Client) -> None:
    define(client, "hello", *STEPS)
    run = f"/api/v1/runs/{start_run(client, {'n': 1}).json()['run_id']}"
    refused(client.post(f"{run}/complete", json={"status": "succeeded"}), 409, "run_has_steps")
    refused(client.post(f"{run}/rerun", json={"from_step": "pay"}), 409, "run_not_ended")
    for topic in ("check", "pay"):
        [job] = lease(client, topic)
        assert (job["input"], job["attempt"]) == ({"n": 1}, 1)
        assert done(client, job, topic).json()["status"] == "succeeded"
    assert client.get(run).json()["status"] == "succeeded"
    timeline = client.get(f"{run}/timeline").json()["items"]
    assert [event["seq"] for event in timeline] == list(range(1, len(timeline) + 1))
    rest = client.get(f"{run}/timeline", params={"limit": 1}).json()
    assert rest["items"] == timeline[:1]
    assert (
        client.get(f"{run}/timeline", params={"cursor": rest["next_cursor"]}).json()["items"] == timeline[1:]
    )


def test_a_rerun_is_a_new_run_and_its_key_has_a_scope_of_its_own(client: httpx.Client) -> None:
    define(client, "hello", *STEPS)
    first = start_run(client, {}, "order-1").json()["run_id"]
    client.post(f"/api/v1/runs/{first}/cancel")
    path, body, key = f"/api/v1/runs/{first}/rerun", {"from_step": "check"}, {"Idempotency-Key": "order-1"}
    again = client.post(path, json=body, headers=key)
    assert client.get(f"/api/v1/runs/{again.json()['run_id']}").json()["rerun_of"] == first
    assert client.post(path, json=body, headers=key).content == again.content
    refused(client.post(path, json={"from_step": "pay"}, headers=key), 422, "idempotency_key_reused")


def test_runs_are_listed_by_workflow_and_status(client: httpx.Client) -> None:
    define(client)
    define(client, "other")
    first, second = (start_run(client, name=name).json()["run_id"] for name in ("hello", "other"))
    client.post(f"/api/v1/runs/{first}/cancel")

    def ids(**filters: str) -> list[str]:
        return [run["run_id"] for run in client.get("/api/v1/runs", params=filters).json()["items"]]

    assert ids() == [second, first]
    assert ids(workflow_id="hello") == ids(status="cancelled") == [first]
    assert ids(workflow_id="other", status="cancelled") == []


def test_a_workflow_is_read_as_it_was_written_and_gone_once_deleted(client: httpx.Client) -> None:
    define(client, "hello", *STEPS, max_concurrent_runs=3)
    shown = client.get("/api/v1/workflows/hello").json()
    assert [step["id"] for step in shown["steps"]] == ["check", "pay"]
    assert client.get("/api/v1/workflows").json()["items"] == [shown]
    assert client.delete("/api/v1/workflows/hello").json() == {"workflow_id": "hello", "deleted": True}
    refused(client.delete("/api/v1/workflows/hello"), 404, "workflow_not_found")


# --- jobs and leases ------------------------------------------------------------------------------


def test_a_job_of_its_own_is_created_once_for_its_key(client: httpx.Client) -> None:
    body, key = {"topic": "mail", "input": {"to": "ann"}, "labels": {"team": "a"}}, {"Idempotency-Key": "m-1"}
    first = client.post("/api/v1/jobs", json=body, headers=key)
    assert first.json()["labels"] == {"team": "a"}
    again = client.post("/api/v1/jobs", json=body, headers=key)
    assert again.content == first.content
    assert again.headers["idempotent-replayed"] == "true"
    refused(client.post("/api/v1/jobs", json=body | {"input": 2}, headers=key), 422, "idempotency_key_reused")
    assert len(lease(client, "mail")) == 1


def test_a_stale_fence_is_told_so_and_the_same_result_again_is_replayed(client: httpx.Client) -> None:
    client.post("/api/v1/jobs", json={"topic": "mail", "input": 1})
    [job] = lease(client, "mail")
    path = f"/api/v1/jobs/{job['job_id']}"
    renewed = client.post(f"{path}/heartbeat", json={"fence": job["fence"], "lease_s": 60})
    assert renewed.json()["lease_expires_at"] > job["lease_expires_at"]
    stale = {"fence": job["fence"] - 1}
    refused(client.post(f"{path}/heartbeat", json=stale), 409, "ownership_lost")
    refused(client.post(f"{path}/result", json=stale | {"status": "succeeded"}), 409, "ownership_lost")
    assert "idempotent-replayed" not in done(client, job).headers
    assert done(client, job).headers["idempotent-replayed"] == "true"


def test_a_failure_says_why(client: httpx.Client) -> None:
    client.post("/api/v1/jobs", json={"topic": "mail", "input": 1})
    [job] = lease(client, "mail")
    error = {"code": "refused", "message": "no such box", "retriable": False}
    body = {"fence": job["fence"], "status": "failed", "error": error}
    answer = client.post(f"/api/v1/jobs/{job['job_id']}/result", json=body)
    assert (answer.json()["status"], answer.json()["error"]) == ("failed", error)


def test_a_worker_that_waits_gets_the_job_when_it_comes(shared: dict[str, Served]) -> None:
    for served in shared.values():
        tenant = {"X_Tenant_ID": f"waits-{id(served)}"}
        waiting, other = served.client(**tenant), served.client(**tenant)
        found: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: found.extend(lease(waiting, "mail", wait_s=30)))  # noqa: B023
        thread.start()
        other.post("/api/v1/jobs", json={"topic": "mail", "input": 1})
        thread.join()
        assert [job["input"] for job in found] == [1]


# --- approvals ------------------------------------------------------------------------------------


def ask(client: httpx.Client, **terms: Any) -> str:
    body = {"topic": "pay", "input": {"amount": 5}, "approval": terms or True}
    job_id: str = client.post("/api/v1/jobs", json=body).json()["job_id"]
    return job_id


BOSS = {"X-Principal-Id": "boss"}


@pytest.mark.parametrize(("verb", "status"), [("approve", "approved"), ("reject", "rejected")])
def test_a_decision_is_taken_once_and_replayed_ever_after(
    client: httpx.Client, verb: str, status: str
) -> None:
    job_id = ask(client)
    path = f"/api/v1/approvals/{job_id}"
    assert lease(client, "pay") == []
    seen = client.get(path).json()
    body = {"reason": "fine", "revision": seen["revision"], "job_hash": seen["job_hash"]}
    first = client.post(f"{path}/{verb}", json=body, headers=BOSS)
    assert first.json()["status"] == status
    assert first.json()[f"{status}_by"] == "boss"
    again = client.post(f"{path}/{verb}", json=body, headers={"X-Principal-Id": "other-boss"})
    assert again.json() == first.json() | {"status": f"already_{status}"}
    assert again.headers["idempotent-replayed"] == "true"
    other = {"approve": "reject", "reject": "approve"}[verb]
    refused(client.post(f"{path}/{other}", headers=BOSS), 409, "approval_already_resolved")
    assert len(lease(client, "pay")) == (status == "approved")
    assert client.get("/api/v1/jobs/" + job_id).json()["bus_msg_id"] == f"approval:{job_id}"


def test_what_cannot_be_decided_is_told_why(client: httpx.Client) -> None:
    job_id = ask(client)
    path = f"/api/v1/approvals/{job_id}/approve"
    refused(client.post(path), 403, "self_approval_denied")
    refused(client.post(path, json={"revision": 7}, headers=BOSS), 409, "approval_stale_request")
    refused(client.post(path, json={"job_hash": "00"}, headers=BOSS), 409, "approval_stale_request")
    free = client.post("/api/v1/jobs", json={"topic": "t", "input": 1}).json()["job_id"]
    refused(client.post(f"/api/v1/approvals/{free}/approve", headers=BOSS), 409, "approval_not_actionable")
    unknown = f"/api/v1/approvals/job_{'0' * 32}/approve"
    refused(client.post(unknown, headers=BOSS), 404, "job_not_found")


def test_open_questions_are_listed_by_status(client: httpx.Client) -> None:
    first, second = ask(client), ask(client)
    client.post(f"/api/v1/approvals/{first}/reject", headers=BOSS)

    def ids(status: str) -> list[str]:
        found = client.get("/api/v1/approvals", params={"status": status}).json()
        return [item["job_id"] for item in found["items"]]

    assert (ids("waiting"), ids("rejected")) == ([second], [first])
