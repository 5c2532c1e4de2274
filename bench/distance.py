"""Distance to a server: a process between it and its clients that hands everything on a little later.

A process of its own, so that it takes no time from the callers that are measured. What arrives while other
bytes are on their way is not held up by them: it delays, and limits no rate.

`python -m bench.distance PORT DELAY_S` prints its own port. It ends when its standard input does.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path
from time import perf_counter
from typing import IO, Any, Self

# Where `python -m bench…` finds the bench, wherever we were called from.
REPOSITORY = Path(__file__).resolve().parent.parent

_CHUNK_BYTES = 1 << 16


class Distance:
    """A port that leads to another one, where a round trip takes `round_trip_s` longer."""

    def __init__(self, port: int, round_trip_s: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.distance", str(port), str(round_trip_s / 2)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd=REPOSITORY,
        )
        self.port = int(_pipe(self._process.stdout).readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for end in (self._process.stdin, self._process.stdout):
            _pipe(end).close()
        self._process.wait()


def _pipe(end: IO[bytes] | None) -> IO[bytes]:
    assert end is not None
    return end


class DelayedLink:
    """Carries bytes between pairs of sockets, on one thread.

    `select`, because it waits to the microsecond: others round up to a whole millisecond.
    """

    def __init__(self, port: int, delay_s: float) -> None:
        self._port, self._delay_s = port, delay_s
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._other: dict[socket.socket, socket.socket] = {}
        # Everything takes equally long, so what came first is due first.
        self._on_its_way: deque[tuple[float, socket.socket, bytes]] = deque()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def run(self, until: IO[bytes]) -> None:
        """Until there is something to read there, or its end."""
        while True:
            watched: list[Any] = [until, self._listener, *self._other]
            ready, _, _ = select.select(watched, [], [], self._wait_s())
            if until in ready:
                return
            for end in ready:
                if end is self._listener:
                    self._accept()
                elif end in self._other:
                    self._receive(end)
            self._deliver()

    def _wait_s(self) -> float | None:
        return max(0.0, self._on_its_way[0][0] - perf_counter()) if self._on_its_way else None

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(("127.0.0.1", self._port))
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._other[client], self._other[server] = server, client

    def _receive(self, end: socket.socket) -> None:
        try:
            data = end.recv(_CHUNK_BYTES)
        except OSError:
            data = b""
        target = self._other[end]
        if not data:
            # What was sent before still arrives; then the other side sees the end.
            del self._other[end]
        self._on_its_way.append((perf_counter() + self._delay_s, target, data))

    def _deliver(self) -> None:
        while self._on_its_way and self._on_its_way[0][0] <= perf_counter():
            _, target, data = self._on_its_way.popleft()
            try:
                target.sendall(data) if data else target.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has gone, and whoever sent this will notice by itself


def main() -> None:
    link = DelayedLink(int(sys.argv[1]), float(sys.argv[2]))
    print(link.port, flush=True)
    link.run(sys.stdin.buffer)


if __name__ == "__main__":
    main()
