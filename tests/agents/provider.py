"""What tools act on. Its effects are lines of a file, so they outlive whoever caused them."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from tests.patience import PATIENCE_S


class Provider:
    """A payment provider. It can be told to kill its caller, or to hold on to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._effects = folder / "effects"

    # --- for tools --------------------------------------------------------------------------------

    def refund(self, payment_id: str, amount_minor: int, key: str = "") -> str:
        """The refund's number. A second one with the same key is the first one."""
        if not (key and any(effect["key"] == key for effect in self.effects())):
            self._write({"payment_id": payment_id, "amount_minor": amount_minor, "key": key})
        if self._taken("kill inside"):
            die()
        if self._taken("hold"):
            (self._folder / "held").touch()
            self._wait_for("let go")
        return f"refund of {payment_id}"

    def look(self, payment_id: str) -> str:
        """How often the payment was looked at, which is another answer each time."""
        self._write({"payment_id": payment_id, "looked": True})
        return f"look {len(self.effects())}"

    def fails_once(self) -> bool:
        """True once, if it was told to fail."""
        return self._taken("fail once")

    def _write(self, effect: dict[str, object]) -> None:
        line = json.dumps(effect) + "\n"
        file = os.open(self._effects, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, line.encode())
        os.fsync(file)
        os.close(file)

    def _taken(self, plan: str) -> bool:
        """Whether this was planned; it is not any more."""
        try:
            (self._folder / plan).unlink()
        except FileNotFoundError:
            return False
        return True

    def _wait_for(self, name: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not (self._folder / name).exists():
            assert time.monotonic() < until, f"nobody said: {name}"
            time.sleep(0.01)

    # --- for models -------------------------------------------------------------------------------

    def dies_after(self) -> None:
        """Called by the scripted model when it has read an answer of a tool."""
        if self._taken("kill after"):
            die()

    # --- for tests --------------------------------------------------------------------------------

    def plan(self, plan: str) -> None:
        """`kill inside`, `kill after`, `hold`, `let go`, `fail once`."""
        (self._folder / plan).touch()

    def wait_until_held(self) -> None:
        self._wait_for("held")

    def effects(self) -> list[dict[str, object]]:
        try:
            return [json.loads(line) for line in self._effects.read_text().splitlines()]
        except FileNotFoundError:
            return []


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
