"""Real Redis servers, private to the tests: on free ports, in temporary directories, ended by their id."""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hiredis

from bench.servers import free_port
from tests.faults.certificates import certify
from tests.missing import cannot
from tests.patience import PATIENCE_S
from tests.server_process import ServerProcess

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


class RedisServer(ServerProcess):
    """One server, not yet started."""

    def __init__(self, **settings: str) -> None:
        self._binary = need_redis()
        self._settings = settings
        self.directory = Path(tempfile.mkdtemp(prefix="semel-redis-"))
        self.port = free_port()

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
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                self._command(said), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        give_up_at = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, (self.directory / "log").read_text()[-2_000:]
            assert time.monotonic() < give_up_at, "Redis does not start"
            time.sleep(0.01)

    def _command(self, said: dict[str, str]) -> list[str]:
        return [
            self._binary,
            *(word for name, value in said.items() for word in (f"--{name}", *value.split(" "))),
        ]

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

    def empty(self) -> None:
        """What a stopped server kept is gone."""
        shutil.rmtree(self.directory)
        self.directory.mkdir()

    def url(self, prefix: str = "semel", **options: str) -> str:
        return url_of(f"redis://127.0.0.1:{self.port}", prefix, options)


class UnixRedisServer(RedisServer):
    """One that listens at a socket of this machine; tests still reach it by its port."""

    def start(self, **settings: str) -> None:
        super().start(unixsocket=str(self.socket), **settings)

    @property
    def socket(self) -> Path:
        return self.directory / "redis.sock"

    def url(self, prefix: str = "semel", **options: str) -> str:
        return url_of(f"redis+unix://{self.socket}", prefix, options)


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


class Sentinel(RedisServer):
    """A Sentinel that watches one server under a name, and promotes a replica when it is told to notice.

    By itself it takes nobody for dead: on a busy machine everybody is slow.
    """

    def __init__(self, name: str, watched: int, **settings: str) -> None:
        super().__init__(**settings)
        self._name = name
        watching = {
            "monitor": f"127.0.0.1 {watched} 1",
            "down-after-milliseconds": "3600000",
            # If the replica was slow as well, nobody could be promoted: it tries again after twice as long.
            "failover-timeout": "5000",
        }
        self._watching = [f"sentinel {word} {name} {value}" for word, value in watching.items()]

    def watch(self, *words: str) -> None:
        """One more line of its configuration, before it starts."""
        self._watching.append(" ".join(("sentinel", words[0], self._name, *words[1:])))

    def _command(self, said: dict[str, str]) -> list[str]:
        file = self.directory / "sentinel.conf"
        lines = [*(f"{name} {value}" for name, value in said.items()), *self._watching]
        file.write_text("\n".join(lines) + "\n")
        return [self._binary, str(file), "--sentinel"]

    def start(self, **settings: str) -> None:
        super().start(**settings)
        # It looks often, and a pause of a busy machine does not make it stop acting for half a minute.
        for debug in (("info-period", "100"), ("publish-period", "100"), ("tilt-period", "100")):
            assert self.ask("SENTINEL", "DEBUG", *debug) == b"OK"

    def promote(self) -> None:
        """The server it watches is dead: it notices from now on, and has another in its place."""
        before = self.primary_port
        assert self.ask("SENTINEL", "SET", self._name, "down-after-milliseconds", "1000") == b"OK"
        _wait_until(lambda: self.primary_port != before and b"failover" not in self._flags(), "a failover")
        assert self.ask("SENTINEL", "SET", self._name, "down-after-milliseconds", "3600000") == b"OK"

    def stop_telling(self) -> None:
        """From now on it neither demotes anybody nor tells other Sentinels anything."""
        assert self.ask("SENTINEL", "DEBUG", "publish-period", "3600000") == b"OK"

    @property
    def primary_port(self) -> int:
        told: Any = self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name)
        return int(told[1])

    def _flags(self) -> bytes:
        told: Any = self.ask("SENTINEL", "MASTER", self._name)
        flags: bytes = dict(zip(told[::2], told[1::2], strict=True))[b"flags"]
        return flags

    def knows_replicas(self, count: int) -> bool:
        told: Any = self.ask("SENTINEL", "REPLICAS", self._name)
        return len(told) == count


