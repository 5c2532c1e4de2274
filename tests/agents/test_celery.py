"""Celery: one action by task, whoever crashes, is redelivered, retries or decides."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from semel.errors import ApprovalRejected, ContractError, EffectFailed, OutcomeUnknown
from semel.integrations.celery import task_class
from tests.agents import celery_engine
from tests.agents.engines import EngineProofs
from tests.faults.checks import until
from tests.patience import PATIENCE_S
from tests.redis_server import RedisServer

# Celery's client leaves its sockets to the collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

SOON = {"class": {"look_again_s": 0.1}, "task": {"default_retry_delay": 0.1}}


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    server = RedisServer(save="")
    server.start()
    yield server
    server.remove()


class TestCelery(EngineProofs):
    adapter = "tests.agents.celery_engine"

    @pytest.fixture(autouse=True)
    def workers(self, stage: None, redis: RedisServer) -> Iterator[None]:
        redis.ask("FLUSHALL")
        self.broker = f"redis://127.0.0.1:{redis.port}/0"
        self.running: list[int] = []
        yield
        self.stop()

    def work(self, tool: str = "issue_refund", *, guarded: bool = True, **options: Any) -> None:
        """A worker is started."""
        job = self.job(tool, guarded=guarded, options={"broker": self.broker, **SOON, **options})
        self.running.append(self.server.start("work", job))

    def stop(self) -> None:
        """kill -9 for all workers and the processes of their pools, before they make others."""
        while self.running:
            worker = self.running.pop()
            os.kill(worker, signal.SIGSTOP)
            for process in (*_children(worker), worker):
                os.kill(process, signal.SIGKILL)
            assert self.server.wait(worker).killed

    def send(self, task_id: str = "task-1") -> Any:
        app = Celery("shop", broker=self.broker, backend=self.broker)
        return app.send_task("settle", task_id=task_id)

    def result(self, sent: Any) -> Any:
        return sent.get(timeout=PATIENCE_S)

    # --- without Semel ----------------------------------------------------------------------------

    @pytest.mark.parametrize("moment", ["kill inside", "kill after"])
    def test_without_semel_a_task_whose_process_dies_pays_twice(self, moment: str) -> None:
        self.provider.plan(moment)
        self.work(guarded=False)
        assert self.result(self.send()) == "refund of p-1"
        assert self.effects == 2

    def test_without_semel_a_task_that_is_retried_pays_twice(self) -> None:
        self.work(guarded=False, stumble=True)
        assert self.result(self.send()) == "refund of p-1"
        assert self.effects == 2

    # --- crashes ----------------------------------------------------------------------------------

    def test_killed_inside_the_effect_it_fails_until_a_person_says_what_happened(self) -> None:
        self.provider.plan("kill inside")
        self.work()
        sent = self.send()
        with pytest.raises(OutcomeUnknown):
            self.result(sent)
        self.it_happened()
        sent.forget()  # else Celery gives the old result for the task's id
        assert self.result(self.send()) == "refund of p-1, as the provider says"
        assert self.effects == 1

    def test_killed_inside_the_effect_a_downstream_that_knows_the_key_pays_once(self) -> None:
        self.provider.plan("kill inside")
        self.work("keyed_refund")
        assert self.result(self.send()) == "refund of p-1"
        assert self.effects == 1

    def test_killed_before_celery_wrote_it_down_it_is_replayed(self) -> None:
        self.provider.plan("kill after")
        self.work()
        assert self.result(self.send()) == "refund of p-1"
        assert self.effects == 1
        assert self.record().request.conversation == "celery:task-1"
        assert self.record().request.principal == "settle"

    def test_a_whole_worker_that_is_killed_is_followed_by_another(self) -> None:
        self.provider.plan("hold")
        self.work("keyed_refund")
        sent = self.send()
        self.provider.wait_until_held()
        self.stop()
        self.work("keyed_refund", visibility=0)
        assert self.result(sent) == "refund of p-1"
        assert self.effects == 1

    # --- Celery's own retry -----------------------------------------------------------------------

    def test_a_task_that_retries_itself_pays_once(self) -> None:
        self.work(stumble=True)
        assert self.result(self.send()) == "refund of p-1"
        assert self.effects == 1

    def test_doubt_that_the_key_resolves_is_tried_again_by_celery(self) -> None:
        self.provider.plan("fail once")
        self.work("keyed_refund")
        assert self.result(self.send()) == "refund of p-1"
        assert self.effects == 1

    def test_a_task_that_celery_retries_for_every_error_tries_no_settled_failure_again(self) -> None:
        self.work("broken_refund", task={"autoretry_for": (Exception,), "default_retry_delay": 600})
        with pytest.raises(EffectFailed, match="the till is closed"):
            self.result(self.send())
        assert self.effects == 1

    def test_a_second_delivery_while_the_first_runs_does_not_pay(self) -> None:
        self.provider.plan("hold")
        self.work("busy_refund")
        first = self.send()
        self.provider.wait_until_held()
        self.work("busy_refund")
        self.send()  # as a broker does whose time is over
        until(lambda: first.state == "RETRY", "the second one is turned away")
        self.provider.plan("let go")
        assert self.result(first) == "refund of p-1"
        assert self.effects == 1

    # --- who is asked -----------------------------------------------------------------------------

    def test_a_person_is_waited_for_without_a_limit_of_tries_and_pays_once(self) -> None:
        self.work("asked_refund", task={"max_retries": 0})
        sent = self.send()
        until(lambda: sent.state == "RETRY", "it was turned away")
        self.decide("approve")
        assert self.result(sent) == "refund of p-1"
        assert self.effects == 1
        assert self.deciders() == {"ann"}

    def test_a_rejection_ends_the_task(self) -> None:
        self.work("asked_refund")
        sent = self.send()
        self.decide("reject")
        with pytest.raises(ApprovalRejected):
            self.result(sent)
        assert self.effects == 0

    # --- what is one action -----------------------------------------------------------------------

    def test_another_task_is_another_action(self) -> None:
        self.work()
        for task_id in ("task-1", "task-2"):
            assert self.result(self.send(task_id)) == "refund of p-1"
        assert self.effects == 2

    def test_called_as_a_function_a_task_is_in_its_callers_step(self) -> None:
        celery_engine.shop.provider = self.provider
        app = celery_engine.program(self.job(options={"broker": self.broker}))
        with self.ledger.step(conversation="c", step="s"):
            assert app.tasks["settle"]() == "refund of p-1"
        assert self.record().request.conversation == "c"

    @pytest.mark.parametrize("off", ["acks_late", "reject_on_worker_lost"])
    def test_a_task_that_would_be_lost_with_its_worker_is_refused(self, off: str) -> None:
        app = Celery("shop", task_cls=task_class(self.ledger), broker="memory://")

        def settle() -> None: ...

        with pytest.raises(ContractError, match=off):
            app.task(settle, name="settle", lazy=False, **{off: False})


def _children(process: int) -> list[int]:
    """Whichever of its threads made them."""
    listed = Path("/proc", str(process), "task").glob("*/children")
    return [int(child) for each in listed for child in each.read_text().split()]
