"""A server that stands still, with and without TLS: every wait for it ends, and service resumes by itself."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest

from semel.errors import StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.kernel.record import State
from semel.stores.base import CountRecords, ListRecords, Query, Store
from semel.stores.documents import Commit, Draft, Fetch
from semel.stores.urls import open_store
from tests.commands import AT, A, B, claim, look, renew, settle
from tests.faults.checks import PATIENCE_S, until
from tests.patience import HURRIED
from tests.postgres_server import PostgresServer, TlsPostgresServer
from tests.redis_server import RedisServer, TlsRedisServer
from tests.stores import trusting

KINDS: dict[str, Callable[[], Any]] = {
    "redis": lambda: RedisServer(save=""),
    "redis-tls": lambda: TlsRedisServer(save=""),
    "postgres": PostgresServer,
    "postgres-tls": TlsPostgresServer,
}


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    server = KINDS[request.param]()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def name() -> str:
    return f"t_{uuid.uuid4().hex[:16]}"


def opened(server: Any, name: str, **options: str) -> Store:
    with ExitStack() as trust:
        if hasattr(server, "certificate"):
            trust.enter_context(trusting(server.certificate))
        return open_store(server.url(name, **{"timeout": HURRIED, **options}), SYSTEM)


@contextmanager
def frozen(server: Any) -> Iterator[None]:
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


def refusal(answer: Future[Any]) -> type[BaseException] | None:
    """What came of it; TimeoutError if it waits for ever."""
    failure = answer.exception(PATIENCE_S)
    return None if failure is None else type(failure)


ASKED: dict[str, Any] = {
    "claim": claim(B, AT._replace(key="key-2")),
    "look": look(),
    "renew": renew(A),
    "settle": settle(A),
    "list": ListRecords("acme"),
    "count": CountRecords(),
    "write a document": Commit("acme", "f" * 32, {"n-1": None}, (Draft("n-1", b"{}"),)),
    "read a document": Fetch("acme", ("n-1",)),
}


def ask(store: Store, asked: Any) -> Any:
    return store.ask(asked) if isinstance(asked, Query) else store.perform(asked)


async def aask(store: Store, asked: Any) -> Any:
    return await (store.aask(asked) if isinstance(asked, Query) else store.aperform(asked))


def settled(store: Store) -> bool:
    """Whether the server is back; what it heard before it stood still may be done."""
    try:
        reply = store.perform(settle(A))
    except StoreUnavailable:
        return False
    assert reply.record is not None
    return reply.record.state is State.DONE


def test_threads_are_refused_in_time_and_service_resumes_by_itself(server, name) -> None:
    with closing(opened(server, name)) as store, ThreadPoolExecutor(len(ASKED)) as threads:
        assert store.perform(claim(A)).applied
        with frozen(server):
            answers = {act: threads.submit(ask, store, asked) for act, asked in ASKED.items()}
            assert {act: refusal(answer) for act, answer in answers.items()} == dict.fromkeys(
                ASKED, StoreUnavailable
            )
        until(lambda: settled(store), "service has resumed")


def test_tasks_are_refused_in_time_and_service_resumes_by_itself(server, name) -> None:
    store = opened(server, name)

    async def scene() -> dict[str, object]:
        assert (await store.aperform(claim(A))).applied
        with frozen(server):
            answers = asyncio.gather(*(aask(store, it) for it in ASKED.values()), return_exceptions=True)
            refusals = await asyncio.wait_for(answers, PATIENCE_S)
        await asyncio.to_thread(until, lambda: settled(store), "service has resumed")
        assert (await store.aperform(look())).record is not None
        await store.aclose()
        return dict(zip(ASKED, map(type, refusals), strict=True))

    assert asyncio.run(scene()) == dict.fromkeys(ASKED, StoreUnavailable)


def test_a_thread_that_comes_to_a_frozen_server_first_is_refused_in_time(server, name) -> None:
    opened(server, name).close()
    with ThreadPoolExecutor(1) as threads, frozen(server):
        assert refusal(threads.submit(opened, server, name)) is StoreUnavailable
    opened(server, name).close()


def test_a_task_whose_first_connection_meets_a_frozen_server_is_refused_in_time(server, name) -> None:
    store = opened(server, name)

    async def scene() -> None:
        with frozen(server), pytest.raises(StoreUnavailable):
            await asyncio.wait_for(store.aperform(claim(A)), PATIENCE_S)
        await store.aclose()

    asyncio.run(scene())


def test_a_large_request_to_a_frozen_server_is_refused_in_time(server, name) -> None:
    """So large that no buffer on the way takes it: the wait is for sending, not for an answer."""
    large = claim(B, AT._replace(key="key-2"), arguments=bytes(24 << 20))
    with closing(opened(server, name)) as store, ThreadPoolExecutor(1) as threads:
        assert store.perform(claim(A)).applied
        with frozen(server):
            assert refusal(threads.submit(store.perform, large)) is StoreUnavailable

            async def scene() -> None:
                with pytest.raises(StoreUnavailable):
                    await asyncio.wait_for(store.aperform(large), PATIENCE_S)

            asyncio.run(scene())
        until(lambda: settled(store), "service has resumed")


def test_whoever_waits_through_a_freeze_is_woken_after_it(server, name) -> None:
    with (
        closing(opened(server, name)) as store,
        closing(opened(server, name)) as owner,
        ThreadPoolExecutor(1) as threads,
    ):
        assert owner.perform(claim(A)).applied
        waiter = store.waiters.add(AT)
        store.watch()
        woken = threads.submit(waiter.wait, SYSTEM, PATIENCE_S)
        with frozen(server), pytest.raises(StoreUnavailable):
            store.perform(look())
        until(lambda: settled(owner), "service has resumed")
        assert woken.result(PATIENCE_S)


def test_a_store_that_listens_to_a_frozen_server_can_be_closed(server, name) -> None:
    store = opened(server, name)
    assert store.perform(claim(A)).applied
    store.waiters.add(AT)
    store.watch()
    with ThreadPoolExecutor(1) as threads, frozen(server):
        assert refusal(threads.submit(store.close)) is None
