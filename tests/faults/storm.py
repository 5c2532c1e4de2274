"""A storm: processes that call the same keys, and die, freeze and are interrupted at random.

    python -m tests.faults.storm

is the nursery: it has imported everything, and forks a caller for each line of JSON that it reads. What
callers did to the world is in the bank's book, what they got to hear in a file of answers; both outlive them.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import semel
from semel.errors import SemelError
from semel.kernel.clock import SYSTEM, SystemClock
from semel.kernel.record import State, effective_state
from tests.faults.bank import Bank
from tests.faults.caller import Heard, acall, call
from tests.faults.payment import POLICIES, Declined, nothing, payment
from tests.patience import PATIENCE_S
from tests.proxy import Proxy

ROOT = Path(__file__).resolve().parents[2]

# A caller waits for others, and its lease is short: more than a few at once add nothing but waiting.
CALLERS = 5
CROWD = 3

# Some callers come to a key while it is new, others when all is over.
FRESH_PER_S, NEAR = 12, 8

# Between two calls of a caller, most of which are replays.
PAUSE_S = 0.01

# What befalls the callers, and how often in proportion.
STRIKES = {
    "kill": 4,
    "freeze": 3,
    "interrupt": 3,
    "end": 2,
    "resolve": 4,
    "step_clock": 3,
    "partition": 2,
}

CALLS_FROM = ("main thread", "threads", "tasks")

# A clock is set wrong by at most so much: many leases, and less than anybody's patience.
CLOCK_STEP_S = 5.0

# How long a partition lasts at most: longer than a lease, and than most calls wait for an answer.
PARTITION_S = 1.5

# How long a caller that was asked to end may take before it is killed.
GRACE_S = 3.0


# In the place of an account: somebody heard this, and not as the answer to a call.
NO_CALL = ""


def policy_of(account: str) -> str:
    return POLICIES[int(account.partition("-")[2]) % len(POLICIES)]


class Answer(NamedTuple):
    """What a caller heard about an account."""

    account: str
    receipt: dict[str, Any] | None
    code: str | None
    raised: str | None


class Answers:
    """The file of what was heard: a line is one write, so that a kill leaves whole lines."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)

    def add(self, account: str, heard: Heard) -> None:
        receipt = None if heard.receipt is None else vars(heard.receipt)
        self._write(json.dumps(Answer(account, receipt, heard.code, heard.raised)))

    def complain(self, text: str) -> None:
        self._write(json.dumps(Answer(NO_CALL, None, None, text)))

    def _write(self, line: str) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{line}\n".encode())
        finally:
            os.close(file)

    def size(self) -> int:
        return os.stat(self.path).st_size if os.path.exists(self.path) else 0

    def read(self) -> list[Answer]:
        if not os.path.exists(self.path):
            return []
        return [Answer(*json.loads(line)) for line in Path(self.path).read_text().splitlines()]


# --- a caller -----------------------------------------------------------------------------------------


class SteppedClock(SystemClock):
    """A wall clock that is set wrong now and then; its seconds are as long as everybody's."""

    def __init__(self) -> None:
        self.ahead_us = 0
        self.now_us = lambda: SYSTEM.now_us() + self.ahead_us


