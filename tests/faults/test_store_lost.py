"""The store's server dies while a tool runs: how long its caller is held, and who goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import semel
from semel.kernel.record import State
from semel.ledger.keeper import KEEPER_THREAD
from semel.stores.urls import open_store
from semel.testing import WrappedStore
from tests.faults.bank import Bank
from tests.faults.caller import call
from tests.faults.checks import only_record, until
from tests.faults.payment import LONG_LEASE, payment
from tests.postgres_server import PostgresServer
from tests.redis_server import DURABLE, RedisServer


class Counted(WrappedStore):
    """Counts how often callers tried to settle."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.settlements = 0

    def before(self, name: str) -> None:
        if name == "settle" and threading.current_thread().name != KEEPER_THREAD:
            self.settlements += 1


@pytest.fixture(params=["redis", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    server: Any = RedisServer(**DURABLE) if request.param == "redis" else PostgresServer()
    if request.param == "postgres":
        server.make()
    server.start()
    yield server
    server.remove()


@pytest.mark.parametrize(("wait", "tries"), [("1ms", range(1, 2)), ("3s", range(2, 1_000))])
def test_a_call_that_lost_its_store_tries_for_settle_wait_and_the_keeper_goes_on(
    wait: str, tries: range, server: Any, bank: Bank
) -> None:
    store = Counted(open_store(server.url(settle_wait=wait)))
    with semel.Ledger(store) as ledger:
        told = call(ledger, payment(bank, "park", lease=LONG_LEASE, after=server.kill))
        assert told.code == "OUTCOME_UNKNOWN"
        assert store.settlements in tries
        server.start()
        until(lambda: only_record(ledger).state is State.DONE, "the keeper has written it")
    assert len(bank.entries()) == 1
