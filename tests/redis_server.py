"""Real Redis servers, private to the tests: on free ports, in temporary directories, ended by their id."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import hiredis

from tests.faults.certificates import certify
from tests.missing import cannot
from tests.patience import PATIENCE_S

# How processes that a test starts find the servers of their parent.
PORT_VARIABLE = "SEMEL_TEST_REDIS_PORT"
CLUSTER_VARIABLE = "SEMEL_TEST_REDIS_CLUSTER_PORTS"
TLS_VARIABLE = "SEMEL_TEST_REDIS_TLS"

# A server starts in milliseconds; on a busy machine it takes longer, and a cluster agrees with itself later.
START_S = PATIENCE_S

# What it means to be safe: these tests want the strongest, unless they say otherwise.
DURABLE = {"appendonly": "yes", "appendfsync": "always", "save": ""}

SLOTS = 16_384


def need_redis() -> str:
    """Skips with one clear line where there is no Redis; in CI that is a failure."""
    where = shutil.which("redis-server")
    if where is None:
        cannot("Redis is not installed: apt-get install redis-server")
    return where


def free_port() -> int:
    """A port that nobody has, nor the one 10 000 above it, which a cluster's node takes for its gossip."""
    while True:
        with socket.socket() as probe, socket.socket() as gossip:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            try:
                gossip.bind(("127.0.0.1", port + 10_000))
            except (OSError, OverflowError):
                continue
            return port


