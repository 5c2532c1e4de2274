"""One process at a SQLite store: says what it got, line by line, so that a test knows it after a kill.

    python -m tests.faults.sqlite_process WORK PATH [NUMBER]

It says "ready" and begins when it is told a line.
"""

from __future__ import annotations

import sys

from semel.errors import SemelError
from semel.kernel.clock import SYSTEM
from semel.stores.sqlite import SqliteStore
from tests.commands import AT, claim, settle


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def opens(path: str, _: int) -> None:
    """Opens a file that may not be there yet."""
    store = SqliteStore(path)
    say("secret", store.secret_key.hex())
    store.close()


def claims(path: str, count: int) -> None:
    """Claims the same keys as everybody else and settles those it won."""
    store = SqliteStore(path)
    for number in range(count):
        token = SYSTEM.token()
        at = AT._replace(key=f"key-{number}")
        if store.perform(claim(token, at)).applied:
            store.perform(settle(token, at, outcome=token))
            say("won", number, token.hex())
    store.close()


def writes(path: str, count: int) -> None:
    """Claims and settles keys of its own, and says so after each acknowledgement."""
    store = SqliteStore(path)
    for number in range(count):
        at = AT._replace(key=f"key-{number}")
        token = number.to_bytes(16, "big")
        assert store.perform(claim(token, at)).applied
        say("claimed", number)
        assert store.perform(settle(token, at)).applied
        say("settled", number)
    store.close()


def holds(path: str, _: int) -> None:
    """Has the file open until it is told otherwise."""
    store = SqliteStore(path)
    assert store.perform(claim(b"A" * 16)).applied
    say("holding")
    sys.stdin.readline()
    store.close()


def enters(path: str, count: int) -> None:
    """An effect for each key that it may claim; each refusal in a line. The file stays open until told."""
    try:
        store = SqliteStore(path, busy_s=1)
    except SemelError as refusal:
        say("refused", type(refusal).__name__, refusal)
        return
    for number in range(count):
        token, at = SYSTEM.token(), AT._replace(key=f"key-{number}")
        try:
            if store.perform(claim(token, at)).applied:
                say("effect", number)
                store.perform(settle(token, at))
        except SemelError as refusal:
            say("refused", type(refusal).__name__, refusal)
    say("through")
    sys.stdin.readline()
    store.close()


WORK = {"opens": opens, "claims": claims, "writes": writes, "holds": holds, "enters": enters}

if __name__ == "__main__":
    say("ready")
    sys.stdin.readline()
    WORK[sys.argv[1]](sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0)
