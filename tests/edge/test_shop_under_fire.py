"""The example shop, whose parts are killed at random: every order is paid once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.shop.parts import ROOT, Part
from examples.shop.story import play
from tests.faults.checks import until
from tests.faults.places import SQLITE
from tests.patience import PATIENCE_S
from tests.postgres_server import PostgresServer
from tests.redis_server import DURABLE, RedisServer

# Each part dies about five times.
SECONDS = 20


class StorePart(Part):
    """The store's server as one more part."""

    def __init__(self, server: RedisServer | PostgresServer) -> None:
        super().__init__("store", [], {}, Path())
        self._server = server
        self._is_dead = False

    def keep_alive(self) -> None:
        if self._is_dead:
            self._server.start()
            self._is_dead = False

    def kill(self) -> bool:
        if self._is_dead:
            return False
        self._server.kill()
        self._is_dead = True
        self.kills += 1
        return True


def test_every_order_is_paid_once_whatever_is_killed(tmp_path: Path) -> None:
    ending = play(tmp_path, SECONDS, seed=7, store=SQLITE.url(tmp_path))
    assert ending.wrong == [], ending.lines


@pytest.fixture(params=["redis", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer | PostgresServer]:
    server: RedisServer | PostgresServer
    if request.param == "redis":
        server = RedisServer(**DURABLE)
    else:
        server = PostgresServer()
        server.make()
    server.start()
    yield server
    server.remove()


def test_every_order_is_paid_once_also_where_the_store_is_killed(
    server: RedisServer | PostgresServer, tmp_path: Path
) -> None:
    ending = play(tmp_path, SECONDS, seed=7, store=server.url(), more=[StorePart(server)])
    assert ending.wrong == [], ending.lines


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM], ids=lambda stop: stop.name)
def test_a_shop_that_is_stopped_leaves_no_process(stop: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "examples.shop"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as shop:
        parts = until(lambda: _six_parts(shop.pid), "all parts run")
        shop.send_signal(stop)
        _, complaint = shop.communicate(timeout=PATIENCE_S)
    assert complaint == b"Stopped; nothing was counted.\n"
    assert [part for part in parts if Path("/proc", part).exists()] == []


def _six_parts(shop: int) -> list[str]:
    """Its processes, whichever of its threads made them; none before all are there."""
    listed = Path("/proc", str(shop), "task").glob("*/children")
    parts = [part for each in listed for part in each.read_text().split()]
    return parts if len(parts) == 6 else []
