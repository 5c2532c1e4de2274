"""A server dies and another takes its place: what may be lost is said first (failovers.py), then counted.

Short here; as a soak, several times with more calls, and in docs/evidence.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evidence import Deeds
from tests.faults.bank import Bank
from tests.faults.failovers import KINDS, NOTHING, Kind, Losses, Scene

EACH = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)

# Enough that callers are in every part of a call when the server dies.
CALLS, CALLS_OF_A_SOAK, ROUNDS_OF_A_SOAK = 40, 400, 3
# A call that waits for a standby that is away takes its whole time-out.
CALLS_WHEN_BEHIND = 8


@EACH
def test_a_failover_to_one_that_followed_loses_no_more_than_was_said(kind, tmp_path, evidence):
    follow(kind, tmp_path, CALLS, evidence)


@EACH
def test_a_failover_to_one_that_was_behind_loses_no_more_than_was_said(kind, tmp_path, evidence):
    fall_behind(kind, tmp_path, evidence)


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("_round", range(ROUNDS_OF_A_SOAK))
def test_failovers_to_one_that_followed_lose_no_more_than_was_said(kind, _round, tmp_path, evidence):
    follow(kind, tmp_path, CALLS_OF_A_SOAK, evidence)


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("_round", range(ROUNDS_OF_A_SOAK))
def test_failovers_to_one_that_was_behind_lose_no_more_than_was_said(kind, _round, tmp_path, evidence):
    fall_behind(kind, tmp_path, evidence)


def follow(kind: Kind, folder: Path, calls: int, evidence: Deeds) -> None:
    evidence.say(failover=f"{kind.title}; it followed", expected=kind.followed)
    pair = kind.make()
    try:
        pair.start()
        losses = Scene(pair, Bank(folder / "bank.jsonl")).while_followed(calls)
    finally:
        pair.remove()
    note(evidence, losses)
    judge(kind, losses)


def fall_behind(kind: Kind, folder: Path, evidence: Deeds) -> None:
    evidence.say(failover=f"{kind.title}; it was behind", expected=kind.behind)
    pair = kind.make()
    try:
        pair.start()
        losses = Scene(pair, Bank(folder / "bank.jsonl")).when_behind(CALLS_WHEN_BEHIND)
    finally:
        pair.remove()
    evidence.count(partitions=1)
    note(evidence, losses)
    judge(kind, losses)
    if kind.waits:
        assert losses.ran == losses.acknowledged, "a tool ran whose claim was not acknowledged"
    else:
        assert losses.noticed, "whoever had seen the lost calls went on"
        assert losses.lost, "the scene lost nothing"


def note(evidence: Deeds, losses: Losses) -> None:
    evidence.count(
        operations=losses.calls,
        kills=1,
        acknowledged=len(losses.acknowledged),
        lost=len(losses.lost),
        twice=len(losses.twice),
        noticed=int(losses.noticed),
    )


def judge(kind: Kind, losses: Losses) -> None:
    assert not losses.lost & losses.safe, "lost, though the other one had it"
    if kind.waits:
        assert (losses.lost, losses.twice) == (set(), set()), NOTHING
    # An effect that lands twice is one whose claim was lost.
    assert losses.twice <= losses.ran
