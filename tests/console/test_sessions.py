"""Sessions of the console, by a clock that the test moves."""

from __future__ import annotations

import asyncio

import pytest

from semel.console.sessions import ABSOLUTE_US, IDLE_US, Sessions
from semel.flow.document_store import DocumentStore
from semel.flow.values import Caller
from semel.stores.memory import MemoryStore
from tests.fake_clock import FakeClock

ANN = Caller("acme", "ann", frozenset({"admin"}))
MINUTE_S = 60.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def sessions(clock: FakeClock) -> Sessions:
    return Sessions(DocumentStore(MemoryStore(clock=clock)), "key")


def test_a_session_ends_when_it_is_not_used(clock: FakeClock) -> None:
    async def story() -> None:
        kept = sessions(clock)
        token = await kept.begin(ANN)
        clock.advance(IDLE_US / 1e6 - 1)
        found = await kept.find(token)
        assert found is not None
        assert found.caller == ANN
        clock.advance(IDLE_US / 1e6 - 1)  # since it was used, not since it began
        assert await kept.find(token) is not None
        clock.advance(IDLE_US / 1e6 + 1)
        assert await kept.find(token) is None

    asyncio.run(story())


def test_a_session_ends_however_much_it_is_used(clock: FakeClock) -> None:
    async def story() -> None:
        kept = sessions(clock)
        token = await kept.begin(ANN)
        lived_s = 0.0
        while await kept.find(token) is not None:
            clock.advance(10 * MINUTE_S)
            lived_s += 10 * MINUTE_S
        assert lived_s == ABSOLUTE_US / 1e6

    asyncio.run(story())


def test_a_token_is_good_only_where_one_signs_in_the_same_way(clock: FakeClock) -> None:
    async def story() -> None:
        documents = DocumentStore(MemoryStore(clock=clock))
        token = await Sessions(documents, "dev").begin(ANN)
        assert await Sessions(documents, "dev").find(token) is not None
        assert await Sessions(documents, "key").find(token) is None
        assert await Sessions(documents, "key").find("0" * 64) is None

    asyncio.run(story())


def test_the_store_has_no_token(clock: FakeClock) -> None:
    async def story() -> None:
        store = MemoryStore(clock=clock)
        token = await Sessions(DocumentStore(store), "key").begin(ANN)
        assert token not in repr(vars(store))

    asyncio.run(story())
