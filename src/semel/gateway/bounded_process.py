"""Work that users can make as costly as they like, done in processes apart whose time is bounded.

Python runs one thread at a time, and neither a pattern nor a schema nor a parser lets go of it: whatever one
tenant's body costs, on a thread as on the loop, everybody waits for. A process of its own is bounded by the
system in time and memory (semel.gateway.bounded_process_main), and ended without asking it.

Processes are started when they are first needed, and kept. A tenant has one at a time, so that others find
one too.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

from semel.flow.problems import Refused
from semel.gateway import bounded_process_main
from semel.gateway.bounded_process_main import COUNT, CPU_S, LENGTH, REFUSED
from semel.gateway.large_requests import LargeRequests
from semel.kernel.large import LargeJson

_log = logging.getLogger("semel.gateway")

# Processes at work at once, each for another tenant; and how many of them are kept idle.
_PROCESSES_MAX = 4
_IDLE_MAX = 2

# Of one tenant, at work or waiting: more than it has runs that start at the same moment.
_PER_TENANT_MAX = 1_000

# For one piece of work, waiting for a processor included: longer than a busy machine needs.
_WALL_S = 60.0

# Once more if a process was ended from outside in the middle of its work.
_TRIES = 2

_PROGRAM = [sys.executable, "-P", "-m", bounded_process_main.__name__]


class Exhausted(Exception):
    """The work took more than it may; nothing came of it."""


class ProcessEnded(Exception):
    """The process is no more."""


class Companion:
    """One process, and the connection to it."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                _PROGRAM,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Ctrl-C at a terminal is for the gateway; this one ends with its connection.
                process_group=0,
            )
        self._channel.setblocking(False)

    async def ask(self, parts: Sequence[bytes]) -> list[bytes]:
        """The answer; ProcessEnded if there will be none."""
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(self._channel, bounded_process_main.packed(parts))
            return await self.answer()
        except OSError:
            raise ProcessEnded from None

    async def answer(self) -> list[bytes]:
        (count,) = COUNT.unpack(await self._exactly(COUNT.size))
        lengths = await self._exactly(count * LENGTH.size)
        return [await self._exactly(length) for (length,) in LENGTH.iter_unpack(lengths)]

    async def _exactly(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        data = bytearray(size)
        view, seen = memoryview(data), 0
        while seen < size:
            count = await loop.sock_recv_into(self._channel, view[seen:])
            if not count:
                raise ProcessEnded
            seen += count
        return bytes(data)

    def end(self) -> int:
        """How it ended: minus the number of a signal, or an exit status."""
        self._channel.close()
        self._process.kill()
        return self._process.wait()


class Apart:
    """The processes of one gateway."""

    def __init__(self) -> None:
        self._large = LargeRequests(_PER_TENANT_MAX)
        self._processes = asyncio.Semaphore(_PROCESSES_MAX)
        self._idle: list[Companion] = []

    # --- what is asked of them --------------------------------------------------------------------

    async def schema(self, tenant: str, schema: bytes) -> str | None:
        """Why nothing can be checked by this schema, in words; None if it can."""
        return await self._words(tenant, b"schema", schema)

    async def input(self, tenant: str, schema: bytes, input: bytes) -> str | None:
        """What is wrong with the input, in words; None if nothing is."""
        return await self._words(tenant, b"input", schema, input)

    async def check_sound(self, tenant: str, text: bytes) -> None:
        """The body is strict JSON; else a Refused says what it is not."""
        await self._read(tenant, b"sound", text)

    async def forms(self, tenant: str, text: bytes) -> LargeJson:
        """The whole body; a Refused if it is no strict JSON."""
        written, canonical = await self._read(tenant, b"forms", text)
        return LargeJson(written, canonical)

    async def member(self, tenant: str, name: str, text: bytes) -> tuple[bytes, LargeJson | None]:
        """The body without its member of this name, and the member; the whole body if it has none."""
        rest, *forms = await self._read(tenant, b"member", name.encode(), text)
        return rest, LargeJson(*forms) if forms else None

    async def _words(self, tenant: str, *parts: bytes) -> str | None:
        try:
            words = await self._do(tenant, parts)
        except Exhausted:
            return f"The check by input_schema takes more than {CPU_S:g} s or too much memory"
        return words[0].decode() if words else None

    async def _read(self, tenant: str, *parts: bytes) -> list[bytes]:
        try:
            return await self._do(tenant, parts)
        except Exhausted:
            raise Refused("request_invalid", f"To read the body takes more than {CPU_S:g} s.") from None

    # --- how it is done ---------------------------------------------------------------------------

    async def _do(self, tenant: str, parts: Sequence[bytes]) -> list[bytes]:
        with self._large.entry(tenant):
            async with self._large.turn(tenant), self._processes:
                return await self._insist(parts)

    async def _insist(self, parts: Sequence[bytes]) -> list[bytes]:
        for _ in range(_TRIES):
            try:
                status, *answer = await self._ask(parts)
            except ProcessEnded:
                continue  # not by its work; by whom, nobody here can tell
            if status == REFUSED:
                code, message = answer
                raise Refused(code.decode(), message.decode())
            return answer
        raise Exhausted

    async def _ask(self, parts: Sequence[bytes]) -> list[bytes]:
        companion = self._idle.pop() if self._idle else await self._started()
        answer: list[bytes] | None = None
        try:
            async with asyncio.timeout(_WALL_S):
                answer = await companion.ask(parts)
        except TimeoutError:
            raise Exhausted from None
        except ProcessEnded:
            if companion.end() == -signal.SIGPROF:
                raise Exhausted from None
            raise
        finally:
            self._keep_or_end(companion, sound=answer is not None)
        return answer

    async def _started(self) -> Companion:
        companion = await asyncio.to_thread(Companion)
        try:
            async with asyncio.timeout(_WALL_S):
                await companion.answer()
        except (ProcessEnded, OSError, TimeoutError):
            _log.error(
                '{"event": "a process for checks could not be started", "status": %d}', companion.end()
            )
            raise Refused("check_unavailable", retry_after_s=1) from None
        except BaseException:
            companion.end()
            raise
        return companion

    def _keep_or_end(self, companion: Companion, *, sound: bool) -> None:
        if sound and len(self._idle) < _IDLE_MAX:
            self._idle.append(companion)
        else:
            companion.end()

    def close(self) -> None:
        """None of them is left."""
        while self._idle:
            self._idle.pop().end()
