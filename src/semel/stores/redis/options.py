"""What the URL says: where the servers are, who asks, and how long to wait for them."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from typing import Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from semel.kernel.durations import microseconds
from semel.stores.urls import StoreUrl

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")

# Every sweep and seal asks every lane, so more of them only cost; fewer than servers would leave some idle.
_LANES_MAX = 256
_LANES_OF_A_CLUSTER = 64

# The usual ports.
_SERVER_PORT, _SENTINEL_PORT = 6379, 26_379

# What the kernel takes as the path of a socket.
_SOCKET_PATH_MAX = 107

# What a Sentinel takes as the name of what it watches.
_SERVICE = re.compile(r"[A-Za-z0-9._-]+")

# A server in the next rack answers in a millisecond. Whoever waits longer waits for one that hangs.
_TIMEOUT, _CONNECT_S = "5s", 2.0


class Node(NamedTuple):
    """A server: at a host, behind a socket of this machine, or whichever a Sentinel names."""

    host: str  # or the socket's path, or the name by which Sentinels know it
    port: int = 0
    way: Literal["tcp", "unix", "sentinel"] = "tcp"

    def __str__(self) -> str:
        match self.way:
            case "tcp":
                return f"{self.host}:{self.port}"
            case "unix":
                return self.host
            case _:
                return f"{self.host} (by Sentinel)"


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """How to reach a server; its `repr` tells no password."""

    nodes: tuple[Node, ...]
    cluster: bool = False
    sentinels: tuple[Node, ...] = ()
    username: str | None = None
    password: str | None = None
    database: int = 0
    tls: ssl.SSLContext | None = None
    prefix: str = "semel"
    lanes: int = 1
    timeout_s: float = 5.0
    connect_s: float = _CONNECT_S
    evicting: bool = False
    compacting: bool = False
    audit: bool = True

    def __repr__(self) -> str:
        return f"RedisOptions({', '.join(map(str, self.nodes))}, prefix={self.prefix!r})"

    def greeting(self) -> list[tuple[bytes, ...]]:
        """What a new connection says first."""
        words: list[tuple[bytes, ...]] = []
        if self.password is not None:
            words.append(self.login())
        if self.database:
            words.append((b"SELECT", b"%d" % self.database))
        return words

    def login(self) -> tuple[bytes, ...]:
        assert self.password is not None
        user = () if self.username is None else (self.username.encode(),)
        return (b"AUTH", *user, self.password.encode())


class _Target(NamedTuple):
    """The servers and the database that a URL names."""

    nodes: tuple[Node, ...]
    database: int
    sentinels: tuple[Node, ...] = ()


def read(url: StoreUrl) -> RedisOptions:
    """The options in a URL; OpenError if it makes no sense."""
    scheme, _, rest = url.text.partition("://")
    secure, kind = scheme.startswith("rediss"), scheme.partition("+")[2]
    url.allow(
        "audit", "eviction", "lanes", "layout", "prefix", "timeout", *(("db",) if kind == "unix" else ())
    )
    authority, slash, path = rest.partition("?")[0].partition("/")
    login, _, hosts = authority.rpartition("@")
    username, password = _login(login)
    timeout_s = _timeout_s(url)
    nodes, database, sentinels = _TARGETS[kind](hosts, slash + path, url)
    return RedisOptions(
        nodes=nodes,
        cluster=kind == "cluster",
        sentinels=sentinels,
        username=username,
        password=password,
        database=database,
        tls=ssl.create_default_context() if secure else None,
        prefix=_prefix(url),
        lanes=_lanes(url, kind == "cluster"),
        timeout_s=timeout_s,
        connect_s=min(timeout_s, _CONNECT_S),
        evicting=url.choice("eviction", "refuse", "allow") == "allow",
        compacting=url.choice("layout", "keep", "compact") == "compact",
        audit=url.audit_on,
    )


def _server(hosts: str, path: str, url: StoreUrl) -> _Target:
    return _Target(_nodes(hosts, _SERVER_PORT, url), _database(path[1:], url))


def _cluster(hosts: str, path: str, url: StoreUrl) -> _Target:
    if path not in ("", "/", "/0"):
        raise url.error("names a database, and a cluster has only 0")
    return _Target(_nodes(hosts, _SERVER_PORT, url), 0)


def _sentinel(hosts: str, path: str, url: StoreUrl) -> _Target:
    service, _, database = path[1:].partition("/")
    if not _SERVICE.fullmatch(service):
        raise url.error(
            "names no service: write redis+sentinel://host,host/name, as in `sentinel monitor name …`"
        )
    watched = Node(service, way="sentinel")
    return _Target((watched,), _database(database, url), _nodes(hosts, _SENTINEL_PORT, url))


def _unix(hosts: str, path: str, url: StoreUrl) -> _Target:
    path = unquote(path)
    if hosts or path.endswith("/") or not path:
        raise url.error("names no socket: write redis+unix:///path/of/the.sock")
    if len(path.encode()) > _SOCKET_PATH_MAX or "\0" in path:
        raise url.error(f"names no socket: a path has at most {_SOCKET_PATH_MAX} bytes")
    return _Target((Node(path, way="unix"),), _database(url.option("db", "0"), url))


_TARGETS = {"": _server, "cluster": _cluster, "sentinel": _sentinel, "unix": _unix}


def _login(login: str) -> tuple[str | None, str | None]:
    if not login:
        return None, None
    user, _, password = login.partition(":")
    return unquote(user) or None, unquote(password)


def _nodes(hosts: str, port: int, url: StoreUrl) -> tuple[Node, ...]:
    several = hosts.split(",")
    if len(several) > 1 and not all(several):
        raise url.error("names no server between two commas")
    return tuple(_node(host, port, url) for host in several)


def _node(host: str, port: int, url: StoreUrl) -> Node:
    try:
        parts = urlsplit(f"//{host}")
        return Node(parts.hostname or "127.0.0.1", parts.port or port)
    except ValueError as wrong:
        raise url.error(f"names no server: {wrong}") from None


def _database(number: str, url: StoreUrl) -> int:
    if not number:
        return 0
    if not number.isascii() or not number.isdigit():
        raise url.error("names no database: that is a number")
    return int(number)


def _prefix(url: StoreUrl) -> str:
    prefix = url.option("prefix", "semel")
    if not _PREFIX.fullmatch(prefix):
        raise url.error("says no prefix: letters, digits and . _ : -, at most 64")
    return prefix


def _lanes(url: StoreUrl, cluster: bool) -> int:
    lanes = url.option("lanes", str(_LANES_OF_A_CLUSTER if cluster else 1))
    if not lanes.isascii() or not lanes.isdigit() or not 1 <= int(lanes) <= _LANES_MAX:
        raise url.error(f"says lanes={lanes}; it is a number from 1 to {_LANES_MAX}")
    return int(lanes)


def _timeout_s(url: StoreUrl) -> float:
    try:
        return microseconds(url.option("timeout", _TIMEOUT), "timeout") / 1e6
    except ValueError as wrong:
        raise url.error(f"is wrong: {wrong}") from None
