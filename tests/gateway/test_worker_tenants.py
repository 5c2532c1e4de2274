"""Whose tenant a worker at a gateway works for: its key's, with everything that it keeps. Real processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import semel
from semel.flow.document_store import DocumentStore
from semel.gateway.auth import ApiKeys
from tests.gateway.serving import PATIENCE_S, ROOT, Gateway, Gateways, quiet_environment, until

# An irreversible effect, one line each; a worker that is told to dies when it has happened.
BANK = """
import os, signal
import semel

@semel.tool_contract(class_="irreversible", approval="required")
def wire(amount: int) -> int:
    with open(os.environ["BOOK"], "a") as book:
        book.write(f"{amount}\\n")
    return amount

@semel.handler("wire")
def pay(job):
    paid = wire(amount=job.input)
    if os.environ.get("FATE") == "die after the effect":
        os.kill(os.getpid(), signal.SIGKILL)
    return paid

@semel.tool_contract
def post(order: str) -> str:
    with open(os.environ["BOOK"], "a") as book:
        book.write(f"{order}\\n")
    return order

@semel.handler("post")
def send(job):
    with semel.step(conversation="orders", step=job.input, principal="shop"):
        return post(job.input)
"""


class Bank:
    """A gateway, keys for its tenants, workers, and the book of effects."""

    def __init__(self, folder: Path, gateway: Gateway, url: str) -> None:
        self.gateway = gateway
        self.url = url
        self._book = folder / "book"
        self._module = folder / "bank.py"
        self._module.write_text(BANK)
        self._workers: list[subprocess.Popen[str]] = []

    def key(self, tenant: str, role: str, principal: str) -> str:
        with semel.open(self.url) as ledger:
            keys = ApiKeys(DocumentStore(ledger.store))
            return asyncio.run(keys.create(tenant, principal, (role,)))[1]

    def client(self, tenant: str, role: str, principal: str) -> httpx.Client:
        return self.gateway.client(X_API_Key=self.key(tenant, role, principal))

    def worker(self, key: str | None, *words: str, fate: str = "", server: str = "") -> subprocess.Popen[str]:
        named = {"SEMEL_API_KEY": key} if key else {}
        command = ["worker", str(self._module), "--server", server or self.gateway.url, "--url", self.url]
        process = subprocess.Popen(
            [sys.executable, "-m", "semel", *command, "--lease", "1s", *words],
            cwd=ROOT,
            env=quiet_environment() | named | {"BOOK": str(self._book), "FATE": fate},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._workers.append(process)
        return process

    def effects(self) -> list[str]:
        return self._book.read_text().split() if self._book.exists() else []

    def clean_up(self) -> None:
        for process in self._workers:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def bank(tmp_path: Path, begin: Gateways) -> Iterator[Bank]:
    url = f"sqlite:///{tmp_path / 'semel.db'}"
    bank = Bank(tmp_path, begin(url, dev=False), url)
    yield bank
    bank.clean_up()


def submitted(client: httpx.Client, amount: int) -> str:
    answer = client.post("/api/v1/jobs", json={"topic": "wire", "input": amount})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["job_id"])


def waiting(client: httpx.Client) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get("/api/v1/approvals?status=waiting").json()["items"]
    return items


def is_over(client: httpx.Client, job_id: str) -> Callable[[], dict[str, Any] | None]:
    def look() -> dict[str, Any] | None:
        job: dict[str, Any] = client.get(f"/api/v1/jobs/{job_id}").json()
        return job if job["status"] in ("succeeded", "failed") else None

    return look


def test_a_worker_keeps_records_and_questions_in_the_tenant_of_its_key(bank: Bank) -> None:
    submitter, approver = bank.client("bank", "submitter", "ann"), bank.client("bank", "approver", "ben")
    elsewhere = bank.client("shop", "approver", "eve")
    key = bank.key("bank", "worker", "robot")
    job_id = submitted(submitter, 7)

    first = bank.worker(key, fate="die after the effect")
    (question,) = until(lambda: waiting(approver), "the bank's approver sees the question")
    assert (question["submitted_by"], question["input"]) == ("ann", {"amount": 7})
    assert waiting(elsewhere) == []
    assert approver.post(f"/api/v1/approvals/{question['job_id']}/approve").status_code == 200
    assert first.wait(PATIENCE_S) == -signal.SIGKILL

    bank.worker(key, "--tenant", "bank")
    job = until(is_over(submitter, job_id), "another worker has ended the job")
    assert (job["status"], job["result"]) == ("succeeded", 7)
    assert bank.effects() == ["7"]
    with semel.open(bank.url, tenant="default") as ledger:
        assert ledger.records.list() == []


def test_two_tenants_meet_in_no_record_though_their_jobs_are_alike(bank: Bank) -> None:
    for tenant in ("bank", "shop"):
        submitter, approver = bank.client(tenant, "submitter", "ann"), bank.client(tenant, "approver", "ben")
        job_id = submitted(submitter, 7)
        bank.worker(bank.key(tenant, "worker", "robot"))
        (question,) = until(lambda: waiting(approver), "the tenant's own approver sees the question")  # noqa: B023
        approver.post(f"/api/v1/approvals/{question['job_id']}/approve")
        assert until(is_over(submitter, job_id), "the job has ended")["status"] == "succeeded"
    assert bank.effects() == ["7", "7"]


def test_another_tenant_than_the_keys_is_refused_and_nothing_is_leased(bank: Bank) -> None:
    submitter = bank.client("bank", "submitter", "ann")
    job_id = submitted(submitter, 7)
    worker = bank.worker(bank.key("bank", "worker", "robot"), "--tenant", "shop")
    _, said = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 3
    assert "tenant_mismatch" in said
    assert "bank" in said
    assert "Nothing was leased" in said
    job = submitter.get(f"/api/v1/jobs/{job_id}").json()
    assert (job["status"], job["attempt"]) == ("queued", 0)


def test_at_a_desk_the_tenant_is_the_one_that_is_named(bank: Bank, begin: Gateways) -> None:
    gateway = begin(bank.url)
    submitter = gateway.client(X_Tenant_ID="shop", X_Principal_Id="ann")
    submitted(submitter, 7)
    bank.worker(None, "--tenant", "shop", server=gateway.url)
    (question,) = until(lambda: waiting(submitter), "the question is the tenant's")
    assert question["submitted_by"] == "ann"


def test_a_step_of_a_handlers_own_is_in_the_workers_store_and_tenant_and_outlives_its_job(bank: Bank) -> None:
    """Named after the order, not the job: a rerun, which is a new job, meets the same key."""
    shop = bank.client("acme", "submitter", "shop")
    bank.worker(bank.key("acme", "worker", "w"))
    for _ in range(2):
        answer = shop.post("/api/v1/jobs", json={"topic": "post", "input": "order-7"})
        job = until(is_over(shop, answer.json()["job_id"]), "the job is over")
        assert (job["status"], job["result"]) == ("succeeded", "order-7")
    assert bank.effects() == ["order-7"]
    with semel.open(bank.url, tenant="acme") as ledger:
        assert len(list(ledger.records.list(tool="post"))) == 1
