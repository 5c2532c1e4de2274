"""The Sunday incident: one refund decided, three crashes, replayed by the orchestrator.

Everything is real: a payment provider in a process of its own, an agent worker per attempt, `kill -9` by
this process, which is the orchestrator, and a store in a file. Three lanes run side by side: the worker on
its own, the worker under a contract with a provider that takes keys, and with one that takes none.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import semel
from semel.kernel.clock import SYSTEM
from semel.lab.demo_worker import AMOUNT_MINOR

# Where each attempt dies; the fourth is let through.
PLAN: tuple[str | None, ...] = ("sent", "answered", "returned", None)

CRASH_POINTS = {
    "sent": "the provider had accepted, its answer was on the way",
    "answered": "the provider had answered, nothing was recorded",
    "returned": "it was done, the orchestrator had not been told",
}

# A worker starts in half a second; on a machine that is busy with everything else, in several.
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class DemoAttempt:
    """How one attempt of one lane ended, and what the provider's book said then."""

    lane: str
    number: int
    pid: int
    ended: str  # killed, refused, reported
    place: str  # where it was killed, else "": a crash point; so named in the JSON of `semel demo`
    answer: str  # a code, or the refund it reported
    refunds: int


@dataclass
class DemoLane:
    """One way to do it: `way` is the worker's, `keys` the provider's."""

    name: str
    way: str
    takes_keys: bool
    attempts: list[DemoAttempt] = field(default_factory=list)
    requests: int = 0
    refunds: int = 0
    paid_minor: int = 0
    state: str | None = None  # of the record, where there is one
    record_id: str | None = None


@dataclass(frozen=True)
class DemoOutcome:
    lanes: Sequence[DemoLane]
    problems: Sequence[str]

    @property
    def ok(self) -> bool:
        return not self.problems


class DemoError(Exception):
    """The demonstration could not be carried out."""


NAIVE, GUARDED, PARKED = "without Semel", "with Semel", "with Semel, no keys downstream"


def play(tell: Callable[[DemoAttempt], None]) -> DemoOutcome:
    """The incident in all lanes; `tell` hears of each attempt as it ends. Nothing is left behind."""
    lanes = [
        DemoLane(NAIVE, "naive", True),
        DemoLane(GUARDED, "keyed", True),
        DemoLane(PARKED, "unkeyed", False),
    ]
    with tempfile.TemporaryDirectory(prefix="semel-demo-") as path, ExitStack() as started:
        folder = Path(path)
        sites = [Site(lane, folder, started) for lane in lanes]
        for number, dies_at in enumerate(PLAN, 1):
            _round(sites, number, dies_at, tell)
        for site in sites:
            site.take_stock()
    return DemoOutcome(lanes, verdict(lanes))


def _round(
    sites: Sequence[Site], number: int, dies_at: str | None, tell: Callable[[DemoAttempt], None]
) -> None:
    """One attempt in every lane. The workers start together, then each is led to its end."""
    with ExitStack() as started:
        workers = [started.enter_context(site.worker()) for site in sites]
        for site, worker in zip(sites, workers, strict=True):
            attempt = site.lead(worker, number, dies_at)
            site.lane.attempts.append(attempt)
            tell(attempt)


def verdict(lanes: Sequence[DemoLane]) -> list[str]:
    """What is not as it should be; nothing if the incident went as told."""
    naive, guarded, parked = lanes
    problems = []
    if naive.refunds != len(PLAN):
        problems.append(f"{naive.name}: {naive.refunds} refunds instead of {len(PLAN)}")
    problems += [
        f"{lane.name}: {lane.refunds} refunds ({lane.paid_minor}) instead of one"
        for lane in (guarded, parked)
        if lane.refunds != 1 or lane.paid_minor != AMOUNT_MINOR
    ]
    if guarded.state != "done" or _last(guarded).ended != "reported":
        problems.append(f"{guarded.name}: the record is {guarded.state}, not done and reported")
    if parked.state != "in_doubt" or _last(parked).answer != "OUTCOME_UNKNOWN":
        problems.append(f"{parked.name}: the record is {parked.state}, not in doubt and said to be so")
    crashes = [attempt for attempt in (*naive.attempts, *guarded.attempts) if attempt.ended == "killed"]
    if len(crashes) != 2 * (len(PLAN) - 1):
        problems.append(f"{len(crashes)} workers were killed instead of {2 * (len(PLAN) - 1)}")
    return problems


