"""Workers that die or freeze in the middle of a job's effect: another one ends it, and it is paid once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import semel
from semel.flow.assembly import Flow, Policy
from semel.flow.values import Caller
from semel.kernel.answers import JobJson
from tests.faults.bank import Bank
from tests.faults.checks import PATIENCE_S, assert_history_holds, until
from tests.faults.process import ROOT
from tests.freezing import freeze

ANN = Caller("default", "ann")

# A provider that takes a key: it knows what it did under it. Its book is one line for each charge.
SHOP = """
import os, signal, time
from pathlib import Path
import semel
from tests.faults.bank import Bank

bank, policy = Bank(os.environ["SHOP_BANK"]), os.environ["SHOP_POLICY"]

def probe(key, account, amount):
    receipt = bank.receipt(key)
    return semel.DidNotHappen if receipt is None else semel.Happened(receipt.amount)

def happen(place):
    if os.environ.get("SHOP_PLACE") != place:
        return
    if os.environ["SHOP_DEED"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    Path(os.environ["SHOP_GATE"]).write_text("in the effect")
    while Path(os.environ["SHOP_GATE"]).read_text() != "go on":
        time.sleep(0.01)

@semel.tool_contract(
    class_="write-non-idempotent", on_unknown=policy, lease="300ms", wait="1m",
    downstream_window="1h" if policy == "retry" else None, probe=probe if policy == "probe" else None,
)
def charge(account: str, amount: int, key: semel.Key) -> int:
    happen("before the charge")
    if bank.receipt(key) is None:
        bank.pay(key, semel.current_fence(), account, amount, "")
    happen("after the charge")
    return amount

@semel.handler("charge")
def pay(job):
    paid = charge(account=job.input["account"], amount=job.input["amount"])
    happen("after the tool")
    return {"paid": paid, "attempt": job.attempt}
"""


class Shop:
    """`semel worker` as real processes, beside a bank."""

    def __init__(self, url: str, folder: Path, bank: Bank) -> None:
        self.url = url
        self.gate = folder / "gate"
        self._file = folder / "shop.py"
        self._file.write_text(SHOP)
        self._bank = bank
        self._processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []

    def worker(
        self, policy: str, place: str = "", deed: str = ""
    ) -> tuple[subprocess.Popen[str], list[dict[str, Any]]]:
        said: list[dict[str, Any]] = []
        shop = {"BANK": self._bank.path, "POLICY": policy, "PLACE": place, "DEED": deed, "GATE": self.gate}
        process = subprocess.Popen(
            [sys.executable, "-m", "semel", "worker", str(self._file), "--url", self.url, "--lease", "1s"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **{f"SHOP_{k}": str(v) for k, v in shop.items()}},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        lines = process.stderr
        reader = threading.Thread(target=lambda: said.extend(map(json.loads, lines)), daemon=True)
        reader.start()
        self._processes.append(process)
        self._readers.append(reader)
        return process, said

    def clean_up(self) -> None:
        for process, reader in zip(self._processes, self._readers, strict=True):
            if process.poll() is None:
                process.kill()
            process.wait()
            reader.join(PATIENCE_S)
            assert process.stderr is not None
            process.stderr.close()


async def _silence(*_: Any) -> None:
    await asyncio.sleep(0)


def flow_on(ledger: semel.Ledger) -> Flow:
    return Flow(ledger.store, Policy(), send=_silence, wait=_silence)


def create(ledger: semel.Ledger) -> str:
    creating = flow_on(ledger).jobs.create(
        ANN, None, "charge", {"account": "acc-1", "amount": 1_400}, None, None
    )
    return str(orjson.loads(asyncio.run(creating).body)["job_id"])


def job(ledger: semel.Ledger, job_id: str) -> JobJson:
    return asyncio.run(flow_on(ledger).jobs.get("default", job_id))


def ended(ledger: semel.Ledger, job_id: str) -> JobJson:
    def over() -> JobJson | None:
        found = job(ledger, job_id)
        return found if found["status"] in ("succeeded", "failed") else None

    found = until(over, "the job has ended")
    assert found is not None
    return found


def heard(said: list[dict[str, Any]], event: str) -> Callable[[], bool]:
    return lambda: any(each["event"] == event for each in said)


@pytest.fixture
def shop(url: str, tmp_path: Path, bank: Bank) -> Iterator[Shop]:
    shop = Shop(url, tmp_path, bank)
    yield shop
    shop.clean_up()


@pytest.mark.parametrize("policy", ["retry", "probe"])
@pytest.mark.parametrize("place", ["before the charge", "after the charge", "after the tool"])
def test_a_job_whose_worker_is_killed_is_ended_by_another_and_paid_once(
    shop: Shop, ledger: semel.Ledger, bank: Bank, policy: str, place: str
) -> None:
    job_id = create(ledger)
    victim, _ = shop.worker(policy, place, "die")
    assert victim.wait(PATIENCE_S) == -signal.SIGKILL
    assert len(bank.entries()) == (0 if place == "before the charge" else 1)
    shop.worker(policy)
    found = ended(ledger, job_id)
    assert (found["status"], found["result"]) == ("succeeded", {"paid": 1_400, "attempt": 2})
    assert len(bank.entries()) == 1
    assert_history_holds(ledger)


def test_where_nobody_can_tell_the_job_fails_and_nothing_is_paid_twice(
    shop: Shop, ledger: semel.Ledger, bank: Bank
) -> None:
    job_id = create(ledger)
    victim, _ = shop.worker("park", "after the charge", "die")
    assert victim.wait(PATIENCE_S) == -signal.SIGKILL
    shop.worker("park")
    found = ended(ledger, job_id)
    assert (found["status"], found["error"]["code"]) == ("failed", "OUTCOME_UNKNOWN")
    assert len(bank.entries()) == 1


def test_a_worker_that_was_frozen_in_the_effect_finds_its_job_lost_and_changes_nothing(
    shop: Shop, ledger: semel.Ledger, bank: Bank
) -> None:
    job_id = create(ledger)
    frozen, said = shop.worker("retry", "before the charge", "wait")
    until(shop.gate.exists, "the first worker is in the effect")
    freeze(frozen.pid, shop.url)
    shop.worker("retry")
    found = ended(ledger, job_id)
    shop.gate.write_text("go on")
    frozen.send_signal(signal.SIGCONT)
    until(heard(said, "job.lost"), "the first worker knows that it lost the job")
    assert found["result"] == {"paid": 1_400, "attempt": 2}
    assert job(ledger, job_id) == found
    assert len(bank.entries()) == 1
