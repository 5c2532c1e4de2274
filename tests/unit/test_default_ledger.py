"""The default ledger: opened at first use, closed at exit, replaced by `use`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import semel

PROGRAM = """
import os, sys
import semel

paid = []

@semel.tool_contract()
def pay(order: str) -> str:
    paid.append(order)
    return f"paid {order}"

with semel.step(conversation="c", step="s"):
    print(pay("a"), len(paid))
"""


def run(program: str, folder: Path, **environment: str) -> list[str]:
    """What a program of its own prints, in that folder."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**variables, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stderr == ""
    return ended.stdout.splitlines()


def test_it_is_opened_at_first_use_and_remembers_until_the_next_process(tmp_path: Path) -> None:
    assert run(PROGRAM, tmp_path) == ["paid a 1"]
    assert (tmp_path / "semel.db").exists()
    assert not (tmp_path / "semel.db-wal").exists(), "it was closed at exit"
    assert run(PROGRAM, tmp_path) == ["paid a 0"]


def test_importing_opens_nothing(tmp_path: Path) -> None:
    assert run("import semel", tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_semel_url_says_where_it_is(tmp_path: Path) -> None:
    run(PROGRAM, tmp_path, SEMEL_URL="sqlite:///other.db")
    assert [path.name for path in tmp_path.iterdir()] == ["other.db"]


def test_conversations_and_carried_steps_are_of_the_same_ledger(tmp_path: Path) -> None:
    program = (
        PROGRAM
        + """
conversation = semel.conversation("d")
with conversation.step() as step:
    print(pay("b"), len(paid))
    carried = step.carry()
with semel.resume(carried):
    print(pay("b"), len(paid))
"""
    )
    assert run(program, tmp_path)[1:] == ["paid b 2", "paid b 2"]


def test_a_forked_child_opens_its_own(tmp_path: Path) -> None:
    program = (
        PROGRAM
        + """
sys.stdout.flush()
child = os.fork()
if child:
    os.waitpid(child, 0)
with semel.step(conversation="c", step="s"):
    print("child" if child == 0 else "parent", pay("a"), len(paid))
    print(pay("only " + ("child" if child == 0 else "parent")))
"""
    )
    lines = run(program, tmp_path)
    assert lines[1:] == ["child paid a 1", "paid only child", "parent paid a 1", "paid only parent"]


@semel.tool_contract()
def pay(order: str) -> str:
    return f"paid {order}"


@pytest.fixture
def two() -> tuple[semel.Ledger, semel.Ledger]:
    return semel.open("memory://"), semel.open("memory://")


def test_use_puts_another_in_its_place_until_the_block_ends(two: tuple[semel.Ledger, semel.Ledger]) -> None:
    first, second = two
    with semel.use(first) as used:
        assert used is first
        with semel.use(second):
            assert semel.step(conversation="c", step="s").ledger is second
        assert semel.step(conversation="c", step="s").ledger is first
    with first.step(conversation="c", step="s"):
        assert pay("a") == "paid a", "it was not closed"


def test_blocks_that_end_in_another_order_leave_the_one_that_is_still_open(
    two: tuple[semel.Ledger, semel.Ledger],
) -> None:
    first, second = semel.use(two[0]), semel.use(two[1])
    first.__exit__(None, None, None)
    assert semel.step(conversation="c", step="s").ledger is two[1]
    second.__exit__(None, None, None)


def test_every_thread_sees_it(two: tuple[semel.Ledger, semel.Ledger]) -> None:
    seen: list[semel.Ledger] = []
    with semel.use(two[0]):
        thread = threading.Thread(target=lambda: seen.append(semel.step(conversation="c", step="s").ledger))
        thread.start()
        thread.join()
    assert seen == [two[0]]


def test_use_is_also_an_asynchronous_block(two: tuple[semel.Ledger, semel.Ledger]) -> None:
    async def main() -> semel.Ledger:
        async with semel.use(two[0]), semel.step(conversation="c", step="s") as step:
            return step.ledger

    assert asyncio.run(main()) is two[0]


def test_outside_a_step_what_is_called_is_in_none(two: tuple[semel.Ledger, semel.Ledger]) -> None:
    with two[0].step(conversation="c", step="s"):
        with semel.outside_step(), pytest.raises(semel.errors.NoStep):
            pay("a")
        assert pay("a") == "paid a"


def test_an_unfinished_call_made_outside_does_not_hold_the_step() -> None:
    @semel.tool_contract()
    def lose(order: str) -> str:
        raise TimeoutError

    with semel.open("memory://") as ledger:
        conversation = ledger.conversation("c")
        other = ledger.step(conversation="other", step="s")
        with conversation.step(), semel.outside_step(), other, pytest.raises(TimeoutError):
            lose("a")
        assert conversation.position == 1
