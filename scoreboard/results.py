"""What a run saw, as JSON beside the page that is made of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.servers import REPOSITORY
from scoreboard.cells import Cell, Colour

FILE = REPOSITORY / "docs" / "assets" / "scoreboard" / "results.json"


@dataclass(frozen=True)
class RowResult:
    library: str
    version: str
    store: str
    adapter: str
    promises: Mapping[str, str | None]
    cells: Mapping[str, Cell]

    @property
    def name(self) -> tuple[str, str]:
        return self.library, self.store


@dataclass(frozen=True)
class Retrial:
    """A part that was tried at another time, or on another machine, than the rest."""

    date: str
    machine: str
    part: str


@dataclass(frozen=True)
class Results:
    date: str
    machine: str
    rows: Sequence[RowResult]
    again: Sequence[Retrial] = ()

    def updated(self, fresh: Results, part: str) -> Results:
        """With the part that was tried anew in the place of what was there."""
        if not self.rows:
            return fresh
        old = {row.name: row for row in self.rows}
        for row in fresh.rows:
            before = old.get(row.name)
            cells = {**before.cells, **row.cells} if before else row.cells
            promises = {**before.promises, **row.promises} if before else row.promises
            old[row.name] = replace(row, cells=cells, promises=promises)
        again = [each for each in self.again if each.part != part]
        if (fresh.date, fresh.machine) != (self.date, self.machine):
            again.append(Retrial(fresh.date, fresh.machine, part))
        return replace(self, rows=sorted(old.values(), key=place), again=again)


def place(row: RowResult) -> tuple[bool, bool, str, str]:
    """Ours first, then by name; by hand last."""
    return row.adapter.startswith("by_hand"), row.library != "semel", row.library, row.store


def load_results(file: Path = FILE) -> Results:
    if not file.exists():
        return Results("", "", [])
    said: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    rows = [
        RowResult(
            **{
                **row,
                "cells": {
                    name: Cell(Colour(cell["colour"]), cell["seen"], cell["facts"])
                    for name, cell in row["cells"].items()
                },
            }
        )
        for row in said["rows"]
    ]
    again = [Retrial(**each) for each in said.get("again", ())]
    return Results(said["date"], said["machine"], rows, again)


def save_results(results: Results, file: Path = FILE) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(results), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
