"""Over a connection that drops, cuts, delays and doubles: one run, and to each request its own answer."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpcore
import pytest

from semel.client import AsyncGateway, Gateway, Problem
from semel.client.deadlines import DeadlineStream, deadline
from semel.client.driving import ServerAddress
from semel.kernel.clock import SYSTEM, SystemClock
from tests.client.conftest import Connect
from tests.client.strangers import SeenRequest, answer, stranger
from tests.gateway.conftest import Served, new_tenant
from tests.patience import PATIENCE_S
from tests.proxy import Proxy

# Time enough on any machine: what has to fail is made to.
PATIENT = {"within": f"{int(PATIENCE_S)}s", "try_for": "30s"}

STARTED = b'{"run_id": "run_1", "workflow_id": "hello", "status": "running"}'


@pytest.fixture
def proxy(served: Served) -> Iterator[Proxy]:
    """Between the client and a gateway."""
    between = Proxy(int(served.url.rpartition(":")[2]))
    yield between
    between.close()


def address(proxy: Proxy) -> str:
    return f"http://127.0.0.1:{proxy.port}"


class Mending(SystemClock):
    """A clock during whose first pause, or pauses, the connection is mended."""

    def __init__(self, proxy: Proxy, pauses: int = 1) -> None:
        self._proxy, self._left = proxy, pauses
        self.pauses = 0

    def _mend(self) -> None:
        self.pauses += 1
        if self.pauses >= self._left:
            self._proxy.restore()

    def sleep(self, seconds: float) -> None:  # type: ignore[override]
        self._mend()

    async def asleep(self, seconds: float) -> None:
        self._mend()


def one_run(served: Served, tenant: str, connect: Connect, run_id: str) -> None:
    """The tenant has this run and no other, and one key."""
    straight = connect(served.url, tenant=tenant, **PATIENT)
    assert [run.run_id for run in straight.runs.list()] == [run_id]
    assert [record.run_id for record in straight.records.list(scope="run")] == [run_id]


@pytest.mark.parametrize("trouble", ["drops replies", "drops requests", "cuts", "cuts at once", "refuses"])
def test_a_start_over_a_bad_connection_is_one_run(
    served: Served, proxy: Proxy, connect: Connect, trouble: str
) -> None:
    tenant = new_tenant()
    connect(served.url, tenant=tenant, **PATIENT).workflows.put("hello")
    # What is dropped has to be waited for: as short as an answer that does come allows.
    try_for = "3s" if "drops" in trouble else "30s"
    clock = Mending(proxy, pauses=1 if "drops" in trouble else 3)
    gateway = connect(address(proxy), tenant=tenant, **PATIENT | {"try_for": try_for}, clock=clock)
    proxy.drops_replies = trouble == "drops replies"
    proxy.drops_requests = trouble == "drops requests"
    proxy.refuses = trouble == "refuses"
    proxy.cuts_after = {"cuts": 40, "cuts at once": 0}.get(trouble)
    started = gateway.runs.start("hello", {"n": 1})
    assert clock.pauses >= 1
    assert started.replayed == (trouble not in ("drops requests", "refuses"))
    one_run(served, tenant, connect, started.run_id)


def test_a_start_whose_answers_are_slow_and_come_byte_by_byte_is_one_run(
    served: Served, proxy: Proxy, connect: Connect
) -> None:
    tenant = new_tenant()
    connect(served.url, tenant=tenant, **PATIENT).workflows.put("hello")
    proxy.delay_s, proxy.drips_s = 0.05, 0.001
    started = connect(address(proxy), tenant=tenant, **PATIENT).runs.start("hello", {})
    assert not started.replayed
    one_run(served, tenant, connect, started.run_id)


@pytest.mark.full
def test_when_every_answer_comes_twice_each_request_has_its_own(
    served: Served, proxy: Proxy, connect: Connect
) -> None:
    tenant = new_tenant()
    straight = connect(served.url, tenant=tenant, **PATIENT)
    straight.workflows.put("hello")
    straight.tenants.put(tenant, 100)
    gateway = connect(address(proxy), tenant=tenant, **PATIENT)
    proxy.doubles_replies = True
    ids = [gateway.runs.start("hello", {"n": number}, key=f"k-{number}").run_id for number in range(10)]
    assert [gateway.runs.get(id_).run_id for id_ in ids] == ids
    assert [gateway.runs.get(id_).input for id_ in ids] == [{"n": number} for number in range(10)]
    assert sorted(run.run_id for run in straight.runs.list()) == sorted(ids)


def test_an_answer_to_another_request_is_not_taken_and_its_connection_not_used_again(
    connect: Connect,
) -> None:
    def answers(request: SeenRequest, count: int) -> list[bytes]:
        named = "somebody-else" if count <= 2 else request.request_id
        body = STARTED.replace(b"run_1", b"run_%d" % count)
        return [answer(body, X_Request_Id=named)]

    with stranger(answers) as server:
        gateway = connect(server.url, **PATIENT)
        assert gateway.runs.start("hello", {}, key="k").run_id == "run_3"
        assert {request.headers["idempotency-key"] for request in server.seen} == {"k"}
        assert server.left.wait(PATIENCE_S)


def test_an_answer_that_names_no_request_is_taken(connect: Connect) -> None:
    """Gateways of before this, and what stands in front of one, name none."""
    with stranger(lambda *_: [answer(STARTED)]) as server:
        assert connect(server.url, **PATIENT).runs.start("hello", {}).run_id == "run_1"


def test_connections_are_used_again(connect: Connect) -> None:
    sockets = []

    def answers(request: SeenRequest, count: int) -> list[bytes]:
        sockets.append(threading.get_ident())  # one thread serves one connection
        return [answer(STARTED, X_Request_Id=request.request_id)]

    with stranger(answers) as server:
        gateway = connect(server.url, **PATIENT)
        for _ in range(5):
            gateway.runs.start("hello", {})
    assert len(set(sockets)) == 1


# --- refusals on the way ----------------------------------------------------------------------------


def test_a_full_tenant_is_asked_again_with_the_same_key_until_a_slot_is_free(
    served: Served, connect: Connect
) -> None:
    tenant = new_tenant()
    straight = connect(served.url, tenant=tenant, **PATIENT)
    straight.workflows.put("hello")
    straight.tenants.put(tenant, 1)
    first = straight.runs.start("hello", {})
    floors: list[float] = []

    class Freeing(SystemClock):
        """In the second pause the slot is freed, by somebody else."""

        def sleep(self, seconds: float) -> None:  # type: ignore[override]
            floors.append(seconds)
            if len(floors) == 2:
                with Gateway(served.url, tenant=tenant) as other:
                    other.runs.cancel(first.run_id)

        async def asleep(self, seconds: float) -> None:
            await asyncio.to_thread(self.sleep, seconds)

    second = connect(served.url, tenant=tenant, **PATIENT, clock=Freeing()).runs.start("hello", {}, key="k")
    assert not second.replayed
    assert len(floors) == 2
    assert min(floors) >= 1.0  # what Retry-After says
    assert [record.run_id for record in straight.records.list(scope="run", key="k")] == [second.run_id]


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Service Unavailable", "404 Not Found", "200 OK"])
def test_a_strangers_page_is_a_bad_gateway(connect: Connect, status: str) -> None:
    with stranger(lambda *_: [answer(b"<h1>Hello</h1>", status, "text/html")]) as server:
        gateway = connect(server.url, **PATIENT, tries=3)
        with pytest.raises(Problem) as refused:
            gateway.runs.start("hello", {})
        assert (refused.value.code, refused.value.retriable) == ("bad_gateway", True)
        assert refused.value.status == int(status.split()[0])
        assert len({request.headers["idempotency-key"] for request in server.seen}) == 1
        assert len(server.seen) == 3


@pytest.mark.parametrize("cookie", ["lb=1; Path=/", "lb=\xff"])
def test_a_strangers_cookie_is_not_kept(connect: Connect, cookie: str) -> None:
    page = answer(b"", "503 Service Unavailable", "text/html", Set_Cookie=cookie)
    with stranger(lambda *_: [page]) as server:
        gateway = connect(server.url, **PATIENT, tries=2)
        for _ in range(2):
            with pytest.raises(Problem) as refused:
                gateway.runs.start("hello", {})
            assert refused.value.code == "bad_gateway"
            assert refused.value.key
        assert len(server.seen) == 4
        assert not any("cookie" in request.headers for request in server.seen)


def test_nobody_there_is_unreachable(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(Problem) as refused:
        connect(f"http://127.0.0.1:{port}", tries=2).runs.start("hello", {})
    assert (refused.value.code, refused.value.retriable) == ("unreachable", True)
    assert (refused.value.status, refused.value.details) == (None, {"cause": "ConnectError"})


@pytest.mark.parametrize("url", ["https://semel.example.com", "HTTPS://semel.example.com"])
def test_who_a_server_says_that_it_is_can_be_checked_however_its_address_is_written(url: str) -> None:
    """Without the certificates of the world nobody would be believed, and everybody be unreachable."""
    assert ServerAddress(url, {}).tls().cert_store_stats()["x509_ca"] > 0


def test_an_answer_that_is_cut_short_is_unreachable(connect: Connect) -> None:
    def half(*_: object) -> Iterator[bytes]:
        yield answer(STARTED)[:-5]
        raise OSError  # the connection ends here

    with stranger(half) as server, pytest.raises(Problem) as refused:
        connect(server.url, tries=2, **PATIENT).runs.start("hello", {})
    assert refused.value.code == "unreachable"
    assert len(server.seen) == 2


# --- time -------------------------------------------------------------------------------------------


def endless(start: bytes) -> Iterator[bytes]:
    """A byte every now and then, for longer than any patience."""
    yield start
    for _ in range(10 * int(PATIENCE_S)):
        SYSTEM.sleep(0.1)
        yield b"x"


@pytest.mark.parametrize(
    "begins",
    [b"", b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n"],
    ids=["nothing", "a header without end", "a body without end"],
)
def test_a_try_ends_though_something_comes_all_the_time(connect: Connect, begins: bytes) -> None:
    parts = (lambda *_: endless(begins)) if begins else (lambda *_: _silent())
    with stranger(parts) as server:
        with pytest.raises(Problem) as refused:
            connect(server.url, within="60s", try_for="500ms", tries=2).runs.start("hello", {})
        assert refused.value.code == "unreachable"
        assert len(server.seen) == 2


class Ready(httpcore.NetworkStream):
    """A connection on which nobody has to wait for anything."""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return b" " * max_bytes

    def write(self, buffer: bytes, timeout: float | None = None) -> None: ...


def test_a_try_ends_though_nobody_has_to_wait_for_the_next_byte() -> None:
    stream = DeadlineStream(Ready())
    with deadline(0.001):
        SYSTEM.sleep(0.01)
        with pytest.raises(httpcore.ReadTimeout):
            stream.read(1)
        with pytest.raises(httpcore.WriteTimeout):
            stream.write(b"x")
    assert stream.read(1) == b" "  # whoever has no deadline


def _silent() -> Iterator[bytes]:
    yield b""
    SYSTEM.sleep(PATIENCE_S)


def test_a_request_that_nobody_reads_ends_too(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with pytest.raises(Problem) as refused:
            connect(url, within="60s", try_for="500ms", tries=1).runs.start("hello", {"x": "y" * 20_000_000})
    assert refused.value.code == "unreachable"


# --- cancellation -----------------------------------------------------------------------------------


def test_a_cancelled_request_leaves_nothing_hanging_and_the_client_goes_on() -> None:
    def answers(request: SeenRequest, count: int) -> Iterator[bytes]:
        if count == 1:
            yield b"HTTP/1.1 200 OK\r\n"
            server.left.wait(PATIENCE_S)
        yield answer(STARTED, X_Request_Id=request.request_id)

    async def scene() -> None:
        async with AsyncGateway(server.url, **PATIENT) as gateway:  # type: ignore[arg-type]
            asked = asyncio.create_task(gateway.runs.start("hello", {}))
            await asyncio.to_thread(server.asked.wait, PATIENCE_S)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            hung_up = asyncio.to_thread(_hung_up, server.connections[0])
            assert (await gateway.runs.start("hello", {})).run_id == "run_1"
            assert await hung_up
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others

    with stranger(answers) as server:
        asyncio.run(scene())
        assert len(server.seen) == 2


def _hung_up(connection: socket.socket) -> bool:
    connection.settimeout(PATIENCE_S)
    return connection.recv(1, socket.MSG_PEEK) == b""


def test_a_client_that_is_closed_during_a_try_says_with_which_key_to_ask_again() -> None:
    def answers(*_: object) -> None:
        client.close()

    with stranger(answers) as server:
        client = Gateway(server.url, **PATIENT)  # type: ignore[arg-type]
        with pytest.raises(Problem) as refused:
            client.runs.start("hello", {}, key="order-1")
    assert (refused.value.code, refused.value.key, len(server.seen)) == ("unreachable", "order-1", 1)


def test_an_asynchronous_client_that_is_closed_during_a_try_says_so_too() -> None:
    async def scene() -> None:
        client = AsyncGateway(server.url, **PATIENT)  # type: ignore[arg-type]
        asked = asyncio.create_task(client.runs.start("hello", {}, key="order-1"))
        await asyncio.to_thread(server.asked.wait, PATIENCE_S)
        await client.aclose()
        with pytest.raises(Problem) as refused:
            await asked
        assert (refused.value.code, refused.value.key) == ("unreachable", "order-1")

    with stranger(lambda *_: _silent()) as server:
        asyncio.run(scene())
        assert len(server.seen) == 1


def test_a_client_that_is_closed_between_two_tries_says_so_too() -> None:
    class Closing(SystemClock):
        def sleep(self, *_: object) -> None:
            calling.close()

        async def asleep(self, seconds: float) -> None:
            await awaiting.aclose()

    async def scene() -> None:
        await awaiting.runs.start("hello", {}, key="order-1")

    calling = Gateway("http://127.0.0.1:1", clock=Closing())
    awaiting = AsyncGateway("http://127.0.0.1:1", clock=Closing())
    for ask in (lambda: calling.runs.start("hello", {}, key="order-1"), lambda: asyncio.run(scene())):
        with pytest.raises(Problem) as refused:
            ask()
        assert (refused.value.code, refused.value.key) == ("unreachable", "order-1")
    with pytest.raises(RuntimeError, match="closed"):  # whoever begins then has made a mistake
        calling.runs.start("hello", {})


def test_a_cancelled_pause_ends_at_once() -> None:
    paused = asyncio.Event()

    class Sleeping(SystemClock):
        async def asleep(self, seconds: float) -> None:
            paused.set()
            await asyncio.Event().wait()

    async def scene() -> None:
        async with AsyncGateway("http://127.0.0.1:1", clock=Sleeping()) as gateway:
            asked = asyncio.create_task(gateway.runs.start("hello", {}))
            await asyncio.wait_for(paused.wait(), PATIENCE_S)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked

    asyncio.run(scene())


def test_a_crowd_of_callers_with_one_key_is_one_run(served: Served, connect: Connect) -> None:
    tenant = new_tenant()
    connect(served.url, tenant=tenant, **PATIENT).workflows.put("hello")

    async def scene() -> set[str]:
        async with AsyncGateway(served.url, tenant=tenant, **PATIENT) as gateway:  # type: ignore[arg-type]
            answers = await asyncio.gather(*(gateway.runs.start("hello", {}, key="k") for _ in range(50)))
        return {each.run_id for each in answers}

    (run_id,) = asyncio.run(scene())
    one_run(served, tenant, connect, run_id)


def test_threads_share_a_client(served: Served) -> None:
    tenant = new_tenant()
    found: list[Any] = []
    with Gateway(served.url, tenant=tenant, **PATIENT) as gateway:  # type: ignore[arg-type]
        made = [gateway.jobs.create("mail", number) for number in range(8)]

        def look(job: Any) -> None:
            found.extend(gateway.jobs.get(job.job_id).input == job.input for _ in range(10))

        threads = [threading.Thread(target=look, args=(job,)) for job in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert found == [True] * 80