class RedisServer:
    """One server, not yet started."""

    def __init__(self, **settings: str) -> None:
        self._binary = need_redis()
        self._settings = settings
        self.directory = Path(tempfile.mkdtemp(prefix="semel-redis-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, **settings: str) -> None:
        """It answers, with its data loaded."""
        said = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.directory),
            "enable-debug-command": "yes",
            **self._settings,
            **settings,
        }
        words = [word for name, value in said.items() for word in (f"--{name}", value)]
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._binary, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        give_up_at = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, (self.directory / "log").read_text()[-2_000:]
            assert time.monotonic() < give_up_at, "Redis does not start"
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            return not str(self.ask("PING")).startswith("LOADING")
        except OSError:
            return False

    def ask(self, *words: str | bytes) -> object:
        """The answer to one command, by a connection of its own."""
        return self._ask([words])

    def ask_as(self, password: str, *words: str | bytes) -> object:
        """The same, by somebody who knows the password."""
        return self._ask([("AUTH", password), words])

    def _ask(self, commands: Sequence[tuple[str | bytes, ...]]) -> object:
        """The answer to the last one."""
        answer: object = None
        with socket.create_connection(("127.0.0.1", self.port), timeout=START_S) as connection:
            reader = hiredis.Reader()
            for words in commands:
                connection.sendall(hiredis.pack_command(words))  # type: ignore[arg-type]
                while (answer := reader.gets()) is False:
                    data = connection.recv(65_536)
                    if not data:
                        raise ConnectionResetError
                    reader.feed(data)
        return answer

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """kill -9."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(START_S)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def empty(self) -> None:
        """What a stopped server kept is gone."""
        shutil.rmtree(self.directory)
        self.directory.mkdir()

    def url(self, prefix: str = "semel", **options: str) -> str:
        return url_of(f"redis://127.0.0.1:{self.port}", prefix, options)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class TlsRedisServer(RedisServer):
    """One that also speaks TLS, on a port of its own; `certificate` vouches for it."""

    def __init__(self, **settings: str) -> None:
        super().__init__(**settings)
        self.certificate, key = certify(self.directory, "server", "IP:127.0.0.1")
        self.tls_port = free_port()
        self._settings = {
            **settings,
            "tls-port": str(self.tls_port),
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(key),
            "tls-auth-clients": "no",
        }

    def url(self, prefix: str = "semel", **options: str) -> str:
        return url_of(f"rediss://127.0.0.1:{self.tls_port}", prefix, options)


def url_of(place: str, prefix: str, options: dict[str, str]) -> str:
    asked = "&".join(f"{name}={value}" for name, value in {"prefix": prefix, **options}.items())
    return f"{place}?{asked}"


class RedisCluster:
    """Three nodes on loopback, which share the slots."""

    def __init__(self, **settings: str) -> None:
        self._cluster = {"cluster-enabled": "yes", "cluster-node-timeout": "2000", "save": "", **settings}
        self.nodes = [RedisServer(**self._cluster) for _ in range(3)]

    def start(self) -> None:
        """The cluster takes requests for every slot."""
        for node in self.nodes:
            node.start()
        first, *others = self.nodes
        for number, node in enumerate(self.nodes):
            start, stop = number * SLOTS // 3, (number + 1) * SLOTS // 3 - 1
            assert node.ask("CLUSTER", "ADDSLOTSRANGE", str(start), str(stop)) == b"OK"
        for node in others:
            assert node.ask("CLUSTER", "MEET", "127.0.0.1", str(first.port)) == b"OK"
        give_up_at = time.monotonic() + START_S
        while not all(self._whole(node) for node in self.nodes):
            assert time.monotonic() < give_up_at, "the cluster does not come together"
            time.sleep(0.05)

    def _whole(self, node: RedisServer) -> bool:
        told = node.ask("CLUSTER", "INFO")
        slots = node.ask("CLUSTER", "SLOTS")
        return b"cluster_state:ok" in told and len(slots) == 3  # type: ignore[operator,arg-type]

    def add_replica(self, of: RedisServer) -> RedisServer:
        """Another node, which has what this one has and takes its place when it dies."""
        primary = str(of.ask("CLUSTER", "MYID").decode())  # type: ignore[attr-defined]
        self.nodes.append(replica := RedisServer(**self._cluster))
        replica.start()
        replica.ask("CLUSTER", "MEET", "127.0.0.1", str(of.port))
        give_up_at = time.monotonic() + START_S
        # It has to hear of the other one before it can follow it.
        while replica.ask("CLUSTER", "REPLICATE", primary) != b"OK" or not self._follows(replica):
            assert time.monotonic() < give_up_at, "the replica does not follow"
            time.sleep(0.05)
        return replica

    def _follows(self, replica: RedisServer) -> bool:
        return (
            b"master_link_status:up" in replica.ask("INFO", "replication")  # type: ignore[operator]
            and all(b"slave" in node.ask("CLUSTER", "NODES") for node in self.nodes)  # type: ignore[operator]
        )

    def url(self, prefix: str = "semel", **options: str) -> str:
        return url_of(f"redis+cluster://127.0.0.1:{self.nodes[0].port}", prefix, options)

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()


@functools.cache
def _own() -> RedisServer:
    server = RedisServer(save="")
    atexit.register(server.remove)
    server.start()
    os.environ[PORT_VARIABLE] = str(server.port)
    return server


def shared_port() -> int:
    """The port of the one server that most tests share, each under a prefix of its own."""
    known = os.environ.get(PORT_VARIABLE)
    return int(known) if known else _own().port


def shared_url(prefix: str, **options: str) -> str:
    return url_of(f"redis://127.0.0.1:{shared_port()}", prefix, options)


@functools.cache
def _own_cluster() -> RedisCluster:
    cluster = RedisCluster()
    atexit.register(cluster.remove)
    cluster.start()
    os.environ[CLUSTER_VARIABLE] = str(cluster.nodes[0].port)
    return cluster


def shared_cluster_url(prefix: str, **options: str) -> str:
    known = os.environ.get(CLUSTER_VARIABLE)
    port = int(known) if known else _own_cluster().nodes[0].port
    return url_of(f"redis+cluster://127.0.0.1:{port}", prefix, options)


@functools.cache
def _own_tls() -> TlsRedisServer:
    server = TlsRedisServer(save="")
    atexit.register(server.remove)
    server.start()
    os.environ[TLS_VARIABLE] = f"{server.tls_port} {server.certificate}"
    return server


def shared_tls(prefix: str, **options: str) -> tuple[str, str]:
    """The URL of the one server with TLS that tests share, and the certificate to trust."""
    if TLS_VARIABLE not in os.environ:
        _own_tls()
    port, _, certificate = os.environ[TLS_VARIABLE].partition(" ")
    return url_of(f"rediss://127.0.0.1:{port}", prefix, options), certificate
