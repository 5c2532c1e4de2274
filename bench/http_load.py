"""A lean HTTP client, so that the server is what is measured: open connections, requests that are bytes."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import NamedTuple

from semel.kernel.clock import SYSTEM

HOST = "127.0.0.1"

_LENGTH = b"content-length:"


class HttpReply(NamedTuple):
    status: int
    body: bytes
    took_s: float  # since the request was sent; on a schedule, since it was due


def request(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """The whole request as it goes over the wire."""
    fields = {"Host": HOST, **headers, "Content-Length": str(len(body))}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode() + body


def is_ready(port: int) -> bool:
    """Whether a server on this machine says so."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class HttpConnection:
    """One request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, sent: bytes, since: float) -> HttpReply:
        self._writer.write(sent)
        head = await self._reader.readuntil(b"\r\n\r\n")
        body = await self._reader.readexactly(_length(head))
        # "HTTP/1.1 200 OK": the second word.
        return HttpReply(int(head[9:12]), body, perf_counter() - since)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def _length(head: bytes) -> int:
    """All servers here say how long their answer is; none sends it in chunks."""
    at = head.lower().index(_LENGTH) + len(_LENGTH)
    return int(head[at : head.index(b"\r\n", at)])


class HttpLoad:
    """So many connections, dealt out over these ports, on an event loop of their own.

    They are opened before the clock starts and closed after it stops: a server does not keep them while
    the other side has its turn.
    """

    def __init__(self, ports: Sequence[int], connections: int) -> None:
        # Here, not on top: it comes with the gateway's extra, as the servers do that are asked.
        import uvloop

        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._ports = [ports[number % len(ports)] for number in range(connections)]

    def crowd(self, requests: Sequence[bytes]) -> tuple[list[HttpReply], float]:
        """Every connection asks again as soon as it is answered: the replies in order, and the seconds."""
        return self._runner.run(self._crowd(requests))

    async def _crowd(self, requests: Sequence[bytes]) -> tuple[list[HttpReply], float]:
        replies: list[HttpReply] = [HttpReply(0, b"", 0.0)] * len(requests)
        left = iter(enumerate(requests))

        async def caller(connection: HttpConnection) -> None:
            for number, sent in left:
                replies[number] = await connection.ask(sent, perf_counter())

        async with _open(self._ports) as connections:
            began = perf_counter()
            await asyncio.gather(*map(caller, connections))
            return replies, perf_counter() - began

    def schedule(self, requests: Sequence[bytes], per_second: float) -> list[HttpReply]:
        """Requests go out when they are due, however the server keeps up; waiting for a connection counts."""
        return self._runner.run(self._schedule(requests, per_second))

    async def _schedule(self, requests: Sequence[bytes], per_second: float) -> list[HttpReply]:
        free: asyncio.Queue[HttpConnection] = asyncio.Queue()

        async def send(sent: bytes, due: float) -> HttpReply:
            connection = await free.get()
            reply = await connection.ask(sent, due)
            free.put_nowait(connection)
            return reply

        async with _open(self._ports) as connections:
            for connection in connections:
                free.put_nowait(connection)
            began = perf_counter()
            dues = [began + number / per_second for number in range(len(requests))]
            tasks = []
            for sent, due in zip(requests, dues, strict=True):
                # A timer is up to a millisecond late; the lateness is counted as the server's.
                if (early_s := due - perf_counter()) > 0:
                    await SYSTEM.asleep(early_s)
                tasks.append(asyncio.create_task(send(sent, due)))
            return await asyncio.gather(*tasks)

    def close(self) -> None:
        self._runner.close()


@asynccontextmanager
async def _open(ports: Sequence[int]) -> AsyncIterator[list[HttpConnection]]:
    opened = await asyncio.gather(*(asyncio.open_connection(HOST, port) for port in ports))
    connections = [HttpConnection(reader, writer) for reader, writer in opened]
    try:
        yield connections
    finally:
        closing = (connection.close() for connection in connections)
        await asyncio.gather(*closing, return_exceptions=True)
