"""`python -m bench.parts ROW…`: what an operation of each side of a row consists of, in counts.

A clock on a busy machine says little, so this counts, for one operation of each side:

| column | is |
|---|---|
| opcodes | instructions of the interpreter on the caller's thread |
| Python, C | calls of functions there, written in Python and in C |
| writes, KiB | write system calls of this process, and what they wrote |
| µs here | processor time of this process, all threads; for run starts, the client's |
| µs of others | processor time of other processes: gateways, Redis, PostgreSQL, another package |

Opcodes and calls are the same each time. Processor time is not, it grows where others use the same caches:
so it is that of the best of some rounds. `--functions` lists the opcodes by function. Of run starts only the
processor time is counted here, without the ends of the runs, and with what gateways do about them afterwards;
their opcodes are in start_parts.py.
"""

from __future__ import annotations

import os
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import click

import semel
from bench.gateway_sides import Starts, StoreStarts
from bench.rivals import RivalSide
from bench.run import choose, open_sides, run_resources
from bench.servers import ServerMissing
from bench.sides import MissingSide, Side, Size
from semel.kernel.clock import SYSTEM

PACKAGE = Path(semel.__file__).parent

# Enough that what is done once in a while is spread, and a multiple of all crowds of tasks; few enough that a
# tenant's active runs stay within its limit.
TRACED, COUNTED, STARTED = 64, 256, 160
_ROUNDS = 6

# What a gateway does after its answer is done by then.
_AFTERWARDS_S = 0.4


@dataclass
class Parts:
    """Of one operation."""

    opcodes: float = 0
    python_calls: float = 0
    c_calls: float = 0
    writes: float = 0
    written_bytes: float = 0
    here_us: float = 0
    others_us: dict[str, float] = field(default_factory=dict)
    functions: Counter[str] = field(default_factory=Counter)


def parts_of(side: Side) -> Parts:
    if isinstance(side, Starts | StoreStarts):
        side.begin(1)
        return _best_of([_processor_time(side.begin, STARTED, _AFTERWARDS_S) for _ in range(_ROUNDS)])
    side.round(TRACED)
    parts = _best_of([_processor_time(side.round, COUNTED) for _ in range(_ROUNDS)])
    if not isinstance(side, RivalSide):
        # What a round does once is in both, and not in their difference.
        few, many = (_traced(side, TRACED * times) for times in (1, 2))
        parts.functions = Counter({name: many[0][name] - few[0][name] for name in many[0]})
        parts.opcodes = sum(parts.functions.values()) / TRACED
        parts.python_calls, parts.c_calls = ((many[1][n] - few[1][n]) / TRACED for n in ("call", "c_call"))
    return parts


# --- on the caller's thread -----------------------------------------------------------------------


