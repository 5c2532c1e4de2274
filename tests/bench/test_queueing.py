"""The simulation of a fleet agrees with what queueing theory knows."""

from __future__ import annotations

import math

import pytest

from bench.queueing import FleetLoad, SimulatedWait, always, around, simulate

SERVICE_S = 0.001
CALLS = 60_000

# Waits of neighbours are alike, so that so many calls are worth far fewer; the seed is fixed.
CLOSE = 0.08


def at_load(share: float, workers: int) -> FleetLoad:
    """One command each, of so many processes that together keep the workers busy for this share."""
    return FleetLoad(200, share * workers / SERVICE_S / 200, tool_s=0.0, commands=1)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8])
def test_regular_commands_wait_as_long_as_theory_says(share: float) -> None:
    """M/D/1: the mean wait is ρ s / 2 (1 − ρ)."""
    seen = simulate(at_load(share, 1), always(SERVICE_S), 1, CALLS)
    assert seen.mean_wait_s == pytest.approx(share * SERVICE_S / (2 * (1 - share)), rel=CLOSE)
    assert seen.busy == pytest.approx(share, rel=CLOSE)


def erlang_c(workers: int, share: float) -> float:
    """M/M/c: how many of the commands find all workers busy."""
    offered = workers * share
    last = offered**workers / math.factorial(workers) / (1 - share)
    return last / (sum(offered**n / math.factorial(n) for n in range(workers)) + last)


@pytest.mark.parametrize(("workers", "share"), [(1, 0.5), (4, 0.7), (16, 0.8)])
def test_irregular_commands_wait_as_long_as_theory_says(workers: int, share: float) -> None:
    """M/M/c: the mean wait is C(c, ρ) s / c (1 − ρ)."""
    seen = simulate(at_load(share, workers), around(SERVICE_S), workers, CALLS)
    theory = erlang_c(workers, share) * SERVICE_S / (workers * (1 - share))
    assert seen.mean_wait_s == pytest.approx(theory, rel=CLOSE)


def test_a_call_is_two_commands_and_its_tool_is_not_counted() -> None:
    load = FleetLoad(10, 0.1, tool_s=5.0)
    seen = simulate(load, always(SERVICE_S), 1, 2_000)
    assert seen.median_s == pytest.approx(2 * SERVICE_S)
    assert seen.busy == pytest.approx(10 * 0.1 * 2 * SERVICE_S, rel=CLOSE)


def test_the_same_seed_gives_the_same_figures_and_another_one_others() -> None:
    def seen(seed: int) -> SimulatedWait:
        return simulate(FleetLoad(100, 5.0), around(SERVICE_S), 1, 5_000, seed)

    assert seen(1) == seen(1) != seen(2)


def test_twice_the_workers_take_twice_the_calls_and_wait_less() -> None:
    one = simulate(FleetLoad(1_000, 0.4), around(SERVICE_S), 1, 10_000)
    two = simulate(FleetLoad(1_000, 0.8), around(SERVICE_S), 2, 10_000)
    assert one.busy == pytest.approx(two.busy, rel=CLOSE)
    assert two.mean_wait_s < one.mean_wait_s
