"""Processes in one library's own environment. They make guarded calls when a line tells them to.

.venv-scoreboard/NAME/bin/python -m scoreboard.worker ADAPTER MODULES

Each line that a worker reads is a command as JSON, each line that it writes an answer. The effect appends a
line to a file that no library knows of, and then does what its plan says: it waits for a gate, returns,
raises or dies. This module imports nothing but the standard library, the adapter and, through it, the
library.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from scoreboard.values import KINDS, UNDECLARED, described, receipt_of

# Between two looks at a gate.
LOOK_S = 0.005


class Refused(Exception):
    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class Place:
    """Where the adapter puts its records, and the times that the trial asks for; None is the library's
    default.
    """

    def __init__(self, terms: dict[str, Any]) -> None:
        self.url: str = terms["url"]
        self.lease_s: float | None = terms["lease_s"]
        self.window_s: float | None = terms["window_s"]
        self.effects = Path(terms["effects"])

    @staticmethod
    def refused(name: str, message: str = "") -> Refused:
        """What an adapter raises where its library hands back as data that it did not run the effect."""
        return Refused(name, message)


class Effects:
    """What is guarded: counted in a file, then ended as the plan of its order says."""

    def __init__(self, counted: Path) -> None:
        self._file = os.open(counted, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._number = 0
        self.plans: dict[str, dict[str, Any]] = {}
        self.entered = threading.Event()

    def begin(self, order: str) -> str:
        """The effect happens here: one line, written at once, whoever dies next."""
        self._number += 1
        receipt = f"{os.getpid()}-{self._number}"
        os.write(self._file, f"{order} {receipt}\n".encode())
        self.entered.set()
        return receipt

    def end(self, order: str) -> None:
        match self.plans.get(order, {}).get("end"):
            case "raise":
                raise RuntimeError("the effect failed after it had happened")
            case "exit":
                raise SystemExit(3)
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "die-after":
                sys.setprofile(_dies_at_the_next_call())

    def closed(self, order: str) -> bool:
        gate = self.plans.get(order, {}).get("gate")
        return gate is not None and not os.path.exists(gate)

    def function(self, kind: str, asynchronous: bool) -> Callable[..., Any]:
        """The effect as a plain function that declares what it returns."""
        declared, value = (KINDS | UNDECLARED)[kind]

        def pay(order: str, amount: int) -> Any:
            receipt = self.begin(order)
            while self.closed(order):
                time.sleep(LOOK_S)
            self.end(order)
            return value(order, amount, receipt)

        async def apay(order: str, amount: int) -> Any:
            receipt = self.begin(order)
            while self.closed(order):  # noqa: ASYNC110  # another process opens it
                await asyncio.sleep(LOOK_S)
            self.end(order)
            return value(order, amount, receipt)

        made = apay if asynchronous else pay
        returns = {} if declared is None else {"return": declared}
        made.__annotations__ = {"order": str, "amount": int, **returns}
        # One name for both: it is the same tool, whoever awaits it.
        made.__name__ = made.__qualname__ = f"pay_{kind}".replace("-", "_")
        return made


def _dies_at_the_next_call() -> Callable[..., None]:
    """For sys.setprofile, set inside of the effect: the first thing that is called after its return is its
    end.
    """
    returned = False

    def look(frame: types.FrameType, event: str, _: object) -> None:
        nonlocal returned
        if event == "return" and frame.f_code.co_name in ("pay", "apay"):
            returned = True
        elif returned and event in ("call", "c_call"):
            os.kill(os.getpid(), signal.SIGKILL)

    return look


class Worker:
    def __init__(self, adapter: types.ModuleType, place: Place, runner: asyncio.Runner) -> None:
        self._adapter, self._place, self._runner = adapter, place, runner
        self.effects = Effects(place.effects)
        self._guards: dict[tuple[str, bool], Callable[..., Any]] = {}
        self.is_async = hasattr(adapter, "aguard")
        self.is_sync = hasattr(adapter, "guard")

    def guarded(self, kind: str) -> Callable[..., Any]:
        """The plain call; a library that is asynchronous only runs on this process's own loop."""
        if not self.is_sync:
            return lambda order, amount: self._runner.run(self._awaited(kind, order, amount))
        made = self._guards.get((kind, False))
        if made is None:
            effect = self.effects.function(kind, asynchronous=False)
            made = self._guards[kind, False] = self._adapter.guard(effect, self._place)
        return made

    async def aguarded(self, kind: str) -> Callable[..., Any]:
        made = self._guards.get((kind, True))
        if made is None:
            made = self._adapter.aguard(self.effects.function(kind, asynchronous=True), self._place)
            made = await made if inspect.isawaitable(made) else made
            self._guards[kind, True] = made
        return made

    async def _awaited(self, kind: str, order: str, amount: int) -> Any:
        return await (await self.aguarded(kind))(order, amount)

    def modules(self) -> dict[str, Any]:
        """What a call has imported, for those that are forked later."""
        return {"modules": [name for name in sys.modules if not name.startswith(("__", "scoreboard"))]}

    # --- commands ---------------------------------------------------------------------------------

    def call(self, order: str, amount: int = 5, kind: str = "dict", mode: str = "sync") -> dict[str, Any]:
        began = time.monotonic()
        try:
            if mode == "async":
                value = self._runner.run(self._awaited(kind, order, amount))
            else:
                value = self.guarded(kind)(order, amount)
        except BaseException as error:
            return _error(error, began)
        return {"value": described(value), "receipt": receipt_of(value), "seconds": time.monotonic() - began}

    def cancel(self, order: str) -> dict[str, Any]:
        """The task that runs the effect is cancelled in the middle of it."""

        async def cancelled() -> dict[str, Any]:
            began, task = time.monotonic(), asyncio.ensure_future(self._awaited("dict", order, 5))
            while not self.effects.entered.is_set():  # noqa: ASYNC110  # it may be on a thread
                await asyncio.sleep(LOOK_S)
            task.cancel()
            try:
                value = await task
            except BaseException as error:
                return _error(error, began)
            return {
                "value": described(value),
                "receipt": receipt_of(value),
                "seconds": time.monotonic() - began,
            }

        return self._runner.run(cancelled())

    def together(self, order: str, callers: int) -> dict[str, Any]:
        """So many tasks with one key at once; threads where the library has no asynchronous side."""
        if self.is_async:

            async def all_at_once() -> list[Any]:
                call = await self.aguarded("dict")
                return await asyncio.gather(*(call(order, 5) for _ in range(callers)), return_exceptions=True)

            answers = self._runner.run(all_at_once())
        else:
            answers = _by_threads(self.guarded("dict"), [(order, 5)] * callers)
        errors = [_name(each) for each in answers if isinstance(each, BaseException)]
        values = [receipt_of(each) for each in answers if not isinstance(each, BaseException)]
        return {"errors": errors, "receipts": values}

    def timed(self, orders: list[str], callers: int, mode: str) -> dict[str, Any]:
        """Seconds per call of these orders, done by so many callers at once."""
        calls = [(order, 5) for order in orders]
        failed: list[BaseException] = []
        if mode == "async":

            async def all_of_them() -> float:
                call, waiting = await self.aguarded("dict"), iter(calls)

                async def one_after_the_other() -> None:
                    for each in waiting:
                        await call(*each)

                began = time.perf_counter()
                await asyncio.gather(*(one_after_the_other() for _ in range(callers)))
                return time.perf_counter() - began

            took = self._runner.run(all_of_them())
        elif callers == 1:
            call, began = self.guarded("dict"), time.perf_counter()
            for each in calls:
                call(*each)
            took = time.perf_counter() - began
        else:
            call, began = self.guarded("dict"), time.perf_counter()
            parts = [calls[number::callers] for number in range(callers)]
            failed = [each for each in _by_threads(_in_turn(call), [(part,) for part in parts]) if each]
            took = time.perf_counter() - began
        if failed:
            raise failed[0]
        return {"seconds": took / len(calls)}


