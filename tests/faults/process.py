"""Other processes: started, listened to, stopped and killed by their own id, and never left behind."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.faults.checks import PATIENCE_S
from tests.freezing import freeze

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """A process that plays a scene of tests.faults.scenes, or of another module like it."""

    def __init__(
        self,
        scene: str,
        told: dict[str, Any],
        *,
        under: Sequence[str] = (),
        module: str = "tests.faults.scenes",
    ) -> None:
        self._url = str(told.get("url", ""))
        self._popen = subprocess.Popen(
            [*under, sys.executable, "-m", module, scene, json.dumps(told)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._complaints: list[str] = []
        self._readers = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._listen_to_complaints, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def _listen(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _listen_to_complaints(self) -> None:
        assert self._popen.stderr is not None
        self._complaints.extend(self._popen.stderr)

    def next_line(self) -> Any:
        """The next thing it says, as word and content; None once it has ended."""
        try:
            line = self._lines.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError(f"it was silent for too long: {''.join(self._complaints)}") from None
        return None if line is None else json.loads(line)

    def hear(self, word: str) -> Any:
        """What it says with this word; fails if it says another, ends, or is silent for too long."""
        line = self.next_line()
        if line is None:
            self._readers[1].join(PATIENCE_S)
            raise AssertionError(f"it ended without saying {word!r}: {''.join(self._complaints)}")
        said, content = line
        assert said == word, f"it said {said!r} {content!r} instead of {word!r}"
        return content

    def complaints(self) -> str:
        """What it said on its way out, once it has ended."""
        self._readers[1].join(PATIENCE_S)
        return "".join(self._complaints)

    def go_on(self) -> None:
        """Whatever it waits for has come."""
        assert self._popen.stdin is not None
        self._popen.stdin.write("go on\n")
        self._popen.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def freeze(self) -> None:
        """It stands still, and is in nobody's way."""
        freeze(self.pid, self._url)

    def end(self) -> int:
        """How it ended: 0, an exit status, or minus the number of a signal."""
        return self._popen.wait(PATIENCE_S)

    def clean_up(self) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # it died before it read what it was told
