"""Running the experiments: sides take turns, round by round, so that what disturbs one disturbs the other."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.experiments import EXPERIMENTS
from bench.figures import BenchReport, Row, figure
from bench.plan import Experiment, ExperimentResources, RunResources
from bench.servers import ServerMissing
from bench.sides import MissingSide, Side

# Odd, so that the median is one of them; enough that a disturbed third does not move it.
ROUNDS, QUICK_ROUNDS = 15, 2

Progress = Callable[[str, int, int], None]
"""Told what is going on, how many steps are done, and how many there are."""


def measure(
    rows: Sequence[str] | None = None,
    quick: bool = False,
    directory: str | None = None,
    progress: Progress | None = None,
) -> BenchReport:
    """The figures of these rows, or of all. ValueError if there is no such row.

    Files are made in a new directory inside `directory` (the current one if None), because a temporary
    directory is often kept in memory, where a commit costs nothing. Nothing of it is left.
    """
    chosen = choose(rows)
    step = _StepCounter(progress or (lambda *_: None), len(chosen) * (2 + _rounds(quick)))
    with run_resources(directory) as shared:
        report = BenchReport(quick, shared.facts)
        missing: set[str | None] = set()
        for experiment, chosen_rows in chosen:
            if experiment.needs in missing:
                continue
            try:
                _measure_one(experiment, chosen_rows, shared, report, step)
            except ServerMissing as why:
                missing.add(experiment.needs)
                report.left_out.append(f"The rows of {experiment.needs} are left out. {why}")
    return report


@contextmanager
def run_resources(directory: str | None) -> Iterator[RunResources]:
    """A new directory inside this one, or the current one, and what is known of the machine."""
    with (
        tempfile.TemporaryDirectory(prefix="semel-bench-", dir=directory or os.getcwd()) as inside,
        ExitStack() as ending,
    ):
        # Servers that may not run as root have to find their own directory inside.
        os.chmod(inside, 0o711)
        yield RunResources(Path(inside).resolve(), ending, machine(inside))


def open_sides(experiment: Experiment, quick: bool, shared: RunResources, opened: ExitStack) -> list[Side]:
    """All of them, also those that say why they are missing; `opened` closes them."""
    resources = ExperimentResources(shared.directory / experiment.name, quick, shared, opened)
    resources.directory.mkdir()
    sides: list[Side] = []
    for side in experiment.sides(resources):
        opened.callback(side.close)
        sides.append(side)
    return sides


def names() -> list[str]:
    """What `rows` may hold: experiments, single rows of them, and servers, for all that needs them."""
    each = (name for one in EXPERIMENTS for name in (one.name, *(row.name for row in one.rows)))
    return list(dict.fromkeys([*each, *(one.needs for one in EXPERIMENTS if one.needs)]))


def choose(rows: Sequence[str] | None) -> list[tuple[Experiment, tuple[Row, ...]]]:
    unknown = set(rows or ()) - set(names())
    if unknown:
        raise ValueError(f"There is no row {', '.join(sorted(unknown))}; there are {', '.join(names())}.")
    return [(one, chosen_rows) for one in EXPERIMENTS if (chosen_rows := one.chosen(rows or None))]


def _rounds(quick: bool) -> int:
    return QUICK_ROUNDS if quick else ROUNDS


class _StepCounter:
    """Counts the steps for whoever wants to watch."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def __call__(self, what: str) -> None:
        self._progress(what, self._done, self._total)
        self._done += 1


def _measure_one(
    experiment: Experiment,
    chosen_rows: tuple[Row, ...],
    shared: RunResources,
    report: BenchReport,
    step: _StepCounter,
) -> None:
    count = experiment.quick_operations if report.quick else experiment.operations
    with ExitStack() as opened:
        step(f"{experiment.name}: {experiment.preparing}")
        sides = open_sides(experiment, report.quick, shared, opened)
        missing = {side.name: side.why for side in sides if isinstance(side, MissingSide)}
        sides = [side for side in sides if side.name not in missing]
        samples = _samples(sides, count, _rounds(report.quick), lambda: step(experiment.name))
        for row in chosen_rows:
            if why := missing.get(row.side) or missing.get(row.against or ""):
                report.left_out.append(f"The row {row.name} is left out. {why}")
            else:
                report.figures.append(figure(row, samples))
        report.did[experiment.name] = {side.name: side.did() for side in sides}


def _samples(sides: list[Side], count: int, rounds: int, step: Callable[[], None]) -> dict[str, list[float]]:
    """Seconds per operation of every side in every round; a first round warms up and does not count."""
    samples: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(rounds + 1):
        step()
        # Who goes first changes, so that nobody always follows the same neighbour.
        for side in sides if number % 2 else reversed(sides):
            took = side.round(count)
            if number:
                samples[side.name].append(took)
    return samples


# --- where it was measured ------------------------------------------------------------------------


def machine(directory: str) -> dict[str, str]:
    """What a reader has to know about where the figures come from."""
    cores = os.cpu_count() or 1
    facts = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "built with": build(platform.python_compiler(), sysconfig.get_config_vars()),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(cores),
        "file system": file_system(directory),
    }
    if hasattr(os, "getloadavg"):
        load = os.getloadavg()[0]
        # A second busy process already takes its share of caches and of the disk.
        busy = " (busy: measure again when it is quiet)" if load > cores / 2 else ""
        facts["load before"] = f"{load:.1f}{busy}"
    return facts


def build(compiler: str, config: Mapping[str, Any]) -> str:
    """How the interpreter was built, which is worth a fifth of its speed."""
    arguments, flags = str(config.get("CONFIG_ARGS") or ""), str(config.get("PY_CFLAGS") or "")
    # The last one counts.
    level = (re.findall(r"(?<!\S)-O\S*", flags) or ["optimisation unknown"])[-1]
    return ", ".join(
        (
            compiler,
            level,
            "PGO" if "--enable-optimizations" in arguments else "no PGO",
            "LTO" if "--with-lto" in arguments and "--with-lto=no" not in arguments else "no LTO",
            "debug" if config.get("Py_DEBUG") else "no debug",
        )
    )


def file_system(directory: str, mounts: str = "/proc/self/mounts") -> str:
    """The kind of file system that a directory is on, or "unknown"."""
    try:
        lines = Path(mounts).read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    here = os.path.realpath(directory)
    # The last mount on the longest path that leads here is the one that is seen.
    leading = [(len(at), order, kind) for order, (at, kind) in enumerate(_mounted(lines)) if _leads(at, here)]
    return max(leading)[2] if leading else "unknown"


def _mounted(lines: list[str]) -> list[tuple[str, str]]:
    return [(fields[1].replace("\\040", " "), fields[2]) for line in lines if len(fields := line.split()) > 2]


def _leads(mount: str, here: str) -> bool:
    return here == mount or here.startswith(mount.rstrip("/") + "/")
