"""The audit log goes out whole: oldest first, page by page, of one tenant, on every kind of store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from semel.audit.backwards import LOOKED_AT, part_before
from semel.audit.events import Event
from semel.audit.export import BEGINNING, LogPosition, exported_lines, part
from semel.cli import main
from semel.kernel.answers import EventJson
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address
from semel.stores.base import AppendEvents, ReadEvents, Store
from semel.stores.memory import MemoryStore
from semel.testing import WrappedStore
from tests.commands import A, claim, settle
from tests.gateway.conftest import Serve, refused
from tests.stores import BY_NAME, KINDS, Kind


def place(number: int, tenant: str = "acme") -> Address:
    return Address(tenant, "tool", f"{number:064x}")


def fill(store: Store, calls: int, tenant: str = "acme") -> None:
    """So many settled calls: two events each."""
    for number in range(calls):
        store.perform(claim(A, place(number, tenant)))
        store.perform(settle(A, place(number, tenant)))


@pytest.fixture(params=[*KINDS, BY_NAME["redis-spread"]], ids=lambda kind: kind.name)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    kind: Kind = request.param
    store = kind.open(tmp_path, SYSTEM, True)
    yield store
    store.close()


def in_parts(store: Store, tenant: str | None, limit: int) -> list[EventJson]:
    found: list[EventJson] = []
    after: LogPosition | None = BEGINNING
    while after is not None:
        lines, after = part(store, tenant, after, limit)
        assert len(lines) <= limit
        found += lines
    return found


def test_every_event_is_there_once_in_the_order_of_its_lane(anywhere: Store) -> None:
    fill(anywhere, 30)
    fill(anywhere, 5, "umbra")
    lines = list(exported_lines(anywhere, "acme"))
    assert len(lines) == 60
    assert [(line["lane"], line["seq"]) for line in lines] == sorted(
        {(line["lane"], line["seq"]) for line in lines}
    )
    assert {line["tenant"] for line in lines} == {"acme"}
    assert sum(line["type"] == "settled" for line in lines) == 30
    for limit in (1, 7, 60, 61):
        assert in_parts(anywhere, "acme", limit) == lines
    everyone = list(exported_lines(anywhere, None))
    assert len(everyone) == 70
    assert [line for line in everyone if line["tenant"] == "acme"] == lines


def test_a_line_tells_what_the_event_tells_and_stands_for_what_it_must_not_tell(anywhere: Store) -> None:
    fill(anywhere, 1)
    first, second = exported_lines(anywhere, "acme")
    [event] = [
        event for lane in range(anywhere.lanes) for event in anywhere.ask(ReadEvents(limit=1, lane=lane))
    ]
    assert first["digest"] == event.digest.hex()
    assert (first["type"], first["state"], second["type"], second["state"]) == (
        "claimed",
        "pending",
        "settled",
        "done",
    )
    assert first["step"] == json.loads(event.step)
    assert first["fence"] == second["fence"] == event.fence
    assert "arguments" not in first
    assert first.keys() == EventJson.__annotations__.keys()
    assert json.loads(json.dumps(first)) == first


class _Watched(WrappedStore):
    """Counts how often events are read."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.reads = 0

    def ask(self, query: Any) -> Any:
        self.reads += isinstance(query, ReadEvents)
        return super().ask(query)


def test_an_export_reads_one_page_at_a_time() -> None:
    store = _Watched(MemoryStore())
    event = Event(
        0, 1, "acme", "tool", "k", "rec_1", "dedup_hit", "done", 0, "t", "1", b"", None, "", "[]", "", "", 1
    )
    for _ in range(25):
        store.ask(AppendEvents([event] * 100))
    lines = exported_lines(store, "acme")
    assert len(list(islice(lines, 1_000))) == 1_000
    assert store.reads == 1
    assert len(list(lines)) == 1_500
    assert store.reads == 3


# --- from the end ------------------------------------------------------------------------------------------


def backwards(store: Store, tenant: str | None, limit: int) -> list[EventJson]:
    found: list[EventJson] = []
    before: LogPosition | None = None
    while True:
        lines, before = part_before(store, tenant, before, limit)
        assert len(lines) <= limit
        found += lines
        if before is None:
            return found


def lane_by_lane(lines: list[EventJson]) -> list[EventJson]:
    """Each lane turned around."""
    return sorted(lines, key=lambda line: (line["lane"], -line["seq"]))


@pytest.mark.parametrize("limit", [1, 7, 200])
def test_from_the_end_every_event_is_there_once_newest_first(anywhere: Store, limit: int) -> None:
    assert backwards(anywhere, "acme", limit) == []
    fill(anywhere, 30)
    fill(anywhere, 5, "umbra")
    for tenant in ("acme", "umbra", None):
        whole = lane_by_lane(list(exported_lines(anywhere, tenant)))
        assert backwards(anywhere, tenant, limit) == whole


