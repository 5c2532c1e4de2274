"""One Temporal dev server for all tests of a process, and a place of its own for each test."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

import semel
from examples.rewards import notices
from examples.rewards.account import Account, Event, Settings
from examples.rewards.entity import Rewards
from examples.rewards.server import MISSING, Server, binary
from examples.rewards.worker import worker
from tests.missing import cannot
from tests.patience import PATIENCE_S as PATIENCE_S


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Skips with one clear line where there is no server; in CI that is a failure."""
    if binary() is None:
        cannot(MISSING)
    with Server() as server:
        yield server.address


class Shop:
    """A task queue, a mailbox and a store of one test's own."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.queue = f"rewards-{uuid.uuid4()}"
        self.store = f"sqlite:///{folder}/semel.db"
        self.client: Client

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        """The story is told to its end, or PATIENCE_S is over."""

        async def told() -> None:
            self.client = await Client.connect(self.address)
            await asyncio.wait_for(story(), PATIENCE_S)

        asyncio.run(told())

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        """A worker in this process."""
        with semel.open(self.store) as ledger, ThreadPoolExecutor(4) as threads:
            async with worker(self.client, self.queue, ledger, threads):
                yield

    @contextmanager
    def worker_process(self, **told: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker that may be killed."""
        words = [sys.executable, "-m", "examples.rewards.worker", self.address, self.queue, self.store]
        process = subprocess.Popen(words, env={**os.environ, **told}, cwd=Path(__file__).parents[2])
        try:
            yield process
        finally:
            process.kill()
            process.wait(PATIENCE_S)

    async def enrol(
        self, account: Account | None = None, **settings: Any
    ) -> WorkflowHandle[Rewards, Account]:
        account = account or Account("ann", Settings(notice_timeout_s=2, **settings))
        # The queue's name is in the id, so that no two tests have a customer in common.
        name = f"{self.queue}-{account.customer}"
        return await self.client.start_workflow(Rewards.run, account, id=name, task_queue=self.queue)

    async def part(self, handle: WorkflowHandle[Rewards, Account]) -> Account:
        """How the customer stands at the end, after everything that was sent before."""
        await handle.signal(Rewards.unenrol)
        return await handle.result()


@pytest.fixture
def shop(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv(notices.MAILBOX, str(tmp_path / "mailbox"))
    monkeypatch.setenv(notices.ATTEMPTS, str(tmp_path / "attempts"))
    return Shop(address, tmp_path)


def events(*numbers: int, points: int = 1) -> list[Event]:
    return [Event(f"order-{number}", points) for number in numbers]


async def runs_of(handle: WorkflowHandle[Any, Any], client: Client) -> list[Any]:
    """The histories of all runs of the handle's chain, the first one first."""
    run_id: str | None = (await handle.describe()).run_id
    histories: list[Any] = []
    while run_id:
        history = await client.get_workflow_handle(handle.id, run_id=run_id).fetch_history()
        histories.insert(0, history)
        run_id = history.events[0].workflow_execution_started_event_attributes.continued_execution_run_id
    return histories


def carried_bytes(history: Any) -> int:
    """How much data the run was started with."""
    started = history.events[0].workflow_execution_started_event_attributes
    return sum(len(payload.data) for payload in started.input.payloads)
