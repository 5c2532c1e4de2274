"""A Redis server that Sentinels watch: who is the primary is asked of them, and of itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import semel
from bench.servers import free_port
from semel.errors import OpenError, StoreCorrupt, StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.kernel.record import Address, State
from semel.ledger.doctor import examine
from semel.stores.base import CountRecords, ReadEvents
from semel.stores.redis.commands import lane
from semel.stores.redis.packing import digest_of
from semel.stores.urls import open_store
from tests.commands import AT, A, B, claim, look, settle
from tests.faults.bank import Bank
from tests.faults.caller import call
from tests.faults.checks import PATIENCE_S, assert_history_holds, until
from tests.faults.payment import payment
from tests.handles import AsyncStoreHandle, StoreHandle
from tests.redis_server import RedisServer, Sentinel, TlsRedisServer, WatchedPair
from tests.stores import trusting

MANNERS = pytest.mark.parametrize("manner", [StoreHandle, AsyncStoreHandle], ids=["sync", "async"])

LONG_LEASE = "10m"


def place(number: int) -> Address:
    return Address("acme", "tool", f"place-{number}")


def has(server: RedisServer, at: Address) -> bool:
    """Whether the server has the record, whatever it takes itself for."""
    return server.ask("EXISTS", lane(0, "semel").record(digest_of(at))) == 1


@pytest.fixture
def pair() -> Iterator[WatchedPair]:
    pair = WatchedPair()
    try:
        pair.start()
        yield pair
    finally:
        pair.remove()


def in_the_end(handle: StoreHandle, command: Any) -> Any:
    """The reply, once there is a primary."""

    def ask() -> Any:
        try:
            return handle.perform(command)
        except StoreUnavailable:
            return None

    return until(ask, "a primary answers")


# --- failover -----------------------------------------------------------------------------------------


@MANNERS
def test_when_the_primary_dies_the_ledger_goes_on_at_the_promoted_one(pair, manner):
    handle = manner(open_store(pair.url()))
    handle.perform(claim(A, place(1)))
    until(pair.caught_up, "the replica has everything")
    pair.primary.kill()
    with pytest.raises(StoreUnavailable, match="the outcome was not recorded"):
        handle.perform(settle(A, place(1)))
    pair.sentinel.promote()
    assert in_the_end(handle, settle(A, place(1))).record.state is State.DONE
    assert [event.kind for event in handle.ask(ReadEvents())] == ["claimed", "settled"]
    assert handle.perform(claim(B, place(2))).applied
    assert has(pair.replica, place(2))
    handle.close()


@MANNERS
def test_an_old_primary_that_comes_back_and_takes_itself_for_one_is_asked_nothing(pair, manner):
    handle = manner(open_store(pair.url()))
    handle.perform(claim(A, place(0)))
    until(pair.caught_up, "the replica has everything")
    pair.fail_over()
    pair.sentinel.stop_telling()
    pair.primary.start(appendonly="no")
    assert role_of(pair.primary) == b"master"
    for number in range(1, 6):
        in_the_end(handle, claim(A, place(number)))
        pair.replica.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert role_of(pair.primary) == b"master"
    assert [has(pair.primary, place(number)) for number in range(1, 6)] == [False] * 5
    assert [has(pair.replica, place(number)) for number in range(1, 6)] == [True] * 5
    handle.close()


def role_of(server: RedisServer) -> bytes:
    told: Any = server.ask("ROLE")
    return bytes(told[0])


@MANNERS
def test_of_two_sentinels_the_one_that_knows_of_the_failover_counts(pair, manner):
    until(pair.caught_up, "the replica has everything")
    pair.fail_over()
    pair.sentinel.stop_telling()
    pair.primary.start()
    behind = Sentinel("orders", pair.primary.port)
    try:
        behind.start()
        behind.stop_telling()
        both = f"127.0.0.1:{behind.port},127.0.0.1:{pair.sentinel.port}"
        handle = manner(open_store(f"redis+sentinel://{both}/orders"))
        assert handle.perform(claim(A)).applied
        assert (has(pair.primary, AT), has(pair.replica, AT)) == (False, True)
        assert behind.primary_port == pair.primary.port
        handle.close()
    finally:
        behind.remove()


@MANNERS
def test_a_primary_that_is_demoted_under_an_open_connection_is_left_at_once(pair, manner):
    handle = manner(open_store(pair.url()))
    handle.perform(claim(A))
    until(pair.caught_up, "the replica has everything")
    # As if Sentinel had done it, and the connections were not ended.
    pair.sentinel.stop_telling()
    pair.replica.ask("REPLICAOF", "NO", "ONE")
    pair.primary.ask("REPLICAOF", "127.0.0.1", str(pair.replica.port))
    pair.sentinel.ask("SENTINEL", "REMOVE", "orders")
    pair.sentinel.ask("SENTINEL", "MONITOR", "orders", "127.0.0.1", str(pair.replica.port), "1")
    assert handle.perform(settle(A)).applied
    assert handle.perform(look()).record.state is State.DONE
    handle.close()


@MANNERS
def test_a_replica_that_a_sentinel_names_is_not_even_read(pair, manner):
    handle = manner(open_store(pair.url()))
    handle.perform(claim(A))
    until(pair.caught_up, "the replica has everything")
    pair.sentinel.ask("SENTINEL", "REMOVE", "orders")
    pair.sentinel.ask("SENTINEL", "MONITOR", "orders", "127.0.0.1", str(pair.replica.port), "1")
    pair.primary.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    with pytest.raises(StoreUnavailable, match="is not the primary; nothing was acknowledged"):
        handle.perform(look())
    with pytest.raises(StoreUnavailable, match="is not the primary; the tool did not run"):
        handle.perform(claim(B, place(1)))
    handle.close()


@MANNERS
def test_writes_that_the_failover_took_back_are_noticed_and_nothing_is_trusted(pair, manner):
    handle = manner(open_store(pair.url()))
    handle.perform(claim(A, place(1)))
    until(pair.caught_up, "the replica has everything")
    pair.sever()
    assert handle.perform(claim(A, place(2))).applied
    pair.fail_over()

    def noticed() -> bool:
        try:
            handle.perform(claim(B, place(2)))
        except StoreUnavailable:
            return False
        except StoreCorrupt:
            return True
        raise AssertionError("a forgotten key was claimed again")

    until(noticed, "the loss is noticed")
    with pytest.raises(StoreCorrupt, match="older data"):
        handle.perform(look(place(1)))
    handle.close()


def insist(ledger: semel.Ledger, tool: Any, account: str) -> None:
    until(lambda: call(ledger, tool, account=account).receipt, "a primary answers")


def test_tools_are_called_once_through_a_failover(pair, tmp_path):
    bank = Bank(tmp_path / "bank.jsonl")
    accounts = [f"acc-{number}" for number in range(20)]
    with semel.open(pair.url()) as ledger:
        tool = payment(bank, "park", lease=LONG_LEASE)
        for account in accounts[:10]:
            assert call(ledger, tool, account=account).receipt
        until(pair.caught_up, "the replica has everything")
        pair.fail_over()
        for account in accounts:
            insist(ledger, tool, account)
        assert_history_holds(ledger)
    assert sorted(entry.account for entry in bank.entries()) == sorted(accounts)


def test_whoever_waits_for_another_caller_is_woken_by_the_promoted_one(pair):
    store, other = open_store(pair.url()), open_store(pair.url())
    store.perform(claim(A))
    until(pair.caught_up, "the replica has everything")
    waiter = store.waiters.add(AT)
    store.watch()
    pair.fail_over()
    in_the_end(StoreHandle(other), settle(A))
    assert waiter.wait(SYSTEM, PATIENCE_S)
    for each in (store, other):
        each.close()


def test_many_threads_and_tasks_go_on_after_the_failover(pair):
    store = open_store(pair.url())
    store.perform(claim(A, place(0)))
    until(pair.caught_up, "the replica has everything")
    pair.fail_over()

    def work(number: int) -> None:
        in_the_end(StoreHandle(store), claim(A, place(number)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def scene() -> list[Any]:
        replies = await asyncio.gather(*(store.aperform(claim(B, place(n))) for n in range(9, 49)))
        await store.aclose()
        return replies

    assert all(reply.applied for reply in asyncio.run(scene()))
    fresh = open_store(pair.url())
    assert fresh.ask(CountRecords()) == {State.PENDING: 49}
    fresh.close()


# --- opening ------------------------------------------------------------------------------------------


def test_durability_and_doctor_say_what_a_failover_may_take_back(pair):
    with semel.open(pair.url()) as ledger:
        assert "A failover to a replica may take back writes" in ledger.durability
        failover = next(found for found in examine(ledger.store) if found.subject == "failover")
        assert "min-replicas-to-write 1" in str(failover.fix)
        pair.primary.ask("CONFIG", "SET", "min-replicas-to-write", "1")
        failover = next(found for found in examine(ledger.store) if found.subject == "failover")
        assert "it takes no writes" in failover.text


def test_a_service_that_no_sentinel_watches_is_an_open_error(pair):
    with pytest.raises(OpenError, match="watches no 'order'"):
        open_store(pair.url().replace("/orders", "/order"))


def test_sentinels_of_which_none_answers_are_a_refusal(pair):
    with pytest.raises(StoreUnavailable, match=r"Nothing listens at .*Sentinel"):
        open_store(f"redis+sentinel://127.0.0.1:{free_port()}/orders")
    handle = StoreHandle(
        open_store(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{pair.sentinel.port}/orders")
    )
    assert handle.perform(claim(A)).applied
    handle.close()


def test_a_server_that_is_no_sentinel_is_told_apart(pair):
    with pytest.raises(StoreUnavailable, match="unknown command"):
        open_store(f"redis+sentinel://127.0.0.1:{pair.primary.port}/orders")


def test_a_replica_that_a_sentinel_takes_for_the_primary_is_refused(pair):
    astray = Sentinel("orders", pair.replica.port)
    try:
        astray.start()
        with pytest.raises(StoreUnavailable, match="is not the primary"):
            open_store(f"redis+sentinel://127.0.0.1:{astray.port}/orders")
    finally:
        astray.remove()


@MANNERS
def test_the_password_is_the_servers_and_a_sentinel_without_one_is_asked_all_the_same(manner):
    server = RedisServer(save="", requirepass="secret")
    sentinel = Sentinel("orders", server.port)
    sentinel.watch("auth-pass", "secret")
    try:
        server.start()
        sentinel.start()
        handle = manner(open_store(f"redis+sentinel://:secret@127.0.0.1:{sentinel.port}/orders/2"))
        assert handle.perform(claim(A)).applied
        assert str(server.ask_as("secret", "INFO", "keyspace")).startswith("b'# Keyspace\\r\\ndb2:")
        handle.close()
        with pytest.raises(OpenError, match="password"):
            open_store(f"redis+sentinel://127.0.0.1:{sentinel.port}/orders")
    finally:
        sentinel.remove()
        server.remove()


@MANNERS
def test_sentinels_and_servers_are_reached_by_tls(manner):
    server = TlsRedisServer(save="")
    tls = {
        "tls-port": str(free_port()),
        "tls-cert-file": str(server.certificate),
        "tls-key-file": str(server.certificate.with_suffix(".key")),
        "tls-ca-cert-file": str(server.certificate),
        "tls-auth-clients": "no",
        "tls-replication": "yes",
    }
    sentinel = Sentinel("orders", server.tls_port, **tls)
    try:
        server.start()
        sentinel.start()
        url = f"rediss+sentinel://127.0.0.1:{tls['tls-port']}/orders?timeout=2s"
        with pytest.raises(StoreUnavailable, match="certificate"):
            open_store(url)
        with trusting(server.certificate):
            handle = manner(open_store(url))
        assert handle.perform(claim(A)).applied
        assert handle.perform(settle(A)).applied
        handle.close()
    finally:
        sentinel.remove()
        server.remove()
