"""Servers that are no gateway: they answer with the bytes that a test gives."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class SeenRequest(NamedTuple):
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def request_id(self) -> str:
        return self.headers["x-request-id"]


# What is sent, part by part; a connection is closed after a request that is answered with None.
Answers = Callable[[SeenRequest, int], Iterable[bytes] | None]


class Stranger:
    """Listens on a loopback port. `seen` are the requests; `left` is set once a client has hung up."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.seen: list[SeenRequest] = []
        self.left = threading.Event()
        self.asked = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            while (request := _request(client)) is not None:
                self.seen.append(request)
                self.asked.set()
                parts = self._answers(request, len(self.seen))
                if parts is None:
                    break
                for part in parts:
                    client.sendall(part)
        except OSError:
            pass
        self.left.set()
        client.close()

    def close(self) -> None:
        # Whoever waits in accept is woken by this.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for client in self.connections:
            client.close()


def _request(client: socket.socket) -> SeenRequest | None:
    text = b""
    while b"\r\n\r\n" not in text:
        if not (part := client.recv(65_536)):
            return None
        text += part
    head, _, body = text.partition(b"\r\n\r\n")
    length = int(found[1]) if (found := _LENGTH.search(head)) else 0
    while len(body) < length:
        body += client.recv(65_536)
    line, *fields = head.decode().split("\r\n")
    headers = dict(field.split(": ", 1) for field in fields)
    return SeenRequest(line, {name.lower(): value for name, value in headers.items()}, body)


@contextmanager
def stranger(answers: Answers) -> Iterator[Stranger]:
    listening = Stranger(answers)
    try:
        yield listening
    finally:
        listening.close()


def answer(body: bytes, status: str = "200 OK", media: str = "application/json", **headers: str) -> bytes:
    """An answer as bytes; `_` in a header's name is `-`."""
    fields = {"Content-Type": media, "Content-Length": str(len(body))}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode("latin-1") + body
