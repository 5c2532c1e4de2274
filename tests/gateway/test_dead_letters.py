"""Messages that were put aside, over HTTP: read, and sent again once."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from semel.flow.dead_letters import letter
from semel.flow.document_store import DocumentStore
from semel.flow.model import Message
from semel.kernel.clock import SYSTEM
from tests.gateway.conftest import Serve, Served, refused

ADDRESS = "/api/v1/dead-letters"


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve(dev=True)


@pytest.fixture
def client(served: Served) -> httpx.Client:
    return served.client(X_Tenant_ID="acme")


def put_aside(served: Served, number: int) -> str:
    """Just now, so that the gateway keeps it; the higher the number, the later."""
    at_us = SYSTEM.now_us() + number
    message = Message(f"acme:job_{number}:queued", "acme", "job.queued", at_us, topic="pay", job_id="job_1")
    found = letter("mailer", message, 5, "SMTP said no", at_us)
    document_store = DocumentStore(served.services.store)
    asyncio.run(document_store.commit("acme", {found.id: None}, (found.draft(),)))
    return found.id


def retry(client: httpx.Client, id_: str, key: str | None = None) -> httpx.Response:
    return client.post(f"{ADDRESS}/{id_}/retry", headers={"Idempotency-Key": key} if key else {})


def test_they_are_listed_newest_first_and_read_one_by_one(served: Served, client: httpx.Client) -> None:
    first, second = put_aside(served, 1), put_aside(served, 2)
    page: dict[str, Any] = client.get(ADDRESS, params={"limit": 1}).json()
    assert [item["id"] for item in page["items"]] == [second]
    rest = client.get(ADDRESS, params={"limit": 1, "cursor": page["next_cursor"]}).json()
    assert [item["id"] for item in rest["items"]] == [first]
    shown = client.get(f"{ADDRESS}/{first}").json()
    assert (shown["consumer"], shown["deliveries"], shown["error"]) == ("mailer", 5, "SMTP said no")


def test_a_letter_is_sent_again_once_and_the_same_key_reads_that(
    served: Served, client: httpx.Client
) -> None:
    id_ = put_aside(served, 1)
    answers = [retry(client, id_, "k-1"), retry(client, id_, "k-1")]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content
    assert [answer.headers.get("idempotent-replayed") for answer in answers] == [None, "true"]
    refused(retry(client, id_, "k-2"), 409, "message_already_retried")
    refused(retry(client, id_), 409, "message_already_retried")


def test_another_tenants_letter_is_as_unknown_as_none(served: Served, client: httpx.Client) -> None:
    id_ = put_aside(served, 1)
    other = served.client(X_Tenant_ID="other")
    refused(other.get(f"{ADDRESS}/{id_}"), 404, "message_not_found")
    refused(retry(other, id_), 404, "message_not_found")
    assert other.get(ADDRESS).json() == {"items": [], "next_cursor": None}
    assert client.get(f"{ADDRESS}/{id_}").json()["retried_at"] is None
