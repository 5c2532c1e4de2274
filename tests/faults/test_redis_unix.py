"""A Redis server behind a socket of the machine, for threads, for event loops, and over a fork."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import semel
from semel.errors import OpenError, StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.kernel.record import State
from semel.stores.base import ReadEvents
from semel.stores.urls import open_store
from tests.commands import AT, A, B, claim, look, settle
from tests.faults.bank import Bank
from tests.faults.caller import call
from tests.faults.checks import PATIENCE_S, assert_history_holds, until
from tests.faults.payment import payment
from tests.handles import AsyncStoreHandle, StoreHandle
from tests.redis_server import DURABLE, UnixRedisServer

MANNERS = pytest.mark.parametrize("manner", [StoreHandle, AsyncStoreHandle], ids=["sync", "async"])


@pytest.fixture
def server() -> Iterator[UnixRedisServer]:
    server = UnixRedisServer(**DURABLE)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def again(ask: Callable[[], Any]) -> Any:
    """The answer, once the server gives one."""

    def tried() -> Any:
        try:
            return ask()
        except StoreUnavailable:
            return None

    return until(tried, "the server answers")


@MANNERS
def test_what_is_asked_over_the_socket_is_answered(server, manner):
    handle = manner(open_store(server.url()))
    large = bytes(range(256)) * 4_000
    assert handle.perform(claim(A, arguments=large)).applied
    assert handle.perform(look()).record.request.arguments == large
    assert handle.perform(settle(A)).applied
    assert [event.kind for event in handle.ask(ReadEvents())] == ["claimed", "settled"]
    clients: Any = server.ask("CLIENT", "LIST")
    ours = [line for line in clients.splitlines() if b"cmd=client" not in line]
    assert ours
    assert all(str(server.socket).encode() in line for line in ours)
    handle.close()


def test_a_guarded_tool_runs_once(server, tmp_path):
    bank = Bank(tmp_path / "bank.jsonl")
    with semel.open(server.url()) as ledger:
        first = call(ledger, payment(bank, "park"), account="acc-1")
        assert call(ledger, payment(bank, "park"), account="acc-1") == first
        assert len(bank.entries()) == 1
        assert_history_holds(ledger)


@MANNERS
def test_a_server_that_is_killed_is_a_refusal_and_service_resumes(server, manner):
    handle = manner(open_store(server.url(timeout="1s")))
    handle.perform(claim(A))
    server.kill()
    with pytest.raises(StoreUnavailable, match=r"Nothing listens at .*sock; the outcome was not recorded"):
        handle.perform(settle(A))
    server.start()
    assert again(lambda: handle.perform(settle(A))).record.state is State.DONE
    handle.close()


@MANNERS
def test_a_frozen_server_is_a_refusal_in_time(server, manner):
    handle = manner(open_store(server.url(timeout="300ms")))
    handle.perform(claim(A))
    server.freeze()
    try:
        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            handle.perform(settle(A))
    finally:
        server.thaw()
    assert again(lambda: handle.perform(settle(A))).record.state is State.DONE
    handle.close()


def test_whoever_waits_is_woken(server):
    store, other = open_store(server.url()), open_store(server.url())
    store.perform(claim(A))
    waiter = store.waiters.add(AT)
    store.watch()
    other.perform(settle(A))
    assert waiter.wait(SYSTEM, PATIENCE_S)
    for each in (store, other):
        each.close()


def test_a_forked_child_makes_its_own_connection(server):
    store = open_store(server.url())
    store.perform(claim(A))
    if (child := os.fork()) == 0:
        try:
            asyncio.run(store.aperform(claim(B, AT._replace(key="another"))))
            os._exit(0 if store.perform(look()).record.token == A else 1)
        except BaseException:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert store.perform(settle(A)).applied
    store.close()


@MANNERS
def test_login_and_database_are_those_of_the_url(manner):
    server = UnixRedisServer(save="", requirepass="secret")
    try:
        server.start()
        with pytest.raises(OpenError, match="password"):
            open_store(server.url())
        handle = manner(open_store(server.url(db="3").replace("://", "://:secret@")))
        assert handle.perform(claim(A)).applied
        assert b"db3:" in server.ask_as("secret", "INFO", "keyspace")  # type: ignore[operator]
        handle.close()
    finally:
        server.remove()


def test_a_path_without_a_server_is_a_refusal(server):
    with pytest.raises(StoreUnavailable, match="Nothing listens at"):
        open_store(f"redis+unix://{server.directory}/none.sock")
    with pytest.raises(StoreUnavailable, match="Nothing listens at"):
        open_store(f"redis+unix://{server.directory}/log")
