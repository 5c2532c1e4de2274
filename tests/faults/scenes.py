"""What other processes do in these tests: `python -m tests.faults.scenes SCENE TOLD`, with TOLD as JSON.

A scene speaks by lines of JSON, `[word, content]`, and waits for a line where it says so.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import random
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import semel
from semel.kernel.clock import SYSTEM, Clock, SystemClock
from semel.ledger import sweep
from semel.stores.base import Store
from semel.testing import WrappedStore, crashing
from tests.faults.bank import Bank
from tests.faults.caller import ACCOUNT, AMOUNT, CONVERSATION, STEP, Heard, call
from tests.faults.disk import fill
from tests.faults.interrupting import interrupted_at, moments_of
from tests.faults.payment import LEASE, Declined, nothing, payment
from tests.patience import PATIENCE_S

AWAKE_S = 0.05

# Nobody waits that long for a call that takes milliseconds; and whoever listens to this process waits longer.
STUCK_S = PATIENCE_S / 2


def say(word: str, content: Any = None) -> None:
    # One write, so that the lines of forked processes do not mix.
    os.write(1, (json.dumps([word, content]) + "\n").encode())


def heard(answer: Heard) -> dict[str, Any]:
    receipt = answer.receipt
    return {**answer._asdict(), "receipt": None if receipt is None else vars(receipt)}


# --- what may happen in the middle of a tool ------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def await_a_line() -> None:
    """Awake now and then: Python sees a signal between two steps, not one that came just before a sleep."""
    while not select.select([sys.stdin], [], [], AWAKE_S)[0]:
        pass
    while os.read(0, 1) not in (b"\n", b""):
        pass


async def staying_awake(answer: Any) -> Any:
    """The same for an event loop, which else may sleep on a ctrl-C."""
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.call_later(AWAKE_S, wake)

    wake()
    return await answer


def pause() -> None:
    say("in the tool")
    await_a_line()


def time_out() -> None:
    raise TimeoutError


def be_declined() -> None:
    raise Declined


def exit_at_once() -> None:
    os._exit(7)


def exit_politely() -> None:
    sys.exit(7)


def fill_the_disk_and_die() -> None:
    fill(Path(os.environ["SEMEL_TEST_DISK"]))
    die()


DEEDS: dict[str, Callable[[], None]] = {
    "nothing": nothing,
    "die": die,
    "pause": pause,
    "time out": time_out,
    "be declined": be_declined,
    "os._exit": exit_at_once,
    "sys.exit": exit_politely,
    "fill the disk and die": fill_the_disk_and_die,
}


def tool_of(told: dict[str, Any]) -> Any:
    return payment(
        Bank(told["bank"]),
        told.get("policy", "park"),
        name=told.get("name", "pay"),
        asynchronous=told.get("asynchronous", False),
        lease=told.get("lease", LEASE),
        window=told.get("window", "24h"),
        before=DEEDS[told.get("before", "nothing")],
        after=DEEDS[told.get("after", "nothing")],
    )


# --- the wall clock of a process ------------------------------------------------------------------


class ShiftedClock(SystemClock):
    """A clock that was set wrong: its wall is off, its seconds are as long as everybody's."""

    def __init__(self, shift_s: float) -> None:
        self.now_us = lambda: SYSTEM.now_us() + int(shift_s * 1e6)


def clock_of(told: dict[str, Any]) -> Clock:
    return ShiftedClock(told["shift_s"]) if "shift_s" in told else SYSTEM


# --- scenes ---------------------------------------------------------------------------------------


def one_call(told: dict[str, Any]) -> None:
    """One call, and "heard". `crash` names a point of semel.testing at which the process dies."""
    ledger = semel.open(told["url"], clock=clock_of(told))
    if told.get("crash"):
        ledger = crashing(ledger, told["crash"], kill=True)
    answer = call(ledger, tool_of(told), note=told.get("note", ""))
    if told.get("dies_unheard"):
        die()
    say("heard", heard(answer))
    ledger.close()


def call_uncaught(told: dict[str, Any]) -> None:
    """One call whose exceptions nobody catches: the process ends as Python lets it end."""
    ledger = semel.open(told["url"])
    say("calling")
    answer = ledger.step(conversation=CONVERSATION, step=STEP).run(
        tool_of(told), account=ACCOUNT, amount=AMOUNT, note=told["note"]
    )
    if told.get("asynchronous"):
        asyncio.run(staying_awake(answer))
    say("returned")


def waiting_call(told: dict[str, Any]) -> None:
    """One call of a key that somebody else holds: "waiting" once it waits, then "heard"."""
    ledger = semel.open(told["url"])
    answers: list[Heard] = []
    caller = threading.Thread(target=lambda: answers.append(call(ledger, tool_of(told), note="waiter")))
    caller.start()
    while not ledger.store.waiters and caller.is_alive():
        SYSTEM.sleep(0.001)
    say("waiting")
    caller.join()
    say("heard", heard(answers[0]))
    ledger.close()


def race(told: dict[str, Any]) -> None:
    """Every account once, in an order of its own; "ready", and begins when told to."""
    ledger = semel.open(told["url"])
    tool = tool_of(told)
    accounts = list(told["accounts"])
    random.Random(told["seed"]).shuffle(accounts)
    say("ready")
    await_a_line()
    answers = {account: heard(call(ledger, tool, account=account, note=told["note"])) for account in accounts}
    say("heard", answers)
    ledger.close()


