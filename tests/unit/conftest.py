"""A ledger on every embedded store, and every tool in both ways: `def` and `async def`."""

import asyncio
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.kernel.clock import SYSTEM
from semel.ledger.ledger import Ledger
from semel.stores.memory import MemoryStore
from semel.testing import FakeClock, FlakyStore
from tests.stores import BY_NAME, Kind

# What needs no server: that the others answer alike is what tests/conformance and tests/model show.
EMBEDDED = (BY_NAME["memory"], BY_NAME["sqlite"])


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=EMBEDDED, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def ledger(kind: Kind, clock: FakeClock, tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(kind.open(tmp_path, clock, True), tenant="acme") as opened:
        yield opened


@pytest.fixture
def real(kind: Kind, tmp_path: Path) -> Iterator[Ledger]:
    """A ledger on every embedded store in real time, for callers that wait for each other."""
    with Ledger(kind.open(tmp_path, SYSTEM, True), tenant="acme") as opened:
        yield opened


@pytest.fixture
def flaky(clock: FakeClock) -> FlakyStore:
    return FlakyStore(MemoryStore(clock=clock))


@pytest.fixture
def shaky(flaky: FlakyStore) -> Ledger:
    """A ledger whose store misbehaves on demand."""
    return Ledger(flaky, tenant="acme")


class Way:
    """One of the two ways to write a tool, so that a test says once what holds for both."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async

    def tool(self, **declared: Any) -> Any:
        def declare(function: Any) -> Any:
            written = _as_async(function) if self.is_async else function
            return semel.tool_contract(**{"class_": "write-non-idempotent", **declared})(written)

        return declare

    def call(self, tool: Any, *args: Any, **kwargs: Any) -> Any:
        return self.end(tool(*args, **kwargs))

    def ask(self, tool: Any, request: semel.ToolCall, ledger: Ledger | None = None) -> semel.ToolResult[Any]:
        result: semel.ToolResult[Any] = self.end(tool.call(request, ledger))
        return result

    def end(self, begun: Any) -> Any:
        return asyncio.run(_awaited(begun)) if self.is_async else begun


def _as_async(function: Any) -> Any:
    @functools.wraps(function)
    async def written(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return function(*args, **kwargs)

    return written


async def _awaited(begun: Any) -> Any:
    return await begun


@pytest.fixture(params=[False, True], ids=["def", "async def"])
def way(request: pytest.FixtureRequest) -> Way:
    return Way(request.param)
