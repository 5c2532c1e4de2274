"""What a Redis server and whoever runs it can do to the store."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

import semel
from bench.servers import free_port
from semel.audit.verify import verify
from semel.errors import OpenError, SemelError, StoreCorrupt, StoreUnavailable
from semel.kernel.clock import SYSTEM, Clock
from semel.kernel.record import Address, State
from semel.ledger.doctor import examine
from semel.stores.base import CountRecords, ListRecords, ReadEvents, SealEvents, Store, Sweep
from semel.stores.redis import RedisStore
from semel.stores.redis.commands import lane
from semel.stores.redis.packing import digest_of
from semel.stores.urls import open_store
from tests.commands import AT, LEASE, SECOND, A, B, claim, look, park, retake, settle
from tests.faults.bank import Bank
from tests.faults.caller import call
from tests.faults.certificates import certify
from tests.faults.checks import assert_history_holds, until
from tests.faults.payment import payment
from tests.faults.scenes import ShiftedClock
from tests.handles import AsyncStoreHandle, StoreHandle
from tests.patience import HURRIED
from tests.redis_server import DURABLE, RedisServer

HOUR_S = 3_600

ROOT = Path(__file__).resolve().parents[2]


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def open_redis(url: str, clock: Clock = SYSTEM) -> Any:
    """Any, because these tests look into the store."""
    return open_store(url, clock)


@pytest.fixture
def begin() -> Iterator[Callable[..., RedisServer]]:
    """Starts servers with settings of their own."""
    servers: list[RedisServer] = []

    def start(**settings: str) -> RedisServer:
        servers.append(RedisServer(**{name.replace("_", "-"): value for name, value in settings.items()}))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.remove()


@pytest.fixture
def server(begin: Callable[..., RedisServer]) -> RedisServer:
    return begin(**DURABLE)


@pytest.fixture
def opened() -> Iterator[list[Store]]:
    stores: list[Store] = []
    yield stores
    for store in stores:
        store.close()


@pytest.fixture
def store(server: RedisServer, opened: list[Store]) -> RedisStore:
    store = open_redis(server.url(timeout=HURRIED))
    opened.append(store)
    assert isinstance(store, RedisStore)
    return store


def place(number: int) -> Address:
    return Address("acme", "tool", f"place-{number}")


def again(ask: Callable[[], Any]) -> Any:
    """The answer, once the server gives one."""

    def tried() -> Any:
        try:
            return ask()
        except StoreUnavailable:
            return None

    return until(tried, "the server answers")


# --- kill -9 and what comes back ---------------------------------------------------------------------


def test_nothing_that_was_acknowledged_is_lost_when_the_server_is_killed_under_load(server, store):
    acknowledged: set[int] = set()
    stopping = threading.Event()

    def work(worker: int) -> None:
        number = worker
        while not stopping.is_set():
            number += 4
            try:
                if store.perform(claim(A, place(number))).applied:
                    acknowledged.add(number)
            except StoreUnavailable:
                stopping.wait(0.01)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        until_more(acknowledged, 50)
        server.kill()
        server.start()
    until_more(acknowledged, 1)
    stopping.set()
    for thread in threads:
        thread.join()
    for number in acknowledged:
        assert store.perform(look(place(number))).record.token == A


def until_more(acknowledged: set[int], by: int) -> None:
    before = len(acknowledged)
    until(lambda: len(acknowledged) >= before + by, "calls get through")


def test_after_a_restart_tasks_go_on_by_themselves(server, store):
    async def scene() -> None:
        await store.aperform(claim(A))
        await asyncio.to_thread(server.kill)
        with pytest.raises(StoreUnavailable):
            await store.aperform(settle(A))
        await asyncio.to_thread(server.start)
        assert (await store.aperform(settle(A))).applied
        await store.aclose()

    asyncio.run(scene())


def test_a_server_that_lost_acknowledged_writes_is_noticed_and_not_trusted(begin):
    server = begin()  # as it is installed: snapshots now and then
    with semel.open(server.url()) as ledger:
        assert "lost in a crash" in ledger.durability
        ledger.store.perform(claim(A, place(1)))
        server.ask("SAVE")
        ledger.store.perform(claim(A, place(2)))
        server.kill()
        server.start()
        for _ in range(2):
            with pytest.raises(StoreCorrupt, match="lost writes that it had acknowledged"):
                ledger.store.perform(claim(B, place(2)))
        with pytest.raises(StoreCorrupt):
            ledger.store.ask(ListRecords("acme"))
    fresh = open_redis(server.url())
    assert fresh.perform(look(place(1))).record.token == A
    fresh.close()


@pytest.mark.parametrize("manner", [StoreHandle, AsyncStoreHandle], ids=["sync", "async"])
def test_a_server_that_comes_back_empty_is_noticed_by_everyone_who_knew_it(begin, manner, opened):
    server = begin(save="")
    handle = manner(open_redis(server.url()))
    handle.perform(claim(A))
    handle.perform(settle(A))
    server.kill()
    server.start()
    with pytest.raises(StoreCorrupt, match="came back without its data"):
        again(lambda: handle.perform(claim(B)))
    newcomer = open_redis(server.url())
    opened.append(newcomer)
    assert newcomer.perform(claim(B)).applied
    with pytest.raises(StoreCorrupt):
        handle.perform(look())
    with pytest.raises(StoreCorrupt):
        handle.ask(CountRecords())
    handle.close()


def test_data_that_somebody_deletes_under_the_store_is_noticed_at_once(server, store):
    store.perform(claim(A))
    server.ask("FLUSHALL")
    with pytest.raises(StoreCorrupt, match="somebody deleted it"):
        store.perform(claim(B))


@pytest.mark.parametrize("query", [ListRecords("acme"), CountRecords(), ReadEvents(), Sweep()], ids=repr)
def test_questions_notice_missing_data_too(server, store, query):
    store.perform(claim(A))
    server.ask("FLUSHALL")
    with pytest.raises(StoreCorrupt, match="without its data"):
        store.ask(query)


def test_a_call_is_refused_while_the_server_is_away_and_the_tool_does_not_run(server, tmp_path):
    bank = Bank(tmp_path / "bank.jsonl")
    with semel.open(server.url(timeout=HURRIED)) as ledger:
        first = call(ledger, payment(bank, "park"), account="acc-1")
        server.kill()
        assert call(ledger, payment(bank, "park"), account="acc-2").code == "STORE_UNAVAILABLE"
        server.start()
        assert call(ledger, payment(bank, "park"), account="acc-2").receipt is not None
        assert call(ledger, payment(bank, "park"), account="acc-1") == first
        assert len(bank.entries()) == 2
        assert_history_holds(ledger)


# --- a server that does not do what it is asked ---------------------------------------------------------


@pytest.mark.parametrize("manner", [StoreHandle, AsyncStoreHandle], ids=["sync", "async"])
def test_a_frozen_server_is_a_refusal_in_time_and_service_resumes(server, manner):
    handle = manner(open_redis(server.url(timeout=HURRIED)))
    handle.perform(claim(A))
    server.freeze()
    try:
        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            handle.perform(settle(A))
    finally:
        server.thaw()
    assert again(lambda: handle.perform(settle(A))).record.state is State.DONE
    kinds = [event.kind for event in handle.ask(ReadEvents())]
    assert kinds == ["claimed", "settled"]
    handle.close()


def test_a_server_without_memory_refuses_and_nothing_is_half_written(begin, opened):
    server = begin(save="", maxmemory_policy="noeviction")
    store = open_redis(server.url())
    opened.append(store)
    store.perform(claim(A, place(0)))
    server.ask("CONFIG", "SET", "maxmemory", "1mb")
    with pytest.raises(StoreUnavailable, match="out of memory; the tool did not run"):
        store.perform(claim(A, place(1)))
    with pytest.raises(StoreUnavailable, match="out of memory; the outcome was not recorded"):
        store.perform(settle(A, place(0)))
    assert store.perform(look(place(1))).record is None
    assert store.perform(look(place(0))).record.state is State.PENDING
    server.ask("CONFIG", "SET", "maxmemory", "0")
    assert store.perform(settle(A, place(0))).applied
    assert [event.kind for event in store.ask(ReadEvents())] == ["claimed", "settled"]
    assert store.ask(CountRecords()) == {State.DONE: 1}


def test_filling_a_server_up_ends_in_refusals_and_never_in_forgetting(begin, opened):
    server = begin(save="", maxmemory_policy="noeviction")
    store = open_redis(server.url())
    opened.append(store)
    used = next(
        int(line.split(":")[1])
        for line in server.ask("INFO", "memory").decode().splitlines()
        if line.startswith("used_memory:")
    )
    server.ask("CONFIG", "SET", "maxmemory", str(used + (1 << 20)))
    taken = 0

    def take_all() -> None:
        nonlocal taken
        for number in range(10_000):
            store.perform(claim(A, place(number), arguments=b"x" * 1_000))
            taken += 1

    with pytest.raises(StoreUnavailable, match="out of memory"):
        take_all()
    assert taken > 10
    assert all(store.perform(look(place(number))).record is not None for number in range(taken))


def test_a_server_that_became_a_replica_is_a_refusal(server, store):
    store.perform(claim(A))
    server.ask("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(StoreUnavailable, match="read-only replica; the outcome was not recorded"):
        store.perform(settle(A))
    server.ask("REPLICAOF", "NO", "ONE")
    assert store.perform(settle(A)).applied


def test_a_server_that_forgot_the_steps_is_told_them_again(server, store):
    store.perform(claim(A))
    server.ask("FUNCTION", "FLUSH")
    assert store.perform(settle(A)).applied
    server.ask("FUNCTION", "FLUSH")

    async def scene() -> list[Any]:
        replies = await asyncio.gather(*(store.aperform(claim(A, place(number))) for number in range(20)))
        await store.aclose()
        return replies

    assert all(reply.applied for reply in asyncio.run(scene()))


# --- two versions ---------------------------------------------------------------------------------------


ANOTHER_PROCESS = """
import sys
from semel.stores.urls import open_store
from tests.commands import A, B, claim, settle
from tests.faults.test_redis_server import place

