"""Other packages that guard calls, as sides: each runs in an environment of its own, in a process of its own.

The process is started before the rounds, told by a line how many calls to do, and takes its turns with the
other sides; between them it waits for the next line. It keeps its own time, so the pipe is not counted.
"""

from __future__ import annotations

import os
import subprocess
from importlib.metadata import Distribution, distributions
from pathlib import Path

from bench.servers import REPOSITORY
from bench.sides import MissingSide, Side

ENVIRONMENT = REPOSITORY / ".venv-rivals"
PINS = REPOSITORY / "bench" / "rivals.txt"

# What each of them does not do for a call, of what is switched on here.
LEAVES_OUT = {
    "exactly-once": "audit events, stored arguments, validation, lease and heartbeat, windows, result types",
    "agent-once": "audit events, stored arguments, validation, lease and heartbeat, result types",
    "idemkit": "audit events, stored arguments, validation; after a crash it runs again",
    "fastapi-idempotency-key": (
        "audit events, callers (two with one key meet), bounds on bodies, steps; writes its answer after it "
        "was sent, and runs again after a crash"
    ),
    "powertools": "audit events, stored arguments, validation, heartbeat; past its expiry it runs again",
}

_DISTRIBUTIONS = {"powertools": "aws-lambda-powertools"}


def pinned(package: str) -> str:
    """The version that is measured."""
    name = _DISTRIBUTIONS.get(package, package)
    pins = dict(line.split("==") for line in PINS.read_text(encoding="utf-8").split("\n") if "==" in line)
    return pins[name]


def leaves_out(package: str) -> str:
    return f"{package} {pinned(package)} does without {LEAVES_OUT[package]}."


def rival(
    name: str, package: str, store: str, where: str = "-", *, work: str = "calls", tasks: int = 0
) -> Side:
    """The refund as this package guards it; a side that says why there is none, if there is none.

    `tasks` is 0 for a synchronous caller.
    """
    problem = _problem(package)
    return MissingSide(name, problem) if problem else RivalSide(name, package, store, where, work, tasks)


def _problem(package: str) -> str | None:
    wanted, found = pinned(package), _installed(ENVIRONMENT).get(_DISTRIBUTIONS.get(package, package))
    if found == wanted:
        return None
    return f"{package} {wanted} is not installed in {ENVIRONMENT.name}: `make bench` installs it."


def _installed(environment: Path) -> dict[str, str]:
    folders = [str(each) for each in environment.glob("lib/python*/site-packages")]
    return {_name(each): each.version for each in distributions(path=folders)}


def _name(distribution: Distribution) -> str:
    name: str = distribution.metadata["Name"]
    return name.lower().replace("_", "-")


class ProcessSide:
    """Calls (`calls`) or repeats of one call (`replays`) in a process that is asked for them by lines."""

    def __init__(self, name: str, words: list[str], environment: dict[str, str], work: str = "calls") -> None:
        self.name, self._work, self._asked = name, work, 0
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=REPOSITORY
        )
        self._answer()

    def round(self, count: int) -> float:
        self._asked += 1 if self._work == "replays" else count
        return float(self._ask(f"{self._work} {count}"))

    def did(self) -> dict[str, int]:
        return {"asked": self._asked, "effects": int(self._ask("effects"))}

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise RuntimeError(f"{self.name} ended before it answered; its last words are above.")
        return line.strip()

    def close(self) -> None:
        """Its input ends, so it does."""
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            end.close()
        self._process.wait()


class RivalSide(ProcessSide):
    """The same by another package."""

    def __init__(self, name: str, package: str, store: str, where: str, work: str, tasks: int) -> None:
        python, program = ENVIRONMENT / "bin" / "python", REPOSITORY / "bench/rival_calls.py"
        words = [str(python), "-W", "ignore", str(program), package, store, where, str(tasks)]
        # Nothing of ours may reach it: it is measured as it comes.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        super().__init__(name, words, environment, work)
