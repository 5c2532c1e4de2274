"""Microsoft Agent Framework."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from tests.agents.proofs import ASKED, Proofs
from tests.agents.script import refund
from tests.agents.told_questions import UNSEEN

_ITS_OWN_WORDS = "the framework never calls what was rejected, and tells the model so in its own words"


class TestAgentFramework(Proofs):
    adapter = "tests.agents.agent_framework_agent"
    modes = ("async", "astream")
    impossible: ClassVar = {
        **UNSEEN,
        "test_a_person_says_no": _ITS_OWN_WORDS,
        "test_killed_after_the_decision_it_is_resumed_without_asking_again": _ITS_OWN_WORDS,
    }

    def test_a_person_says_no_and_the_ledger_knows_it(self, mode: str) -> None:
        job = self.job(ASKED, mode=mode)
        self.say(job).unwrap()
        seen = self.resume(job, {"approved": False, "by": "ann", "reason": "too much"}).unwrap()
        assert seen.answers == ["Error: Tool call invocation was rejected by user."]
        assert (seen.text, self.effects) == ("done", 0)
        assert self.decisions() == [("rejected", "ann", "too much")]

    def test_a_rejection_is_of_the_call_that_it_answers(self) -> None:
        """Whatever came with it: nothing, as where the program makes it itself, or another question."""
        conversations = [replace(self.job(ASKED), conversation=each) for each in ("1", "2")]
        questions = [self.say(each).unwrap().questions[0] for each in conversations]
        for said in ({}, {"question": questions[0]}):
            self.server.run("reject", replace(conversations[1], verdict=said)).unwrap()
            with self.ledger() as ledger:
                statuses = [ledger.approvals.get(each["job_id"]).status for each in questions]
            assert statuses == ["waiting", "rejected"]

    def test_killed_after_the_decision_the_same_answer_goes_on(self) -> None:
        job = self.job([[refund(tool="asked_keyed_refund")], "done"])
        self.say(job).unwrap()
        self.provider.plan("kill inside")
        assert self.resume(job, {"approved": True, "by": "ann"}).killed
        seen = self.resume(job, {"approved": True, "by": "bob"}).unwrap()
        assert seen.answers == ["refund of p-1"]
        assert self.effects == 1
        assert [(what, by) for what, by, _ in self.decisions()] == [("approved", "ann")]
