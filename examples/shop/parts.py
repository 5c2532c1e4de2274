"""The shop's processes: each is started again when it dies, as whoever runs services does it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import sample

from examples.shop.provider import Books

ROOT = Path(__file__).resolve().parents[2]

# What a person would wait for: much longer, and something is stuck.
PATIENCE_S = 120.0
_PAUSE_S = 0.05

# Below those that systems give to connections by themselves.
_PORTS = range(22_000, 25_000)


class Part:
    """One process, by its own id."""

    def __init__(
        self, name: str, words: list[str], environment: dict[str, str], log: Path, needs: int | None = None
    ) -> None:
        self.name, self.kills = name, 0
        self._words, self._environment, self._log = words, environment, log
        self._needs = needs  # the port of whoever has to be there when it starts
        self._process: subprocess.Popen[bytes] | None = None

    def keep_alive(self) -> None:
        """Started, unless it runs, or cannot yet."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._needs is not None and not _serves(self._needs):
            return
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self._words],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> bool:
        """Without a warning; whether there was something to kill."""
        process = self._process  # another takes its place as soon as it is dead
        if process is None or process.poll() is not None:
            return False
        process.kill()
        process.wait()
        self.kills += 1
        return True

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()


@dataclass
class Shop:
    """All of them, and where they are."""

    folder: Path
    store: str
    address: str = ""
    gateways: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    @property
    def books_file(self) -> Path:
        return self.folder / "provider.db"

    def books(self) -> Books:
        return Books(str(self.books_file))

    @contextmanager
    def kept_alive(self) -> Iterator[None]:
        """All run, and are looked after; none is left afterwards."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_PAUSE_S):
                for part in self.parts:
                    part.keep_alive()

        watching = threading.Thread(target=watch)
        with ExitStack() as stack:
            for part in self.parts:
                stack.callback(part.stop)
                part.keep_alive()
            watching.start()
            stack.callback(watching.join)
            stack.callback(over.set)
            yield

    def log(self) -> str:
        """What they said."""
        return "".join(
            f"--- {path.stem}\n{path.read_text(encoding='utf-8', errors='replace')}"
            for path in sorted(self.folder.glob("*.log"))
        )


@contextmanager
def opened(folder: Path, store: str | None = None, more: Sequence[Part] = ()) -> Iterator[Shop]:
    """Provider, two gateways, the shop, and a worker at each gateway; none is left afterwards."""
    store = store or f"sqlite:///{folder}/semel.db"
    shop_port, provider_port, *gateway_ports = free_ports(4)
    gateways = [f"http://127.0.0.1:{port}" for port in gateway_ports]
    shop = Shop(folder, store, f"http://127.0.0.1:{shop_port}", gateways)
    environment = os.environ | {
        "SEMEL_URL": store,
        "SHOP_PROVIDER": f"http://127.0.0.1:{provider_port}",
        "SHOP_GATEWAYS": ",".join(gateways),
    }

    def part(name: str, *words: str, needs: int | None = None) -> Part:
        return Part(name, list(words), environment, folder / f"{name.replace(' ', '-')}.log", needs)

    shop.parts = [
        part("provider", "examples.shop.provider", str(shop.books_file), str(provider_port)),
        part("shop", "uvicorn", "examples.shop.app:app", f"--port={shop_port}", "--log-level=error"),
    ]
    # A dead worker's jobs are another's after three seconds: nobody wants to wait a minute here.
    worker = ("semel", "worker", "examples.shop.fulfilment", "--lease=3s")
    for number, (port, gateway) in enumerate(zip(gateway_ports, gateways, strict=True), 1):
        shop.parts += [
            part(f"gateway {number}", "semel", "serve", "--dev", f"--port={port}"),
            part(f"worker {number}", *worker, f"--server={gateway}", needs=port),
        ]
    shop.parts += more
    with shop.kept_alive():
        for port in (provider_port, *gateway_ports, shop_port):
            _wait_for(port, shop)
        yield shop


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, nor is given by the system: a part that is started anew gets its own again."""
    return list(islice((port for port in sample(_PORTS, len(_PORTS)) if _is_free(port)), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _wait_for(port: int, shop: Shop) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not _serves(port):
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"The shop did not open: {shop.log()}")
        time.sleep(_PAUSE_S)


def _serves(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
    except OSError:
        return False
    return True
