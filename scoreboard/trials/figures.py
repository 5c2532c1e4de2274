"""Bytes, fsyncs, and what a call costs, each beside the same calls written by hand on the same store."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from statistics import median

from scoreboard.caller import Caller, Nursery, Scene, Stuck
from scoreboard.cells import Cell, absent, measured, trial
from scoreboard.libraries import ADAPTERS, install, library

GROUP = "Figures"

# Short rounds in turn, of which the middle ratio counts: what else a machine does meets both sides.
CALLS, ROUNDS, MANY = 64, 11, 64

# Calls under a tracer, which makes each of them slow.
TRACED = 100

# What the machine lacks for that.
NO_STRACE, NO_TRACING = "no strace here", "strace may not look at processes here"

FEW, MORE = 256, 1_280

# How long the growth of a store is watched, in steps of so many records; whoever is faster gets further.
FILL_S, STEP, FILL_MOST = float(os.environ.get("FILL_S", "6")), 1_000, 1_000_000

_numbers = count()


def orders(number: int) -> list[str]:
    """Keys that nobody had before."""
    return [f"f-{next(_numbers)}" for _ in range(number)]


def did(caller: Caller, wanted: list[str], callers: int, mode: str) -> float:
    """Microseconds per call."""
    answer = caller.ask("timed", within_s=300, orders=wanted, callers=callers, mode=mode)
    if answer is None or "failed" in answer:
        raise Stuck(f"not measured: {(answer or {}).get('message', 'no answer')}")
    return float(answer["seconds"]) * 1e6


class ByHand:
    """The adapter by hand of the same store, as one more caller of this scene's store."""

    def __init__(self, scene: Scene, ends: ExitStack) -> None:
        by_hand = library(ADAPTERS / f"by_hand_{scene.row.store}.py")
        install(by_hand)
        folder = scene.folder / "by-hand"
        folder.mkdir()
        forks = Nursery(by_hand, folder)
        ends.callback(forks.close)
        place = {
            "url": scene.store.where,
            "lease_s": None,
            "window_s": None,
            "effects": str(folder / "effects"),
        }
        if scene.row.store == "sqlite":
            # A file of its own: two forms of tables in one are nobody's case.
            place["url"] = str(folder / "records.db")
        self.caller = forks.caller(place)
        self.is_async = by_hand.is_async
        ends.callback(self.caller.close)


class SideBySide:
    """The row's library and the statements by hand, in rounds in turn."""

    def __init__(self, scene: Scene, hand: ByHand, *, callers: int, mode: str) -> None:
        # By hand there is an async side for Redis only; elsewhere threads do the same statements.
        self._sides = [
            (scene.caller(lease_s=None, window_s=None), mode),
            (hand.caller, mode if hand.is_async else "sync"),
        ]
        self._callers = callers
        # Many at once take as long as the slowest, so each of them calls more than once.
        self._calls = CALLS if callers == 1 else CALLS * 4
        if callers == 1:
            keep_apart(scene.store.writers(), [caller.pid for caller, _ in self._sides])
        # Tables are made by the first call; that all of a crowd may be the first is not what is timed here.
        self._round([orders(1), orders(1)], callers=1)

    def calls(self) -> tuple[float, float]:
        return self._middle(lambda: [orders(self._calls) for _ in self._sides])

    def replays(self) -> tuple[float, float]:
        # Each side repeats its own: a store may show one what the other wrote there under the same key.
        repeated = [orders(self._calls) for _ in self._sides]
        return self._middle(lambda: repeated)

    def _middle(self, wanted: Callable[[], list[list[str]]]) -> tuple[float, float]:
        """Microseconds of the library's, and how many times those by hand that is."""
        # This round opens connections, and is what the others repeat if they are to repeat something.
        self._round(wanted(), self._callers)
        rounds = [self._round(wanted(), self._callers) for _ in range(ROUNDS)]
        return median(ours for ours, _ in rounds), median(ours / by_hand for ours, by_hand in rounds)

    def _round(self, wanted: list[list[str]], callers: int) -> list[float]:
        sides = zip(self._sides, wanted, strict=True)
        return [did(caller, keys, callers, mode) for (caller, mode), keys in sides]


def keep_apart(servers: list[int], callers: list[int]) -> None:
    """The server on one core, callers on another. Left alone it is chance, for as long as a process lives,
    whether the two share a core, and a round trip of Redis takes half or double the time.
    """
    cores = sorted(os.sched_getaffinity(0))
    if not servers or len(cores) == 1:
        return
    for pids, core in ((servers, cores[0]), (callers, cores[1])):
        for pid in pids:
            os.sched_setaffinity(pid, {core})


