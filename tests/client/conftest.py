"""Both clients behind one face, so that each test is written once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from semel.client import AsyncGateway, Gateway
from tests.fake_clock import FakeClock
from tests.gateway.conftest import EMBEDDED, Served, new_tenant, serve, shared  # noqa: F401  fixtures


class AwaitedAsCalled:
    """An AsyncGateway, or a group of one, whose methods are carried out to their end on a loop."""

    def __init__(self, inner: Any, runner: asyncio.Runner) -> None:
        self._inner, self._runner = inner, runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return AwaitedAsCalled(found, self._runner)

        def method(*args: Any, **kwargs: Any) -> Any:
            asked = found(*args, **kwargs)
            return self._runner.run(_all(asked) if hasattr(asked, "__aiter__") else _one(asked))

        return method


async def _one(asked: Any) -> Any:
    return await asked


async def _all(asked: Any) -> list[Any]:
    return [item async for item in asked]


Connect = Callable[..., Gateway]


@pytest.fixture(params=["calling", "awaiting"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes clients of either kind; all of them are closed at the end."""
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner()) if request.param == "awaiting" else None

        def made(url: str, *args: Any, **kwargs: Any) -> Any:
            if runner is None:
                return stack.enter_context(Gateway(url, *args, **kwargs))
            asynchronous = AsyncGateway(url, *args, **kwargs)
            stack.callback(lambda: runner.run(asynchronous.aclose()))
            return AwaitedAsCalled(asynchronous, runner)

        yield made


@pytest.fixture
def served(shared: dict[str, Served]) -> Served:  # noqa: F811
    """A `--dev` gateway in memory."""
    return shared["memory"]


@pytest.fixture(params=[kind.name for kind in EMBEDDED])
def gateway(request: pytest.FixtureRequest, shared: dict[str, Served], connect: Connect) -> Gateway:  # noqa: F811
    """A client of a `--dev` gateway on every embedded store, in a tenant of its own."""
    url = shared[request.param].url
    # Its time passes only while it pauses, so that it does not run out on a busy machine.
    return connect(url, tenant=new_tenant(), principal="ann", clock=FakeClock(), try_for="30s")
