"""A small TCP proxy between a store and its server: it delays, drops, doubles and cuts what passes."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass

CHUNK_BYTES = 65_536

# So late that the first one has been read.
REPEAT_S = 0.02


@dataclass
class Fate:
    """What has befallen one connection."""

    deaf: bool = False  # it gets no reply any more
    repeats_next: bool = False  # its next reply is kept, and comes again
    kept: bytes | None = None  # a reply that comes again when something else is asked


class Proxy:
    """Listens on a loopback port of its own. All switches may be turned at any time, from any thread."""

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self.delay_s = 0.0  # each way
        self.drips_s = 0.0  # what the server says arrives byte by byte, with such pauses
        self.drops_replies = False  # what the server says is lost, and the connection stays
        self.doubles_replies = False  # what the server says arrives twice
        self.repeats_replies = False  # what the server says arrives, and some time later again
        self.repeated = 0  # so many times
        self.repeats_to_next = False  # what is asked next is answered, and again when something else is asked
        self.deafens: bytes | None = None  # the connection on which this is asked next gets no reply any more
        self.drops_requests = False  # a one-way cut: what the client says is lost, and the connection stays
        self.lost: list[bytes] = []  # so much of it
        self.heard: bytearray | None = None  # all that clients say from now on, in turn
        self.cuts_after: int | None = None  # so many bytes of replies from now on, then both sides are cut
        self.refuses = False  # nobody is let in
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuses:
                client.close()
                continue
            try:
                server = socket.create_connection(self._to, timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
            fate = Fate()
            for source, target, replies in ((client, server, False), (server, client, True)):
                told = (source, target, replies, fate)
                threading.Thread(target=self._carry, args=told, daemon=True).start()

    def _hear(self, chunk: bytes, fate: Fate) -> None:
        if self.heard is not None:
            self.heard += chunk
        if self.deafens is not None and self.deafens in chunk:
            self.deafens, fate.deaf = None, True

    def _carry(self, source: socket.socket, target: socket.socket, replies: bool, fate: Fate) -> None:
        try:
            while chunk := source.recv(CHUNK_BYTES):
                if self.delay_s:
                    time.sleep(self.delay_s)
                if not replies:
                    self._hear(chunk, fate)
                if replies and (self.drops_replies or fate.deaf):
                    continue
                if not replies and self.drops_requests:
                    self.lost.append(chunk)
                    continue
                if replies:
                    self._keep(chunk, fate)
                else:
                    self._repeat(source, fate)
                if replies and self.doubles_replies:
                    chunk += chunk
                cut, again = replies and self._cut(len(chunk)), replies and self.repeats_replies
                while replies and self.drips_s and len(chunk) > 1:
                    target.sendall(chunk[:1])
                    chunk = chunk[1:]
                    time.sleep(self.drips_s)
                target.sendall(chunk[: self._left(chunk)] if cut else chunk)
                if cut:
                    self.cuts_after = None
                    break
                if again:
                    time.sleep(REPEAT_S)
                    target.sendall(chunk)
                    self.repeated += 1
        except OSError:
            pass
        self._end(source, target)

    def _repeat(self, client: socket.socket, fate: Fate) -> None:
        """Something is asked: what was kept comes first, and the answer to this is kept if that was ordered.

        It is ordered by what is asked: a late reply on a connection that was given up is not the next one.
        """
        if fate.kept is not None:
            self.repeated += 1
            client.sendall(fate.kept)
            fate.kept = None
        if self.repeats_to_next:
            self.repeats_to_next, fate.repeats_next = False, True

    def _keep(self, reply: bytes, fate: Fate) -> None:
        if fate.repeats_next:
            fate.repeats_next, fate.kept = False, reply

    def _cut(self, count: int) -> bool:
        if self.cuts_after is None:
            return False
        if self.cuts_after >= count:
            self.cuts_after -= count
            return False
        return True

    def _left(self, chunk: bytes) -> int:
        return min(len(chunk), self.cuts_after or 0)

    def _end(self, *ends: socket.socket) -> None:
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()
        with self._lock:
            self._open.difference_update(ends)

    def cut(self) -> None:
        """Every connection is broken; new ones are let in."""
        with self._lock:
            ends = tuple(self._open)
        self._end(*ends)

    def restore(self) -> None:
        """Everything passes again."""
        self.delay_s, self.drips_s, self.cuts_after = 0.0, 0.0, None
        self.repeats_replies = self.repeats_to_next = False
        self.deafens = None
        self.drops_replies = self.drops_requests = self.doubles_replies = self.refuses = False

    def close(self) -> None:
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()
        self.cut()
