"""What PostgreSQL's and the network's errors mean to a caller: every one of them is mapped here."""

from __future__ import annotations

from typing import Any

from semel.errors import OpenError, SemelError, StoreCorrupt, StoreUnavailable
from semel.kernel.record import Claim, Park, Release, Renew, Resolve, Retake, Settle

_RESUMES = "service resumes by itself."


class Failure(Exception):
    """A statement, or the connection under it, failed: with PostgreSQL's own code where there is one."""

    def __init__(self, text: str, code: str = "", *, lost: bool = False, late: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.lost = lost  # the connection is gone, and with it the knowledge whether the statement was done
        self.late = late  # nobody answered in time


# PostgreSQL's codes, whole or their first two letters: what is wrong, and the fix.
_CAUSES: dict[str, tuple[str, str]] = {
    "25006": (
        "the database is read-only",
        f"Point the URL at the primary, or lift the restriction: {_RESUMES}",
    ),
    "53100": ("the server's disk is full", f"Free some space: {_RESUMES}"),
    "53200": ("the server is out of memory", f"Call again: {_RESUMES}"),
    "53300": ("the server has no connection left", "Raise max_connections, or use a smaller ?pool=."),
    "53": ("the server lacks a resource", f"Look into the server's log: {_RESUMES}"),
    "55P03": ("the record was locked by somebody else for too long", "Call again."),
    "57014": ("the statement took too long and was cancelled", "Call again."),
    "57P01": ("the server is shutting down", f"Call again: {_RESUMES}"),
    "57P02": ("the server crashed and restarts", f"Call again: {_RESUMES}"),
    "57P03": ("the server is starting up", f"Call again: {_RESUMES}"),
    "57P04": ("the database was dropped", "Restore it, and open the ledger anew."),
    "57P05": ("the server closed an idle connection", "Call again."),
    "40P01": ("the transaction was chosen as a deadlock's victim again and again", "Call again."),
    "40001": ("the transaction met others again and again", "Call again."),
    "42501": ("this user may not use the tables", "Grant it all rights on the schema and its tables."),
    "58": ("the server's disk failed", f"Look into the server's log: {_RESUMES}"),
}

# Damage: PostgreSQL's own finding, tables or functions that were there and are not, or entries of a document
# that are none.
_DAMAGED = frozenset(
    ("XX001", "XX002", "42P01", "42703", "42883", "3F000", "22021", "22023", "22P02", "23514")
)

# Nothing was done, and the same may well succeed at once.
_AGAIN = frozenset(("40P01", "40001"))

# Words of the server or of libpq while connecting, which carry no code; what is wrong, and the fix.
_REFUSALS: tuple[tuple[str, str, str], ...] = (
    ("password authentication failed", "the server refused user or password", "Correct them in the URL."),
    ("no password supplied", "the server wants a password", "Put it into the URL, or into a password file."),
    (
        "no pg_hba.conf entry",
        "the server does not let this user in from here",
        "Add a line to its pg_hba.conf.",
    ),
    ("authentication failed", "the server refused this user", "Correct the user in the URL."),
    ("invalid connection option", "the URL has an option that is not known", "Remove it."),
    ("invalid sslmode value", "the URL has an sslmode that is not known", "Use require or verify-full."),
    ("invalid URI query parameter", "the URL has an option that is not known", "Remove it."),
    ("certificate verify failed", "the server's certificate could not be verified", "Correct sslrootcert."),
    ("does not support SSL", "the server does not speak TLS", "Configure it there, or change sslmode."),
    ("root certificate file", "there is no certificate to verify the server's with", "Correct sslrootcert."),
    (
        "does not match host name",
        "the server's certificate is for another name",
        "Write that name into the URL, or give the server a certificate for this one.",
    ),
    ("invalid integer value", "the URL's port is not a number", "Correct it."),
    ("User does not have CONNECT", "this user may not use the database", "Grant it CONNECT."),
    (
        "permission denied for database",
        "there is no such schema, and this user may not create one",
        "Grant it CREATE on the database, or create the schema and grant it all rights there.",
    ),
    (
        "no schema has been selected to create in",
        "this user may not use the schema",
        "Grant it USAGE and CREATE on the schema and all rights on its tables, or name another ?schema=.",
    ),
    ("does not exist", "the server has no such database or user", "Create it, or correct the URL."),
)

_NOT_DONE: dict[type, str] = {
    Claim: "the tool did not run",
    Retake: "the tool did not run",
    Renew: "the lease was not renewed",
    Settle: "the outcome was not acknowledged",
    Park: "the doubt was not acknowledged",
    Release: "the key's release was not acknowledged",
    Resolve: "nothing was acknowledged",
}


def worth_repeating(failure: Failure) -> bool:
    return failure.code in _AGAIN


def gone(failure: Failure) -> bool:
    """Whether the connection is of no use any more: broken, or its server is going."""
    return failure.lost or failure.late or failure.code.startswith("57P")


def translated(failure: Exception, operation: Any = None) -> SemelError:
    """The error as a caller should see it: what is wrong, and what was therefore not done."""
    if isinstance(failure, SemelError):
        return failure
    not_done = _NOT_DONE.get(type(operation), "nothing was acknowledged")
    if not isinstance(failure, Failure):
        return _caused(StoreUnavailable(f"The store failed ({failure!r}); {not_done}."), failure)
    if failure.code in _DAMAGED:
        return _caused(StoreCorrupt(f"The database is damaged ({failure}); {not_done}."), failure)
    cause, fix = _cause(failure)
    refused = StoreUnavailable(f"{cause[0].upper()}{cause[1:]}; {not_done}.", corrective_action=fix)
    return _caused(refused, failure)


def _cause(failure: Failure) -> tuple[str, str]:
    if failure.late:
        return f"PostgreSQL did not answer in time ({failure})", StoreUnavailable.fix
    cause = _CAUSES.get(failure.code) or _CAUSES.get(failure.code[:2])
    if cause is not None:
        return cause
    if failure.lost:
        return f"the connection to PostgreSQL failed ({failure})", StoreUnavailable.fix
    return f"PostgreSQL refused ({failure})", StoreUnavailable.fix


def _caused(error: SemelError, cause: Exception) -> SemelError:
    error.__cause__ = cause
    return error


def unopened(failure: Failure, shown: str) -> SemelError:
    """Why a store could not be opened. What only a person can mend is an OpenError."""
    words = str(failure)
    for phrase, cause, fix in _REFUSALS:
        if phrase in words:
            return OpenError(f"{shown}: {cause} ({words}). Nothing was opened.", corrective_action=fix)
    if failure.code == "42501":
        cause, fix = _CAUSES["42501"]
        return OpenError(f"{shown}: {cause} ({words}). Nothing was opened.", corrective_action=fix)
    refused = translated(failure)
    refused.message = f"{shown}: {refused.message}"
    return refused
