"""What SQLite's errors mean to a caller: every one of them is mapped here."""

from __future__ import annotations

import sqlite3
from typing import Any

from semel.errors import SemelError, StoreCorrupt, StoreUnavailable
from semel.kernel.record import Claim, Park, Release, Renew, Resolve, Retake, Settle

# PROTOCOL is a lost race for the write-ahead log's locks: trying again is all there is to do.
_BUSY = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL))
_DAMAGED = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))

_CAUSES: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_BUSY: ("the database is locked by another process", "Call again."),
    sqlite3.SQLITE_LOCKED: ("the database is locked by another process", "Call again."),
    sqlite3.SQLITE_PROTOCOL: ("the database is locked by another process", "Call again."),
    sqlite3.SQLITE_FULL: ("the disk is full", "Free some space: service resumes by itself."),
    sqlite3.SQLITE_READONLY: (
        "the database cannot be written",
        "Make the file and its directory writable for this user: service resumes by itself.",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "the database file cannot be opened",
        "Check that its directory exists and that this user may read and write there.",
    ),
    sqlite3.SQLITE_IOERR: (
        "the disk failed",
        "Check the disk and its free space: service resumes by itself.",
    ),
    sqlite3.SQLITE_PERM: ("this user may not use the database file", "Check the permissions of the file."),
    sqlite3.SQLITE_NOMEM: ("memory ran out", "Call again when there is memory."),
    sqlite3.SQLITE_TOOBIG: (
        "a value is larger than SQLite can keep",
        "Pass a reference instead of the content.",
    ),
}


class Displaced(sqlite3.DatabaseError):
    """The file, or its log, is no longer where it was opened. `fix` is what to do about it."""

    refusal: type[SemelError] = StoreCorrupt

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


class HeldElsewhere(Displaced):
    """Somebody has the file open under another name, or without its log; or is just opening or closing it."""

    refusal = StoreUnavailable


_NOT_DONE: dict[type, str] = {
    Claim: "the tool did not run",
    Retake: "the tool did not run",
    Renew: "the lease was not renewed",
    Settle: "the outcome was not recorded",
    Park: "the doubt was not recorded",
    Release: "the key was not released",
    Resolve: "nothing was resolved",
}


def code_of(error: BaseException) -> int:
    """SQLite's primary result code, 0 if the error carries none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def busy(error: BaseException) -> bool:
    return code_of(error) in _BUSY


def translated(error: Exception, operation: Any = None) -> SemelError:
    """The error as a caller should see it: what is wrong, and what was therefore not done."""
    if isinstance(error, SemelError):
        return error
    not_done = _NOT_DONE.get(type(operation), "nothing was changed")
    if isinstance(error, Displaced):
        what = str(error)
        return error.refusal(f"{what[0].upper()}{what[1:]}; {not_done}.", corrective_action=error.fix)
    if code_of(error) in _DAMAGED or _undecodable(error):
        damaged = StoreCorrupt(f"The database is damaged ({error}); {not_done}.")
        damaged.__cause__ = error
        return damaged
    cause, fix = _CAUSES.get(code_of(error), (f"SQLite refused ({error})", StoreUnavailable.fix))
    refused = StoreUnavailable(f"{cause[0].upper()}{cause[1:]}; {not_done}.", corrective_action=fix)
    refused.__cause__ = error
    return refused


def _undecodable(error: Exception) -> bool:
    # Text that is not UTF-8: Semel writes none, so the file was changed by something else.
    return isinstance(error, sqlite3.OperationalError) and str(error).startswith("Could not decode")
