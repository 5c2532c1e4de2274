"""Scenes in which code comes back into Semel on a thread that is in the middle of it: a handler, a finaliser.

`python -m tests.faults.reentered SCENE TOLD`, as in tests.faults.scenes. A scene that hangs says where, and
ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import inspect
import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import semel
from semel.errors import SemelError
from tests.faults.caller import AMOUNT, CONVERSATION, Heard, call
from tests.faults.interrupting import Moment, moments_of, on_threads_to_come, re_entered_at
from tests.faults.scenes import STUCK_S, heard, say, tool_of

INNER = "inner"

SOURCE = os.path.dirname(semel.__file__)


@contextlib.contextmanager
def or_else_it_hangs() -> Iterator[None]:
    faulthandler.dump_traceback_later(STUCK_S, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def on_the_thread(told: dict[str, Any], work: Callable[[], None]) -> None:
    """On the main thread, where handlers of signals run, or on another, where only finalisers do."""
    if told.get("main", True):
        work()
        return
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def chosen(moments: list[Moment], told: dict[str, Any]) -> list[tuple[int, Moment]]:
    """Every n-th of them; another part of them for every test that asks for another."""
    every, first = told["every"], told.get("first", 0)
    if told.get("asynchronous"):  # of an event loop's own steps there are thousands
        moments = [moment for moment in moments if SOURCE in moment.file]
    return list(enumerate(moments))[first % every :: every]


# --- coming back in with something to do ----------------------------------------------------------


def comes_back(told: dict[str, Any]) -> None:
    """A call, once for every moment at which its thread may come back in to do something else.

    After each: "still well", with the moment, what was heard outside and inside, and what later calls hear.
    """
    ledger = semel.open(told["url"])
    tool, inner = tool_of(told), tool_of({**told, "asynchronous": False, "name": "pay_inside"})
    deed = DEEDS[told["deed"]]

    def pay(account: str) -> Heard:
        return call(ledger, tool, account=account, note="first")

    def work() -> None:
        pay("acc-warm")
        for number, moment in chosen(moments_of(lambda: pay("acc-watched")), told):
            inside: list[Any] = []

            def come_back(number: int = number, inside: list[Any] = inside) -> None:
                inside.append(deed(ledger, inner, f"acc-{number}-inner"))

            def run(number: int = number) -> Heard:
                return pay(f"acc-{number}")

            with or_else_it_hangs():
                first, came = re_entered_at(moment, run, come_back)
                if not came:
                    continue
                again = [pay(f"acc-{number}"), deed(ledger, inner, f"acc-{number}-inner")]
            say("still well", [str(moment), number, heard(first), inside[0], heard(again[0]), again[1]])

    on_the_thread(told, work)
    with or_else_it_hangs():
        ledger.close()
    say("still well")


def pays(ledger: semel.Ledger, tool: Any, account: str) -> Any:
    # In a conversation of its own: else it would be a step inside the one that it came upon.
    step = ledger.step(conversation=INNER, step="1")
    try:
        return heard(Heard(receipt=step.run(tool, account=account, amount=AMOUNT, note="inner")))
    except SemelError as error:
        return heard(Heard(code=error.code))


def lists(ledger: semel.Ledger, tool: Any, account: str) -> Any:
    try:
        return len(ledger.records.list(limit=1))
    except SemelError as error:
        return error.code


def steps(ledger: semel.Ledger, tool: Any, account: str) -> Any:
    conversation = ledger.conversation(account)
    with conversation.step():
        pass
    return conversation.position


DEEDS: dict[str, Callable[[semel.Ledger, Any, str], Any]] = {"pay": pays, "list": lists, "step": steps}


# --- coming back in to close ----------------------------------------------------------------------


def closes(told: dict[str, Any]) -> None:
    """A call on a ledger of its own for every moment at which its thread may come back in to close it.

    With `exits` it leaves by sys.exit, as a handler of SIGTERM does. After each: "still well", as above.
    """
    outlives = semel.open(told["url"])
    tool = tool_of(told)

    def pay(ledger: semel.Ledger, account: str) -> Heard:
        return call(ledger, tool, account=account, note="first")

    def moments() -> list[Moment]:
        with another(outlives, told["url"]) as watched:
            pay(watched, "acc-warm")
            return moments_of(lambda: pay(watched, "acc-watched"))

    def work() -> None:
        for number, moment in chosen(moments(), told):
            ledger = another(outlives, told["url"])
            pay(ledger, f"acc-{number}-warm")

            def close(ledger: semel.Ledger = ledger) -> None:
                ledger.close()
                if told["exits"]:
                    sys.exit(7)

            def run(ledger: semel.Ledger = ledger, number: int = number) -> Heard | None:
                try:
                    return pay(ledger, f"acc-{number}")
                except SystemExit:
                    return None  # it came before the call, or after it

            with or_else_it_hangs():
                first, came = re_entered_at(moment, run, close)
                late = pay(ledger, f"acc-{number}-late") if came else Heard()
                ledger.close()
                if not came or first is None:
                    continue
                again = pay(outlives, f"acc-{number}")
            say("still well", [str(moment), number, heard(first), heard(late), heard(again)])

    on_the_thread(told, work)
    with or_else_it_hangs():
        outlives.close()
    say("still well")


def another(ledger: semel.Ledger, url: str) -> semel.Ledger:
    """One on the same records."""
    return semel.Ledger(ledger.store) if url == "memory://" else semel.open(url)


# --- event loops and Semel's own threads ----------------------------------------------------------


def in_the_background(told: dict[str, Any]) -> None:
    """A finaliser at every step of the threads that Semel has for itself, each when it is reached first.

    Says "came back" where it did, "paid" with every answer of the calls beside it.
    """
    seen: set[tuple[str, int, int]] = set()
    busy: set[int] = set()
    ready: list[semel.Ledger] = []
    deed, inner = DEEDS[told["deed"]], tool_of({**told, "asynchronous": False, "name": "pay_inside"})

    def look(now: Moment) -> None:
        name, me = threading.current_thread().name, threading.get_ident()
        if not name.startswith("semel-") or not ready or now[:3] in seen or me in busy:
            return
        seen.add(now[:3])
        busy.add(me)
        answer = deed(ready[0], inner, f"acc-back-{len(seen)}")
        busy.discard(me)
        say("came back", [name, str(now), answer])

    on_threads_to_come(look)
    ledger, tool = semel.open(told["url"]), tool_of(told)
    ready.append(ledger)
    for number in range(told["rounds"]):
        with or_else_it_hangs():
            say("paid", asyncio.run(_crowd(ledger, tool, f"{number}")))
    with or_else_it_hangs():
        ledger.close()
    ready.clear()
    say("all")


async def _crowd(ledger: semel.Ledger, tool: Any, name: str) -> list[Any]:
    """Calls of eight accounts, each twice at once: one of two waits for the other."""

    async def pay(account: str) -> Any:
        try:
            inside = ledger.step(conversation=CONVERSATION, step="crowd")
            answer = inside.run(tool, account=account, amount=AMOUNT, note="")
            receipt = await answer if inspect.isawaitable(answer) else answer
            return [account, vars(receipt)]
        except SemelError as error:
            return [account, error.code]

    accounts = [f"acc-{name}-{number}" for number in range(8)]
    return list(await asyncio.gather(*(pay(account) for account in accounts * 2)))


# --- a real signal --------------------------------------------------------------------------------


def closed_by_a_signal(told: dict[str, Any]) -> None:
    """Calls without end, beside a crowd, until SIGTERM comes, whose handler closes and exits with 7."""
    ledger = semel.open(told["url"])
    tool = tool_of(told)

    def leave(number: int, frame: Any) -> None:
        faulthandler.dump_traceback_later(STUCK_S, exit=True)
        ledger.close()
        sys.exit(7)

    signal.signal(signal.SIGTERM, leave)
    pay = ledger.step(conversation=CONVERSATION, step="1").run
    for number in range(told["crowd"]):
        threading.Thread(
            target=_pay_on, args=(ledger, tool, f"{told['bearer']}-{number}"), daemon=True
        ).start()
    say("calling")
    for number in itertools.count():
        pay(tool, account=f"acc-{told['bearer']}-{number}", amount=AMOUNT, note="")


def _pay_on(ledger: semel.Ledger, tool: Any, name: str) -> None:
    numbers = itertools.count()
    while call(ledger, tool, account=f"acc-crowd-{name}-{next(numbers)}").receipt is not None:
        pass


SCENES: dict[str, Callable[[dict[str, Any]], None]] = {
    scene.__name__: scene for scene in (comes_back, closes, in_the_background, closed_by_a_signal)
}


if __name__ == "__main__":
    SCENES[sys.argv[1]](json.loads(sys.argv[2]))