def _traced(side: Side, count: int) -> tuple[Counter[str], Counter[str]]:
    """The opcodes of a round by function, and of another the calls of functions by kind."""
    opcodes: Counter[CodeType] = Counter()
    calls: Counter[str] = Counter()

    def count_opcode(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event == "opcode":
            opcodes[frame.f_code] += 1
        return count_opcode

    def count_call(_: FrameType, event: str, __: Any) -> None:
        calls[event] += 1

    sys.settrace(count_opcode)
    try:
        side.round(count)
    finally:
        sys.settrace(None)
    sys.setprofile(count_call)
    try:
        side.round(count)
    finally:
        sys.setprofile(None)
    by_name: Counter[str] = Counter()
    for code, number in opcodes.items():
        by_name[f"{_room(code.co_filename)} {code.co_qualname}"] += number
    return by_name, calls


def _room(file_name: str) -> str:
    """Where in the package it stands, or the name of the file."""
    return "/".join(inside(file_name)) or Path(file_name).name


def inside(file_name: str) -> tuple[str, ...]:
    """Where in the package it stands; nowhere, if that is elsewhere. A clone may itself be called semel."""
    path = Path(file_name)
    return path.relative_to(PACKAGE).parts if path.is_relative_to(PACKAGE) else ()


# --- processes ------------------------------------------------------------------------------------


def _processor_time(work: Callable[[int], object], count: int, afterwards_s: float = 0) -> Parts:
    others, written, began = _others(), _written(), _here_s()
    work(count)
    parts = Parts(here_us=(_here_s() - began) / count * 1e6)
    SYSTEM.sleep(afterwards_s)
    parts.writes, parts.written_bytes = (
        (now - before) / count for now, before in zip(_written(), written, strict=True)
    )
    for pid, (name, took_s) in _others().items():
        parts.others_us[f"{name} ({pid})"] = (took_s - others.get(pid, (name, 0.0))[1]) / count * 1e6
    return parts


def _best_of(rounds: list[Parts]) -> Parts:
    """The one that took least processor time, with what was written on average."""
    best = min(rounds, key=lambda parts: parts.here_us + sum(parts.others_us.values()))
    best.writes, best.written_bytes = (
        sum(written) / len(rounds)
        for written in zip(*((each.writes, each.written_bytes) for each in rounds), strict=True)
    )
    return best


def _here_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _written() -> tuple[int, int]:
    """How often this process wrote, and how many bytes."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    facts = {name: int(value) for name, value in (line.split(": ") for line in lines)}
    return facts["syscw"], facts["wchar"]


def _others() -> dict[int, tuple[str, float]]:
    """The name and the processor time of each process that was started from here, and of those it started."""
    parents = {int(path.name): _parent(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return {pid: (_name(pid), _took_s(pid)) for pid in ours if pid != os.getpid()}


def _parent(path: Path) -> int:
    try:
        # Behind the name, which is in brackets and may hold anything: state, parent.
        return int(
            (path / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
        )
    except OSError:
        return 0  # it has ended


def _name(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "ended"
    if words[0].startswith("postgres") or words[0].endswith("/postgres"):
        return "PostgreSQL"
    if "redis-server" in words[0]:
        return "Redis"
    return words[2] if words[1:2] == ["-m"] else Path(words[0]).name


def _took_s(pid: int) -> float:
    nanoseconds = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            nanoseconds += int(task.read_text(encoding="ascii").split()[0])
        except OSError:
            continue  # a thread that has ended
    return nanoseconds / 1e9


# --- the report -----------------------------------------------------------------------------------


def measured(rows: Sequence[str], directory: str | None) -> Iterator[tuple[str, str, Parts | str]]:
    """Experiment, side, and its parts or why there are none."""
    with run_resources(directory) as shared:
        for experiment, _ in choose(rows):
            with ExitStack() as opened:
                try:
                    sides = open_sides(experiment, True, shared, opened)
                except ServerMissing as why:
                    yield experiment.name, "", str(why)
                    continue
                for side in sides:
                    if isinstance(side, MissingSide):
                        yield experiment.name, side.name, side.why
                    elif not isinstance(side, Size):
                        yield experiment.name, side.name, parts_of(side)


def line(parts: Parts) -> str:
    others = ", ".join(_busy(parts.others_us))
    counts = (parts.opcodes, parts.python_calls, parts.c_calls, parts.writes)
    numbers = " | ".join(f"{number:.1f}" if number else "–" for number in counts)
    return f"{numbers} | {parts.written_bytes / 1024:.1f} | {parts.here_us:.1f} | {others or '–'}"


def _busy(others_us: dict[str, float]) -> Iterator[str]:
    """Those that did something: PostgreSQL's together, of gateways each."""
    together: dict[str, float] = {}
    for name, took_us in others_us.items():
        kind = name.partition(" ")[0]
        shown = name if kind in ("semel", "bench.bare_app") else kind
        together[shown] = together.get(shown, 0.0) + took_us
    most = max(together.values(), default=0)
    for name, took_us in sorted(together.items()):
        if took_us > most / 20:
            yield f"{name.partition(' ')[0]} {took_us:.0f}"


@click.command()
@click.argument("rows", nargs=-1, required=True)
@click.option("--functions", default=0, help="List so many functions of each side, by their opcodes.")
@click.option(
    "--dir", "directory", type=click.Path(exists=True, file_okay=False), help="Where files are made."
)
def main(rows: tuple[str, ...], functions: int, directory: str | None) -> None:
    """What an operation of each side of these rows consists of."""
    click.echo("| row | side | opcodes | Python | C | writes | KiB | µs here | µs of others |")
    click.echo("|---|---|---|---|---|---|---|---|---|")
    for row, side, parts in measured(rows, directory):
        if isinstance(parts, str):
            click.echo(f"| {row} | {side} | {parts} |")
            continue
        click.echo(f"| {row} | {side} | {line(parts)} |")
        for name, number in parts.functions.most_common(functions):
            click.echo(f"    {number / TRACED:7.1f}  {name}")


if __name__ == "__main__":
    main(prog_name="python -m bench.parts")
