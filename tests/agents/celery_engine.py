"""A program on Celery: one task that pays money back, with workers that may be killed.

What is read of the job: `folder`, `tools` (one), `guarded`, and of its options `broker`, `task` (options of
the task), `class` (options of `task_class`), `visibility` and `stumble`.
"""

from __future__ import annotations

from typing import Any

from celery import Celery, Task

import semel
from semel.integrations.celery import task_class
from tests.agents import shop
from tests.agents.script import Job, Seen, refund

SOON = {
    "worker_lost_wait": 0.1,  # else a process that was killed is taken for lost after 10 s
    "worker_prefetch_multiplier": 1,
    "broker_connection_retry_on_startup": True,
    "worker_hijack_root_logger": False,
    "task_store_errors_even_if_ignored": True,
}

# What a task needs to come back at all when its process was lost: the control has it too.
COMES_BACK = {"acks_late": True, "reject_on_worker_lost": True}


def program(job: Job) -> Any:
    """The app, with its one task."""
    ledger = semel.open(job.ledger_url)
    tool = shop.tools(job.tools, job.guarded)[0]
    broker = job.options["broker"]
    base = task_class(ledger, **job.options.get("class", {})) if job.guarded else Task
    app = Celery("shop", task_cls=base, broker=broker, backend=broker)
    # What a worker that was killed held goes to another one when its visibility time-out is over: an hour.
    visible = {"visibility_timeout": job.options.get("visibility", 3_600)}
    app.conf.update(SOON, broker_transport_options=visible)

    @app.task(name="settle", bind=True, **({} if job.guarded else COMES_BACK), **job.options.get("task", {}))
    def settle(task: Any) -> str:
        answer = str(tool(**refund().arguments))
        job.provider.dies_after()
        if job.options.get("stumble") and not task.request.retries:
            raise task.retry(exc=RuntimeError("lost after the effect"), countdown=0)
        return answer

    return app


def work(job: Job) -> Seen:
    """A worker, until it is killed."""
    shop.provider = job.provider
    words = ["worker", "--concurrency=1", "--loglevel=error", "--without-gossip", "--without-mingle"]
    program(job).worker_main([*words, "--without-heartbeat", "--hostname=shop@localhost"])
    return Seen()