class Caller:
    """One process in the storm. It calls until it is told to end, or is ended."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told
        self._chance = random.Random(told["seed"])
        self._bank, self._answers = Bank(told["bank"]), Answers(told["answers"])
        self._clock = SteppedClock()
        self._ledger = semel.open(told["url"], clock=self._clock)
        self._stopping = False
        self._tools = {policy: self._tool(policy) for policy in POLICIES}

    def _tool(self, policy: str) -> Any:
        return payment(
            self._bank,
            policy,
            asynchronous=self._told["calls_from"] == "tasks",
            before=self._fate((Declined, TimeoutError)),
            after=self._fate((TimeoutError,)),
        )

    def _fate(self, failures: tuple[type[Exception], ...]) -> Callable[[], None]:
        """What happens in the middle of a tool: mostly nothing."""

        def strike() -> None:
            luck = self._chance.random()
            if luck < 0.02:
                os.kill(os.getpid(), signal.SIGKILL)
            elif luck < 0.06:
                os.kill(os.getpid(), signal.SIGSTOP)  # until the storm wakes it, perhaps past its lease
            elif luck < 0.1:
                raise self._chance.choice(failures)
            elif luck < 0.3:
                SYSTEM.sleep(self._chance.random() * 0.6)  # past its lease, which is renewed meanwhile
            elif luck < 0.5:
                SYSTEM.sleep(self._chance.random() * 0.05)
            else:
                nothing()

        return strike

    def end(self, *_: object) -> None:
        """The handler of SIGTERM: some programs close the ledger there, others on their way out."""
        self._stopping = True
        if self._told["closes_in_handler"]:
            self._ledger.close()
        sys.exit(0)

    def step_clock(self, *_: object) -> None:
        """The handler of SIGUSR1."""
        self._clock.ahead_us = int((2 * self._chance.random() - 1) * CLOCK_STEP_S * 1e6)

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self.end)
        signal.signal(signal.SIGUSR1, self.step_clock)
        loops = {"main thread": self._alone, "threads": self._in_threads, "tasks": self._in_tasks}
        while not self._stopping:
            try:
                loops[self._told["calls_from"]]()
            except (KeyboardInterrupt, asyncio.CancelledError):
                pass  # it came between two calls
        self._ledger.close()

    def _next(self) -> str:
        elapsed_s = SYSTEM.monotonic() - self._told["began"]
        return f"acc-{max(0, int(elapsed_s * FRESH_PER_S) - self._chance.randrange(NEAR))}"

    def _call(self, account: str) -> None:
        note = f"{os.getpid()}-{self._chance.random()}"
        self._answers.add(
            account, call(self._ledger, self._tools[policy_of(account)], account=account, note=note)
        )

    def _alone(self) -> None:
        while not self._stopping:
            self._call(self._next())
            SYSTEM.sleep(self._chance.random() * PAUSE_S)

    def _in_threads(self) -> None:
        with ThreadPoolExecutor(CROWD) as threads:
            while not self._stopping:
                list(threads.map(self._call, [self._next() for _ in range(CROWD)]))
                SYSTEM.sleep(self._chance.random() * PAUSE_S)

    def _in_tasks(self) -> None:
        asyncio.run(self._tasks())

    async def _tasks(self) -> None:
        while not self._stopping:
            await asyncio.gather(*(self._task(self._next()) for _ in range(CROWD)))
            await asyncio.sleep(self._chance.random() * PAUSE_S)

    async def _task(self, account: str) -> None:
        note = f"{os.getpid()}-{self._chance.random()}"
        tool = self._tools[policy_of(account)]
        try:
            heard = await acall(self._ledger, tool, account=account, note=note)
        except (Declined, TimeoutError) as error:
            heard = Heard(raised=type(error).__name__)
        self._answers.add(account, heard)


def one_caller(told: dict[str, Any]) -> None:
    try:
        Caller(told).run()
    except (SystemExit, KeyboardInterrupt):
        pass
    except SemelError as error:
        # The store was away, or closed by the handler of a signal.
        Answers(told["answers"]).add(NO_CALL, Heard(code=error.code))
    except BaseException:
        Answers(told["answers"]).complain(traceback.format_exc())


def nursery() -> None:
    """A caller for each line. Those that ended stay zombies, so that no number is given out twice."""
    # A caller that has no clock yet has none to set.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                one_caller(json.loads(line))
            finally:
                os._exit(0)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


# --- the weather --------------------------------------------------------------------------------------


class Nursery:
    """The nursery's process, from outside."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.storm"],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._pids: list[int] = []

    def caller(self, told: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        self._pids.append(int(self._process.stdout.readline()))
        return self._pids[-1]

    def lives(self, pid: int) -> bool:
        return _state(pid) != "Z"

    def frozen(self, pid: int) -> bool:
        return _state(pid) == "T"

    def hears(self, pid: int, number: signal.Signals) -> bool:
        """Whether it would notice this signal now."""
        status = Path(f"/proc/{pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        return not self.frozen(pid) and bool(caught >> (number - 1) & 1)

    def close(self) -> None:
        """Nobody is left, frozen ones included."""
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
        self._process.communicate(timeout=PATIENCE_S)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def nursery_of_callers() -> Iterator[Nursery]:
    nursery = Nursery()
    try:
        yield nursery
    finally:
        nursery.close()


class Storm:
    """What happens to the callers, and how often, follows from the seed; when exactly, from the machine."""

    def __init__(
        self, url: str, folder: Path, seed: int, nursery: Nursery, network: Proxy | None = None
    ) -> None:
        self._url, self._nursery, self.network = url, nursery, network
        self._chance = random.Random(seed)
        self.bank, self.answers = Bank(folder / "bank.jsonl"), Answers(folder / "answers.jsonl")
        self._began = 0.0
        self._callers: list[int] = []
        self._later: list[threading.Timer] = []
        self.strikes = dict.fromkeys(STRIKES, 0)

    def rage(self, ledger: semel.Ledger, seconds: float) -> None:
        """So many seconds of it; afterwards every caller has ended."""
        try:
            self._rage(ledger, seconds)
            self._end_all()
        finally:
            for timer in self._later:
                timer.cancel()
                timer.join()
            self._heal()

    def _rage(self, ledger: semel.Ledger, seconds: float) -> None:
        self._began = SYSTEM.monotonic()
        while self._goes_on(seconds):
            self._callers = [pid for pid in self._callers if self._nursery.lives(pid)]
            while len(self._callers) < CALLERS:
                self._callers.append(self._nursery.caller(self._told()))
            self._thaw_some()
            self._let_them_work()
            (strike,) = self._chance.choices(list(STRIKES), list(STRIKES.values()))
            if strike == "partition" and self.network is None:
                continue
            pid = self._chance.choice(self._callers)
            if self._nursery.lives(pid):  # nothing befalls one that died meanwhile
                getattr(self, f"_{strike}")(pid, ledger)

    def _goes_on(self, seconds: float) -> bool:
        """For so long, and until something has landed: on a busy machine that takes its time."""
        raging_s = SYSTEM.monotonic() - self._began
        return raging_s < seconds or (raging_s < PATIENCE_S and not self._has_landed())

    def _has_landed(self) -> bool:
        return any(answer.receipt for answer in self.answers.read())

    def _let_them_work(self) -> None:
        """For a moment, and until one of them got something done: on a busy machine none would live to."""
        give_up_at = SYSTEM.monotonic() + 0.5 * GRACE_S
        SYSTEM.sleep(self._chance.random() * 0.2)
        size = self.answers.size()
        while self.answers.size() == size and SYSTEM.monotonic() < give_up_at:
            SYSTEM.sleep(0.005)

    def _told(self) -> dict[str, Any]:
        return {
            "url": self._url,
            "bank": self.bank.path,
            "answers": self.answers.path,
            "seed": self._chance.random(),
            "began": self._began,
            "calls_from": self._chance.choice(CALLS_FROM),
            "closes_in_handler": self._chance.random() < 0.5,
        }

    def _kill(self, pid: int, _: semel.Ledger) -> None:
        self.strikes["kill"] += 1
        os.kill(pid, signal.SIGKILL)

    def _thaw_some(self) -> None:
        for pid in self._callers:
            if self._nursery.frozen(pid) and self._chance.random() < 0.3:
                os.kill(pid, signal.SIGCONT)

    def _freeze(self, pid: int, _: semel.Ledger) -> None:
        """Until it is thawed: for a moment, or past its lease, while the others go on."""
        if self._nursery.frozen(pid):
            return
        self.strikes["freeze"] += 1
        os.kill(pid, signal.SIGSTOP)

    def _interrupt(self, pid: int, _: semel.Ledger) -> None:
        self.strikes["interrupt"] += 1
        os.kill(pid, signal.SIGINT)

    def _end(self, pid: int, _: semel.Ledger) -> None:
        self.strikes["end"] += 1
        os.kill(pid, signal.SIGTERM)
        self._send_later(GRACE_S, pid, signal.SIGKILL)

    def _step_clock(self, pid: int, _: semel.Ledger) -> None:
        if not self._nursery.hears(pid, signal.SIGUSR1):
            return
        self.strikes["step_clock"] += 1
        os.kill(pid, signal.SIGUSR1)

    def _partition(self, _: int, __: semel.Ledger) -> None:
        """Nothing passes one way, or either, or nobody is let in, for a while."""
        network = self.network
        assert network is not None
        if network.refuses or network.drops_replies or network.drops_requests:
            return
        self.strikes["partition"] += 1
        kind = self._chance.choice(("replies", "requests", "both", "refused"))
        network.drops_replies = kind in ("replies", "both")
        network.drops_requests = kind in ("requests", "both")
        network.refuses = kind == "refused"
        if network.refuses:
            network.cut()
        self._later.append(threading.Timer(self._chance.random() * PARTITION_S, self._heal))
        self._later[-1].start()

    def _heal(self) -> None:
        """Everything passes again, over new connections: what was lost on the old ones does not come."""
        if self.network is not None:
            self.network.cut()
            self.network.restore()

    def _send_later(self, seconds: float, pid: int, number: signal.Signals) -> None:
        self._later.append(threading.Timer(seconds, os.kill, (pid, number)))
        self._later[-1].start()

    def _resolve(self, _: int, ledger: semel.Ledger) -> None:
        """Somebody looks at what is parked, asks the bank, and says what it says."""
        parked = [
            record
            for record in ledger.records.list(state=State.IN_DOUBT, limit=20)
            if '"park"' in record.request.terms
        ]
        if not parked:
            return
        self.strikes["resolve"] += 1
        record = self._chance.choice(parked)
        receipt = self.bank.receipt(record.request.at.key)
        try:
            if receipt is None:
                ledger.records.resolve(record.request.id, "did_not_happen", by="ann")
            else:
                ledger.records.resolve(record.request.id, "happened", by="ann", result=vars(receipt))
        except SemelError:
            pass  # its owner came back, or somebody else was quicker

    def _end_all(self) -> None:
        for pid in self._callers:
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGTERM)
        give_up_at = SYSTEM.monotonic() + GRACE_S
        while any(map(self._nursery.lives, self._callers)) and SYSTEM.monotonic() < give_up_at:
            SYSTEM.sleep(0.01)
        for pid in self._callers:
            os.kill(pid, signal.SIGKILL)


def pending(ledger: semel.Ledger) -> list[str]:
    """Keys that somebody still works on, by the store's clock."""
    now_us = ledger.clock.now_us()
    records = ledger.records.list(limit=100_000)
    return [record.request.at.key for record in records if effective_state(record, now_us) is State.PENDING]


if __name__ == "__main__":
    nursery()
