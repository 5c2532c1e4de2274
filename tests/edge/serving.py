"""The shop as a process on a free port, for whoever sends it requests."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any

import httpx

from tests.gateway.serving import NO_TLS, quiet_environment, until
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]

USER = {"Authorization": "Bearer of-ann"}


class ShopProcess:
    """Started, asked, killed by its own id."""

    def __init__(self, framework: str, url: str, folder: Path, **options: Any) -> None:
        self.framework = framework
        self.url = url
        self._folder = folder
        told = {"framework": framework, "url": url, "folder": str(folder), "options": options}
        self._said = (folder / f"said-{uuid.uuid4().hex}").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.edge.shop", json.dumps(told)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=quiet_environment(),
        )
        self._port = 0
        self._client: httpx.Client | None = None

    @property
    def port(self) -> int:
        if not self._port:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            assert line, f"the shop did not open: {self.said()}"
            self._port = int(line)
        return self._port

    def said(self) -> str:
        self._said.seek(0)
        return self._said.read()

    @property
    def client(self) -> httpx.Client:
        if self._client is None:
            # No limit of its own to connections: sixty-four at once are to be at once.
            limits = httpx.Limits(max_connections=None)
            nowhere = CookieJar(DefaultCookiePolicy(allowed_domains=[]))  # who asks is said by each test
            self._client = httpx.Client(
                base_url=f"http://127.0.0.1:{self.port}",
                timeout=PATIENCE_S,
                verify=NO_TLS,
                limits=limits,
                cookies=nowhere,
            )
        return self._client

    def post(
        self,
        path: str,
        body: str | bytes = b"",
        *,
        key: str | None = None,
        variant: str = "",
        method: str = "POST",
        headers: dict[str, str] | None = None,
        user: dict[str, str] = USER,
    ) -> httpx.Response:
        sent = {"Content-Type": "text/plain", **user, **(headers or {})}
        if key is not None:
            sent["Idempotency-Key"] = key
        if path == "/raises":
            sent["Connection"] = "close"  # as the server does then, without saying so
        if variant:
            sent["X-Variant"] = variant
        return self.client.request(method, path, content=body, headers=sent)

    def open_gate(self, name: str) -> None:
        assert self.client.post(f"/gates/{name}").status_code == 200

    def effects(self, what: str) -> int:
        """How often it did this."""
        return self.lines().count(what)

    def lines(self) -> list[str]:
        path = self._folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    def until_effect(self, what: str, times: int = 1) -> None:
        until(lambda: self.effects(what) >= times, f"the shop did {what}")

    def kill(self) -> None:
        self._process.kill()
        assert self.wait() == -signal.SIGKILL

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        return self._process.wait(PATIENCE_S)

    def remove(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._process.poll() is None:
            self._process.kill()
        self.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._said.close()


Shops = Callable[..., ShopProcess]


@contextmanager
def shops(folder: Path) -> Iterator[Shops]:
    """Starts shops; none of them is left afterwards."""
    with ExitStack() as stack:

        def start(framework: str, url: str, **options: Any) -> ShopProcess:
            shop = ShopProcess(framework, url, folder, **options)
            stack.callback(shop.remove)
            return shop

        yield start
