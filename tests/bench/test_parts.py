"""What an operation consists of: counts that are the same each time, and bytes that add up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import parts, start_parts
from bench.bare_app import BareApp
from bench.bare_rows import open_rows
from bench.parts import Parts, measured
from bench.sides import BareReplays
from bench.start_parts import AsgiCalls

REFUND = {"payment_id": "p-1", "amount_minor": 1_400_000, "reason": "damaged"}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "COUNTED", 20)
    monkeypatch.setattr(parts, "TRACED", 4)


@pytest.mark.usefixtures("few")
def test_opcodes_and_calls_are_the_same_each_time() -> None:
    side = BareReplays("bare", "refund", **REFUND)
    try:
        first, second = parts.parts_of(side), parts.parts_of(side)
    finally:
        side.close()
    assert first.opcodes == second.opcodes > 50
    assert (first.python_calls, first.c_calls) == (second.python_calls, second.c_calls)
    assert first.functions["bare.py Bare.refund"] > first.functions["bare.py _read"] > 0


@pytest.mark.usefixtures("few")
def test_a_replay_of_the_library_takes_more_than_a_bare_one_and_writes_nothing(tmp_path: Path) -> None:
    sides = {side: found for _, side, found in measured(["cache-plain"], str(tmp_path))}
    ours, bare = sides["plain"], sides["bare plain"]
    assert isinstance(ours, Parts)
    assert isinstance(bare, Parts)
    assert ours.opcodes > bare.opcodes > 0
    assert any(name.startswith("call/tool.py ") for name in ours.functions)
    assert ours.written_bytes == 0


@pytest.mark.usefixtures("few")
def test_the_command_prints_a_line_for_each_side(tmp_path: Path) -> None:
    result = CliRunner().invoke(parts.main, ["sqlite-sync-by-hand", "--dir", str(tmp_path)])
    assert result.exit_code == 0, result.output
    lines = [line.split(" | ") for line in result.stdout.splitlines()[2:]]
    assert [line[1] for line in lines][:2] == ["call", "by hand"]
    # Two commits, each of some pages: whoever writes less does less.
    assert all(float(line[6]) > 4 for line in lines[:2])


def test_who_did_nothing_is_left_out() -> None:
    busy = parts._busy({"PostgreSQL (1)": 30.0, "PostgreSQL (2)": 50.0, "semel (3)": 70.0, "semel (4)": 1.0})
    assert list(busy) == ["PostgreSQL 80", "semel 70"]


def test_a_start_is_counted_by_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_parts, "STARTS", 8)
    app = BareApp(open_rows(f"sqlite:///{tmp_path / 'bare.db'}"))
    opcodes = asyncio.run(start_parts.counted(lambda: AsgiCalls(app, start_parts.SPREAD)))
    assert opcodes["bare bare_app.py BareApp._start"] > 50
    # The store's thread is counted too; how much of a commit is a start's hangs on how many share it.
    assert "bare bare_rows.py SqliteRows._commit" in opcodes


def test_the_start_of_a_hot_tenant_asks_the_store_once_and_behind_a_lock_several_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_parts, "STARTS", 4)
    sides = start_parts._at_store(lambda name: f"sqlite:///{tmp_path / name}.db")
    asked = {name: asyncio.run(start_parts.asked_per_start(make)) for name, make in sides.items()}
    assert asked["atomic"] == (1, 0)
    questions, looks = asked[start_parts.LONELY]
    assert questions > looks == 1
    assert asked[start_parts.CROWDED][1] >= 1
    opcodes = asyncio.run(start_parts.counted(sides["atomic"]))
    assert opcodes["flow admission.py Admission._admit"] > 50