def _last(lane: DemoLane) -> DemoAttempt:
    return lane.attempts[-1]


# --- processes ------------------------------------------------------------------------------------


class Site:
    """A lane's provider and its store."""

    def __init__(self, lane: DemoLane, folder: Path, started: ExitStack) -> None:
        self.lane = lane
        self._url = f"sqlite:///{folder / lane.way}.db"
        self._complaints = folder / f"{lane.way}.err"
        options = ("--takes-keys",) if lane.takes_keys else ()
        self._provider = started.enter_context(_process("demo_provider", *options, errors=self._complaints))
        self._port = 0

    @property
    def port(self) -> int:
        self._port = self._port or int(_line(self._provider, self._complaints))
        return self._port

    def balance(self) -> dict[str, Any]:
        provider = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE_S)
        try:
            provider.request("GET", "/refunds")
            balance: dict[str, Any] = json.loads(provider.getresponse().read())
            return balance
        finally:
            provider.close()

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        arguments = (self.lane.way, str(self.port), self._url)
        with _process("demo_worker", *arguments, errors=self._complaints) as worker:
            yield worker

    def lead(self, worker: subprocess.Popen[bytes], number: int, dies_at: str | None) -> DemoAttempt:
        """Lead the worker from point to point, to its death or to its end."""
        reached = DemoReport.read(_line(worker, self._complaints))
        while reached.point in CRASH_POINTS:
            if reached.point == "sent":
                self._await_request()
            if reached.point == dies_at:
                os.kill(worker.pid, signal.SIGKILL)
                worker.wait()
                return self._attempt(worker, number, "killed", dies_at, "")
            assert worker.stdin is not None
            worker.stdin.write(b"go on\n")
            reached = DemoReport.read(_line(worker, self._complaints))
        if worker.wait(_PATIENCE_S) != 0:
            raise DemoError(f"A worker failed: {_last_line(self._complaints)}")
        return self._attempt(worker, number, reached.point, "", reached.answer)

    def _attempt(
        self, worker: subprocess.Popen[bytes], number: int, ended: str, point: str, answer: str
    ) -> DemoAttempt:
        self._count()
        return DemoAttempt(self.lane.name, number, worker.pid, ended, point, answer, self.lane.refunds)

    def _await_request(self) -> None:
        """The request is out; go on when the provider has dealt with it."""
        give_up_at = SYSTEM.monotonic() + _PATIENCE_S
        while self.balance()["requests"] <= self.lane.requests:
            if SYSTEM.monotonic() > give_up_at:
                raise DemoError("The provider did not get the request.")
            SYSTEM.sleep(0.005)
        self.lane.requests = self.balance()["requests"]

    def _count(self) -> None:
        refunds = self.balance()["refunds"]
        self.lane.refunds = len(refunds)
        self.lane.paid_minor = sum(refund["amount_minor"] for refund in refunds)

    def take_stock(self) -> None:
        """What the store says in the end, in the lanes that have one."""
        if self.lane.way == "naive":
            return
        with semel.open(self._url) as ledger:
            for record in ledger.records.list(tool="issue_refund"):
                self.lane.state = ledger.records.effective_state(record)
                self.lane.record_id = record.request.id


class DemoReport(NamedTuple):
    """One line of a worker."""

    point: str
    answer: str

    @classmethod
    def read(cls, line: str) -> DemoReport:
        report = json.loads(line)
        return cls(report["at"], report.get("code") or report.get("refund_id") or "")


@contextmanager
def _process(module: str, *arguments: str, errors: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is gone afterwards. In a session of its own: Ctrl-C is for us, and we end it."""
    with errors.open("ab") as complaints:
        process = subprocess.Popen(
            [sys.executable, "-m", f"semel.lab.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            bufsize=0,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _line(process: subprocess.Popen[bytes], errors: Path) -> str:
    """The next line it says; DemoError if it says none."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _PATIENCE_S)
    line = process.stdout.readline() if ready else b""
    if not line:
        raise DemoError(f"A process of the demonstration said nothing: {_last_line(errors)}")
    return line.decode()


def _last_line(errors: Path) -> str:
    lines = errors.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "and gave no reason"