def _cost(scene: Scene, callers: int) -> Cell:
    facts: dict[str, float] = {}
    seen = []
    modes = (["sync"] if scene.row.library.is_sync else []) + (
        ["async"] if scene.row.library.is_async else []
    )
    with ExitStack() as ends:
        hand = ByHand(scene, ends)
        for mode in modes:
            sides = SideBySide(scene, hand, callers=callers, mode=mode)
            (call_us, calls), (replay_us, replays) = sides.calls(), sides.replays()
            facts |= {f"{mode}-call-us": round(call_us), f"{mode}-call": round(calls, 4)}
            facts |= {f"{mode}-replay-us": round(replay_us), f"{mode}-replay": round(replays, 4)}
            seen.append(f"{mode} {times(calls)} / {times(replays)}")
    return measured("; ".join(seen), **facts)


def times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2g}"


@trial("Cost with 1 caller", GROUP, alone=True)
def cost_of_one(scene: Scene) -> Cell:
    """What a call costs and what a repeat costs (call / repeat), as multiples of the same call written by
    hand on the same kind of store in the same minutes: `SET NX` and `SET`, `INSERT … ON CONFLICT` and
    `UPDATE`; for a repeat the statement that fails and the one that reads. One caller, one call after the
    other, server and callers each on a core of their own; the middle one of eleven rounds, in each of which
    the two sides take turns with 64 calls; a repeat is by the process that had the value. The microseconds
    are in the raw results.
    """
    return _cost(scene, 1)


@trial("Cost with 64 callers", GROUP, alone=True)
def cost_of_many(scene: Scene) -> Cell:
    """The same by 64 threads (sync) and by 64 tasks (async) of one process at once, with 256 calls a round
    and cores as they come.
    """
    return _cost(scene, MANY)


@trial("Bytes per record", GROUP, alone=True)
def bytes_per_record(scene: Scene) -> Cell:
    """How much the store grows from 256 records to 1 280, all settled, divided by their number: used memory
    in Redis, tables and indexes in PostgreSQL, the file in SQLite. Each record holds the same small dict.
    """
    caller = scene.caller()
    mode = "sync" if scene.row.library.is_sync else "async"
    did(caller, orders(FEW), 1, mode)
    before = scene.store.size()
    did(caller, orders(MORE - FEW), 1, mode)
    each = (scene.store.size() - before) / (MORE - FEW)
    return measured(f"{each:.0f}", bytes=round(each))


@trial("fsyncs per call", GROUP, alone=True)
def fsyncs_per_call(scene: Scene) -> Cell:
    """How often data is forced to disk (`fsync`, `fdatasync`) for a call, seen by `strace`: by the process
    itself on SQLite, by the server's processes elsewhere. Redis writes its file once a second here,
    PostgreSQL at each commit.
    """
    if shutil.which("strace") is None:
        return absent(NO_STRACE)
    caller = scene.caller()
    mode = "sync" if scene.row.library.is_sync else "async"
    did(caller, orders(10), 1, mode)
    watched = [word for pid in scene.store.writers() or [caller.pid] for word in ("-p", str(pid))]
    log = scene.folder / "strace"
    tracer = subprocess.Popen(
        ["strace", "-f", "-e", "trace=fsync,fdatasync", "-o", str(log), *watched],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tracer.stderr is not None
    for line in tracer.stderr:
        if "attached" in line:
            break
    else:
        return absent(NO_TRACING)
    did(caller, orders(TRACED), 1, mode)
    tracer.send_signal(signal.SIGINT)
    tracer.communicate()
    forced = len(re.findall(r"f(?:data)?sync\(", log.read_text()))
    return measured(f"{forced / TRACED:.1f}", fsyncs=forced, calls=TRACED)


@trial("Cost on a store that has grown", GROUP, alone=True)
def grown(scene: Scene) -> Cell:
    """The store is filled by the library itself with calls for 6 s (at most a million records), by 64
    callers, with its server on one core. What a call of one caller costs then, beside the same call by hand
    on a store that does not grow, as a multiple of what it cost when there were 1 000. Looked at for growth:
    1.0 is none. How far it came in that time is in the cell; `make scoreboard FILL_S=3600` gives it an hour.
    """
    mode = "async" if scene.row.library.is_async else "sync"
    with ExitStack() as ends:
        sides = SideBySide(scene, ByHand(scene, ends), callers=1, mode=mode)
        caller = scene.caller()
        did(caller, orders(STEP), MANY, mode)
        _, first = sides.calls()
        records, took = STEP, 0.0
        while took < FILL_S and records < FILL_MOST:
            took += did(caller, orders(STEP), MANY, mode) * STEP / 1e6
            records += STEP
        _, last = sides.calls()
    return measured(
        f"{last / first:.1f} at {records:,}".replace(",", " "), records=records, ratio=round(last / first, 2)
    )
