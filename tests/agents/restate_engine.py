"""A program on Restate: a service with one handler that pays money back, served until it is killed.

What is read of the job: `folder`, `tools` (one), `guarded`, and of its options `port` and `crash`, a point of
semel.testing.
"""

from __future__ import annotations

import itertools

import restate
import uvicorn

import semel
from semel.integrations.restate import run
from semel.testing import crashing
from tests.agents import shop
from tests.agents.script import Job, Seen, refund

service = restate.Service("shop")
_visits = itertools.count(1)
job: Job
ledger: semel.Ledger


@service.handler()
async def settle(ctx: restate.Context, name: str) -> str:
    tool = shop.tools(job.tools, job.guarded)[0]
    if job.guarded:
        return str(await run(ctx, ledger, name, tool, **refund().arguments))

    def unguarded() -> str:
        answer = str(tool(**refund().arguments))
        job.provider.dies_after()
        return answer

    return await ctx.run_typed(name, unguarded)


@service.handler()
async def settle_in_step(ctx: restate.Context, conversation: str) -> str:
    tool = shop.tools(job.tools, job.guarded)[0]
    (job.folder / f"settling-{next(_visits)}").touch()
    with ledger.step(conversation=conversation, step="today"):
        return str(await run(ctx, ledger, "refund", tool, **refund().arguments))


def serve(given: Job) -> Seen:
    global job, ledger
    job = given
    ledger = semel.open(job.ledger_url)
    if "crash" in job.options:
        ledger = crashing(ledger, job.options["crash"], kill=True)
    app = restate.app([service], protocol="request_response")
    uvicorn.run(app, host="127.0.0.1", port=job.options["port"], log_level="error")
    return Seen()
