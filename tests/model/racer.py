"""One of many who do as they please with the same few keys, and write down what they asked and heard.

    python -m tests.model.racer sqlite PLACE HISTORY NAME SEED

opens the store that is at PLACE, says "ready", begins when it is told to, and leaves its history behind.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

from semel.kernel.clock import SYSTEM
from semel.kernel.record import (
    Address,
    Claim,
    Command,
    Look,
    Park,
    Record,
    Release,
    Retake,
    Settle,
    State,
    ours,
    settled_by,
)
from tests.commands import asked
from tests.handles import StoreHandle
from tests.model.linearizability import Recorder
from tests.model.record_model import STARTED
from tests.stores import BY_NAME

# The checker's model has no time: no lease ends while a race is on.
HOUR_US = 3_600_000_000

KEYS = 12
# With 16 racers 128 operations on each key, which the checker decides in well under a second.
QUESTIONS_PER_KEY = 8


def place(key: str) -> Address:
    return Address("acme", "race", key)


class Racer:
    """Asks at random, with tokens that are its own, that were its own, or that belong to somebody else."""

    def __init__(self, handle: StoreHandle, recorder: Recorder, name: str, seed: int) -> None:
        self._handle = handle
        self._recorder = recorder
        self._name = name
        self._chance = random.Random(seed)
        self._tokens = 0
        self._mine: list[bytes] = []
        self._seen: list[bytes] = []

    def run(self) -> None:
        for number in range(KEYS):
            self._mine, self._seen = [self._new_token()], []
            for _ in range(QUESTIONS_PER_KEY):
                self._ask_something(f"key-{number}")

    def _ask_something(self, key: str) -> None:
        # Settling is rare: it is the end of the key, after which there is nothing left to race for.
        actions = [self._claim, self._look, self._park, self._retake, self._release, self._settle]
        self._chance.choices(actions, weights=[5, 2, 4, 5, 3, 1])[0](key)

    def _new_token(self) -> bytes:
        self._tokens += 1
        return f"{self._name}-{self._tokens}".encode()

    def _new_or_own(self) -> bytes:
        """Mostly a new token, sometimes the last one again, as after a lost reply."""
        if self._chance.random() < 0.7:
            self._mine.append(self._new_token())
        return self._mine[-1]

    def _some_token(self) -> bytes:
        """Mostly the newest of our own, else an older one or one that was seen in somebody's hands."""
        if self._chance.random() < 0.7:
            return self._mine[-1]
        return self._chance.choice(self._mine + self._seen[-1:])

    def _claim(self, key: str) -> None:
        token = self._new_or_own()
        command = Claim(asked(token, place(key)), token, HOUR_US)

        def answer(record: Record | None) -> Any:
            if ours(record, command):
                return STARTED
            assert record is not None
            return ("other", record.state.value, record.token.decode())

        self._call(key, "claim", (token,), command, answer)

    def _look(self, key: str) -> None:
        def answer(record: Record | None) -> Any:
            if record is None:
                return ("absent", None, None)
            outcome = None if record.outcome is None else record.outcome.decode()
            return (record.state.value, record.token.decode(), outcome)

        self._call(key, "look", (), Look(place(key)), answer)

    def _retake(self, key: str) -> None:
        token = self._new_or_own()
        seen = self._seen[-1] if self._seen else self._some_token()
        command = Retake(place(key), seen, token, HOUR_US)
        self._call(key, "retake", (token, seen), command, lambda record: ours(record, command))

    def _settle(self, key: str) -> None:
        token = self._some_token()
        outcome = f"by {self._name}"
        command = Settle(place(key), token, State.DONE, outcome.encode(), None)
        self._call(key, "settle", (token, outcome), command, lambda record: settled_by(record, command))

    def _park(self, key: str) -> None:
        token = self._some_token()

        def answer(record: Record | None) -> bool:
            return record is not None and record.token == token and record.state is State.IN_DOUBT

        self._call(key, "park", (token,), Park(place(key), token, "cannot tell"), answer)

    def _release(self, key: str) -> None:
        token = self._some_token()

        def answer(record: Record | None) -> bool:
            if record is None or record.token != token:
                return False
            # A later entry that was refused is in doubt again.
            return record.state is State.RELEASED or (record.state is State.IN_DOUBT and record.entries > 1)

        self._call(key, "release", (token,), Release(place(key), token, None), answer)

    def _call(self, key: str, name: str, args: tuple[Any, ...], command: Command, answer: Any) -> None:
        spelled = tuple(arg.decode() if isinstance(arg, bytes) else arg for arg in args)

        def ask() -> Any:
            record = self._handle.perform(command).record
            if record is not None:
                self._seen.append(record.token)
            return answer(record)

        self._recorder.call(key, name, spelled, ask)


def main(kind: str, at: str, history: str, name: str, seed: str) -> None:
    handle = StoreHandle(BY_NAME[kind].open(Path(at), SYSTEM, True))
    print("ready", flush=True)
    sys.stdin.readline()
    with Recorder(Path(history), name) as recorder:
        Racer(handle, recorder, name, int(seed)).run()
    handle.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
