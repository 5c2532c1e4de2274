"""Other packages as sides: a process each, asked by lines. The packages themselves are not tested here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench import agent_rows, rivals
from bench.experiments import EXPERIMENTS
from bench.rivals import LEAVES_OUT, leaves_out, pinned, rival
from bench.run import measure
from bench.servers import REPOSITORY
from bench.sides import MissingSide

# As much of a package as a side asks for: it remembers what it did.
STAND_IN = """
def once(store, key, fingerprint):
    def guard(function):
        def guarded(**arguments):
            name = key(**arguments), tuple(fingerprint(**arguments))
            if name not in store:
                store[name] = function(**arguments)
            return store[name]
        return guarded
    return guard
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that has a stand-in of exactly-once, in the version that is pinned."""
    made = tmp_path / ".venv-rivals"
    packages = made / "lib" / "python3" / "site-packages"
    info = packages / f"exactly_once-{pinned('exactly-once')}.dist-info"
    for folder in (made / "bin", packages / "exactly_once" / "stores", info):
        folder.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: exactly_once\nVersion: {pinned('exactly-once')}\n")
    (packages / "exactly_once" / "__init__.py").write_text(STAND_IN)
    (packages / "exactly_once" / "stores" / "memory.py").write_text("MemoryStore = dict\n")
    python = made / "bin" / "python"
    # It is handed no PYTHONPATH, so it finds the package by its own.
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(rivals, "ENVIRONMENT", made)
    return made


def test_a_rival_performs_new_calls_and_repeats_one(environment: Path) -> None:
    calls, replays = (
        rival("c", "exactly-once", "memory"),
        rival("r", "exactly-once", "memory", work="replays"),
    )
    try:
        assert all(side.round(10) > 0 for side in (calls, replays) for _ in range(3))
        assert calls.did() == {"asked": 30, "effects": 30}
        assert replays.did() == {"asked": 3, "effects": 3}
    finally:
        for side in (calls, replays):
            side.close()


def test_a_rival_is_gone_when_its_side_is_closed(environment: Path) -> None:
    side = rival("c", "exactly-once", "memory")
    assert isinstance(side, rivals.RivalSide)
    side.close()
    with pytest.raises(ProcessLookupError):
        os.kill(side._process.pid, 0)


def test_a_rival_that_ends_is_an_error(environment: Path) -> None:
    with pytest.raises(RuntimeError, match="ended before it answered"):
        rival("c", "exactly-once", "no such store")


def test_another_version_than_the_pinned_one_is_not_measured(environment: Path) -> None:
    (info,) = environment.glob("lib/*/*/*.dist-info")
    info.joinpath("METADATA").write_text("Name: exactly_once\nVersion: 9.9\n")
    side = rival("c", "exactly-once", "memory")
    assert isinstance(side, MissingSide)
    wanted = f"exactly-once {pinned('exactly-once')} is not installed in .venv-rivals"
    assert side.why == f"{wanted}: `make bench` installs it."


def test_without_the_packages_their_rows_say_so_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rivals, "ENVIRONMENT", tmp_path / "nowhere")
    report = measure(["memory"], quick=True, directory=str(tmp_path))
    assert [figure.row.name for figure in report.figures] == [
        "memory-call-bare",
        "memory-replay-bare",
        "memory-call",
        "memory-replay",
    ]
    assert [line.split(". ")[0] for line in report.left_out] == [
        "The row memory-call-exactly-once is left out",
        "The row memory-replay-exactly-once is left out",
    ]


def test_every_rival_is_pinned_and_says_what_it_leaves_out() -> None:
    for package in LEAVES_OUT:
        assert leaves_out(package).startswith(f"{package} {pinned(package)} does without ")
    rows = [row for one in EXPERIMENTS for row in one.rows]
    compared = [row for row in rows if any(package in (row.against or "") for package in LEAVES_OUT)]
    assert len(compared) == 7
    assert all(row.leaves_out for row in compared)


def test_rivals_talk_to_redis_by_the_driver_that_we_are_compared_with() -> None:
    constraints = (REPOSITORY / "constraints.txt").read_text().split()
    drivers = {line for line in rivals.PINS.read_text().split() if line.startswith(("redis==", "hiredis=="))}
    assert len(drivers) == 2
    assert drivers <= set(constraints)


def test_pins_name_no_place_to_install_from() -> None:
    lines = [line for line in rivals.PINS.read_text().splitlines() if not line.startswith("#")]
    assert all(line.count("==") == 1 and ":" not in line and " " not in line for line in lines)


def test_rows_of_frameworks_that_are_not_installed_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(agent_rows.ENVIRONMENTS, "langgraph", tmp_path / ".venv-agents")
    report = measure(["agents-langgraph"], quick=True, directory=str(tmp_path))
    assert report.figures == []
    assert len(report.left_out) == 2
    assert all("There is no .venv-agents: `make bench` makes it." in line for line in report.left_out)
