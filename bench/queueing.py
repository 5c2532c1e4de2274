"""A fleet of processes at one store, simulated call by call from measured service times.

Each process begins calls at random moments (a Poisson stream). A call claims, runs its tool and settles: two
commands, which wait in one line for the first of `workers` that is free. A Redis server is one worker, a
PostgreSQL server one for each core, a SQLite file one for all processes of its machine. How long a command
takes there is random too, exponential around the measured mean, which is less regular than what was measured.

What a process computes by itself does not wait for others, and is left out; so are disks and networks, which
add to a call and do not wait in line either, as long as they are not full.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass

Service = Callable[[random.Random], float]
"""How long one command keeps a worker, in seconds."""


def always(seconds: float) -> Service:
    return lambda _: seconds


def around(seconds: float) -> Service:
    return lambda chance: chance.expovariate(1 / seconds)


@dataclass(frozen=True)
class FleetLoad:
    """So many processes, each with so many calls a second, whose tools take so long."""

    processes: int
    calls_per_s: float  # of each process
    tool_s: float = 0.05
    commands: int = 2  # of each call


@dataclass(frozen=True)
class SimulatedWait:
    """What calls waited for and spent at the store, tools not counted; seconds."""

    calls: int
    mean_wait_s: float  # of a command, in the line
    median_s: float  # of a call, both of its commands together
    p99_s: float
    busy: float  # share of the workers' time


def simulate(load: FleetLoad, service: Service, workers: int, calls: int, seed: int = 1) -> SimulatedWait:
    """So many calls, one after the other in time; a first tenth fills the line and is not counted."""
    chance = random.Random(seed)
    free_at = [0.0] * workers  # a heap: who is free next
    # When a command comes: (time, order, process, commands left, spent so far).
    coming: list[tuple[float, int, int, int, float]] = []
    for process in range(load.processes):
        heapq.heappush(coming, (chance.expovariate(load.calls_per_s), process, process, load.commands, 0.0))
    order, done, waits, busy_s, began = load.processes, 0, 0.0, 0.0, 0.0
    spent_s: list[float] = []
    while len(spent_s) < calls:
        now, _, process, left, spent = heapq.heappop(coming)
        start = max(now, heapq.heappop(free_at))
        took = service(chance)
        heapq.heappush(free_at, start + took)
        spent += start + took - now
        order += 2
        if left == load.commands:
            next_call = now + chance.expovariate(load.calls_per_s)
            heapq.heappush(coming, (next_call, order, process, load.commands, 0.0))
        if left > 1:
            heapq.heappush(coming, (start + took + load.tool_s, order + 1, process, left - 1, spent))
        if done < calls // 10:
            done += left == 1
            began = now
            continue
        waits, busy_s = waits + start - now, busy_s + took
        if left == 1:
            spent_s.append(spent)
    spent_s.sort()
    return SimulatedWait(
        calls,
        waits / (calls * load.commands),
        spent_s[calls // 2],
        spent_s[calls * 99 // 100],
        busy_s / (workers * (now - began)),
    )
