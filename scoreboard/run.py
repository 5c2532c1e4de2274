"""Which rows and trials run, in which order, and what is said meanwhile."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import tempfile
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

import scoreboard.trials  # noqa: F401  # they register themselves
from bench.servers import PostgresServer, RedisServer
from scoreboard.beside import beside
from scoreboard.caller import Nursery, nursery, scene
from scoreboard.cells import TRIALS, Cell, Colour, Trial, absent
from scoreboard.libraries import Library, NotInstalled, Row, install, libraries
from scoreboard.page import write
from scoreboard.results import Results, RowResult, load_results, save_results
from scoreboard.stores import PostgresStore
from semel.kernel.clock import SYSTEM

# Most of a trial is waiting, so several go at once; what is timed goes alone.
AT_ONCE = 4


def tried(trial: Trial, row: Row, forks: Nursery, folder: Path) -> Cell:
    """One cell. What nobody promised is marked as such; what could not be tried says why."""
    try:
        with scene(row, forks, folder) as made:
            cell = trial.run(made)
            if cell.colour is not Colour.ABSENT and not made.happened():
                # An adapter that does not work must not look like one that lets nothing happen twice.
                why = f"could not be tried: no effect ever happened ({cell.seen})"
                return Cell(Colour.ABSENT, why, cell.facts)
    except Exception as error:  # one that breaks is a cell that says so, and the others go on
        folder.mkdir(exist_ok=True)
        (folder / "error").write_text(traceback.format_exc())
        return absent(f"could not be tried: {' '.join(str(error).split())[:160]}")
    if cell.colour in (Colour.BROKEN, Colour.WEAK) and row.library.promised(trial.name) is None:
        return Cell(Colour.UNPROMISED, cell.seen, cell.facts)
    return cell


class Run:
    """All trials of all rows: first those that may run beside each other, then those that are timed."""

    def __init__(
        self, rows: Sequence[Row], trials: Sequence[Trial], folder: Path, say: Callable[[str], None]
    ) -> None:
        self._rows, self._trials, self._folder, self._say = rows, trials, folder, say
        self._began, self._done, self._lock = SYSTEM.monotonic(), 0, Lock()
        self.cells: dict[tuple[Row, str], Cell] = {}

    def go(self) -> None:
        with ExitStack() as ends:
            forks = self._forks(ends)
            beside = [(row, each) for row in self._rows for each in self._trials if not each.alone]
            alone = [(row, each) for each in self._trials if each.alone for row in self._rows]
            with ThreadPoolExecutor(AT_ONCE) as threads:
                list(threads.map(lambda pair: self._one(pair[0], pair[1], forks), beside))
            for row, each in alone:
                self._one(row, each, forks)

    def _forks(self, ends: ExitStack) -> dict[Row, Nursery]:
        """A nursery for each row that starts; the cells of the others say why there is none."""
        made = {}
        for at, row in enumerate(self._rows):
            self._say(f"[{at + 1}/{len(self._rows)}] first process of {row.title}")
            made[row] = ends.enter_context(nursery(row, self._folder / f"n{at}"))
        return made

    def _one(self, row: Row, trial: Trial, forks: dict[Row, Nursery]) -> None:
        at = self._rows.index(row)
        cell = tried(trial, row, forks[row], self._folder / f"{trial.name}-{at}")
        with self._lock:
            self._done += 1
            self.cells[row, trial.name] = cell
            total, took_s = len(self._rows) * len(self._trials), SYSTEM.monotonic() - self._began
            of = f"[{self._done}/{total}, {took_s:.0f} s]"
            self._say(f"{of} {row.title}: {trial.title}: {cell.colour}: {cell.seen}")

    def results(self) -> list[RowResult]:
        return [
            RowResult(
                library=row.library.name,
                version=row.library.version,
                store=row.store,
                adapter=row.library.file.name,
                promises={each.name: row.library.promised(each.name) for each in self._trials},
                cells={each.name: self.cells[row, each.name] for each in self._trials},
            )
            for row in self._rows
        ]


def installed(chosen: Sequence[Library], say: Callable[[str], None]) -> list[Row]:
    rows = []
    for at, each in enumerate(chosen, 1):
        say(f"[{at}/{len(chosen)}] environment of {each.name}")
        try:
            install(each)
        except NotInstalled as error:
            say(f"{each.name} could not be installed, so it has no row: {error}")
            continue
        rows += [Row(each, store) for store in each.stores]
    return rows


def described() -> str:
    """The machine, in a line."""
    servers = f"Redis {RedisServer.described()}, PostgreSQL {PostgresServer.described()}"
    python = f"Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, {python}, {servers}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m scoreboard", description=__doc__)
    parser.add_argument(
        "--only", default="", help="names of libraries, by commas; the others keep what they had"
    )
    parser.add_argument(
        "--trials", default="", help="names of trials, by commas; the others keep what they had"
    )
    parser.add_argument(
        "--folder", default="", help="empty; where processes leave their logs (default: a temporary one)"
    )
    parser.add_argument("--page", action="store_true", help="only write the page and the picture anew")
    given = parser.parse_args(arguments)
    if given.page:
        write(load_results())
        return
    only, names = ([word for word in each.split(",") if word] for each in (given.only, given.trials))
    unknown = set(names) - {each.name for each in TRIALS}
    if unknown:
        parser.error(
            f"there is no trial {', '.join(sorted(unknown))}; there are {', '.join(t.name for t in TRIALS)}"
        )
    # Servers and workers are ended whoever ends us.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rows = installed(libraries(only), lambda line: print(line, flush=True))
    trials = [each for each in TRIALS if not names or each.name in names]
    with tempfile.TemporaryDirectory(prefix="semel-scoreboard-", ignore_cleanup_errors=True) as temporary:
        folder = Path(given.folder or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)  # servers run as users of no rights
        PostgresStore.keep_template(folder)
        run = Run(rows, trials, folder, lambda line: print(line, flush=True))
        run.go()
    fresh = Results(datetime.now(UTC).date().isoformat(), described(), run.results())
    part = f"{', '.join(names) or 'every trial'} of {', '.join(only) or 'every library'}"
    before = load_results()
    results = before.updated(fresh, part) if only or names else fresh
    save_results(results)
    write(results)
    for line in beside(before, fresh):
        print(line, flush=True)
