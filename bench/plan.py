"""What an experiment is, and what it is given to run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import semel
from bench.figures import Row, at_most
from bench.servers import PostgresServer, RedisServer
from bench.sides import Side
from semel.ledger.ledger import Ledger

# Cost must not grow with history; what is left is the depth of the trees and the width of the caches.
FLAT = at_most(1.5)


@dataclass
class RunResources:
    """What the experiments of a run share: a directory, and the servers that are slow to make."""

    directory: Path
    ending: ExitStack  # ends what was started, when the run does
    facts: dict[str, str] = field(default_factory=dict)
    _postgres: PostgresServer | None = None

    def postgres(self) -> PostgresServer:
        """The one PostgreSQL of the run: experiments take a schema each. ServerMissing if there is none."""
        if self._postgres is None:
            self._postgres = self.ending.enter_context(PostgresServer(self.directory / "postgresql"))
            self.facts["postgresql"] = self._postgres.described()
        return self._postgres


@dataclass(frozen=True)
class ExperimentResources:
    """Where an experiment keeps its files and servers, and how long a history it makes."""

    directory: Path
    quick: bool
    shared: RunResources
    ending: ExitStack  # ends what was started, when the experiment does

    def file(self, name: str) -> str:
        return str(self.directory / f"{name}.db")

    def ledger(self, name: str, options: str = "") -> Ledger:
        return semel.open(f"sqlite:///{self.file(name)}{options}")

    def redis(self, name: str = "redis") -> RedisServer:
        """A Redis of the experiment's own. ServerMissing if there is none."""
        server = self.ending.enter_context(RedisServer(self.directory / name))
        self.shared.facts["redis"] = server.described()
        return server

    def postgres(self) -> PostgresServer:
        return self.shared.postgres()

    @property
    def large(self) -> int:
        return 2_000 if self.quick else 1_000_000

    @property
    def small(self) -> int:
        return 100 if self.quick else 1_000


@dataclass(frozen=True)
class Experiment:
    """Sides that take turns, `operations` at a time; a side is opened when it is asked for."""

    name: str
    rows: tuple[Row, ...]
    sides: Callable[[ExperimentResources], Iterator[Side]]
    operations: int
    quick_operations: int
    preparing: str = "preparing"
    # Without needs it works wherever Semel does.
    needs: Literal["redis", "postgres", "gateway", "agents"] | None = None

    def chosen(self, names: Sequence[str] | None) -> tuple[Row, ...]:
        """The rows of this experiment that are asked for: by their own name, by its, or by its server's."""
        if names is None or self.name in names or self.needs in names:
            return self.rows
        return tuple(row for row in self.rows if row.name in names)