def _in_turn(call: Callable[..., Any]) -> Callable[[list[tuple[str, int]]], None]:
    def calls(part: list[tuple[str, int]]) -> None:
        for each in part:
            call(*each)

    return calls


def _by_threads(call: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> list[Any]:
    answers: list[Any] = [None] * len(arguments)
    start = threading.Barrier(len(arguments))

    def one(number: int) -> None:
        start.wait()
        try:
            answers[number] = call(*arguments[number])
        except BaseException as error:
            answers[number] = error

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(arguments))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def _name(error: BaseException) -> str:
    return error.name if isinstance(error, Refused) else type(error).__name__


def _error(error: BaseException, began: float) -> dict[str, Any]:
    return {
        "error": _name(error),
        "message": " ".join(str(error).split())[:300],
        "seconds": time.monotonic() - began,
    }


def load(path: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def serve(adapter: types.ModuleType, place: dict[str, Any], lines: IO[str], out: IO[str]) -> None:
    """One command after the other, until there are no more."""
    with asyncio.Runner() as runner:
        worker = Worker(adapter, Place(place), runner)
        for line in lines:
            command = json.loads(line)
            work, plan = command.pop("do"), command.pop("plan", None)
            if plan is not None:
                worker.effects.plans[command["order"]] = plan
            worker.effects.entered.clear()
            try:
                answer = getattr(worker, work)(**command)
            except BaseException as error:
                answer = {**_error(error, time.monotonic()), "failed": True}
            out.write(json.dumps(answer) + "\n")
            out.flush()
        # Pools and keepers of a library are nobody's trial: it ends here.
        os._exit(0)


def main(path: str, modules: str) -> None:
    """Imports once, then forks a worker for each line, so that a process costs milliseconds.

    Nothing but imports is done before a fork: each worker opens its own store. A line names the socket at
    which the worker reports; the answer is the worker's process id.
    """
    adapter = load(path)
    for name in json.loads(modules):
        try:
            importlib.import_module(name)
        except Exception:  # what cannot be imported alone is imported by the library itself, later
            continue
    # Whoever started us may have had no ear for Ctrl-C, as shells that start things beside them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Whoever dies is gone at once, as if its parent had looked.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            with socket.socket(socket.AF_UNIX) as report:
                report.connect(request["socket"])
                serve(adapter, request["place"], report.makefile("r"), report.makefile("w"))
        print(pid, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
