"""The rows about the client do the work that they measure. How long it takes is not tested."""

from __future__ import annotations

from pathlib import Path

from bench.client_rows import EXPERIMENTS
from bench.run import QUICK_ROUNDS, measure


def test_both_sides_start_as_many_runs_and_end_them(tmp_path: Path) -> None:
    (experiment,) = EXPERIMENTS
    report = measure([experiment.name], quick=True, directory=str(tmp_path))
    assert sorted(figure.row.name for figure in report.figures) == sorted(row.name for row in experiment.rows)
    starts = experiment.quick_operations * (QUICK_ROUNDS + 1)
    sides = ("client", "httpx", "awaited client", "awaited httpx")
    assert report.did["client"] == {side: {"starts": starts, "runs": starts} for side in sides}
