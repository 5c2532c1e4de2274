"""DBOS: one action by workflow and name, whoever crashes, recovers, retries or decides."""

from __future__ import annotations

import threading

import pytest

from tests.agents import shop
from tests.agents.engines import EngineProofs
from tests.agents.script import refund

both = pytest.mark.parametrize("mode", ["invoke", "async"])
RETRIES = {"retries": True}


class TestDbos(EngineProofs):
    adapter = "tests.agents.dbos_engine"

    # --- without Semel ----------------------------------------------------------------------------

    @pytest.mark.parametrize("moment", ["kill inside", "kill after"])
    def test_without_semel_a_workflow_that_is_recovered_pays_twice(self, moment: str) -> None:
        job = self.job(guarded=False)
        self.provider.plan(moment)
        assert self.run("start", job).killed
        assert self.seen("recover", job).text == "refund of p-1"
        assert self.effects == 2

    def test_without_semel_a_step_that_is_retried_pays_twice(self) -> None:
        job = self.job(guarded=False, options={**RETRIES, "stumble": True})
        assert self.seen("start", job).text == "refund of p-1"
        assert self.effects == 2

    # --- crashes ----------------------------------------------------------------------------------

    @both
    def test_killed_inside_the_effect_it_stays_pending_until_a_person_says_what_happened(
        self, mode: str
    ) -> None:
        job = self.job(mode=mode)
        self.provider.plan("kill inside")
        assert self.run("start", job).killed
        assert self.seen("look", job).extra == "PENDING"
        self.it_happened()
        assert self.seen("recover", job).text == "refund of p-1, as the provider says"
        assert self.effects == 1

    @both
    def test_killed_inside_the_effect_a_downstream_that_knows_the_key_pays_once(self, mode: str) -> None:
        job = self.job("keyed_refund", mode=mode)
        self.provider.plan("kill inside")
        assert self.run("start", job).killed
        assert self.seen("recover", job).text == "refund of p-1"
        assert self.effects == 1

    @both
    def test_killed_before_dbos_wrote_the_step_down_it_is_replayed(self, mode: str) -> None:
        job = self.job("async_refund" if mode == "async" else "issue_refund", mode=mode)
        self.provider.plan("kill after")
        assert self.run("start", job).killed
        assert self.seen("recover", job).text == "refund of p-1"
        assert self.effects == 1
        assert self.record().request.conversation == "dbos:message-1"

    # --- DBOS's own retry -------------------------------------------------------------------------

    @both
    def test_a_step_that_is_retried_pays_once(self, mode: str) -> None:
        job = self.job(mode=mode, options={**RETRIES, "stumble": True})
        assert self.seen("start", job).text == "refund of p-1"
        assert self.effects == 1

    @both
    def test_doubt_is_not_written_down_as_the_steps_end(self, mode: str) -> None:
        job = self.job(mode=mode, options=RETRIES)
        self.provider.plan("fail once")
        seen = self.seen("start", job)
        assert (seen.text, seen.extra) == ("unfinished", "PENDING")
        assert "DBOS.resume_workflow('message-1')" in seen.answers[0]
        self.it_happened()
        assert self.seen("resume", job).text == "refund of p-1, as the provider says"
        assert self.effects == 1

    @both
    def test_doubt_that_the_key_resolves_is_tried_again_by_dbos(self, mode: str) -> None:
        job = self.job("keyed_refund", mode=mode, options=RETRIES)
        self.provider.plan("fail once")
        assert self.seen("start", job).text == "refund of p-1"
        assert self.effects == 1

    def test_without_retries_of_dbos_what_is_retriable_waits_for_its_recovery(self) -> None:
        job = self.job("keyed_refund")
        self.provider.plan("fail once")
        assert self.seen("start", job).extra == "PENDING"
        assert self.seen("recover", job).text == "refund of p-1"
        assert self.effects == 1

    def test_a_failure_is_written_down_and_the_workflow_ends_with_it(self) -> None:
        job = self.job("broken_refund", options=RETRIES)
        seen = self.seen("start", job)
        assert (seen.text, seen.extra) == ("failed", "ERROR")
        assert "the till is closed" in seen.answers[0]
        assert self.effects == 1

    def test_an_answer_that_is_an_exception_is_one_too(self) -> None:
        job = self.job("declined_refund", options=RETRIES)
        seen = self.seen("start", job)
        assert (seen.text, seen.extra) == ("failed", "ERROR")
        assert "the card is gone" in seen.answers[0]
        assert self.effects == 1

    # --- who is asked -----------------------------------------------------------------------------

    @both
    def test_a_person_is_waited_for_without_a_limit_of_tries_and_pays_once(self, mode: str) -> None:
        job = self.job("asked_refund", mode=mode, options=RETRIES)
        assert self.meanwhile("start", job, lambda: self.decide("approve")).text == "refund of p-1"
        assert self.effects == 1
        assert self.deciders() == {"ann"}

    def test_a_rejection_ends_the_workflow(self) -> None:
        job = self.job("asked_refund", options=RETRIES)
        seen = self.meanwhile("start", job, lambda: self.decide("reject"))
        assert (seen.text, seen.extra) == ("failed", "ERROR")
        assert self.effects == 0

    def test_without_retries_of_dbos_a_question_outlives_its_process(self) -> None:
        job = self.job("asked_refund")
        assert self.seen("start", job).extra == "PENDING"
        self.decide("approve")
        assert self.seen("recover", job).text == "refund of p-1"
        assert self.seen("resume", job).text == "refund of p-1"
        assert self.effects == 1

    # --- two at once ------------------------------------------------------------------------------

    def test_a_workflow_while_somebody_else_pays_stays_pending_and_then_reads_the_answer(self) -> None:
        shop.provider = self.provider
        self.provider.plan("hold")
        job = self.job("busy_refund", options={"conversation": "order 42"})

        def pay() -> None:
            with self.ledger.step(conversation="order 42", step="refund"):
                shop.busy_refund(**refund().arguments)

        paying = threading.Thread(target=pay)
        paying.start()
        try:
            self.provider.wait_until_held()
            seen = self.seen("start", job)
        finally:
            self.provider.plan("let go")
            paying.join()
        assert (seen.text, seen.extra) == ("unfinished", "PENDING")
        assert self.seen("recover", job).text == "refund of p-1"
        assert self.effects == 1

    # --- what is one action -----------------------------------------------------------------------

    def test_another_workflow_is_another_action(self) -> None:
        for workflow in ("first", "second"):
            assert self.seen("start", self.job(message_id=workflow)).text == "refund of p-1"
        assert self.effects == 2

    def test_a_conversation_of_the_authors_outlives_its_workflows(self) -> None:
        for workflow in ("first", "second"):
            job = self.job(message_id=workflow, options={"conversation": "order 42"})
            assert self.seen("start", job).text == "refund of p-1"
        assert self.effects == 1

    def test_outside_a_workflow_nothing_runs(self) -> None:
        seen = self.seen("outside", self.job())
        assert seen.text == "refused"
        assert "DBOS.start_workflow" in seen.answers[0]
        assert self.effects == 0