store = open_store(sys.argv[1])
assert store.perform(settle(A)).applied
assert store.perform(claim(B, place(1))).applied
store.close()
"""


def test_an_old_and_a_new_version_of_the_steps_work_side_by_side(server, store, tmp_path):
    ours = Path(semel.__file__).parent
    shutil.copytree(ours, tmp_path / "semel", ignore=shutil.ignore_patterns("__pycache__"))
    with open(tmp_path / "semel" / "stores" / "redis" / "steps" / "record.lua", "a") as steps:
        steps.write("local another_version = true\n")
    store.perform(claim(A))
    theirs = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    subprocess.run(
        [sys.executable, "-c", ANOTHER_PROCESS, server.url()], env=theirs, cwd=tmp_path, check=True
    )
    assert len(server.ask("FUNCTION", "LIST")) == 2
    assert store.perform(look()).record.state is State.DONE
    assert store.perform(settle(B, place(1))).applied
    assert [event.kind for event in store.ask(ReadEvents())] == ["claimed", "settled"] * 2


def test_a_store_in_a_form_that_this_version_does_not_know_is_not_opened(server, store):
    server.ask("HSET", "semel:{semel}:meta", "format", "3")
    with pytest.raises(OpenError, match="another version of Semel"):
        open_redis(server.url())


# --- damage ---------------------------------------------------------------------------------------------


def record_key(at: Address = AT) -> bytes:
    return lane(0, "semel").record(digest_of(at))


def bytes_of(server: RedisServer) -> bytes:
    data = server.ask("GET", record_key())
    assert isinstance(data, bytes)
    return data


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "one byte more": lambda data: data + b"x",
    "another format": lambda data: b"\x03" + data[1:],
    "no such state": lambda data: data[:1] + b"\x09" + data[2:],
    "another outcome": lambda data: data.replace(b"r-1", b"r-2"),
    "other arguments": lambda data: data.replace(b"1400000", b"9900000"),
    "another conversation": lambda data: data.replace(b"conv-42", b"conv-43"),
    "noise": lambda data: bytes(range(256)) * 2,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_record_is_not_an_absent_one(server, store, damage):
    store.perform(claim(A))
    store.perform(settle(A))
    server.ask("SET", record_key(), damage(bytes_of(server)))
    for command in (claim(B), look()):
        with pytest.raises(StoreCorrupt):
            store.perform(command)
    assert store.perform(claim(B, place(1))).applied


def test_a_record_under_another_ones_key_is_damage(server, store):
    store.perform(claim(A))
    store.perform(claim(B, place(1)))
    server.ask("SET", record_key(place(1)), bytes_of(server))
    with pytest.raises(StoreCorrupt):
        store.perform(look(place(1)))


def test_something_else_under_a_records_key_is_damage(server, store):
    server.ask("LPUSH", record_key(), "x")
    with pytest.raises(StoreCorrupt, match="Something else wrote"):
        store.perform(claim(A))


def test_a_damaged_record_does_not_keep_the_others_from_being_swept(server, store, opened, caplog):
    for number in range(3):
        store.perform(claim(A, place(number), lease_us=1))
    server.ask("SET", record_key(place(1)), b"noise")
    with caplog.at_level(logging.ERROR, logger="semel"):
        until(lambda: store.ask(CountRecords()).get(State.IN_DOUBT) == 2 or not store.ask(Sweep()), "swept")
    assert "damaged" in caplog.text


def test_a_damaged_event_is_told(server, store):
    store.perform(claim(A))
    server.ask("DEL", "semel:{semel.00}:events")
    server.ask("XADD", "semel:{semel.00}:events", "0-1", "e", "noise")
    with pytest.raises(StoreCorrupt, match="Event 1 is damaged"):
        store.ask(ReadEvents())


def test_an_audit_finds_the_log_whole_and_tells_what_was_added_or_removed(server, store):
    for number in range(20):
        store.perform(claim(A, place(number)))
        store.perform(settle(A, place(number)))
    semel.Ledger(store).sweeper.run_once()
    assert verify(store, tenants=["acme"]).whole
    server.ask("XDEL", "semel:{semel.00}:events", "0-7")
    assert [found.wrong for found in verify(store).breaks] == ["missing"]
    server.ask("XADD", "semel:{semel.00}:events", "1-7", "e", "forged")
    assert not verify(store).whole


# --- what the server says about itself --------------------------------------------------------------------


PERSISTENCE: dict[str, tuple[dict[str, str], str, str]] = {
    "always": (DURABLE, "survives a crash of the server and of its machine", "ok"),
    "every second": ({**DURABLE, "appendfsync": "everysec"}, "may take back the last second", "note"),
    "when the system likes": ({**DURABLE, "appendfsync": "no"}, "half a minute or more", "note"),
    "snapshots": ({"save": "3600 1"}, "lost in a crash of the server unless a snapshot", "danger"),
    "nothing": ({"save": ""}, "lost when the server stops", "danger"),
}


@pytest.mark.parametrize(("given", "words", "level"), PERSISTENCE.values(), ids=PERSISTENCE)
def test_durability_and_doctor_say_what_the_settings_mean(begin, given, words, level):
    with semel.open(begin(**given).url()) as ledger:
        assert words in ledger.durability
        levels = {finding.subject: finding.level for finding in examine(ledger.store)}
        assert levels["durability"] == level
        assert levels["eviction"] == levels["version"] == levels["clock"] == "ok"


def test_where_the_server_tells_no_settings_durability_is_unknown(begin):
    server = begin()
    server.ask("ACL", "SETUSER", "default", "-config")
    with semel.open(server.url()) as ledger:
        assert "Unknown" in ledger.durability
        levels = {finding.subject: finding.level for finding in examine(ledger.store)}
        assert (levels["durability"], levels["eviction"]) == ("note", "ok")


def test_a_server_that_evicts_is_refused_unless_one_accepts_it_loudly(begin, caplog):
    server = begin(save="", maxmemory_policy="allkeys-lru")
    with pytest.raises(OpenError, match="records would vanish"):
        open_redis(server.url())
    with caplog.at_level(logging.WARNING, logger="semel"), semel.open(server.url(eviction="allow")) as ledger:
        assert "allkeys-lru" in caplog.text
        levels = {finding.subject: finding.level for finding in examine(ledger.store)}
        assert levels["eviction"] == "danger"


def test_a_wrong_password_is_an_open_error_that_does_not_tell_it(begin):
    server = begin(save="", requirepass="right")
    for login in ("", ":hunter2@", "someone:hunter2@"):
        with pytest.raises(OpenError) as told:
            open_redis(server.url().replace("://", f"://{login}"))
        assert "hunter2" not in str(told.value)
    with semel.open(server.url().replace("://", "://:right@")) as ledger:
        ledger.store.perform(claim(A))

        async def scene() -> None:
            assert (await ledger.store.aperform(settle(A))).applied
            await ledger.store.aclose()

        asyncio.run(scene())


def test_a_password_that_was_changed_is_a_refusal_until_it_is_right_again(begin, opened):
    server = begin(save="", requirepass="right")
    store = open_redis(server.url(timeout=HURRIED).replace("://", "://:right@"))
    opened.append(store)
    store.perform(claim(A))
    server.kill()
    server.start(requirepass="other")
    with pytest.raises(StoreUnavailable, match="password") as told:
        store.perform(settle(A))
    assert "right" not in str(told.value)


def test_a_server_that_is_no_redis_is_told_apart(opened):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            client, _ = listener.accept()
            client.sendall(b"220 mail.example.org ESMTP\r\n")
            client.recv(100)
            client.close()

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(SemelError, match="does not speak the Redis protocol"):
            open_redis(f"redis://127.0.0.1:{listener.getsockname()[1]}?timeout={HURRIED}")


def test_nothing_that_listens_is_told(opened):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        with pytest.raises(StoreUnavailable, match="Nothing listens at"):
            open_redis(f"redis://127.0.0.1:{probe.getsockname()[1]}")


def test_tls_comes_from_the_url(begin, tmp_path, monkeypatch):
    trusted, key = certify(tmp_path, "server", "IP:127.0.0.1")
    port = free_port()
    files = {"tls_cert_file": str(trusted), "tls_key_file": str(key), "tls_auth_clients": "no"}
    server = begin(save="", tls_port=str(port), **files)
    url = server.url(timeout=HURRIED).replace("redis://", "rediss://").replace(f":{server.port}", f":{port}")
    with pytest.raises(StoreUnavailable, match="certificate"):
        open_redis(url)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    store = open_redis(url)
    large = bytes(range(256)) * 2_000

    async def scene(at: Address) -> None:
        assert (await store.aperform(claim(B, at, arguments=large))).applied
        replies = await asyncio.gather(*(store.aperform(look(at)) for _ in range(20)))
        assert {reply.record.request.arguments for reply in replies} == {large}

    assert store.perform(claim(A, arguments=large)).applied
    assert store.perform(look()).record.request.arguments == large
    for number, new_loop in enumerate(LOOPS.values()):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(scene(place(number)))
    store.close()


# --- clocks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift_s", [HOUR_S, -HOUR_S])
def test_a_server_whose_clock_is_an_hour_off_neither_frees_nor_loses_anything(server, opened, shift_s):
    """The server's clock cannot be moved here: the store tells it another time with every command."""
    right, wrong = open_redis(server.url()), open_redis(server.url(), ShiftedClock(shift_s))
    opened.extend((right, wrong))
    right.perform(claim(A))
    wrong.ask(Sweep())
    assert not wrong.perform(claim(B)).applied
    assert wrong.perform(settle(A)).applied or right.perform(settle(A)).applied
    assert right.perform(look()).record.state is State.DONE
    right.perform(claim(A, place(1)))
    right.perform(park(A, place(1)))
    first = right.perform(look(place(1))).record.fence
    second = wrong.perform(retake(A, B, place(1))).record.fence
    assert second > first


