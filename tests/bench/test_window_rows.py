"""The bench's rows about the window of an entity. How long a push takes is not tested."""

from __future__ import annotations

from pathlib import Path

from bench import render
from bench.figures import Unit
from bench.run import measure


def test_the_bench_pushes_what_it_says_and_compares_the_same_traffic(tmp_path: Path) -> None:
    rows = ["window-push", "window-size", "window-years"]
    report = measure(rows, quick=True, directory=str(tmp_path))
    assert report.did["window-push"]["many"] == {"pushes": 60, "live keys": 2_000}
    years = report.did["window-years"]
    assert years["daily, window"]["events"] == years["daily, map"]["events"]
    assert years["hostile, window"]["keys"] == 500 < years["hostile, map"]["keys"]
    assert "B |" in render.markdown(report)


def test_bytes_are_not_seconds() -> None:
    assert Unit.BYTES.of(44.0, 1.0) == 44.0
    assert Unit.BYTES.spelled(12_345.0) == "12 345 B"
