"""What soaks did: `pytest --evidence docs/evidence.json` collects it, and writes it and the page beside it.

A test asks for the fixture `evidence` and counts what it does and does to others; its name, its store, how
long it took and whether it held are known without that. Only what carries the mark `slow` is evidence.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.run import machine
from semel.kernel.clock import SYSTEM, rfc3339
from tests.storeys import EVERY_STORE
from tools import evidence as page
from tools.pages import ROOT

PROPERTY = "evidence"


class Deeds:
    """What one test did, by name. Failovers add what was expected of them."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.facts: dict[str, str] = {}

    def count(self, **more: int) -> None:
        for name, number in more.items():
            assert name in page.COUNTS, f"{name} has no column"
            self.counts[name] = self.counts.get(name, 0) + number

    def say(self, **facts: str) -> None:
        self.facts |= facts


@pytest.fixture
def evidence(record_property: Callable[[str, object], None]) -> Deeds:
    """What the test counts here is in the report of a soak, also if the test fails later."""
    deeds = Deeds()
    # Plain data, because tests may run in other processes than their report.
    record_property(PROPERTY, [deeds.counts, deeds.facts])
    return deeds


class Collector:
    """The plug-in: listens to reports, and writes when all is over."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._began = SYSTEM.monotonic()
        self._machine, self._commit = machine(str(target.parent)), commit()
        self._rows: dict[str, dict[str, Any]] = {}
        self._untried: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "slow" not in report.keywords:
            return
        if report.skipped:
            self._untried.append(report.nodeid.partition("::")[2])
        elif report.when == "call" or report.failed:
            # What fails at its end as well did all that it did once.
            row = self._rows.setdefault(report.nodeid, row_of(report))
            row["violations"] |= int(report.failed)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """What was interrupted is no soak: the page stays as it is."""
        if not self._rows or exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        report = {
            "date": rfc3339(SYSTEM.now_us())[:10],
            "commit": self._commit,
            "machine": self._machine,
            "storm_s": float(os.environ.get("SEMEL_STORM_S", "150")),
            "short": bool(os.environ.get("SEMEL_SOAK_SHORT")),
            "seconds": round(SYSTEM.monotonic() - self._began),
            "untried": self._untried,
            "rows": page.joined(self._rows.values()),
        }
        page.publish(report, self._target)


def row_of(report: pytest.TestReport) -> dict[str, Any]:
    told: Any = dict(report.user_properties).get(PROPERTY, ({}, {}))
    counts, facts = told
    path, _, name = report.nodeid.partition("::")
    function, _, parameters = name.partition("[")
    words = parameters.rstrip("]").split("-")
    return {
        "test": function,
        "file": path,
        "store": next((word for word in words if word in EVERY_STORE), ""),
        "seconds": report.duration,
        "violations": int(report.failed),
        "counts": counts,
        **facts,
    }


def commit() -> str:
    """What was tested; "+" stands for changes that no commit has."""

    def told(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.strip()

    changed = told("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/evidence.*")
    return told("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--evidence", metavar="FILE", help="write what soaks did here, and a page of it beside")


def pytest_configure(config: pytest.Config) -> None:
    if target := config.getoption("--evidence"):
        config.pluginmanager.register(Collector(Path(target)), "collector-of-evidence")
