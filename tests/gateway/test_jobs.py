"""Jobs over HTTP: listed by what is asked for, and cancelled, by the conventions of every other route."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.gateway.conftest import define, refused, start_run
from tests.gateway.test_openapi import fits


def create(client: httpx.Client, topic: str, **more: Any) -> str:
    job_id: str = client.post("/api/v1/jobs", json={"topic": topic, "input": 1, **more}).json()["job_id"]
    return job_id


def ids(client: httpx.Client, **wanted: Any) -> list[str]:
    """The list to its end, page by page."""
    found: list[str] = []
    while True:
        page = fits("Jobs", client.get("/api/v1/jobs", params=wanted))
        found += [job["job_id"] for job in page["items"]]
        if page["next_cursor"] is None:
            return found
        wanted["cursor"] = page["next_cursor"]


def test_jobs_are_listed_by_status_topic_and_run(client: httpx.Client) -> None:
    made = [create(client, topic) for topic in ("mail", "sms", "mail")]
    define(client, "w", {"id": "a", "topic": "mail", "approval": True})
    run_id = start_run(client, name="w").json()["run_id"]
    (of_run,) = ids(client, run_id=run_id)
    everything = [of_run, *made[::-1]]
    assert ids(client) == ids(client, limit=1) == everything
    assert ids(client, topic="mail", limit=1) == [of_run, made[2], made[0]]
    assert ids(client, status="waiting") == [of_run]
    assert ids(client, status="queued", topic="sms") == [made[1]]
    shown = client.get("/api/v1/jobs", params={"limit": 1}).json()["items"]
    assert shown == [client.get(f"/api/v1/jobs/{of_run}").json()]


@pytest.mark.parametrize("query", ["status=lost", "topic=%20", "limit=0", "colour=red", "run_id="])
def test_a_list_that_cannot_be_is_refused(client: httpx.Client, query: str) -> None:
    refused(client.get(f"/api/v1/jobs?{query}"), 400, "request_invalid")


def test_a_cursor_is_good_for_its_own_filter_only(client: httpx.Client) -> None:
    for _ in range(2):
        create(client, "mail")
    cursor = client.get("/api/v1/jobs?limit=1&topic=mail").json()["next_cursor"]
    assert client.get("/api/v1/jobs", params={"topic": "mail", "cursor": cursor}).status_code == 200
    refused(client.get("/api/v1/jobs", params={"cursor": cursor}), 400, "request_invalid")


def test_a_job_is_cancelled_once_and_the_same_again_is_replayed(client: httpx.Client) -> None:
    path = f"/api/v1/jobs/{create(client, 'mail')}"
    first = client.post(f"{path}/cancel")
    assert fits("Job", first)["status"] == "cancelled"
    assert "idempotent-replayed" not in first.headers
    again = client.post(f"{path}/cancel", json={})
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    assert client.post("/api/v1/leases", json={"topics": ["mail"]}).json() == {"jobs": []}
    refused(client.post(f"{path}/cancel", json={"reason": "x"}), 400, "request_invalid")
    refused(client.post("/api/v1/jobs/job_" + "0" * 32 + "/cancel"), 404, "job_not_found")


def test_a_job_that_has_ended_is_not_cancelled(client: httpx.Client) -> None:
    job_id = create(client, "mail")
    (job,) = client.post("/api/v1/leases", json={"topics": ["mail"]}).json()["jobs"]
    ended = {"fence": job["fence"], "status": "succeeded"}
    client.post(f"/api/v1/jobs/{job_id}/result", json=ended)
    refused(client.post(f"/api/v1/jobs/{job_id}/cancel"), 409, "job_already_ended")
