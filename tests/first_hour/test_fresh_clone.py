"""The README's first command in a fresh clone under a fresh home, and what the second one finds then."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import httpx
import pytest

from tests.first_hour import fresh
from tests.missing import cannot
from tests.patience import PATIENCE_S

LAST = "Ctrl-C stops."

# pip fetches some thirty packages: on a quiet machine in half a minute.
INSTALLED_WITHIN_S = 4 * PATIENCE_S


class Clone:
    def __init__(self, folder: Path) -> None:
        (folder / "home").mkdir()
        self.folder = fresh.copied(folder / "clone")
        self.environment = fresh.environment(folder / "home")

    def make(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def python(self, code: str) -> int:
        command = [str(self.folder / ".venv/bin/python"), "-c", code]
        return subprocess.run(command, env=self.environment, capture_output=True, check=False).returncode


class Served:
    """`make serve`, typed at a terminal: a group of processes that gets Ctrl-C together."""

    def __init__(self, clone: Clone) -> None:
        self._process = subprocess.Popen(
            ["make", "serve", "ARGS=--port 0"],
            cwd=clone.folder,
            env=clone.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        # What never ends is ended, and then the lines do.
        timer = threading.Timer(INSTALLED_WITHIN_S, os.killpg, (self._process.pid, signal.SIGKILL))
        timer.start()
        try:
            self.said = self._until_last()
        finally:
            timer.cancel()
        self.url = re.findall(r"on (http://\S+)", self.said)[0]

    def _until_last(self) -> str:
        assert self._process.stdout is not None
        said = ""
        for line in self._process.stdout:
            said += line
            if line.strip() == LAST:
                return said
        raise AssertionError(f"it ended after: {said}")

    def interrupt(self) -> str:
        """What it still says after Ctrl-C."""
        os.killpg(self._process.pid, signal.SIGINT)
        rest, _ = self._process.communicate(timeout=PATIENCE_S)
        return rest

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate(timeout=PATIENCE_S)

    def runs(self) -> dict[int, tuple[str, str]]:
        items = httpx.get(f"{self.url}/api/v1/runs", timeout=PATIENCE_S).json()["items"]
        return {run["input"]["order"]: (run["run_id"], run["status"]) for run in items}


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    if shutil.which("make") is None:
        cannot("make is not installed: apt-get install make")
    return Clone(tmp_path)


@pytest.mark.full
def test_make_serve_is_enough_and_a_second_one_goes_on_where_the_first_was(clone: Clone) -> None:
    first = Served(clone)
    try:
        assert "setup: installing semel[console]" in first.said
        before = first.runs()
        assert {number: status for number, (_, status) in before.items()} == {
            1: "succeeded",
            2: "waiting",
            3: "failed",
        }
        assert "IN DOUBT" in first.said
        assert "Stopped; everything that was answered is kept." in first.interrupt().splitlines()
    finally:
        first.kill()

    # Only what it runs: neither tools of developers nor clients of servers.
    assert clone.python("import uvicorn, jinja2, semel") == 0
    for module in ("pytest", "mypy", "psycopg", "temporalio", "redis"):
        assert clone.python(f"import {module}") == 1, module

    second = Served(clone)
    try:
        assert "setup:" not in second.said
        assert second.runs() == before
    finally:
        second.kill()

    demo = clone.make("demo")
    assert (demo.returncode, demo.stdout.splitlines()[-1]) == (0, "Without Semel 4 refunds, with it 1.")


def test_each_command_installs_what_it_needs_and_is_content_with_more(clone: Clone) -> None:
    def would_install(target: str) -> set[str]:
        return set(re.findall(r"EXTRAS=\"?([\w,]+)\"? tools/setup", clone.make("-n", target).stdout))

    assert would_install("serve") == {"console"}
    assert would_install("test") == {"dev,all"}
    stamps = clone.folder / ".venv"
    stamps.mkdir()
    (stamps / ".serving").touch()
    assert would_install("serve") == set()
    assert would_install("test") == {"dev,all"}
    (stamps / ".serving").unlink()
    for stamp in re.findall(r"touch (.+)", clone.make("-n", "setup").stdout)[0].split():
        (clone.folder / stamp).touch()
    assert would_install("serve") == would_install("test") == set()
