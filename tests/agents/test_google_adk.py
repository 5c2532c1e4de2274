"""Google ADK."""

from __future__ import annotations

from typing import ClassVar

from tests.agents.proofs import ASKED, ONCE, Proofs
from tests.agents.script import refund
from tests.agents.told_questions import SILENT

_NAMES_ANEW = "ADK names an invocation anew for each message that it is sent"


class TestGoogleAdk(Proofs):
    adapter = "tests.agents.google_adk_agent"
    modes = ("async", "astream")
    impossible: ClassVar = {
        **SILENT,
        "test_a_client_that_posts_its_message_again_pays_once": _NAMES_ANEW,
        "test_two_processes_that_answer_one_message_at_once_pay_once": _NAMES_ANEW,
    }

    def test_an_app_that_cannot_be_resumed_asks_too(self) -> None:
        """A confirmation comes in an invocation of its own there; the call is of the one that asked."""
        job = self.job(ASKED, mode="not resumable")
        assert len(self.say(job).unwrap().questions) == 1
        seen = self.resume(job, {"approved": True, "by": "ann"}).unwrap()
        assert (seen.answers, seen.questions, self.effects) == (["refund of p-1"], [], 1)
        assert [by for _, by, _ in self.decisions()] == ["ann"]

    def test_an_agent_that_is_a_tool_acts_in_the_turn_of_its_caller(self) -> None:
        job = self.job([[refund(tool="keyed_refund")], "done"], mode="as a tool")
        self.provider.plan("kill inside")
        assert self.say(job).killed
        assert self.resume(job).unwrap().text == "done"
        assert self.effects == 1

    def test_without_semel_an_agent_that_is_a_tool_pays_twice(self) -> None:
        job = self.job(ONCE, mode="as a tool, unknown", guarded=False)
        self.provider.plan("kill inside")
        assert self.say(job).killed
        self.resume(job).unwrap()
        assert self.effects == 2

    def test_an_agent_that_is_a_tool_of_an_unknown_turn_is_refused(self) -> None:
        ended = self.say(self.job(ONCE, mode="as a tool, unknown"))
        assert "NoStep" in ended.raised
        assert self.effects == 0