def calls(told: dict[str, Any]) -> None:
    """One account after the other; each is told as soon as the caller has its answer."""
    ledger = semel.open(told["url"])
    tool = tool_of(told)
    for account in told["accounts"]:
        answer = call(ledger, tool, account=account, note="first")
        assert answer.receipt is not None
        say("heard", [account, vars(answer.receipt)])
    ledger.close()
    say("all")


def sweeping(told: dict[str, Any]) -> None:
    """A pass of the sweeper, in small batches, in a process that may die in the middle of it."""
    ledger = semel.open(told["url"])
    if told.get("crash"):
        ledger = crashing(ledger, told["crash"], kill=True)
    sweep._BATCH = told["batch"]
    ledger.sweeper.run_once()
    say("swept")
    ledger.close()


class Hesitating(WrappedStore):
    """Says which point of a command it has come to, and waits there: "after claim", "before settle"."""

    def __init__(self, inner: Store, point: str) -> None:
        super().__init__(inner)
        self._point = point

    def before(self, name: str) -> None:
        self._reach(f"before {name}")

    def after(self, name: str) -> None:
        self._reach(f"after {name}")

    def _reach(self, point: str) -> None:
        if point == self._point:
            self._point = ""
            say("hesitating")
            await_a_line()


def hesitating_call(told: dict[str, Any]) -> None:
    """A call that stands still at a point of its way into the store; "heard" what it ended with."""
    opened = semel.open(told["url"])
    ledger = semel.Ledger(Hesitating(opened.store, told["point"]))
    say("heard", heard(call(ledger, tool_of(told), note="first")))
    ledger.close()


def interrupted_again_and_again(told: dict[str, Any]) -> None:
    """Calls without end, through interrupts, until told to stop; then one last call, "heard"."""
    ledger = semel.open(told["url"])
    tool = tool_of(told)
    stopping = threading.Event()

    def stop_when_told() -> None:
        await_a_line()
        stopping.set()

    threading.Thread(target=stop_when_told, daemon=True).start()
    say("calling")
    numbers = itertools.count()
    while True:
        try:
            while not stopping.is_set():
                account = f"acc-{next(numbers)}"
                for note in ("first", "again"):
                    call(ledger, tool, account=account, note=note)
            break
        except KeyboardInterrupt:
            pass  # it came between two calls
    say("heard", heard(call(ledger, tool, account="acc-last", note="last")))
    ledger.close()


def interrupted_everywhere(told: dict[str, Any]) -> None:
    """A call of the main thread, once for every moment in which it can be interrupted, beside a crowd.

    After each: "still well", with what was heard; or "stuck", if one of the crowd gets nothing done any more.
    """
    ledger = semel.open(told["url"])
    tool = tool_of(told)
    crowd = [Busy(ledger, tool, f"acc-crowd-{number}") for number in range(told["crowd"])]

    def pay(account: str) -> Heard:
        return call(ledger, tool, account=account, note="first")

    pay("acc-warm")
    for number, moment in enumerate(moments_of(lambda: pay("acc-watched"))):
        account = f"acc-{number}"
        first = interrupted_at(moment, functools.partial(pay, account))
        if first is None:
            continue
        again = call(ledger, tool, account=account, note="again")
        if not all(busy.goes_on() for busy in crowd):
            say("stuck", str(moment))
            return
        say("still well", [str(moment), account, heard(first), heard(again)])
    for busy in crowd:
        busy.stop()
    say("still well")
    ledger.close()


class Busy(threading.Thread):
    """One of the crowd: it pays from an account of its own, again and again, each time in another step."""

    def __init__(self, ledger: semel.Ledger, tool: Any, account: str) -> None:
        super().__init__(daemon=True)
        self._ledger, self._tool, self._account = ledger, tool, account
        self._paid = 0
        self._stopping = False
        self.start()

    def run(self) -> None:
        while not self._stopping:
            heard = call(self._ledger, self._tool, account=self._account, step=f"step-{self._paid}")
            assert heard.receipt is not None, heard
            self._paid += 1

    def goes_on(self) -> bool:
        """Whether a call that it began after now was answered."""
        until, give_up_at = self._paid + 2, SYSTEM.monotonic() + STUCK_S
        while self._paid < until and SYSTEM.monotonic() < give_up_at:
            SYSTEM.sleep(0.001)
        return self._paid >= until

    def stop(self) -> None:
        self._stopping = True
        self.join()


def forking(told: dict[str, Any]) -> None:
    """A process that has used its ledger forks, and all its children call with it."""
    ledger = semel.open(told["url"])
    tool = tool_of(told)
    call(ledger, tool, account="acc-parent", note="parent")
    children = [os.fork() for _ in range(told["children"]) if _is_parent()]
    if not _is_parent():
        _child(ledger, tool, told["accounts"])
    for child in children:
        _, status = os.waitpid(child, 0)
        say("child ended", os.waitstatus_to_exitcode(status))
    say("heard", heard(call(ledger, tool, account="acc-after", note="parent")))
    ledger.close()


_PARENT = os.getpid()


def _is_parent() -> bool:
    return os.getpid() == _PARENT


def _child(ledger: semel.Ledger, tool: Any, accounts: list[str]) -> None:
    answers = {account: heard(call(ledger, tool, account=account, note="child")) for account in accounts}
    say("child heard", answers)
    ledger.close()
    os._exit(0)


SCENES: dict[str, Callable[[dict[str, Any]], None]] = {
    scene.__name__: scene
    for scene in (
        one_call,
        call_uncaught,
        waiting_call,
        race,
        calls,
        sweeping,
        hesitating_call,
        interrupted_again_and_again,
        interrupted_everywhere,
        forking,
    )
}


if __name__ == "__main__":
    SCENES[sys.argv[1]](json.loads(sys.argv[2]))
