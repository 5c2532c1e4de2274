"""The story, played on a real Temporal server: `python -m examples.rewards`.

Three customers earn points. Every event is sent up to five times, in any order; a run of the workflow ends
after forty events, and the next one goes on; the worker that delivers the first notice is killed before
anyone hears of it. In the end each event counts once and each notice is in the mailbox once. Exits 1 if not.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from temporalio.client import Client, WorkflowHandle

from examples.rewards import notices
from examples.rewards.account import Account, Event, Settings
from examples.rewards.entity import Rewards
from examples.rewards.server import Server

CUSTOMERS = ("ann", "bob", "eve")
EVENTS, POINTS = 60, 90
QUEUE = "rewards"

# Two seconds until Temporal gives a dead worker's message to another one: nobody wants to wait a minute here.
SETTINGS = Settings(events_per_run=40, notice_timeout_s=2)

# What a person would wait for: much longer, and something is stuck.
PATIENCE_S = 60


def sent_events(customer: str, chance: random.Random) -> list[Event]:
    """Every event from once to five times, out of order, as a sender's retries arrive."""
    once = [Event(f"{customer}-order-{number}", POINTS) for number in range(EVENTS)]
    often = [event for event in once for _ in range(chance.randint(1, 5))]
    chance.shuffle(often)
    return often


@contextmanager
def worker(address: str, store: str, **told: str) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-m", "examples.rewards.worker", address, QUEUE, store]
    process = subprocess.Popen(words, env={**os.environ, **told})
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(PATIENCE_S)


async def enrol(client: Client, customer: str) -> WorkflowHandle[Rewards, Account]:
    return await client.start_workflow(
        Rewards.run, Account(customer, SETTINGS), id=f"rewards-{customer}", task_queue=QUEUE
    )


async def send(handles: list[WorkflowHandle[Rewards, Account]], all_events: list[list[Event]]) -> None:
    """A few at a time, as they arrive, to one customer after the other."""
    for start in range(0, max(map(len, all_events)), 10):
        for handle, events in zip(handles, all_events, strict=True):
            await handle.signal(Rewards.earn, events[start : start + 10])


async def play(address: str, store: str) -> list[tuple[Account, int]]:
    """How the customers parted, and how many events were sent for each."""
    client = await Client.connect(address)
    handles = [await enrol(client, customer) for customer in CUSTOMERS]
    chance = random.Random(7)
    sent = [sent_events(customer, chance) for customer in CUSTOMERS]
    with worker(address, store, **{notices.DIES: notices.UNRECORDED}) as first:
        await send(handles, [events[::2] for events in sent])
        ended = await asyncio.wait_for(asyncio.to_thread(first.wait), PATIENCE_S)
    print(f"A worker delivered a notice and died by {signal.Signals(-ended).name}. Another one starts.")
    with worker(address, store):
        for quarter in range(4):
            await send(handles, [events[1::2][quarter::4] for events in sent])
            # Asked, they have to answer, so they have worked in between.
            for handle in handles:
                await handle.query(Rewards.status)
        for handle in handles:
            await handle.signal(Rewards.unenrol)
        parted = [await asyncio.wait_for(handle.result(), PATIENCE_S) for handle in handles]
    return [(account, len(events)) for account, events in zip(parted, sent, strict=True)]


def tell(parted: list[tuple[Account, int]]) -> list[str]:
    """The table is printed; what is not as it should be."""
    heads = (
        "customer",
        "sent",
        "counted",
        "dropped",
        "points",
        "tier",
        "runs",
        "notices",
        "attempts",
        "delivered",
    )
    print("  ".join(f"{head:>9}" for head in heads))
    wrong: list[str] = []
    for account, sent in parted:
        attempts = (
            Path(os.environ[notices.ATTEMPTS]).read_text(encoding="utf-8").count(f"{account.customer}:")
        )
        landed = len(notices.delivered(f"to {account.customer}:"))
        counted = (account.events, account.duplicates, account.points, account.tier, account.runs)
        cells = (account.customer, sent, *counted, account.notices, attempts, landed)
        print("  ".join(f"{cell:>9}" for cell in cells))
        if (account.events, account.points) != (EVENTS, EVENTS * POINTS):
            wrong.append(f"{account.customer} has {account.points} points for {account.events} events")
        if landed != account.notices:
            wrong.append(f"{account.customer} got {landed} of {account.notices} notices")
    return wrong


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="semel-rewards-") as folder, Server() as server:
        os.environ[notices.MAILBOX] = str(Path(folder, "mailbox"))
        os.environ[notices.ATTEMPTS] = str(Path(folder, "attempts"))
        print(f"A Temporal dev server is at {server.address}.")
        wrong = tell(asyncio.run(play(server.address, f"sqlite:///{folder}/semel.db")))
    for line in wrong:
        print(f"NOT AS IT SHOULD BE: {line}")
    if not wrong:
        print("Every event counted once, every notice landed once.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
