"""Hooks of one test: whatever it puts in place is gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from semel import instrumentation
from semel.instrumentation import CallEnded
from semel.ledger.ledger import Ledger
from semel.stores.memory import MemoryStore
from semel.testing import FakeClock
from tests.unit.conftest import Way


@pytest.fixture
def ends() -> Iterator[list[CallEnded]]:
    """The calls that have ended, told to the only hook there is."""
    told: list[CallEnded] = []
    with instrumentation.use(told.append):
        yield told


@pytest.fixture
def no_hooks() -> Iterator[None]:
    """No hook but those that the test gives."""
    with instrumentation.use():
        yield


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ledger(clock: FakeClock) -> Iterator[Ledger]:
    with Ledger(MemoryStore(clock=clock), tenant="acme") as opened:
        yield opened


@pytest.fixture(params=[False, True], ids=["def", "async def"])
def way(request: pytest.FixtureRequest) -> Way:
    return Way(request.param)
