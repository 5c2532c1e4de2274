"""What the server's settings mean for an acknowledged write, and what else a person should know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from semel.kernel.clock import rfc3339
from semel.stores.base import Finding
from semel.stores.postgres import statements as sql
from semel.stores.postgres.wire import PostgresConnection

# A machine's clock is rarely off by more; a newer event than this means that it was set back.
_CLOCK_SLACK_US = 2_000_000

# The keeper seals every few seconds; this many unsealed events are minutes of a busy store.
_UNSEALED_MAX = 100_000

# A transaction that lasts this long keeps dead rows from being cleaned away, and seals from being made.
_TRANSACTION_S_MAX = 600


def settings(link: PostgresConnection) -> dict[str, str]:
    return dict(link.run(sql.SETTINGS))


def durability(settings: Mapping[str, str]) -> str:
    """What an acknowledged write survives, in words."""
    if settings.get("fsync") == "off":
        return (
            "An acknowledged write survives a crash of this process and of PostgreSQL; a crash of the "
            "server's machine or power loss may destroy the whole database (PostgreSQL, fsync=off)."
        )
    if settings.get("full_page_writes") == "off":
        local = (
            "An acknowledged write survives a crash of this process and of PostgreSQL; power loss may damage "
            "pages that were being written (PostgreSQL, full_page_writes=off)"
        )
    else:
        local = (
            "An acknowledged write survives a crash of this process, of PostgreSQL and of its machine, and "
            "power loss as far as the disk keeps what it says it has written (PostgreSQL, "
            f"synchronous_commit={_mode(settings)})"
        )
    return f"{local}; {_replication(settings)}."


def _mode(settings: Mapping[str, str]) -> str:
    mode = settings.get("synchronous_commit", "on")
    return "on" if mode == "off" else mode


def _replication(settings: Mapping[str, str]) -> str:
    standbys, mode = settings.get("synchronous_standby_names", ""), _mode(settings)
    if not standbys or mode == "local":
        return "a failover to a standby may lose the last ones"
    if mode == "remote_write":
        return f"a standby of {standbys} has received it, though not yet on its disk"
    return f"a standby of {standbys} has it on its disk, so a failover to it loses nothing"


def of(
    link: PostgresConnection, settings: Mapping[str, str], now: bytes | None, audited: bool
) -> list[Finding]:
    ((now_us, newest_us, unsealed, oldest_s, rows, dead),) = link.run(sql.HEALTH, (now,))
    return [
        *_settings(settings, audited),
        _clock(newest_us, now_us),
        *_ages(unsealed, oldest_s),
        Finding("ok", "size", f"about {rows or 0} records, {dead or 0} dead rows to be cleaned"),
        Finding("ok", "version", f"PostgreSQL {settings.get('server_version', 'unknown')}"),
    ]


def _settings(settings: Mapping[str, str], audited: bool) -> Iterator[Finding]:
    if settings.get("fsync") == "off":
        yield Finding(
            "danger",
            "durability",
            "fsync=off: power loss may destroy the database",
            "Set fsync = on and restart.",
        )
    elif settings.get("full_page_writes") == "off":
        yield Finding(
            "danger",
            "durability",
            "full_page_writes=off: power loss may damage pages",
            "Set full_page_writes = on.",
        )
    else:
        yield Finding(
            "ok", "durability", f"acknowledged writes are on disk (synchronous_commit={_mode(settings)})"
        )
    if not settings.get("synchronous_standby_names"):
        yield Finding(
            "note",
            "replication",
            "no synchronous standby: a failover may lose the last acknowledged writes",
            "Name one in synchronous_standby_names if there is a standby to fail over to.",
        )
    if settings.get("in_recovery") == "true" or settings.get("default_transaction_read_only") == "on":
        yield Finding("danger", "writing", "this server is read-only", "Point the URL at the primary.")
    if not audited:
        yield Finding("note", "audit", "off: transitions leave no events", "Open without ?audit=off.")


def _clock(newest_us: int | None, now_us: int) -> Finding:
    if newest_us is not None and newest_us > now_us + _CLOCK_SLACK_US:
        return Finding(
            "danger",
            "clock",
            f"an event happened at {rfc3339(newest_us)}, in the future: the server's clock stepped back",
            "Set the clock right: until then leases and windows last longer than they should.",
        )
    return Finding("ok", "clock", "no event is in the future")


def _ages(unsealed: int, oldest_s: int) -> Iterator[Finding]:
    if unsealed > _UNSEALED_MAX:
        yield Finding(
            "note", "seals", f"{unsealed} events wait for a seal", "Keep a ledger open: it seals by itself."
        )
    if oldest_s > _TRANSACTION_S_MAX:
        yield Finding(
            "note",
            "transactions",
            f"one is open for {oldest_s} s: it holds back seals and the cleaning of dead rows",
            "End it, or find out who forgot it (pg_stat_activity).",
        )
