"""A process full of callers: `python -m semel.lab.runbooks.contention_callers`.

A crowd in the process of a gateway would take its processor from it, and measure itself. So callers are in
processes of their own, which give way to it. Each caller has a connection of its own, and one key for all its
tries. What is sent, and when to come back, is decided by semel.client; its connections are plainer ones here,
which cost a fifth, and so leave the processor to the gateway.

    ▶ an Order, as JSON on one line      ◀ {"ready": true}: connections are made
    ▶ when to begin                      ◀ a CallerResults

It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson

from semel.client import Problem
from semel.client.driving import AwaitingDriver, ServerAddress
from semel.client.gateway import AsyncRunsGroup
from semel.client.retrying import Patience, Silence, Try, WireAnswer
from semel.kernel.clock import SYSTEM
from semel.kernel.durations import microseconds

Retry = Literal["none", "fixed", "jitter"]

# What a client with a fixed delay waits between two tries, whatever it is told.
FIXED_S = 0.1

# Two processes of callers leave the gateway about as much of two processors as both of them have (`nice`).
_NICE = 3

# More would not make a burst of a thousand any steeper.
_PROCESSES_MAX = 4

# Longer than the longest wait of a gateway. A crowd is watched no longer than this after its budget.
_ANSWER_S = 60.0
_LATE_S = 6.0

# Between all of them being ready and their beginning, so that none is late.
_AHEAD_S = 0.1


@dataclass(frozen=True)
class Order:
    """What the callers of one process do."""

    url: str
    api_key: str | None
    tenant: str | None
    workflow: str
    keys: list[str]  # one for each caller
    client: Retry
    budget_s: float
    hold_s: float | None  # how long an admitted run lasts; None: nobody ends it
    slot_wait: str | None = None  # how long a caller lets the gateway wait for a slot


@dataclass
class CallerResults:
    """What happened, in seconds since all of them began."""

    requests: list[tuple[float, float, int]] = field(default_factory=list)  # begun, took, status or 0
    admitted: list[tuple[float, float]] = field(default_factory=list)  # when, and when its end was asked for
    took_s: float = 0.0
    began: float = 0.0  # by the monotonic clock of the machine


# --- in the process ---------------------------------------------------------------------------------


class CallerConnection:
    """HTTP/1.1 on one connection, made when it is first needed."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, wish: Try, headers: Mapping[str, bytes]) -> WireAnswer:
        """The answer; OSError or EOFError if there is none."""
        if self._streams is None:
            host, port, secure = self._address.hostname, self._address.port, self._address.scheme == "https"
            self._streams = await asyncio.open_connection(host, port or (443 if secure else 80), ssl=secure)
        reader, writer = self._streams
        try:
            writer.write(_written(self._address.netloc, wish, headers))
            return await _read(reader)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _written(host: str, wish: Try, headers: Mapping[str, bytes]) -> bytes:
    content = wish.content or b""
    fields = {"Host": host.encode(), "Content-Length": b"%d" % len(content), **headers, **wish.headers}
    lines = b"".join(name.encode() + b": " + value + b"\r\n" for name, value in fields.items())
    return f"{wish.method} {wish.path} HTTP/1.1\r\n".encode() + lines + b"\r\n" + content


async def _read(reader: asyncio.StreamReader) -> WireAnswer:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    content = await reader.readexactly(int(headers.get("content-length", 0)))
    return WireAnswer(int(first.split()[1]), headers, content)


class CallerDriver(AwaitingDriver):
    """Carries out what the client decides. `answered(took_s, status)` hears of every try."""

    is_closed = False  # its connection is made anew where it has to be

    def __init__(
        self,
        connection: CallerConnection,
        server: ServerAddress,
        patience: Patience,
        answered: Callable[[float, int], None],
    ) -> None:
        self._connection = connection
        self._server, self._patience = server, patience
        self._answered = answered

    async def _tried(self, wish: Try) -> WireAnswer | Silence:
        sent = SYSTEM.monotonic()
        answer: WireAnswer | Silence
        try:
            answer = await self._connection.exchange(wish, self._server.headers)
        except (OSError, EOFError) as wrong:
            answer = Silence(type(wrong).__name__, begun=True)
        self._answered(SYSTEM.monotonic() - sent, answer.status if isinstance(answer, WireAnswer) else 0)
        return answer

    async def aclose(self) -> None:
        self._connection.close()


