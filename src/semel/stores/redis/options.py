"""What the URL says: where the servers are, who asks, and how long to wait for them."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from semel.kernel.durations import microseconds
from semel.stores.urls import StoreUrl

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")

# Every sweep and seal asks every lane, so more of them only cost; fewer than servers would leave some idle.
_LANES_MAX = 256
_LANES_OF_A_CLUSTER = 64

# A server in the next rack answers in a millisecond. Whoever waits longer waits for one that hangs.
_TIMEOUT, _CONNECT_S = "5s", 2.0


class Node(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """How to reach a server; its `repr` tells no password."""

    nodes: tuple[Node, ...]
    cluster: bool = False
    username: str | None = None
    password: str | None = None
    database: int = 0
    tls: ssl.SSLContext | None = None
    prefix: str = "semel"
    lanes: int = 1
    timeout_s: float = 5.0
    connect_s: float = _CONNECT_S
    evicting: bool = False
    audit: bool = True

    def __repr__(self) -> str:
        return f"RedisOptions({', '.join(map(str, self.nodes))}, prefix={self.prefix!r})"

    def greeting(self) -> list[tuple[bytes, ...]]:
        """What a new connection says first."""
        words: list[tuple[bytes, ...]] = []
        if self.password is not None:
            user = () if self.username is None else (self.username.encode(),)
            words.append((b"AUTH", *user, self.password.encode()))
        if self.database:
            words.append((b"SELECT", b"%d" % self.database))
        return words


def read(url: StoreUrl) -> RedisOptions:
    """The options in a URL; OpenError if it makes no sense."""
    url.allow("audit", "eviction", "lanes", "prefix", "timeout")
    scheme, _, rest = url.text.partition("://")
    cluster, secure = scheme.endswith("+cluster"), scheme.startswith("rediss")
    place, _, path = rest.partition("?")[0].partition("/")
    login, _, hosts = place.rpartition("@")
    username, password = _login(login)
    timeout_s = _timeout_s(url)
    return RedisOptions(
        nodes=tuple(_node(host, url) for host in hosts.split(",")),
        cluster=cluster,
        username=username,
        password=password,
        database=_database(path, cluster, url),
        tls=ssl.create_default_context() if secure else None,
        prefix=_prefix(url),
        lanes=_lanes(url, cluster),
        timeout_s=timeout_s,
        connect_s=min(timeout_s, _CONNECT_S),
        evicting=url.choice("eviction", "refuse", "allow") == "allow",
        audit=url.audit_on,
    )


def _login(login: str) -> tuple[str | None, str | None]:
    if not login:
        return None, None
    user, _, password = login.partition(":")
    return unquote(user) or None, unquote(password)


def _node(host: str, url: StoreUrl) -> Node:
    try:
        parts = urlsplit(f"//{host}")
        return Node(parts.hostname or "127.0.0.1", parts.port or 6379)
    except ValueError as wrong:
        raise url.error(f"names no server: {wrong}") from None


def _database(path: str, cluster: bool, url: StoreUrl) -> int:
    if path in ("", "0"):
        return 0
    if cluster or not path.isascii() or not path.isdigit():
        raise url.error("names no database: after the server comes its number, and a cluster has only 0")
    return int(path)


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
