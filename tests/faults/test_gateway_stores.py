"""The store of a gateway is killed under load and comes back: service resumes by itself, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx
import pytest

from tests.gateway.conftest import define, limit, new_tenant
from tests.gateway.serving import (
    PATIENCE_S,
    Gateway,
    Gateways,
    complete,
    crowd,
    persistent_start,
    run_ids,
)
from tests.postgres_server import PostgresServer
from tests.redis_server import DURABLE, RedisServer

Server = RedisServer | PostgresServer

STRATEGIES = {
    "atomic": ("--admission=atomic",),
    # Short lives: what the dead store's last words reserved is soon given up.
    "lock": ("--admission=lock", "--lock-ttl=1s", "--lock-wait=1s"),
}

CALLERS = 8

# So often the store is killed, each time after so many more runs were admitted; then so many slots are left.
KILLS, BETWEEN, LEFT = 2, 10, 20


@pytest.fixture(params=["redis", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = RedisServer(**DURABLE) if request.param == "redis" else PostgresServer()
    server.start()
    yield server
    server.remove()


@dataclass
class Load:
    """Callers, each with one key after another, each key until it is decided, until no slot is left."""

    urls: list[str]
    tenant: str
    admitted: dict[str, str] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    may_begin: asyncio.Event = field(default_factory=asyncio.Event)
    full: int = 0
    troubles: int = 0

    async def run(self, break_it: Callable[[], None], make_it_end: Callable[[int], None]) -> None:
        async with crowd(self.tenant) as client:
            self.may_begin.set()
            callers = [asyncio.create_task(self._caller(client, number)) for number in range(CALLERS)]
            for _ in range(KILLS):
                await self._until_admitted(len(self.admitted) + BETWEEN)
                await asyncio.to_thread(break_it)
            await self._until_admitted(len(self.admitted) + BETWEEN)
            self.may_begin.clear()  # only what is under way is admitted besides, until the limit is set
            await asyncio.to_thread(make_it_end, len(self.admitted) + CALLERS + LEFT)
            self.may_begin.set()
            await asyncio.wait_for(asyncio.gather(*callers), PATIENCE_S)

    async def _until_admitted(self, number: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.admitted) < number:
                self.news.clear()
                await self.news.wait()

    async def _caller(self, client: httpx.AsyncClient, number: int) -> None:
        attempt = 0
        while not self.full:
            await self.may_begin.wait()
            key = f"{number}-{attempt}"
            answer = await self._decided(client, key)
            if answer.status_code == 429:
                self.full += 1
                return
            self.admitted[key] = answer.json()["run_id"]
            self.news.set()
            attempt += 1

    async def _decided(self, client: httpx.AsyncClient, key: str) -> httpx.Response:
        """The answer that is not "come back later"; each attempt at another gateway."""
        for turn in range(100_000):
            url = self.urls[turn % len(self.urls)]
            path = f"{url}/api/v1/workflows/hello/runs"
            answer = await client.post(path, json={}, headers={"Idempotency-Key": key})
            if answer.status_code in (200, 429):
                return answer
            assert answer.status_code in (503, 409), answer.text
            assert answer.json()["code"] in EXPECTED, answer.text
            self.troubles += 1
            await asyncio.sleep(0.02)
        raise AssertionError("never decided")


EXPECTED = {"store_unavailable", "admission_gate_unavailable", "idempotency_in_flight"}


def prepared(gateway: Gateway) -> httpx.Client:
    client = gateway.client(X_Tenant_ID=new_tenant())
    define(client)
    limit(client, 1_000_000)
    return client


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_store_killed_under_load_and_restarted_keeps_every_answer_and_the_limit(
    server: Server, strategy: str, begin: Gateways
) -> None:
    found = [begin(server.url(), *STRATEGIES[strategy]) for _ in range(2)]
    client = prepared(found[0])
    load = Load([gateway.url for gateway in found], client.headers["x-tenant-id"])

    def kill_and_restart() -> None:
        server.kill()
        server.start()

    slots = []

    def leave_only(number: int) -> None:
        slots.append(number)
        limit(client, number)

    asyncio.run(load.run(kill_and_restart, leave_only))

    assert load.troubles, "the store was killed and nobody noticed"
    # No answer was lost, no run is there that nobody was told of, and the limit is exactly used up.
    assert [len(load.admitted)] == slots
    assert sorted(run_ids(client, status="running")) == sorted(load.admitted.values())
    for key, run_id in load.admitted.items():
        again = persistent_start(client, key)
        assert (again.json()["run_id"], again.headers["idempotent-replayed"]) == (run_id, "true")
    for run_id in load.admitted.values():
        complete(client, run_id)
    assert persistent_start(client, "afterwards").status_code == 200


def test_a_gateway_says_that_it_is_not_ready_while_its_store_is_away_and_recovers_by_itself(
    server: Server, begin: Gateways
) -> None:
    gateway = begin(server.url())
    client = prepared(gateway)
    assert client.get("/readyz").status_code == 200
    server.kill()
    unready = client.get("/readyz")
    assert (unready.status_code, unready.json()["reasons"]) == (503, ["store: does not answer"])
    assert client.get("/healthz").status_code == 200
    server.start()
    assert persistent_start(client, "back").status_code == 200
    assert client.get("/readyz").status_code == 200


def test_a_gateway_whose_store_is_away_stops_in_order(server: Server, begin: Gateways) -> None:
    gateway = begin(server.url())
    prepared(gateway)
    server.kill()
    assert gateway.stop() == 0, gateway.said()
    assert "Traceback" not in gateway.said()
