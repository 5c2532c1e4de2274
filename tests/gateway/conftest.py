"""A real gateway on a free port of the loopback, over a store of the test's own, and clients for it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.flow.bus.base import Bus
from semel.flow.document_store import DocumentStore
from semel.gateway.auth import ApiKeys
from semel.gateway.server import embedded
from semel.gateway.services import Services
from semel.gateway.settings import GatewaySettings
from semel.kernel.clock import SYSTEM
from semel.stores.base import Store
from semel.stores.memory import MemoryStore
from tests.gateway.started import begin, park  # noqa: F401  fixtures
from tests.patience import PATIENCE_S
from tests.stores import BY_NAME, Kind

EMBEDDED = (BY_NAME["memory"], BY_NAME["sqlite"])


@dataclass
class Served:
    """A gateway that runs."""

    url: str
    services: Services
    clients: ExitStack = field(default_factory=ExitStack)

    def client(self, **headers: str) -> httpx.Client:
        """A client that sends these headers; `_` in a name is `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.clients.enter_context(httpx.Client(base_url=self.url, headers=named, timeout=PATIENCE_S))

    def key(self, *roles: str, tenant: str = "acme", principal: str = "ann") -> str:
        """A new key with these roles."""
        keys = ApiKeys(DocumentStore(self.services.store))
        return asyncio.run(keys.create(tenant, principal, roles))[1]

    def holder(self, *roles: str, **whose: str) -> httpx.Client:
        """A client with a key of its own."""
        return self.client(X_API_Key=self.key(*roles, **whose))


Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts gateways; all of them have stopped at the end of the test."""
    with ExitStack() as stack:

        def start(store: Store | None = None, bus: Bus | None = None, **settings: Any) -> Served:
            chosen = GatewaySettings(**{"url": "memory://", "log": "all"} | settings)
            url, services = stack.enter_context(embedded(chosen, store or MemoryStore(), bus=bus))
            served = Served(url, services)
            stack.enter_context(served.clients)
            return served

        yield start


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    """A `--dev` gateway on each embedded store, for tests that keep to a tenant of their own."""
    with ExitStack() as stack:
        found = {}
        for kind in EMBEDDED:
            store = kind.open(tmp_path_factory.mktemp("gateway"), SYSTEM, True)
            url, services = stack.enter_context(embedded(GatewaySettings(url="memory://", dev=True), store))
            found[kind.name] = Served(url, services)
            stack.enter_context(found[kind.name].clients)
        yield found


@pytest.fixture(params=EMBEDDED, ids=lambda kind: kind.name)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    kind: Kind = request.param
    return kind.open(tmp_path, SYSTEM, True)


@pytest.fixture
def dev(shared: dict[str, Served]) -> httpx.Client:
    """A client of a `--dev` gateway in memory, with a tenant of its own."""
    return shared["memory"].client(X_Tenant_ID=new_tenant())


@pytest.fixture(params=[kind.name for kind in EMBEDDED])
def client(request: pytest.FixtureRequest, shared: dict[str, Served]) -> httpx.Client:
    """A client of a `--dev` gateway on every embedded store, with a tenant of its own."""
    return shared[request.param].client(X_Tenant_ID=new_tenant())


def new_tenant() -> str:
    return f"t-{uuid.uuid4().hex}"


def limit(client: httpx.Client, runs: int) -> None:
    tenant = client.headers["x-tenant-id"]
    assert client.put(f"/api/v1/tenants/{tenant}", json={"max_concurrent_runs": runs}).status_code == 200


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem, after checking that it is this one and has the form that all problems have."""
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert {"type", "title", "status", "detail", "code", "retriable"} <= problem.keys()
    assert problem["status"] == status
    return problem


def define(client: httpx.Client, name: str = "hello", *steps: dict[str, Any], **more: Any) -> None:
    assert client.put(f"/api/v1/workflows/{name}", json={"steps": list(steps), **more}).status_code == 200


def start_run(client: httpx.Client, body: Any = None, key: str | None = None, name: str = "hello") -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post(f"/api/v1/workflows/{name}/runs", json={} if body is None else body, headers=headers)
