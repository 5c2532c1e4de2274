"""What can go wrong between here and a Redis server: every way is mapped here."""

from __future__ import annotations

import ssl
from typing import Any

import hiredis

from semel.errors import OpenError, SemelError, StoreCorrupt, StoreUnavailable
from semel.kernel.record import Claim, Park, Release, Renew, Resolve, Retake, Settle

_RESUMES = "service resumes by itself."

# By the first word of the server's answer.
_REFUSALS: dict[str, tuple[str, str]] = {
    "OOM": ("the Redis server is out of memory", f"Give it more memory (maxmemory): {_RESUMES}"),
    "READONLY": (
        "the Redis server is a read-only replica",
        f"Point the URL at the primary, or wait for the failover: {_RESUMES}",
    ),
    "LOADING": ("the Redis server is still loading its data", f"Wait until it is through: {_RESUMES}"),
    "BUSY": ("the Redis server is busy with somebody's script", f"Wait, or `SCRIPT KILL` it: {_RESUMES}"),
    "MASTERDOWN": ("the Redis server is a replica without its primary", f"Bring it back: {_RESUMES}"),
    "CLUSTERDOWN": (
        "the Redis Cluster is down: some slots have no server",
        f"`redis-cli --cluster check` says which: {_RESUMES}",
    ),
    "MISCONF": (
        "the Redis server cannot write its data to disk and takes no writes",
        f"Free its disk or look at its log: {_RESUMES}",
    ),
    "NOREPLICAS": ("the Redis server lacks the replicas that it asks for", f"Bring them back: {_RESUMES}"),
    "TRYAGAIN": ("the Redis Cluster is moving these keys", "Call again."),
    "UNBLOCKED": ("the Redis server became a replica", f"Wait for the failover: {_RESUMES}"),
    "NOAUTH": ("the Redis server wants a password", "Put it into the URL: redis://:password@host."),
    "WRONGPASS": ("the Redis server does not accept this user or password", "Correct them in the URL."),
    "NOPERM": (
        "this user may not do that on the Redis server",
        "Allow it the keys and channels of the prefix, and scripts: see the store's page.",
    ),
    "MAXCLIENTS": ("the Redis server has too many clients", f"Raise maxclients: {_RESUMES}"),
}

_LOST = "Restore it from a backup, or open the ledger anew to begin without what was lost."

_DAMAGE: dict[str, tuple[str, str]] = {
    "SEMELEMPTY": (
        "The Redis server came back without its data, or somebody deleted it: keys that were claimed are "
        "forgotten, and nothing was trusted",
        _LOST,
    ),
    "SEMELLOST": (
        "The Redis server came back with older data: it lost writes that it had acknowledged, and nothing "
        "was trusted",
        _LOST,
    ),
    "SEMELCORRUPT": (
        "The record of this key is damaged, and a damaged record is not an absent one",
        StoreCorrupt.fix,
    ),
    "SEMELDAMAGED": (
        "A document is damaged, and a damaged document is not an absent one",
        StoreCorrupt.fix,
    ),
    "WRONGTYPE": (
        "Something else wrote to the keys of this store",
        "Give each application a prefix of its own (?prefix=…), and restore the store from a backup.",
    ),
}

# Beyond these nothing of the store can be trusted any more.
LOSSES = frozenset(("SEMELEMPTY", "SEMELLOST"))

_NOT_DONE: dict[type, str] = {
    Claim: "the tool did not run",
    Retake: "the tool did not run",
    Renew: "the lease was not renewed",
    Settle: "the outcome was not recorded",
    Park: "the doubt was not recorded",
    Release: "the key was not released",
    Resolve: "nothing was resolved",
}


def not_done(operation: Any) -> str:
    return _NOT_DONE.get(type(operation), "nothing was acknowledged")


def word_of(error: object) -> str:
    """The first word of the server's error, which names its kind; MAXCLIENTS has none of its own."""
    text = str(error)
    word = text.partition(" ")[0]
    if "max number of clients" in text:
        return "MAXCLIENTS"
    return word


def refused(error: object, operation: Any = None) -> SemelError:
    """The server's refusal as a caller should see it: what is wrong, and what was therefore not done."""
    word = word_of(error)
    if word in _DAMAGE:
        cause, fix = _DAMAGE[word]
        return StoreCorrupt(f"{cause}; {not_done(operation)}.", corrective_action=fix)
    cause, fix = _REFUSALS.get(word, (f"the Redis server refused ({_text_of(error)})", StoreUnavailable.fix))
    return _unavailable(cause, operation, fix, reason=word)


class NotPrimary(ConnectionError):
    """it is not the primary"""

    def __str__(self) -> str:
        return str(self.__doc__)


def check_primary(role: Any) -> None:
    """NotPrimary, unless this answer to ROLE is a primary's."""
    check(role)
    if type(role) is not list or not role or role[0] != b"master":
        raise NotPrimary


def check(answer: Any) -> None:
    """Raises what the answer means, if it is a refusal."""
    if type(answer) is hiredis.ReplyError:
        raise refused(answer)


def _text_of(error: object) -> str:
    """The server's error without the arguments that it repeats: one may be a password."""
    return str(error).partition(", with args")[0]


def broken(error: BaseException, node: object, operation: Any = None) -> SemelError:
    """What a connection's failure means."""
    if isinstance(error, StoreUnavailable):
        return again(error, operation)
    if isinstance(error, SemelError):
        return error
    if isinstance(error, NotPrimary):
        return _unavailable(
            f"the Redis server at {node} is not the primary", operation, f"Wait for the failover: {_RESUMES}"
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return _unavailable(
            f"the certificate of {node} is not trusted", operation, "Check it, and the host's name."
        )
    if isinstance(error, TimeoutError | BlockingIOError | ssl.SSLWantReadError | ssl.SSLWantWriteError):
        cause, fix = f"the Redis server at {node} did not answer in time", StoreUnavailable.fix
    elif isinstance(error, ConnectionRefusedError | FileNotFoundError):
        cause, fix = f"nothing listens at {node}", f"Start the Redis server: {_RESUMES}"
    elif isinstance(error, OSError):
        cause, fix = f"the connection to {node} broke ({error})", StoreUnavailable.fix
    else:
        cause, fix = f"{node} does not speak the Redis protocol", "Check host and port in the URL."
    return _unavailable(cause, operation, fix)


def _unavailable(cause: str, operation: Any, fix: str, **details: Any) -> StoreUnavailable:
    text = f"{cause[0].upper()}{cause[1:]}; {not_done(operation)}."
    return StoreUnavailable(text, corrective_action=fix, **details)


LOGIN = frozenset(("NOAUTH", "WRONGPASS", "NOPERM"))

# A reason of our own: no Sentinel knows the name in the URL.
UNKNOWN_SERVICE = "UNKNOWN_SERVICE"


def unopened(error: StoreUnavailable) -> SemelError:
    """The same while the store is being opened, where a wrong password or name is no matter of waiting."""
    if error.details.get("reason") in (*LOGIN, UNKNOWN_SERVICE):
        return OpenError(error.message, corrective_action=error.corrective_action)
    return error


def closed() -> StoreUnavailable:
    return StoreUnavailable("The ledger is closed; nothing was done.", corrective_action="Open it anew.")


def again(error: StoreUnavailable, operation: Any) -> StoreUnavailable:
    """The same, saying what was therefore not done."""
    message = error.message.replace("nothing was acknowledged", not_done(operation))
    return StoreUnavailable(message, corrective_action=error.corrective_action, **error.details)
