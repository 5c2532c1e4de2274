"""From a URL to a store. Each kind is imported only when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from semel.errors import OpenError
from semel.kernel.clock import SYSTEM, Clock
from semel.kernel.durations import microseconds
from semel.kernel.late_imports import late_import
from semel.kernel.limits import SETTLE_WAIT_S
from semel.stores.base import Store

_FORMS = (
    "memory://, sqlite:///relative.db, sqlite:////absolute.db, postgresql://user@host/database, redis://host"
)


class StoreUrl:
    """A store's URL and the options on its query; it is shown without its password."""

    def __init__(self, text: str, everywhere: tuple[str, ...] = ()) -> None:
        self.text = text
        self._everywhere = everywhere  # options that all kinds have
        self.shown = hide_password(text)
        try:
            self.parts = urlsplit(text)
            pairs = parse_qsl(self.parts.query, keep_blank_values=True)
        except ValueError as wrong:
            raise self.error(f"is not a URL: {wrong}") from None
        self._options = dict(pairs)
        if len(self._options) != len(pairs):
            raise self.error("gives an option twice")

    def error(self, what: str) -> OpenError:
        return OpenError(f"{self.shown!r} {what}. Nothing was opened.")

    def allow(self, *names: str) -> None:
        """OpenError if there is an option besides these and those that all kinds have."""
        names = (*names, *self._everywhere)
        unknown = sorted(self._options.keys() - set(names))
        if unknown:
            raise self.error(f"has the unknown option {', '.join(unknown)}; there are {', '.join(names)}")

    def option(self, name: str, default: str) -> str:
        return self._options.get(name, default)

    def choice(self, name: str, *choices: str) -> Any:
        """The option, which is one of these; the first of them if it is not given."""
        chosen = self.option(name, choices[0])
        if chosen not in choices:
            raise self.error(f"says {name}={chosen}; it is one of {', '.join(choices)}")
        return chosen

    def seconds(self, name: str, default_s: float) -> float:
        """The option, which is a duration."""
        if name not in self._options:
            return default_s
        try:
            return microseconds(self._options[name], name) / 1e6
        except ValueError as wrong:
            raise self.error(f"is wrong: {wrong}") from None

    @property
    def audit_on(self) -> bool:
        return bool(self.choice("audit", "on", "off") == "on")


def open_store(url: str, clock: Clock = SYSTEM) -> Store:
    """The store behind the URL; OpenError, naming the fix, if there is none."""
    if not isinstance(url, str):
        raise OpenError(f"The URL of a store is a text such as {_FORMS}, not {url!r}. Nothing was opened.")
    if not url.strip():
        raise OpenError(
            f"The URL of the store, or SEMEL_URL, is empty. There are {_FORMS}. Nothing was opened.",
            corrective_action="Name the store, or unset SEMEL_URL.",
        )
    scheme, separator, _ = url.partition("://")
    opener = _OPENERS.get(scheme)
    if not separator or opener is None:
        raise OpenError(
            f"{hide_password(url)!r} is not a store's URL. There are {_FORMS}. Nothing was opened."
        )
    parsed = StoreUrl(url, everywhere=("settle_wait",))
    settle_wait_s = parsed.seconds("settle_wait", SETTLE_WAIT_S)
    store = opener(parsed, clock)
    store.settle_wait_s = settle_wait_s
    return store


def from_anywhere(url: str) -> str:
    """The URL of the same store for whoever has another working directory later."""
    if not url.startswith("sqlite://"):
        return url
    parts = urlsplit(url)
    file = quote(os.path.abspath(unquote(parts.path[1:])), errors="surrogateescape")
    return f"sqlite:///{file}?{parts.query}" if parts.query else f"sqlite:///{file}"


def _memory(url: StoreUrl, clock: Clock) -> Store:
    with late_import:
        from semel.stores.memory import MemoryStore

    url.allow("audit")
    if url.parts.netloc or url.parts.path:
        raise url.error("has a name, but memory:// takes none: it is this process only")
    return MemoryStore(clock=clock, audit_on=url.audit_on)


def _sqlite(url: StoreUrl, clock: Clock) -> Store:
    with late_import:
        from semel.stores.sqlite import SqliteStore

    url.allow("durability", "audit", "shared")
    if url.parts.netloc or not url.parts.path.strip("/"):
        raise url.error("names no file: write sqlite:///relative.db or sqlite:////absolute.db")
    durability = url.choice("durability", "full", "normal")
    path = unquote(url.parts.path[1:])
    shared = url.choice("shared", "no", "yes") == "yes"
    return SqliteStore(path, clock=clock, durability=durability, audit_on=url.audit_on, shared=shared)


def _postgres(url: StoreUrl, clock: Clock) -> Store:
    need("postgres", "psycopg")
    with late_import:
        from semel.stores.postgres import PostgresStore
        from semel.stores.postgres.options import read

    options = read(url)
    return PostgresStore(
        options.conninfo,
        clock=clock,
        audit_on=options.audit,
        schema_name=options.schema,
        pool=options.pool,
        timeout_s=options.timeout_s,
        connect_s=options.connect_s,
        shown=url.shown,
    )


def _redis(url: StoreUrl, clock: Clock) -> Store:
    need("redis", "hiredis")
    with late_import:
        from semel.stores.redis import RedisStore
        from semel.stores.redis.options import read

    return RedisStore(read(url), clock=clock)


_OPENERS: dict[str, Callable[[StoreUrl, Clock], Store]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "redis": _redis,
    "rediss": _redis,
    "redis+cluster": _redis,
    "rediss+cluster": _redis,
    "redis+sentinel": _redis,
    "rediss+sentinel": _redis,
    "redis+unix": _redis,
}


def hide_password(url: str) -> str:
    """The URL as it may be shown: rather too much is hidden, for a password may hold what ends a URL."""
    scheme, separator, rest = url.partition("://")
    user, colon, secret = rest.partition(":")
    _, at, host = secret.rpartition("@")
    if rest.startswith("/") or not at:
        return url
    return f"{scheme}{separator}{user}{colon}***@{host}"


def need(extra: str, module: str) -> Any:
    """The driver of an optional store; OpenError with the command that installs it."""
    try:
        with late_import:
            return import_module(module)
    except ImportError as missing:
        raise OpenError(f'{missing.name} is not installed: pip install "semel[{extra}]".') from missing