def test_the_time_is_the_servers_own(server, store):
    before = SYSTEM.now_us()
    told = store.perform(claim(A)).record
    assert before - SECOND <= told.created_at <= SYSTEM.now_us() + SECOND
    assert told.lease_until == told.created_at + LEASE


# --- processes, loops, many keys --------------------------------------------------------------------


def test_a_forked_child_makes_its_own_connections_and_leaves_the_parents_alone(store):
    store.perform(claim(A))
    child = os.fork()
    if child == 0:
        try:
            held = store.perform(look()).record.token == A
            asyncio.run(store.aperform(claim(B, place(1))))
            os._exit(0 if held else 1)
        except BaseException:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert store.perform(settle(A)).applied
    assert store.perform(look(place(1))).record.token == B


def test_connections_of_a_loop_that_ended_are_closed(server, store):
    def connections() -> int:
        return len(server.ask("CLIENT", "LIST").splitlines())

    for number in range(10):
        asyncio.run(store.aperform(claim(A, place(number))))
    assert connections() < 8


@pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)
def test_a_child_forked_on_a_running_loop_leaves_the_loops_connection_alone(server, store, new_loop):
    def theirs() -> set[bytes]:
        clients: Any = server.ask("CLIENT", "LIST")
        return {line.split()[0] for line in clients.splitlines() if b"cmd=fcall" in line}

    async def scene() -> None:
        await store.aperform(claim(A))
        before = theirs()
        if (child := os.fork()) == 0:
            try:
                os._exit(0 if store.perform(look()).record.token == A else 1)
            except BaseException:
                os._exit(2)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert (await store.aperform(settle(A))).applied
        assert before <= theirs()
        await store.aclose()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scene())


@pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # True: nobody told the loop to clear up.
def test_connections_of_a_loop_that_was_only_closed_are_closed_when_the_next_one_comes(
    server, store, new_loop
):
    before = len(server.ask("CLIENT", "LIST").splitlines())
    for number in range(10):
        loop = new_loop()
        loop.run_until_complete(store.aperform(claim(A, place(number))))
        loop.close()
    store.flush()
    del loop
    gc.collect()
    assert len(server.ask("CLIENT", "LIST").splitlines()) == before


def test_what_a_task_submits_while_its_loop_ends_is_carried_out(store):
    store.perform(claim(A))

    async def scene() -> None:
        store.submit(settle(A))

    asyncio.run(scene())
    store.flush()
    assert store.perform(look()).record.state is State.DONE


def settle_many(store: RedisStore, count: int) -> None:
    """So many keys of one tenant, settled by a thousand tasks at a time."""

    async def one(number: int) -> None:
        assert (await store.aperform(claim(A, place(number)))).applied
        assert (await store.aperform(settle(A, place(number), window_us=1))).applied

    async def scene() -> None:
        for start in range(0, count, 1_000):
            await asyncio.gather(*(one(number) for number in range(start, min(count, start + 1_000))))
        await store.aclose()

    asyncio.run(scene())


def assert_all_are_counted_sealed_and_swept(store: Any, count: int) -> None:
    assert store.ask(CountRecords()) == {State.DONE: count}
    sealed = 0
    while (seal := store.ask(SealEvents(limit=10_000))) is not None:
        sealed += seal.events
    assert sealed == 2 * count
    closed, more = 0, True
    while more:
        swept = store.ask(Sweep(limit=5_000))
        closed, more = closed + swept.closed, swept.more
    assert closed == count
    assert store.ask(CountRecords()) == {}
    assert store.perform(claim(B, place(0))).applied


@pytest.mark.parametrize(
    "count",
    [10_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(1_800)])],
)
def test_all_keys_of_one_tenant_are_counted_sealed_and_swept(begin, opened, count):
    server = begin(save="")
    settle_many(open_redis(server.url(timeout="60s")), count)
    opened.append(open_redis(server.url(timeout="60s")))
    assert_all_are_counted_sealed_and_swept(opened[0], count)
