"""How long an import takes in an interpreter that has just started; its start is not counted.

Both load their parts when they are asked for, so a second row compares what everybody imports them for.
"""

from __future__ import annotations

import os
import subprocess
import sys

from bench.servers import REPOSITORY

_PROGRAM = "from time import perf_counter\nbegan = perf_counter()\n{statement}\nprint(perf_counter() - began)"


class Imports:
    """One statement, each time in a new interpreter; modules are compiled before it counts."""

    def __init__(self, name: str, statement: str) -> None:
        self.name, self._imports = name, 0
        self._command = [sys.executable, "-c", _PROGRAM.format(statement=statement)]
        # Where nothing compiled may be written, each import would compile all of it again.
        self._environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self._import()

    def round(self, count: int) -> float:
        self._imports += count
        return sum(self._import() for _ in range(count)) / count

    def _import(self) -> float:
        ended = subprocess.run(
            self._command, check=True, capture_output=True, text=True, env=self._environment, cwd=REPOSITORY
        )
        return float(ended.stdout)

    def did(self) -> dict[str, int]:
        return {"imports": self._imports}

    def close(self) -> None:
        """Nothing of it runs between the rounds."""
