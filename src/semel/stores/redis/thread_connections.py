"""Connections of threads: one request, or a row of them, at a time."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Sequence
from typing import Any

import hiredis

from semel.kernel.clock import SYSTEM
from semel.stores.redis import trouble
from semel.stores.redis.options import Node, RedisOptions

READ_BYTES = 1 << 16

Words = tuple[bytes, ...]


def packed(words: Words) -> bytes:
    data: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]
    return data


def mark(number: int) -> bytes:
    """A text that only this request is answered with, on its connection."""
    return b"semel-mark-%d" % number


def marked(text: bytes) -> bytes:
    """A request that is answered with the mark."""
    return packed((b"ECHO", text))


class OutOfStep(ConnectionError):
    """the server answered something that was not asked"""

    def __str__(self) -> str:
        return str(self.__doc__)


class ThreadConnection:
    """A connection that one thread at a time uses. After an error it is of no use any more."""

    __slots__ = ("_marks", "_reader", "_socket", "_timeout_s", "node")

    def __init__(self, node: Node, options: RedisOptions, at: Node) -> None:
        """To the server at this address, which is to be the node that others know by name."""
        self.node = node
        self._timeout_s = options.timeout_s
        self._marks = 0
        self._socket = connected(at, options)
        self._reader = hiredis.Reader()
        try:
            for words in options.greeting():
                answer = self.call(packed(words))
                if isinstance(answer, hiredis.ReplyError):
                    raise trouble.refused(answer)
            if node.way == "sentinel":
                trouble.check_primary(self.call(packed((b"ROLE",))))
        except BaseException:
            self.close()
            raise

    def call(self, data: bytes) -> Any:
        """The answer to one request; an error of the server's is an answer too. OSError if there is none.

        Whether it is to this very request, its caller can tell: by a number in it.
        """
        self._socket.sendall(data)
        return self._answer()

    def call_all(self, data: Sequence[bytes]) -> list[Any]:
        """The answers to these requests and to no others: a mark behind them has to come back behind them."""
        self._marks += 1
        sent = mark(self._marks)
        self._socket.sendall(b"".join((*data, marked(sent))))
        answers = [self._answer() for _ in data]
        came_back = self._answer()
        if type(came_back) is hiredis.ReplyError:
            # Nobody whom the server does not let in, or not any more, gets a mark: then that is the answer.
            return [came_back] * len(answers)
        if came_back != sent:
            raise OutOfStep
        return answers

    def _answer(self) -> Any:
        answer = self._reader.gets()
        if answer is not False:
            return answer
        give_up_at = 0.0
        while True:
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise ConnectionResetError("the server closed it")
            self._reader.feed(data)
            answer = self._reader.gets()
            if answer is not False:
                return answer
            # More than one piece: a server that sends drop by drop does not get longer for it.
            give_up_at = give_up_at or SYSTEM.monotonic() + self._timeout_s
            if SYSTEM.monotonic() > give_up_at:
                raise TimeoutError

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> list[Any]:
        """What has come without a request, once there is something to read; that may be no answer yet."""
        data = self._arrived()
        if data == b"":
            raise ConnectionResetError("the server closed it")
        self._reader.feed(data or b"")
        answers = []
        while (answer := self._reader.gets()) is not False:
            answers.append(answer)
        return answers

    def _arrived(self) -> bytes | None:
        if not isinstance(self._socket, ssl.SSLSocket):
            return self._socket.recv(READ_BYTES)
        # There may be no more to read than TLS's own: a ticket, or half of a message. Nobody waits for the
        # rest here, because what else there is to do would wait too.
        self._socket.settimeout(0)
        try:
            return self._socket.recv(READ_BYTES)
        except ssl.SSLWantReadError:
            return None
        finally:
            self._socket.settimeout(self._timeout_s)

    def unasked(self) -> bool:
        """Whether more came than was asked for: then the next answer would be somebody else's."""
        return self._reader.has_data()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


def connected(at: Node, options: RedisOptions) -> socket.socket:
    """A connected socket whose every wait is bounded."""
    plain = _unix(at, options) if at.way == "unix" else _tcp(at, options)
    try:
        if options.tls is not None:
            return _secured(plain, at, options.tls, options.timeout_s)
        # The kernel's own time-outs: Python's would ask poll() before every read.
        plain.settimeout(None)
        whole, part = divmod(options.timeout_s, 1)
        span = struct.pack("ll", int(whole), int(part * 1e6))
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, span)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, span)
        return plain
    except BaseException:
        plain.close()
        raise


def _tcp(at: Node, options: RedisOptions) -> socket.socket:
    """Small requests leave at once, and a peer that vanished is noticed on an idle connection."""
    sock = socket.create_connection((at.host, at.port), timeout=options.connect_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


def _unix(at: Node, options: RedisOptions) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(options.connect_s)
        sock.connect(at.host)
        return sock
    except BaseException:
        sock.close()
        raise


def _secured(plain: socket.socket, at: Node, tls: ssl.SSLContext, timeout_s: float) -> ssl.SSLSocket:
    """The TLS handshake has to end within the time to connect."""
    sock = tls.wrap_socket(plain, server_hostname=at.host)
    # Python's own time-outs: it takes the kernel's for a reason to read again, and would do so for ever.
    sock.settimeout(timeout_s)
    return sock
