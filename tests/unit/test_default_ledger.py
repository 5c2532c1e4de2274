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
from tests.patience import PATIENCE_S

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


GIVEN = """
import asyncio
import semel

paid = []

@semel.tool_contract(approval=APPROVAL)
def pay(order: str) -> str:
    paid.append(order)
    return f"paid {order}"

@semel.tool_contract(class_="read")
def look(order: str) -> str:
    return order

async def acall():
    return await pay.acall(semel.ToolCall({"order": "a"}, "web-77"))
"""


def test_a_call_with_a_key_of_its_own_needs_no_step_and_no_ledger(tmp_path: Path) -> None:
    program = GIVEN.replace("APPROVAL", "None") + (
        "print(pay.call(semel.ToolCall({'order': 'a'}, 'web-77')).value, len(paid))\n"
        "print(asyncio.run(acall()).value, len(paid))\n"
        "print(pay.call(semel.ToolCall({'order': 'b'}, 'web-77')).error.code, len(paid))\n"
        "print(pay.call(semel.ToolCall({'order': 'b'})).error.code, len(paid))\n"
    )
    assert run(program, tmp_path) == ["paid a 1", "paid a 1", "KEY_REUSED 1", "NO_STEP 1"]
    assert run(program, tmp_path)[0] == "paid a 0"


def test_a_question_with_a_key_of_its_own_needs_none_either(tmp_path: Path) -> None:
    program = GIVEN.replace("APPROVAL", "'required'") + (
        "print(pay.ask(semel.ToolCall({'order': 'a'}, 'web-77')).status)\n"
        "print(asyncio.run(pay.aask(semel.ToolCall({'order': 'a'}, 'web-77'))).status, len(paid))\n"
    )
    assert run(program, tmp_path) == ["waiting", "waiting 0"]


def test_a_tool_without_a_record_opens_nothing(tmp_path: Path) -> None:
    program = GIVEN.replace("APPROVAL", "None") + (
        "print(look.call(semel.ToolCall({'order': 'a'}, 'web-77')).value)\n"
    )
    assert run(program, tmp_path) == ["a"]
    assert list(tmp_path.iterdir()) == []


def test_a_default_ledger_that_cannot_be_opened_is_said_and_nothing_runs(tmp_path: Path) -> None:
    program = GIVEN.replace("APPROVAL", "None") + (
        "error = pay.call(semel.ToolCall({'order': 'a'}, 'web-77')).error\n"
        "print(error.code, 'oracle' in error.message, len(paid))\n"
    )
    assert run(program, tmp_path, SEMEL_URL="oracle://x") == ["OPEN_ERROR True 0"]


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


@pytest.mark.parametrize("url", ["sqlite:///semel.db", "sqlite:///a%20shop.db?durability=normal"])
def test_a_child_that_was_forked_elsewhere_opens_the_same_store(tmp_path: Path, url: str) -> None:
    """As daemons are made: another working directory, and perhaps another environment. A second file would
    know nothing of what the first one's calls did."""
    (tmp_path / "elsewhere").mkdir()
    program = (
        PROGRAM
        + """
sys.stdout.flush()
os.chdir("elsewhere")
os.environ["SEMEL_URL"] = "sqlite:///another.db"
if os.fork():
    os.wait()
else:
    with semel.step(conversation="c", step="s"):
        print(pay("a"), len(paid))
"""
    )
    assert run(program, tmp_path, SEMEL_URL=url) == ["paid a 1", "paid a 1"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


POOL = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import semel

paid = []

@semel.tool_contract
def pay(order: str) -> str:
    paid.append(order)
    return f"paid {order} as number {len(paid)}"

def without(order: str) -> str:
    result = pay.call(semel.ToolCall({"order": order}))
    return result.error.code if result.error else result.value

def named(step: str, order: str) -> str:
    with semel.step(conversation="c", step=step):
        return pay(order)

def carried(data: dict, order: str) -> str:
    with semel.resume(data):
        return pay(order)

with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
    for name in ("first", "second"):
        with semel.step(conversation="c", step=name) as step:
            print(pool.submit(without, "a").result())
            print(pool.submit(carried, step.carry(), "a").result())
            print(pool.submit(named, "third", "a").result())

with semel.step(conversation="c", step="third"):
    print(pay("a"))
"""


def test_a_process_of_a_pool_is_not_in_the_step_in_which_it_was_started(tmp_path: Path) -> None:
    """It serves later steps too. Were it in the first for ever, their calls would read that one's answers,
    and a step that it opens itself would be a part of whichever step the pool was first used in."""
    lines = run(POOL, tmp_path, PYTHONWARNINGS="ignore::DeprecationWarning")
    assert lines == [
        "NO_STEP",
        "paid a as number 1",
        "paid a as number 2",
        "NO_STEP",
        "paid a as number 3",
        "paid a as number 2",
        "paid a as number 2",
    ]


def test_a_process_of_a_pool_has_not_the_key_of_the_tool_that_started_it(tmp_path: Path) -> None:
    """Whatever it handed on under that key, the downstream would take for the first call again."""
    program = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import semel

pool = ProcessPoolExecutor(1, mp_context=get_context("fork"))

@semel.tool_contract
def pay(order: str) -> str:
    return f"{semel.current_key() is None} {pool.submit(semel.current_key).result()}"

for order in "ab":
    with semel.step(conversation="c", step="s"):
        print(pay(order))
pool.shutdown()
"""
    assert run(program, tmp_path, PYTHONWARNINGS="ignore::DeprecationWarning") == ["False None", "False None"]


def test_a_fork_waits_for_what_another_thread_is_importing_at_its_first_call(tmp_path: Path) -> None:
    """Else the child would wait for ever for a module whose importer it does not have."""
    (tmp_path / "prometheus_client.py").write_text(
        "import __main__\n"
        "__main__.importing.set()\n"
        f"__main__.forking.wait({PATIENCE_S})\n"
        "sum(range(10**6))\n"  # so that it is not over before the fork
        "raise ImportError(name='prometheus_client')\n"
    )
    program = f"""
import os, signal, threading
import semel

importing, forking = threading.Event(), threading.Event()

@semel.tool_contract
def pay(order: str) -> str:
    return f"paid {{order}}"

def first() -> None:
    with semel.step(conversation="c", step="first"):
        pay("a")

semel.open("memory://").close()  # ours are registered before this one, and so asked after it
os.register_at_fork(before=forking.set)
thread = threading.Thread(target=first)
thread.start()
importing.wait()
child = os.fork()
if child == 0:
    signal.alarm({int(PATIENCE_S / 4)})  # ends a child that hangs
    with semel.step(conversation="c", step="second"):
        print(pay("b"), flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1])
thread.join()
"""
    assert run(program, tmp_path) == ["paid b", "0"]


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


def test_what_is_no_ledger_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"semel.open\(…\) gives it, not str"):
        semel.use("sqlite:///semel.db")  # type: ignore[arg-type]


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