def test_a_part_from_the_end_looks_at_so_many_events_and_no_more() -> None:
    store = _Watched(MemoryStore())
    fill(store, 1)
    rest = Event(
        0, 1, "umbra", "tool", "k", "rec_1", "dedup_hit", "done", 0, "t", "1", b"", None, "", "[]", "", "", 1
    )
    for _ in range(100):
        store.ask(AppendEvents([rest] * 1_000))
    store.reads = 0
    lines, before = part_before(store, "acme", None, 50)
    assert (lines, before) == ([], LogPosition(0, 100_003 - LOOKED_AT))
    assert store.reads < 40
    assert [line["type"] for line in backwards(store, "acme", 50)] == ["settled", "claimed"]


# --- over HTTP --------------------------------------------------------------------------------------------


@pytest.fixture
def filled(store: Store) -> Store:
    fill(store, 10)
    fill(store, 3, "umbra")
    return store


def pages(client: httpx.Client, limit: int) -> list[list[dict[str, Any]]]:
    found, cursor = [], None
    while True:
        query = {"limit": limit} | ({"cursor": cursor} if cursor else {})
        page = client.get("/api/v1/audit", params=query)
        assert page.status_code == 200, page.text
        found.append(page.json()["items"])
        cursor = page.json()["next_cursor"]
        if cursor is None:
            return found


def test_an_auditor_reads_all_events_of_the_own_tenant(serve: Serve, filled: Store) -> None:
    served = serve(filled)
    whole = list(exported_lines(filled, "acme"))
    for role in ("auditor", "admin"):
        found = pages(served.holder(role), 7)
        assert [len(page) for page in found] == [7, 7, 6]
        assert [line for page in found for line in page] == whole
    assert len(pages(served.holder("auditor", tenant="umbra"), 200)[0]) == 6


def test_a_cursor_of_another_tenant_or_list_is_refused(serve: Serve, filled: Store) -> None:
    served = serve(filled)
    client = served.holder("admin")
    cursor = client.get("/api/v1/audit", params={"limit": 1}).json()["next_cursor"]
    umbra = served.holder("admin", tenant="umbra")
    refused(umbra.get("/api/v1/audit", params={"cursor": cursor}), 400, "request_invalid")
    refused(client.get("/api/v1/records", params={"cursor": cursor}), 400, "request_invalid")
    refused(client.get("/api/v1/audit", params={"limit": 201}), 400, "request_invalid")


def test_the_newest_come_first_for_who_asks_so(serve: Serve, filled: Store) -> None:
    client = serve(filled).holder("auditor")
    whole = list(exported_lines(filled, "acme"))
    first = client.get("/api/v1/audit", params={"limit": 15, "order": "newest"}).json()
    assert first["items"] == whole[::-1][:15]
    on = {"limit": 15, "cursor": first["next_cursor"]}
    rest = client.get("/api/v1/audit", params=on | {"order": "newest"}).json()
    assert rest["items"] == whole[::-1][15:]
    assert rest["next_cursor"] is None
    refused(client.get("/api/v1/audit", params=on), 400, "request_invalid")  # a cursor is of one order
    refused(client.get("/api/v1/audit", params={"order": "other"}), 400, "request_invalid")


def test_what_is_written_meanwhile_lies_ahead(serve: Serve, filled: Store) -> None:
    client = serve(filled).holder("auditor")
    first = client.get("/api/v1/audit", params={"limit": 15}).json()
    filled.perform(claim(A, place(99)))
    rest = client.get("/api/v1/audit", params={"limit": 15, "cursor": first["next_cursor"]}).json()
    assert [line["key"] for line in rest["items"]][-1] == place(99).key
    assert len(first["items"] + rest["items"]) == 21


def test_duplicates_take_a_duration_and_nothing_else(serve: Serve, filled: Store) -> None:
    client = serve(filled).holder("auditor")
    found = client.get("/api/v1/audit/duplicates", params={"within": "1h"}).json()
    # All ten calls of the fill have the same tool and the same arguments, under keys of their own.
    assert (found["calls"], found["duplicates"], found["tools"][0]["count"]) == (10, 9, 9)
    for wrong in ("soon", "0s", "9999999999999d"):
        answer = client.get("/api/v1/audit/duplicates", params={"within": wrong})
        refused(answer, 400, "request_invalid")


def test_a_report_ends_early_when_the_gateway_stops(serve: Serve, filled: Store) -> None:
    served = serve(filled)
    client = served.holder("auditor")
    served.services.stopping.set()
    refused(client.get("/api/v1/audit/duplicates"), 503, "store_unavailable")


# --- the command ------------------------------------------------------------------------------------------


def export(*words: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(main, ("audit", "export", *words))
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_command_writes_one_tenant_or_all_as_lines(tmp_path: Path) -> None:
    store = BY_NAME["sqlite"].open(tmp_path, SYSTEM, True)
    fill(store, 600)
    fill(store, 2, "umbra")
    url = f"sqlite:///{tmp_path}/semel.db"
    assert export("--url", url, "--tenant", "acme") == list(exported_lines(store, "acme"))
    assert len(export("--url", url, "--all-tenants")) == 1_204
    assert export("--url", url) == []
    store.close()
