"""What a person should know about the safety of this database, for `semel doctor`."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator

from semel.kernel.clock import rfc3339
from semel.stores.base import Finding
from semel.stores.sqlite import schema, statements
from semel.stores.sqlite.connection import Durability

# A machine's clock is rarely off by more; a newer event than this means that it was set back.
_CLOCK_SLACK_US = 2_000_000
_EVENTS_LOOKED_AT = 1_000

# Some ten thousand calls with space for a checkpoint.
_FREE_BYTES_MIN = 100 << 20
_LOG_BYTES_MAX = 256 << 20

# Checking reads the whole file; beyond this it takes longer than a person waits for an answer.
_CHECKED_BYTES_MAX = 512 << 20


def of(reader: sqlite3.Connection, path: str, mode: Durability, audited: bool, now_us: int) -> list[Finding]:
    size = os.stat(path).st_size
    return [
        *_settings(reader, mode, audited),
        *_sizes(path, size),
        _integrity(reader, path, size),
        _clock(reader, now_us),
    ]


def _settings(reader: sqlite3.Connection, mode: Durability, audited: bool) -> Iterator[Finding]:
    if mode == "full":
        yield Finding("ok", "durability", "synchronous=FULL: acknowledged writes survive power loss")
    else:
        yield Finding(
            "note",
            "durability",
            "synchronous=NORMAL: power loss may take the last acknowledged writes back",
            "Open without ?durability=normal where a repeated effect would matter.",
        )
    if not audited:
        yield Finding("note", "audit", "off: transitions leave no events", "Open without ?audit=off.")
    journal = schema.journal_mode(reader)
    if journal == "wal":
        yield Finding("ok", "journal", "write-ahead log")
    else:
        yield Finding("danger", "journal", f"mode {journal}, not the write-ahead log", "Open the file anew.")
    yield Finding("ok", "version", f"SQLite {sqlite3.sqlite_version}, schema {schema.version(reader)}")


def _sizes(path: str, size: int) -> Iterator[Finding]:
    log = os.stat(f"{path}-wal").st_size if os.path.exists(f"{path}-wal") else 0
    text = f"{size >> 10} KiB, write-ahead log {log >> 10} KiB"
    if log > _LOG_BYTES_MAX:
        yield Finding(
            "note", "size", text, "Something reads for very long and keeps the log from being emptied."
        )
    else:
        yield Finding("ok", "size", text)
    free = shutil.disk_usage(os.path.dirname(path)).free
    if free < _FREE_BYTES_MIN:
        yield Finding(
            "danger", "disk", f"{free >> 20} MiB free", "Free some space: a full disk refuses every call."
        )
    else:
        yield Finding("ok", "disk", f"{free >> 20} MiB free")


def _integrity(reader: sqlite3.Connection, path: str, size: int) -> Finding:
    if size > _CHECKED_BYTES_MAX:
        fix = f"Run `sqlite3 {path} 'PRAGMA quick_check'` at a quiet hour."
        return Finding("note", "integrity", "not checked: the file is large", fix)
    problems = [str(row[0]) for row in reader.execute("PRAGMA quick_check(3)").fetchall()]
    if problems == ["ok"]:
        return Finding("ok", "integrity", "every page is sound")
    return Finding("danger", "integrity", "; ".join(problems), "Restore the file from a backup.")


def _clock(reader: sqlite3.Connection, now_us: int) -> Finding:
    newest = reader.execute(statements.NEWEST_EVENT, (_EVENTS_LOOKED_AT,)).fetchone()[0]
    if newest is not None and newest > now_us + _CLOCK_SLACK_US:
        return Finding(
            "danger",
            "clock",
            f"an event happened at {rfc3339(newest)}, which is in the future: the clock stepped back",
            "Set the clock right: until then leases and windows last longer than they should.",
        )
    return Finding("ok", "clock", "no event is in the future")
