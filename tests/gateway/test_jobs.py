"""Jobs over HTTP: listed by what is asked for, and cancelled, by the conventions of every other route."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.gateway.conftest import define, refused, start_run
from tests.gateway.test_openapi import fits


def create(desk: httpx.Client, topic: str, **more: Any) -> str:
    job_id: str = desk.post("/api/v1/jobs", json={"topic": topic, "input": 1, **more}).json()["job_id"]
    return job_id


def ids(desk: httpx.Client, **wanted: Any) -> list[str]:
    """The list to its end, page by page."""
    found: list[str] = []
    while True:
        page = fits("Jobs", desk.get("/api/v1/jobs", params=wanted))
        found += [job["job_id"] for job in page["items"]]
        if page["next_cursor"] is None:
            return found
        wanted["cursor"] = page["next_cursor"]


def test_jobs_are_listed_by_status_topic_and_run(desk: httpx.Client) -> None:
    made = [create(desk, topic) for topic in ("mail", "sms", "mail")]
    define(desk, "w", {"id": "a", "topic": "mail", "approval": True})
    run_id = start_run(desk, name="w").json()["run_id"]
    (of_run,) = ids(desk, run_id=run_id)
    everything = [of_run, *made[::-1]]
    assert ids(desk) == ids(desk, limit=1) == everything
    assert ids(desk, topic="mail", limit=1) == [of_run, made[2], made[0]]
    assert ids(desk, status="waiting") == [of_run]
    assert ids(desk, status="queued", topic="sms") == [made[1]]
    shown = desk.get("/api/v1/jobs", params={"limit": 1}).json()["items"]
    assert shown == [desk.get(f"/api/v1/jobs/{of_run}").json()]


@pytest.mark.parametrize("query", ["status=lost", "topic=%20", "limit=0", "colour=red", "run_id="])
def test_a_list_that_cannot_be_is_refused(desk: httpx.Client, query: str) -> None:
    refused(desk.get(f"/api/v1/jobs?{query}"), 400, "request_invalid")


def test_a_cursor_is_good_for_its_own_filter_only(desk: httpx.Client) -> None:
    for _ in range(2):
        create(desk, "mail")
    cursor = desk.get("/api/v1/jobs?limit=1&topic=mail").json()["next_cursor"]
    assert desk.get("/api/v1/jobs", params={"topic": "mail", "cursor": cursor}).status_code == 200
    refused(desk.get("/api/v1/jobs", params={"cursor": cursor}), 400, "request_invalid")


def test_a_job_is_cancelled_once_and_the_same_again_is_replayed(desk: httpx.Client) -> None:
    path = f"/api/v1/jobs/{create(desk, 'mail')}"
    first = desk.post(f"{path}/cancel")
    assert fits("Job", first)["status"] == "cancelled"
    assert "idempotent-replayed" not in first.headers
    again = desk.post(f"{path}/cancel", json={})
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    assert desk.post("/api/v1/leases", json={"topics": ["mail"]}).json() == {"jobs": []}
    refused(desk.post(f"{path}/cancel", json={"reason": "x"}), 400, "request_invalid")
    refused(desk.post("/api/v1/jobs/job_" + "0" * 32 + "/cancel"), 404, "job_not_found")


def test_a_job_that_has_ended_is_not_cancelled(desk: httpx.Client) -> None:
    job_id = create(desk, "mail")
    (job,) = desk.post("/api/v1/leases", json={"topics": ["mail"]}).json()["jobs"]
    ended = {"fence": job["fence"], "status": "succeeded"}
    desk.post(f"/api/v1/jobs/{job_id}/result", json=ended)
    refused(desk.post(f"/api/v1/jobs/{job_id}/cancel"), 409, "job_already_ended")
