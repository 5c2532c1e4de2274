"""A cursor goes on with the list it came from, and with no other."""

from __future__ import annotations

import httpx
import pytest

from semel.flow.problems import Refused
from semel.gateway.cursors import Cursors
from tests.gateway.conftest import define, limit, refused, start_run

PLACE = (1_700_000_000_000_000, "run_1")


def test_a_cursor_leads_back_to_its_place() -> None:
    cursors = Cursors(b"k" * 32)
    assert cursors.read(cursors.write(PLACE, "acme", "list_runs", "{}"), "acme", "list_runs", "{}") == PLACE


@pytest.mark.parametrize(
    "bound", [("umbra", "runs", "{}"), ("acme", "jobs", "{}"), ("acme", "runs", "[]"), ("acmeruns", "{}")]
)
def test_a_cursor_of_another_tenant_list_or_filter_is_refused(bound: tuple[str, ...]) -> None:
    cursors = Cursors(b"k" * 32)
    with pytest.raises(Refused):
        cursors.read(cursors.write(PLACE, "acme", "runs", "{}"), *bound)


def test_every_changed_character_of_a_cursor_is_noticed() -> None:
    cursors = Cursors(b"k" * 32)
    cursor = cursors.write(PLACE, "acme")
    for index, character in enumerate(cursor[:-1]):  # the last one has bits that mean nothing
        with pytest.raises(Refused):
            cursors.read(cursor[:index] + ("A" if character != "A" else "B") + cursor[index + 1 :], "acme")


@pytest.mark.parametrize("cursor", ["", "x", "....", "ü", "AAAA" * 20])
def test_what_never_was_a_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(Refused):
        Cursors(b"k" * 32).read(cursor, "acme")


def test_gateways_on_one_store_accept_each_others_cursors_and_those_of_another_store_are_foreign() -> None:
    cursor = Cursors(b"k" * 32).write(PLACE, "acme")
    assert Cursors(b"k" * 32).read(cursor, "acme") == PLACE
    with pytest.raises(Refused):
        Cursors(b"j" * 32).read(cursor, "acme")


def test_pages_are_the_whole_list_newest_first_without_gaps_or_repeats(client: httpx.Client) -> None:
    define(client)
    limit(client, 100)
    started = [start_run(client).json()["run_id"] for _ in range(7)]
    seen: list[str] = []
    cursor = None
    while True:
        page = client.get("/api/v1/runs", params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        seen += [run["run_id"] for run in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == started[::-1]


def test_a_cursor_does_not_cross_to_another_filter_list_or_tenant(client: httpx.Client) -> None:
    define(client)
    start_run(client)
    cursor = client.get("/api/v1/runs", params={"limit": 1}).json()["next_cursor"]
    for path, headers in [
        ("/api/v1/runs?status=running&cursor=", {}),
        ("/api/v1/runs?workflow_id=hello&cursor=", {}),
        ("/api/v1/workflows?cursor=", {}),
        ("/api/v1/runs?cursor=", {"X-Tenant-ID": "umbra"}),
        ("/api/v1/runs?cursor=x", {}),
    ]:
        refused(client.get(path + cursor, headers=headers), 400, "request_invalid")
    assert client.get(f"/api/v1/runs?limit=7&cursor={cursor}").json()["items"] == []
