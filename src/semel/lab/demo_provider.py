"""The demonstration's payment provider: its own process and book of refunds, plain HTTP on the loopback.

`--takes-keys`: it honours `Idempotency-Key`, as real ones do. Without it every request is a refund.
Its first line of output is its port. It ends when its standard input does, so it never outlives its parent.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RefundBook:
    """What was paid."""

    def __init__(self, takes_keys: bool) -> None:
        self._takes_keys = takes_keys
        self._lock = threading.Lock()
        self._by_key: dict[str, dict[str, Any]] = {}
        self._requests = 0
        self._refunds: list[dict[str, Any]] = []

    def refund(self, request: dict[str, Any], key: str | None) -> dict[str, Any]:
        """The refund that this request led to: the first one of its key, where keys are taken."""
        with self._lock:
            self._requests += 1
            if self._takes_keys and key in self._by_key:
                return self._by_key[key]
            made = {"refund_id": f"re_{len(self._refunds) + 1}", **request}
            self._refunds.append(made)
            if key is not None:
                self._by_key[key] = made
            return made

    def balance(self) -> dict[str, Any]:
        with self._lock:
            return {"requests": self._requests, "refunds": list(self._refunds)}


class ProviderServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, book: RefundBook) -> None:
        super().__init__(("127.0.0.1", 0), ProviderHandler)
        self.book = book

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed does not read its answer; that is what this provider is for."""


class ProviderHandler(BaseHTTPRequestHandler):
    server: ProviderServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(self.server.book.refund(json.loads(body), self.headers.get("Idempotency-Key")))

    def do_GET(self) -> None:
        self._answer(self.server.book.balance())

    def _answer(self, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """No log: the book has every refund."""


def _leave_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    server = ProviderServer(RefundBook("--takes-keys" in sys.argv))
    print(server.server_address[1], flush=True)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