def _wait_until(came_true: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + START_S
    while not came_true():
        assert time.monotonic() < give_up_at, f"waited in vain for {what}"
        time.sleep(0.01)


class WatchedPair:
    """A primary and its replica, which a Sentinel watches under the name "orders"."""

    def __init__(self, **settings: str) -> None:
        given = {"save": "", "repl-diskless-sync-delay": "0", **settings}
        self.primary, self.replica = RedisServer(**given), RedisServer(**given)
        self.sentinel = Sentinel("orders", self.primary.port)

    def start(self) -> None:
        """The replica has what the primary has, and the Sentinel knows both."""
        self.primary.start()
        self.replica.start(replicaof=f"127.0.0.1 {self.primary.port}")
        self.sentinel.start()
        _wait_until(lambda: b"master_link_status:up" in _told(self.replica), "the replica")
        _wait_until(lambda: self.sentinel.knows_replicas(1), "the Sentinel")

    def caught_up(self) -> bool:
        return _same_offset(self.primary, self.replica)

    def sever(self) -> None:
        """From now on the replica is not let in; callers notice nothing."""
        _shut_out(self.replica, self.primary)

    def fail_over(self) -> None:
        """The primary is dead, and its replica is the primary."""
        self.primary.kill()
        self.sentinel.promote()

    def url(self, prefix: str = "semel", **options: str) -> str:
        return url_of(f"redis+sentinel://127.0.0.1:{self.sentinel.port}/orders", prefix, options)

    def remove(self) -> None:
        for server in (self.sentinel, self.replica, self.primary):
            server.remove()


def _shut_out(replica: RedisServer, primary: RedisServer) -> None:
    """It says a password where none is asked for, which a primary takes for a mistake."""
    replica.ask("CONFIG", "SET", "masterauth", "nobody asks for it")
    primary.ask("CLIENT", "KILL", "TYPE", "replica")
    _wait_until(lambda: b"master_link_status:down" in _told(replica), "the end of the link")


def _told(node: RedisServer) -> bytes:
    told: Any = node.ask("INFO", "replication")
    return bytes(told)


class RedisCluster:
    """Three nodes on loopback, which share the slots."""

    def __init__(self, **settings: str) -> None:
        self._cluster = {"cluster-enabled": "yes", "cluster-node-timeout": "2000", "save": "", **settings}
        self.nodes = [RedisServer(**self._cluster) for _ in range(3)]

    def start(self) -> None:
        """The cluster takes requests for every slot."""
        for epoch, node in enumerate(self.nodes, 1):
            node.start()
            # Of its own for each: else they quarrel about it for a while, and refuse votes meanwhile.
            assert node.ask("CLUSTER", "SET-CONFIG-EPOCH", str(epoch)) == b"OK"
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
        """It has what the other one has, and all who vote know it: before that they would not vote for it."""
        views = [_view(node) for node in self.nodes]
        return (
            b"master_link_status:up" in _told(replica)
            and len(views[0]) == len(self.nodes)
            and all(view == views[0] for view in views)
        )

    def url(self, prefix: str = "semel", **options: str) -> str:
        return url_of(f"redis+cluster://127.0.0.1:{self.nodes[0].port}", prefix, options)

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()


def _view(node: RedisServer) -> set[tuple[str, ...]]:
    """The nodes as this one sees them: name, role, whom it follows, epoch, whether they are linked."""
    told: Any = node.ask("CLUSTER", "NODES")
    rows = [line.split(" ") for line in told.decode().splitlines()]
    return {(row[0], row[2].removeprefix("myself,"), row[3], row[6], row[7]) for row in rows}


class ReplicatedCluster(RedisCluster):
    """A cluster of which one node has a replica, which takes its place when it dies."""

    def __init__(self) -> None:
        settings = {
            # Soon, and longer than a busy machine keeps a server that is alive from answering.
            "cluster-node-timeout": "1500",
            # However long it was cut off: a busy machine takes its time between that and the death.
            "cluster-replica-validity-factor": "0",
            "repl-diskless-sync-delay": "0",
        }
        super().__init__(**settings)
        self.primary = self.nodes[1]
        self.replica = self.primary

    def start(self) -> None:
        super().start()
        self.replica = self.add_replica(self.primary)

    def caught_up(self) -> bool:
        return _same_offset(self.primary, self.replica)

    def sever(self) -> None:
        """From now on the replica is not let in; callers notice nothing."""
        _shut_out(self.replica, self.primary)

    def fail_over(self) -> None:
        """The primary is dead, and its replica has its slots."""
        self.primary.kill()
        _wait_until(lambda: b"role:master" in _told(self.replica), "the failover")

    def url(self, prefix: str = "semel", **options: str) -> str:
        """By way of the one that dies, and of another for those who come later."""
        nodes = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.nodes[0].port}"
        return url_of(f"redis+cluster://{nodes}", prefix, options)


def _same_offset(*nodes: RedisServer) -> bool:
    one, other = (re.findall(rb"master_repl_offset:(\d+)", _told(node)) for node in nodes)
    return one == other


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
