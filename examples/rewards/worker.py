"""A worker: `python -m examples.rewards.worker ADDRESS TASK_QUEUE STORE`. Ends when it is told to."""

from __future__ import annotations

import asyncio
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import Worker

import semel
from examples.rewards.entity import Rewards
from examples.rewards.notices import send_notice
from semel.integrations.temporal import Guard
from semel.ledger.ledger import Ledger


def worker(client: Client, task_queue: str, ledger: Ledger, threads: ThreadPoolExecutor) -> Worker:
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[Rewards],
        activities=[send_notice],
        activity_executor=threads,
        interceptors=[Guard(ledger)],
        # A worker that died is waited for this long before another one takes its workflows.
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
    )


async def main(address: str, task_queue: str, store: str) -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    client = await Client.connect(address)
    with semel.open(store) as ledger, ThreadPoolExecutor(4) as threads:
        async with worker(client, task_queue, ledger, threads):
            await told.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
