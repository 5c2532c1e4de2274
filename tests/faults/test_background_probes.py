"""Callers die or freeze in the effect, and a worker beside them asks the probe: nobody calls again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.audit.events import RESOLVED
from semel.kernel.record import State
from tests.faults.bank import Bank
from tests.faults.caller import call
from tests.faults.checks import PATIENCE_S, all_records, assert_history_holds, only_record, until
from tests.faults.conftest import Start
from tests.faults.payment import payment
from tests.faults.process import ROOT

# The same tool as the callers', in a worker that has no jobs to do.
SHOP = """
import os, signal, threading
from pathlib import Path
import semel
from tests.faults.bank import Bank
from tests.faults.payment import payment

pay = payment(Bank(os.environ["SHOP_BANK"]), "probe")
asked = pay.contract.declared.probe

def probe(key, **arguments):
    if os.environ["SHOP_DEED"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ["SHOP_DEED"] == "hang":
        Path(os.environ["SHOP_GATE"]).touch()
        threading.Event().wait()
    return asked(key, **arguments)

object.__setattr__(pay.contract.declared, "probe", probe)

@semel.handler("nothing")
def nothing(job):
    return None
"""


class Worker:
    """`semel worker` as a process, and what it says."""

    def __init__(self, url: str, folder: Path, bank: Bank, deed: str) -> None:
        self.said: list[dict[str, Any]] = []
        self.gate = folder / "gate"
        (folder / "shop.py").write_text(SHOP)
        shop = {"SHOP_BANK": bank.path, "SHOP_DEED": deed, "SHOP_GATE": str(self.gate)}
        path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "semel", "worker", str(folder / "shop.py"), "--url", url],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **shop},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        lines = self._process.stderr
        self._reader = threading.Thread(target=lambda: self.said.extend(map(json.loads, lines)), daemon=True)
        self._reader.start()

    def works(self) -> bool:
        return any(each["event"] == "worker.started" for each in self.said)

    def told(self, event: str) -> list[str]:
        """The ids of the records of which it said so."""
        return [each["record_id"] for each in self.said if each["event"] == event]

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self.end()

    def end(self) -> int:
        code = self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def clean_up(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.end()
        assert self._process.stderr is not None
        self._process.stderr.close()


class Workers:
    def __init__(self, url: str, folder: Path, bank: Bank) -> None:
        self._place = url, folder, bank
        self.started: list[Worker] = []

    def __call__(self, deed: str = "") -> Worker:
        self.started.append(Worker(*self._place, deed))
        return self.started[-1]


@pytest.fixture
def worker(url: str, tmp_path: Path, bank: Bank) -> Iterator[Workers]:
    workers = Workers(url, tmp_path, bank)
    yield workers
    for each in workers.started:
        each.clean_up()


def until_state(ledger: semel.Ledger, state: State) -> None:
    until(lambda: all(record.state is state for record in all_records(ledger)), f"all records are {state}")


@pytest.mark.parametrize(
    ("dies", "landed", "left", "told"),
    [("after", 1, State.DONE, "probe.settled"), ("before", 0, State.CLEARED, "probe.cleared")],
    ids=["after the payment", "before the payment"],
)
def test_what_a_killed_caller_left_is_settled_by_a_worker_although_nobody_calls(
    dies: str,
    landed: int,
    left: State,
    told: str,
    start: Start,
    worker: Workers,
    bank: Bank,
    ledger: semel.Ledger,
) -> None:
    assert start("one_call", policy="probe", note="first", **{dies: "die"}).end() == -signal.SIGKILL
    assert len(bank.entries()) == landed
    asking = worker()
    until_state(ledger, left)
    assert only_record(ledger).by == "probe"
    until(lambda: asking.told(told) == [only_record(ledger).request.id], "the worker says so")
    assert asking.stop() == 0
    answer = call(ledger, payment(bank, "park"), note="second")
    assert answer.receipt is not None
    assert answer.receipt.note == "first"
    assert len(bank.entries()) == 1
    assert_history_holds(ledger)


def test_an_owner_that_was_frozen_comes_back_after_the_probe_and_overwrites_nothing(
    start: Start, worker: Workers, bank: Bank, ledger: semel.Ledger
) -> None:
    owner = start("one_call", policy="probe", note="first", after="pause")
    owner.hear("in the tool")
    owner.freeze()
    worker()
    until_state(ledger, State.DONE)
    settled = only_record(ledger)
    owner.go_on()
    owner.send(signal.SIGCONT)
    assert owner.hear("heard")["code"] == "OWNERSHIP_LOST"
    assert only_record(ledger) == settled
    assert len(bank.entries()) == 1
    assert_history_holds(ledger)


def time_out() -> None:
    raise TimeoutError


def test_two_workers_settle_each_record_once(worker: Workers, bank: Bank, ledger: semel.Ledger) -> None:
    workers = [worker(), worker()]
    for each in workers:
        until(each.works, "both look for what is in doubt")
    unsure = payment(bank, "probe", after=time_out)
    for number in range(30):
        assert call(ledger, unsure, account=f"acc-{number}").raised == "TimeoutError"
    until_state(ledger, State.DONE)
    until(lambda: sum(len(each.told("probe.settled")) for each in workers) >= 30, "the workers say so")
    assert [each.stop() for each in workers] == [0, 0]
    ids = [record.request.id for record in all_records(ledger)]
    for id_ in ids:
        assert [event.kind for event in ledger.records.history(id_)].count(RESOLVED) == 1
    assert sorted(workers[0].told("probe.settled") + workers[1].told("probe.settled")) == sorted(ids)
    assert len(bank.entries()) == 30


def test_a_worker_that_dies_while_it_asks_leaves_the_doubt_to_the_next(
    worker: Workers, bank: Bank, ledger: semel.Ledger
) -> None:
    call(ledger, payment(bank, "probe", after=time_out), note="first")
    assert worker("die").end() == -signal.SIGKILL
    assert only_record(ledger).state is State.IN_DOUBT
    worker()
    until_state(ledger, State.DONE)
    assert len(bank.entries()) == 1


def test_a_probe_that_hangs_does_not_keep_a_worker_from_stopping(
    worker: Workers, bank: Bank, ledger: semel.Ledger
) -> None:
    call(ledger, payment(bank, "probe", after=time_out))
    asking = worker("hang")
    until(asking.gate.exists, "the probe is asked")
    assert asking.stop() == 0
    assert only_record(ledger).state is State.IN_DOUBT
