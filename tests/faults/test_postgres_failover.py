"""A primary that dies and a standby that takes its place: what may be lost, and what never is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import semel
from semel.errors import StoreCorrupt, StoreUnavailable
from semel.kernel.record import Address, State
from semel.ledger.doctor import examine
from semel.stores.base import ReadEvents
from semel.stores.urls import open_store
from tests.commands import A, B, claim, look, settle
from tests.faults.bank import Bank
from tests.faults.caller import call
from tests.faults.checks import assert_history_holds, until
from tests.faults.payment import LONG_LEASE, payment
from tests.handles import AsyncStoreHandle, StoreHandle
from tests.patience import HURRIED
from tests.postgres_server import PostgresPair


def place(number: int) -> Address:
    return Address("acme", "tool", f"place-{number}")


def paired(*, synchronous: bool) -> Iterator[PostgresPair]:
    pair = PostgresPair(synchronous=synchronous)
    try:
        pair.start()
        yield pair
    finally:
        pair.remove()


@pytest.fixture
def pair() -> Iterator[PostgresPair]:
    """The standby follows as fast as it can, and nobody waits for it."""
    yield from paired(synchronous=False)


@pytest.fixture
def waited_for() -> Iterator[PostgresPair]:
    """A commit is acknowledged once the standby has it."""
    yield from paired(synchronous=True)


def in_the_end(handle: StoreHandle, command: Any) -> Any:
    """The reply, once somebody takes writes."""

    def ask() -> Any:
        try:
            return handle.perform(command)
        except StoreUnavailable:
            return None

    return until(ask, "a server takes writes")


def test_when_the_primary_dies_the_ledger_goes_on_at_the_promoted_standby(pair):
    handle = StoreHandle(open_store(pair.url()))
    said = next(found for found in handle.store.findings() if found.subject == "replication")
    assert "a failover may lose the last acknowledged writes" in said.text
    handle.perform(claim(A, place(1)))
    until(pair.caught_up, "the standby has everything")
    pair.primary.kill()
    with pytest.raises(StoreUnavailable, match="the outcome was not acknowledged"):
        handle.perform(settle(A, place(1)))
    pair.standby.promote()
    assert in_the_end(handle, settle(A, place(1))).record.state is State.DONE
    assert [event.kind for event in handle.ask(ReadEvents())] == ["claimed", "settled"]
    assert handle.perform(claim(B, place(2))).applied
    handle.close()


# A sequence of PostgreSQL's is up to 32 numbers ahead after a failover: fewer losses than that count too.
@pytest.mark.parametrize(
    ("manner", "lost"), [(StoreHandle, 1), (AsyncStoreHandle, 20)], ids=["sync", "async"]
)
def test_writes_that_the_failover_took_back_are_noticed_by_whoever_had_seen_them(pair, manner, lost):
    handle = manner(open_store(pair.url()))
    handle.perform(claim(A, place(0)))
    until(pair.caught_up, "the standby has everything")
    pair.sever()
    for number in range(1, lost + 1):
        assert handle.perform(claim(A, place(number))).applied
    pair.fail_over()

    def noticed() -> bool:
        try:
            handle.perform(claim(B, place(1)))
        except StoreUnavailable:
            return False
        except StoreCorrupt:
            return True
        raise AssertionError("a forgotten key was claimed again")

    until(noticed, "the loss is noticed")
    with pytest.raises(StoreCorrupt, match="older state"):
        handle.perform(look(place(0)))
    handle.close()
    # Opening anew is the decision to go on without them.
    fresh = manner(open_store(pair.url()))
    assert fresh.perform(look(place(0))).record.token == A
    assert fresh.perform(claim(B, place(1))).applied
    fresh.close()


def test_with_a_synchronous_standby_that_is_away_nothing_is_acknowledged_and_nothing_runs(
    waited_for, tmp_path
):
    bank = Bank(tmp_path / "bank.jsonl")
    with semel.open(waited_for.url(timeout=HURRIED)) as ledger:
        assert "replication" not in {found.subject for found in examine(ledger.store)}
        tool = payment(bank, "park", lease=LONG_LEASE)
        assert call(ledger, tool, account="acc-1").receipt
        waited_for.sever()
        assert call(ledger, tool, account="acc-2").code == "STORE_UNAVAILABLE"
        waited_for.fail_over()
        until(lambda: call(ledger, tool, account="acc-2").receipt, "the standby takes writes")
        assert call(ledger, tool, account="acc-1").receipt
        assert_history_holds(ledger)
    assert sorted(entry.account for entry in bank.entries()) == ["acc-1", "acc-2"]


def waiting(pair: PostgresPair) -> str:
    """The server's process that waits for the standby."""
    return pair.primary.order("SELECT min(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")


class Asked(threading.Thread):
    """A command under way."""

    def __init__(self, store: Any, command: Any) -> None:
        super().__init__(daemon=True)
        self._store, self._command = store, command
        self.reply: Any = None
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.reply = self._store.perform(self._command)
        except Exception as error:
            self.error = error


def test_a_commit_that_an_administrator_made_not_wait_for_the_standby_is_not_acknowledged(waited_for):
    store = open_store(waited_for.url(timeout="8s"))
    store.perform(claim(A, place(0)))
    waited_for.sever()
    asked = Asked(store, claim(A, place(1)))
    pid = until(lambda: waiting(waited_for), "the commit waits for the standby")
    waited_for.primary.order(f"SELECT pg_cancel_backend({pid})")
    asked.join()
    assert isinstance(asked.error, StoreUnavailable), asked.reply
    waited_for.fail_over()
    assert in_the_end(StoreHandle(store), claim(B, place(1))).record.token == B
    store.close()


def test_a_claim_that_only_the_primary_has_is_not_acknowledged_when_it_is_asked_again(waited_for):
    store = open_store(waited_for.url(timeout="8s"))
    store.perform(claim(A, place(0)))
    waited_for.sever()
    asked = Asked(store, claim(A, place(1)))
    until(lambda: waiting(waited_for), "the commit waits for the standby")
    # It is on the primary's own disk, and the primary comes back with it.
    waited_for.primary.kill()
    waited_for.primary.start()
    asked.join()
    handle = StoreHandle(store)
    assert isinstance(asked.error, StoreUnavailable), asked.reply
    with pytest.raises(StoreUnavailable):
        handle.perform(claim(A, place(1)))
    waited_for.join()
    assert in_the_end(handle, claim(A, place(1))).record.token == A
    waited_for.fail_over()
    assert in_the_end(handle, look(place(1))).record.token == A
    handle.close()
