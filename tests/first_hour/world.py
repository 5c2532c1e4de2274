"""What a first-time user's programs meet: a provider, a model, a queue and a mail server, on the loopback.

Each does what it is asked before it answers. An answer can be held back: then the effect has happened, and
whoever asked for it does not know. That is where processes are killed.
"""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.patience import PATIENCE_S


@dataclass
class Held:
    """An answer that is held back, of the next request to this path."""

    path: str
    _asked: threading.Event = field(default_factory=threading.Event)
    _let_go: threading.Event = field(default_factory=threading.Event)

    def reached(self) -> None:
        """Returns once the effect has happened and the answer is being held."""
        assert self._asked.wait(PATIENCE_S), f"nobody asked for {self.path}"

    def let_go(self) -> None:
        self._let_go.set()

    def hold(self) -> None:
        self._asked.set()
        self._let_go.wait(PATIENCE_S)


class World:
    """Everything that has happened in it, by kind: `charges`, `refunds`, `parcels`, `mails`, `booked`."""

    def __init__(self) -> None:
        self.happened: dict[str, list[Any]] = {}
        self.queue: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._held: list[Held] = []

    def times(self, kind: str) -> int:
        return len(self.happened.get(kind, []))

    def note(self, kind: str, what: Any) -> dict[str, str]:
        with self._lock:
            self.happened.setdefault(kind, []).append(what)
            return {"id": f"{kind}-{self.times(kind)}"}

    @contextmanager
    def holding(self, path: str) -> Iterator[Held]:
        held = Held(path)
        self._held.append(held)
        try:
            yield held
        finally:
            held.let_go()

    def before_answer(self, path: str) -> None:
        with self._lock:
            held = next((each for each in self._held if each.path == path), None)
            if held is not None:
                self._held.remove(held)
        if held is not None:
            held.hold()

    def answer(self, path: str, body: Any) -> Any:
        match path.strip("/").split("/"):
            case ["model"]:
                return _model(body)
            case ["queue"]:
                return self.queue[0] if self.queue else None
            case ["queue", id_, "ack"]:
                self.before_answer("/ack")  # held before it counts: the queue has not heard of it
                self.queue = [message for message in self.queue if message["id"] != id_]
                return None
            case [kind]:
                return self.note(kind, body)
        raise AssertionError(f"nobody lives at {path}")


def _model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Asked about a broken parcel, it has the money paid back, and says so once it was."""
    if messages[-1]["role"] == "tool":
        return {"role": "assistant", "text": f"You have your money: {messages[-1]['result']['id']}"}
    return {
        "role": "assistant",
        "tool": "issue_refund",
        "arguments": {"payment": "p-1", "amount_minor": 500},
    }


# --- over the network -------------------------------------------------------------------------------


class WorldServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, world: World) -> None:
        super().__init__(("127.0.0.1", 0), WorldHandler)
        self.world = world

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever was killed does not read its answer."""


class WorldHandler(BaseHTTPRequestHandler):
    server: WorldServer

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = self.server.world.answer(self.path, json.loads(sent or b"null"))
        self.server.world.before_answer(self.path)
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The world has every effect already."""


class MailServer(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, world: World) -> None:
        super().__init__(("127.0.0.1", 0), MailHandler)
        self.world = world

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever was killed does not read its answer."""


class MailHandler(socketserver.StreamRequestHandler):
    """As much of SMTP (RFC 5321) as a client needs to hand over a message."""

    server: MailServer

    def handle(self) -> None:
        self._say("220 ready")
        recipient = ""
        while line := self.rfile.readline():
            verb, _, rest = line.decode().strip().partition(" ")
            match verb.upper():
                case "RCPT":
                    recipient = rest.partition(":")[2].strip("<>")
                    self._say("250 fine")
                case "DATA":
                    self._say("354 go on")
                    while self.rfile.readline() not in (b".\r\n", b""):
                        pass
                    self.server.world.note("mails", recipient)
                    self.server.world.before_answer("/mails")
                    self._say("250 sent")
                case "QUIT":
                    self._say("221 bye")
                    return
                case _:
                    self._say("250 fine")

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@contextmanager
def served(world: World) -> Iterator[dict[str, str]]:
    """The environment in which programs find it."""
    with WorldServer(world) as http, MailServer(world) as mail:
        servers: tuple[socketserver.BaseServer, ...] = (http, mail)
        for server in servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield {
                "WORLD": f"http://127.0.0.1:{http.server_address[1]}",
                "SMTP_PORT": str(mail.server_address[1]),
            }
        finally:
            for server in servers:
                server.shutdown()
