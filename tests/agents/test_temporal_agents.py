"""Agents on Temporal: the step comes from what a plugin gives to its activity, or from the turn around it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from examples.rewards.server import MISSING, Server, binary
from tests.agents.engines import EngineProofs
from tests.agents.script import Job, Seen, refund
from tests.faults.checks import until
from tests.missing import cannot


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    if binary() is None:
        cannot(MISSING)
    with Server() as server:
        yield server.address


each = pytest.mark.parametrize("mode", ["pydantic_ai", "langgraph", "google_adk"])
each_way_to_name_turns = pytest.mark.parametrize(
    ("mode", "named"),
    [(mode, named) for mode in ("pydantic_ai", "langgraph") for named in (True, False)]
    + [("google_adk", True)],
)
models = pytest.mark.parametrize("mode", ["pydantic_ai", "google_adk"])


class TestTemporalAgents(EngineProofs):
    adapter = "tests.agents.temporal_agent"

    @pytest.fixture(autouse=True)
    def temporal(self, stage: None, address: str) -> None:
        self.address = address

    def job(self, tool: str = "issue_refund", *rounds: Any, mode: str = "pydantic_ai", **said: Any) -> Job:
        if mode == "google_adk" and not find_spec("temporalio.google_adk"):
            cannot("ADK's plugin for Temporal is not installed: pip install temporalio-google-adk")
        options = {"address": self.address, **said.pop("options", {})}
        script = [[*(rounds or ([refund(tool=tool)],)), "done"]]
        return Job(self.folder, script, tools=(tool,), mode=mode, options=options, **said)

    # --- without Semel ----------------------------------------------------------------------------

    @each
    def test_without_semel_a_worker_that_dies_is_followed_by_one_that_pays_again(self, mode: str) -> None:
        job = self.job(mode=mode, guarded=False)
        self.provider.plan("kill inside")
        assert self.run("start", job).killed
        assert self.seen("resume", job).answers == ["refund of p-1"]
        assert self.effects > 1

    def test_without_semel_temporals_own_retry_pays_twice(self) -> None:
        self.provider.plan("fail once")
        assert self.seen("start", self.job(guarded=False)).answers == ["refund of p-1"]
        assert self.effects > 1

    # --- crashes ----------------------------------------------------------------------------------

    @each_way_to_name_turns
    def test_killed_inside_the_effect_a_downstream_that_knows_the_key_pays_once(
        self, mode: str, named: bool
    ) -> None:
        job = self.job("keyed_refund", mode=mode, options={"named": named})
        self.provider.plan("kill inside")
        assert self.run("start", job).killed
        assert self.seen("resume", job).answers == ["refund of p-1"]
        assert self.effects == 1

    def test_killed_inside_the_effect_the_model_is_told_and_told_again(self) -> None:
        again = refund(reason="I try again")
        job = self.job("issue_refund", [refund()], [again])
        self.provider.plan("kill inside")
        assert self.run("start", job).killed
        seen = self.seen("resume", job)
        assert [answer.partition(":")[0] for answer in seen.answers] == ["OUTCOME_UNKNOWN"] * 2
        assert (seen.text, self.effects) == ("done", 1)

    @pytest.mark.parametrize("mode", ["langgraph", "google_adk"])
    def test_a_node_or_a_tool_whose_outcome_nobody_knows_fails_with_the_code(self, mode: str) -> None:
        job = self.job(mode=mode)
        self.provider.plan("kill inside")
        assert self.run("start", job).killed
        seen = self.seen("resume", job)
        assert seen.text == "failed"
        assert any(said.startswith("OUTCOME_UNKNOWN: ") for said in seen.answers)
        assert self.effects == 1

    @each
    def test_killed_before_temporal_heard_of_it_its_answer_is_read(self, mode: str) -> None:
        assert self.run("start", self.job(mode=mode, options={"crash": "after settle"})).killed
        assert self.seen("resume", self.job(mode=mode)).answers == ["refund of p-1"]
        assert self.effects == 1
        request = self.record().request
        turn = '["turn","message-1"]' if mode == "google_adk" else '["message-1"]'
        assert (request.conversation, request.step) == ("conversation-1", turn)

    # --- retries ----------------------------------------------------------------------------------

    def test_temporals_own_retry_pays_once(self) -> None:
        self.provider.plan("fail once")
        assert self.seen("start", self.job("keyed_refund")).answers == ["refund of p-1"]
        assert self.effects == 1

    def test_a_second_workflow_of_the_same_turn_waits_for_the_first(self) -> None:
        job = self.job("busy_refund", options={"workflow": "first"})
        self.provider.plan("hold")
        first = self.server.start("start", job)
        self.provider.wait_until_held()
        second = self.server.start("start", self.job("busy_refund", options={"workflow": "second"}))
        self.provider.plan("let go")
        seen: list[Seen] = [self.server.wait(each).unwrap() for each in (first, second)]
        assert [each.answers for each in seen] == [["refund of p-1"]] * 2
        assert self.effects == 1

    def test_what_the_contract_answers_is_told_to_the_model(self) -> None:
        seen = self.seen("start", self.job("broken_refund"))
        [answer] = seen.answers
        assert answer.startswith("EFFECT_FAILED: ")
        assert "the till is closed" in answer
        assert seen.text == "done"

    # --- what is one action -----------------------------------------------------------------------

    @models
    def test_equal_calls_of_one_turn_are_one_action(self, mode: str) -> None:
        reworded = refund(reason="in other words")
        job = self.job("issue_refund", [refund(), reworded], [reworded], mode=mode)
        assert self.seen("start", job).answers == ["refund of p-1"] * 3
        assert self.effects == 1

    @each_way_to_name_turns
    def test_the_same_call_in_the_next_turn_is_another_action(self, mode: str, named: bool) -> None:
        job = self.job(mode=mode, options={"turns": ["message-1", "message-2"], "named": named})
        assert self.seen("start", job).answers == ["refund of p-1"] * 2
        assert self.effects == 2

    def test_a_plugin_that_gives_plain_arguments_is_refused_without_a_turn(self) -> None:
        seen = self.seen("start", self.job(mode="google_adk", options={"named": False}))
        assert seen.text == "failed"
        assert any(said.startswith("NO_STEP: ") for said in seen.answers)
        assert self.effects == 0

    # --- people -----------------------------------------------------------------------------------

    @models
    def test_a_person_is_waited_for_without_a_limit_of_tries(self, mode: str) -> None:
        seen = self.meanwhile("start", self.job("asked_refund", mode=mode), lambda: self.decide("approve"))
        assert (seen.answers, seen.text) == (["refund of p-1"], "done")
        assert (self.effects, self.deciders()) == (1, {"ann"})

    def test_the_model_is_told_of_a_no(self) -> None:
        seen = self.meanwhile("start", self.job("asked_refund"), lambda: self.decide("reject"))
        assert seen.answers[0].startswith("APPROVAL_REJECTED: ")
        assert (seen.text, self.effects) == ("done", 0)

    def test_decided_while_no_worker_lived_it_goes_on(self) -> None:
        job = self.job("asked_refund")
        worker = self.server.start("start", job)
        until(lambda: self.ledger.approvals.list("waiting"), "a person is asked")
        os.kill(worker, signal.SIGKILL)
        assert self.server.wait(worker).killed
        self.decide("approve")
        assert self.seen("resume", job).answers == ["refund of p-1"]
        assert self.effects == 1
