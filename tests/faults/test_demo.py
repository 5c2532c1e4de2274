"""The Sunday incident, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from semel.lab.demo import GUARDED, NAIVE, PARKED, DemoAttempt, DemoLane, verdict


def start(tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "semel", "demo", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )


def test_without_semel_four_refunds_with_it_one(tmp_path: Path) -> None:
    with start(tmp_path, "--json") as demo:
        told, complaints = demo.communicate()
    assert demo.returncode == 0, (told, complaints)
    naive, guarded, parked = json.loads(told)["lanes"]
    assert (naive["refunds"], guarded["refunds"], parked["refunds"]) == (4, 1, 1)
    assert (guarded["state"], parked["state"]) == ("done", "in_doubt")
    for lane in (naive, guarded):
        places = [attempt["place"] for attempt in lane["attempts"] if attempt["ended"] == "killed"]
        assert places == ["sent", "answered", "returned"]
    assert len({attempt["pid"] for lane in (naive, guarded, parked) for attempt in lane["attempts"]}) == 12
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_demonstration_leaves_nothing_behind(tmp_path: Path) -> None:
    with start(tmp_path) as demo:
        assert demo.stdout is not None
        assert any("Attempt 1" in line for line in demo.stdout)
        children = [
            int(pid) for pid in Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
        ]
        demo.send_signal(signal.SIGINT)
        _, complaints = demo.communicate()
    assert demo.returncode == 130
    assert "Traceback" not in complaints
    assert children
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == []


# --- the verdict: what would make the demonstration fail --------------------------------------------------


def attempts(lane: str, *endings: tuple[str, str]) -> list[DemoAttempt]:
    return [DemoAttempt(lane, n, n, ended, "", answer, 1) for n, (ended, answer) in enumerate(endings, 1)]


KILLED = ("killed", "")
UNKNOWN = ("refused", "OUTCOME_UNKNOWN")
REPORTED = ("reported", "re_1")


def as_told() -> list[DemoLane]:
    crashed = (KILLED, KILLED, KILLED, REPORTED)
    naive = DemoLane(NAIVE, "naive", True, attempts(NAIVE, *crashed), 4, 4, 5_600_000)
    guarded = DemoLane(GUARDED, "keyed", True, attempts(GUARDED, *crashed), 3, 1, 1_400_000, "done", "rec_1")
    doubtful = attempts(PARKED, KILLED, UNKNOWN, UNKNOWN, UNKNOWN)
    parked = DemoLane(PARKED, "unkeyed", False, doubtful, 1, 1, 1_400_000, "in_doubt", "rec_2")
    return [naive, guarded, parked]


def test_the_incident_as_told_has_no_problems() -> None:
    assert verdict(as_told()) == []


@pytest.mark.parametrize(
    ("lane", "change"),
    [
        (0, {"refunds": 1}),
        (1, {"refunds": 2, "paid_minor": 2_800_000}),
        (1, {"refunds": 0, "paid_minor": 0}),
        (1, {"paid_minor": 1}),
        (1, {"state": "in_doubt"}),
        (1, {"attempts": attempts(GUARDED, KILLED, KILLED, KILLED, UNKNOWN)}),
        (1, {"attempts": attempts(GUARDED, REPORTED, REPORTED, REPORTED, REPORTED)}),
        (2, {"refunds": 2}),
        (2, {"state": "done"}),
        (2, {"attempts": attempts(PARKED, KILLED, KILLED, KILLED, REPORTED)}),
    ],
)
def test_anything_else_is_a_problem(lane: int, change: dict) -> None:
    lanes = as_told()
    lanes[lane] = replace(lanes[lane], **change)
    assert verdict(lanes) != []