class Crowd:
    """The callers of one order, each with its connection."""

    def __init__(self, order: Order, connections: Sequence[CallerConnection]) -> None:
        self._order = order
        self._connections = connections
        self._server = server_of(order)
        self._tally = CallerResults()
        self._began = 0.0

    async def run(self, begin: float) -> CallerResults:
        self._began = begin
        await SYSTEM.asleep(max(0.0, begin - SYSTEM.monotonic()))
        callers = map(self._caller, self._connections, self._order.keys)
        try:
            async with asyncio.timeout(self._order.budget_s + _LATE_S):
                await asyncio.gather(*callers)
        except TimeoutError:
            pass  # who has no answer by now is not in the results
        self._tally.took_s = self._now()
        return self._tally

    def _now(self) -> float:
        return SYSTEM.monotonic() - self._began

    def _answered(self, took_s: float, status: int) -> None:
        self._tally.requests.append((self._now() - took_s, took_s, status))

    def _runs(
        self, connection: CallerConnection, patience: Patience, *, count: bool = True
    ) -> AsyncRunsGroup:
        answered = self._answered if count else lambda *_: None
        return AsyncRunsGroup(CallerDriver(connection, self._server, patience, answered))

    async def _caller(self, connection: CallerConnection, key: str) -> None:
        """It comes back with its key until it is admitted, or its budget is spent."""
        order, shown = self._order, self._order.url
        # To a client, what it asks the gateway to wait is on top of its budget. Here all have the same time.
        waits_s = microseconds(order.slot_wait) / 1e6 if order.slot_wait else 0.0
        jittered = Patience(SYSTEM, shown, order.budget_s - waits_s, _ANSWER_S)
        single = Patience(SYSTEM, shown, _ANSWER_S, _ANSWER_S, tries=1)
        runs = self._runs(connection, jittered if order.client == "jitter" else single)
        while True:
            try:
                run_id = (await runs.start(order.workflow, {}, key, wait=order.slot_wait)).run_id
            except Problem:
                if order.client != "fixed" or self._now() + FIXED_S >= order.budget_s:
                    return
                await SYSTEM.asleep(FIXED_S)
            else:
                break
        await self._hold(connection, run_id)

    async def _hold(self, connection: CallerConnection, run_id: str) -> None:
        began = self._now()
        if self._order.hold_s is None:
            self._tally.admitted.append((began, float("inf")))
            return
        await SYSTEM.asleep(self._order.hold_s)
        self._tally.admitted.append((began, self._now()))
        patience = Patience(SYSTEM, self._order.url, _ANSWER_S, _ANSWER_S)
        with suppress(Problem):  # whoever cleans up was quicker
            await self._runs(connection, patience, count=False).complete(run_id, "succeeded")


def server_of(order: Order) -> ServerAddress:
    headers = {"X-API-Key": order.api_key, "X-Tenant-ID": order.tenant}
    given = {name: value.encode() for name, value in headers.items() if value}
    if order.tenant:
        given["X-Principal-Id"] = b"runbook"
    return ServerAddress(order.url, given)


async def _obey() -> None:
    kept: dict[str, list[CallerConnection]] = {}  # by server
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        order = Order(**orjson.loads(line))
        connections = kept.setdefault(order.url, [])
        connections += [CallerConnection(order.url) for _ in order.keys[len(connections) :]]
        await asyncio.gather(*(_connect(each) for each in connections[: len(order.keys)]))
        _say({"ready": True})
        begin = orjson.loads(await asyncio.to_thread(sys.stdin.buffer.readline))
        _say(asdict(await Crowd(order, connections).run(begin)))


async def _connect(connection: CallerConnection) -> None:
    """A request that asks for nothing: the connection is there when the crowd begins."""
    with suppress(OSError, EOFError):  # whoever is not answered now says so when it counts
        await connection.exchange(Try("GET", "/healthz", {}, None, {}, "", _ANSWER_S), {})


def _say(what: Any) -> None:
    sys.stdout.buffer.write(orjson.dumps(what) + b"\n")
    sys.stdout.buffer.flush()


# --- from outside -----------------------------------------------------------------------------------


class CallerProcesses:
    """Several such processes."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self._processes = processes

    def run(self, order: Order) -> CallerResults:
        """What became of these callers, dealt out to all processes."""
        number = min(len(self._processes), len(order.keys))
        used = self._processes[:number]
        for index, process in enumerate(used):
            _tell(process, {**asdict(order), "keys": order.keys[index::number]})
        for process in used:
            _answer(process)
        begin = SYSTEM.monotonic() + _AHEAD_S
        for process in used:
            _tell(process, begin)
        whole = CallerResults(began=begin)
        for process in used:
            part = CallerResults(**_answer(process))
            whole.requests += [(at, took, status) for at, took, status in part.requests]
            whole.admitted += [(at, float("inf") if until is None else until) for at, until in part.admitted]
            whole.took_s = max(whole.took_s, part.took_s)
        return whole


@contextmanager
def caller_processes() -> Iterator[CallerProcesses]:
    """As many as there are processors, and at least two; none is left afterwards."""
    number = min(_PROCESSES_MAX, max(2, os.cpu_count() or 2))
    command = [sys.executable, "-m", "semel.lab.runbooks.contention_callers"]
    processes = [
        # A session of their own: Ctrl-C is for us, and we end them.
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        for _ in range(number)
    ]
    try:
        yield CallerProcesses(processes)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()


def _tell(process: subprocess.Popen[bytes], what: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(orjson.dumps(what) + b"\n")
    process.stdin.flush()


def _answer(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"A process of callers ended with {process.wait()}; see above.")
    return orjson.loads(line)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    asyncio.run(_obey())
