"""A program on DBOS, its system database in the job's folder: one workflow with a step that pays money back.

Each of these runs in a child of the server. What is read of the job: `folder`, `tools` (one), `guarded`,
`mode` ("invoke", "async"), `message_id` (the workflow's id), and of its options `retries`, `stumble`, `name`,
`conversation`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

from dbos import DBOS, SetWorkflowID

import semel
from semel.integrations.dbos import StepUnfinished, retriable, step
from tests.agents import shop
from tests.agents.script import Job, Seen, refund
from tests.faults.checks import until

job: Job
ledger: semel.Ledger
_stumbled = threading.Event()


def _place() -> Any:
    if not job.guarded:
        return contextlib.nullcontext()
    return step(ledger, job.options.get("name", "refund"), conversation=job.options.get("conversation"))


def _afterwards() -> None:
    """What may go wrong between the effect and DBOS's writing it down."""
    job.provider.dies_after()
    if job.options.get("stumble") and not _stumbled.is_set():
        _stumbled.set()
        raise RuntimeError("lost after the effect")


@contextlib.contextmanager
def _noticed() -> Iterator[None]:
    try:
        yield
    except StepUnfinished:
        (job.folder / "unfinished").touch()
        raise


def _pay() -> str:
    with _noticed(), _place():
        answer: str = shop.tools(job.tools, job.guarded)[0](**refund().arguments)
    _afterwards()
    return answer


async def _apay() -> str:
    with _noticed():
        async with _place():
            tool = shop.tools(job.tools, job.guarded)[0]
            if inspect.iscoroutinefunction(tool):
                answer = await tool(**refund().arguments)
            else:
                answer = await asyncio.to_thread(tool, **refund().arguments)
    _afterwards()
    return str(answer)


RETRIES: Any = {"retries_allowed": True, "interval_seconds": 0.05, "should_retry": retriable}

pay = DBOS.step()(_pay)
pay_retried = DBOS.step(name="retried", **RETRIES)(_pay)
apay = DBOS.step()(_apay)
apay_retried = DBOS.step(name="aretried", **RETRIES)(_apay)


@DBOS.workflow()
def settle(retries: bool) -> str:
    return pay_retried() if retries else pay()


@DBOS.workflow()
async def asettle(retries: bool) -> str:
    return await (apay_retried() if retries else apay())


@contextlib.contextmanager
def program(given: Job, before_launch: Callable[[Job], None] = lambda _: None) -> Iterator[None]:
    """DBOS is launched, which recovers what an earlier process left pending."""
    global job, ledger
    job = given
    database = f"sqlite:///{given.folder}/dbos.sqlite"
    DBOS(
        config={
            "name": "shop",
            "system_database_url": database,
            "application_version": "1",
            "run_admin_server": False,
        }
    )
    ledger = semel.open(given.ledger_url)
    before_launch(given)
    DBOS.launch()
    try:
        yield
    finally:
        DBOS.destroy()
        ledger.close()


def _ended(workflow_id: str, result: Callable[[], str]) -> Seen:
    try:
        return Seen(text=result())
    except StepUnfinished as unfinished:
        return Seen(text="unfinished", answers=[str(unfinished)], extra=_status(workflow_id))
    except Exception as error:
        return Seen(text="failed", answers=[str(error)], extra=_status(workflow_id))


def _status(workflow_id: str) -> str:
    status = DBOS.get_workflow_status(workflow_id)
    assert status is not None
    return status.status


def start(job: Job) -> Seen:
    """The workflow is started, and waited for."""
    with program(job), SetWorkflowID(job.message_id):
        retries = bool(job.options.get("retries"))
        if job.mode == "async":
            return _ended(job.message_id, lambda: asyncio.run(asettle(retries)))
        return _ended(job.message_id, lambda: settle(retries))


def recover(job: Job) -> Seen:
    """A new process: what was pending is recovered by DBOS itself, and waited for."""
    with program(job):
        return _ended(job.message_id, DBOS.retrieve_workflow(job.message_id).get_result)


def look(job: Job) -> Seen:
    """A new process, which leaves the recovered workflow once its step has said that it is unfinished."""
    with program(job):
        until((job.folder / "unfinished").exists, "the step was tried")
        return Seen(extra=_status(job.message_id))


def resume(job: Job) -> Seen:
    """`DBOS.resume_workflow`, in a process that recovers nothing by itself."""
    with program(job):
        return _ended(job.message_id, DBOS.resume_workflow(job.message_id).get_result)


def outside(job: Job) -> Seen:
    """The step is called as a plain function."""
    with program(job):
        try:
            return Seen(text=pay())
        except semel.errors.StepError as error:
            return Seen(text="refused", answers=[str(error)])
