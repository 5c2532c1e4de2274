"""What the URL says: how libpq reaches the server, and Semel's own options on the query."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import make_conninfo

from semel.errors import OpenError
from semel.kernel.durations import microseconds
from semel.stores.urls import StoreUrl

OWN = ("audit", "schema", "pool", "timeout", "connect_timeout")

# What libpq may be told on the URL: who, where, and how the way there is protected.
LIBPQ = (
    "application_name", "channel_binding", "gssencmode", "hostaddr", "passfile", "require_auth", "service",
    "sslcert", "sslcrl", "sslkey", "sslmode", "sslrootcert", "sslsni", "target_session_attrs",
)  # fmt: skip

# A server in the next rack answers in a millisecond. Whoever waits longer waits for one that hangs.
TIMEOUT, CONNECT_TIMEOUT = "5s", "2s"

# Between half and all of the connections that two cores of a server keep busy.
POOL, POOL_MAX = 8, 64


@dataclass(frozen=True, slots=True)
class PostgresOptions:
    conninfo: str
    schema: str
    pool: int
    timeout_s: float
    connect_s: float
    audit: bool

    def __repr__(self) -> str:
        return f"Options(schema={self.schema!r})"


def read(url: StoreUrl) -> PostgresOptions:
    """The options; OpenError, which tells no password, if the URL cannot be understood."""
    for name in ("password", "sslpassword"):
        if url.option(name, ""):
            raise OpenError(
                f"The URL has {name}= on its query, where it would be shown. Nothing was opened.",
                corrective_action="Write postgresql://user:password@host/database, or use a password file.",
            )
    _refuse_stray_at(url)
    url.allow(*OWN, *LIBPQ)
    timeout_s, connect_s = (
        _seconds(url, "timeout", TIMEOUT),
        _seconds(url, "connect_timeout", CONNECT_TIMEOUT),
    )
    return PostgresOptions(
        conninfo=_conninfo(url, timeout_s),
        schema=url.option("schema", "semel"),
        pool=_pool(url),
        timeout_s=timeout_s,
        connect_s=connect_s,
        audit=url.audit_on,
    )


def _refuse_stray_at(url: StoreUrl) -> None:
    """A password with / ? or # in it ends the URL's host too early: what follows would be shown in errors."""
    parts = url.parts
    if "@" in parts.path + parts.fragment or (not parts.path and "@" in parts.query):
        raise OpenError(
            "The URL has an @ behind its host: part of the password, it seems. Nothing was opened.",
            corrective_action="Write / ? # and @ in user or password as %2F %3F %23 and %40.",
        )


def _seconds(url: StoreUrl, name: str, default: str) -> float:
    try:
        return microseconds(url.option(name, default), name) / 1_000_000
    except ValueError as wrong:
        raise url.error(f"says something wrong: {wrong}") from None


def _pool(url: StoreUrl) -> int:
    size = url.option("pool", str(POOL))
    if not size.isdecimal() or not 2 <= int(size) <= POOL_MAX:
        raise url.error(f"says pool={size}; it is a number from 2 to {POOL_MAX}")
    return int(size)


def _conninfo(url: StoreUrl, timeout_s: float) -> str:
    """The URL for libpq. Dead peers are noticed by the kernel too, also where nobody waits for an answer."""
    parts = urlsplit(url.text)
    # libpq takes the first @ for the end of the password, and would name the rest of it as the host.
    user, at, hosts = parts.netloc.rpartition("@")
    netloc = user.replace("@", "%40") + at + hosts
    kept = urlencode([(name, value) for name in LIBPQ if (value := url.option(name, ""))])
    plain = urlunsplit(("postgresql", netloc, parts.path, kept, ""))
    try:
        return make_conninfo(
            plain,
            client_encoding="UTF8",
            fallback_application_name="semel",
            tcp_user_timeout=int(timeout_s * 2_000),
            keepalives_idle=30,
            keepalives_interval=10,
            keepalives_count=3,
        )
    except psycopg.Error as wrong:
        # libpq repeats the part it does not understand, which may be the password.
        raise url.error(f"is not understood by libpq ({type(wrong).__name__})") from None
