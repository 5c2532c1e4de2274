"""The proofs, one text for every framework. `tests.agents` says what a framework's adapter has to offer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

import semel
from tests.agents.provider import Provider
from tests.agents.script import Call, Job, refund
from tests.agents.server import Ended, Server
from tests.tools import events

ONCE: list[Any] = [[refund()], "done"]
ASKED: list[Any] = [[refund(tool="asked_refund")], "done"]


class Proofs:
    adapter: ClassVar[str]
    modes: ClassVar[tuple[str, ...]] = ("invoke", "stream", "async", "astream")
    impossible: ClassVar[dict[str, str]] = {}
    model_retries: ClassVar[bool] = False  # whether the framework's own retry is to ask the model again

    # --- the stage --------------------------------------------------------------------------------

    @pytest.fixture(scope="class")
    @classmethod
    def serving(cls) -> Iterator[Server]:
        server = Server(cls.adapter)
        yield server
        server.close()

    @pytest.fixture(autouse=True)
    def stage(self, request: pytest.FixtureRequest, serving: Server, tmp_path: Path) -> None:
        self.server, self.folder, self.provider = serving, tmp_path, Provider(tmp_path)
        if why := self.impossible.get(request.node.originalname):
            pytest.skip(why)

    @pytest.fixture(params=["invoke", "stream", "async", "astream"])
    def mode(self, request: pytest.FixtureRequest) -> str:
        if request.param not in self.modes:
            pytest.skip(f"this framework has no {request.param}")
        return str(request.param)

    def job(self, *turns: Any, **said: Any) -> Job:
        said.setdefault("mode", self.modes[0])
        calls = [call for turn in turns for round_ in turn if not isinstance(round_, str) for call in round_]
        tools = tuple(dict.fromkeys(call.tool for call in calls))
        return Job(self.folder, list(turns), **{"tools": tools or ("issue_refund",), **said})

    def say(self, job: Job) -> Ended:
        return self.server.run("say", job)

    def resume(self, job: Job, verdict: Any = None) -> Ended:
        return self.server.run("resume", replace(job, verdict=verdict))

    def retried(self, tool: str = "issue_refund") -> list[Any]:
        return [[refund(tool=tool)]] * (2 if self.model_retries else 1) + ["done"]

    @property
    def effects(self) -> int:
        return len(self.provider.effects())

    @property
    def async_mode(self) -> str:
        return "async" if "async" in self.modes else self.modes[0]

    def ledger(self) -> semel.Ledger:
        return semel.open(self.job(ONCE).ledger_url)

    def decisions(self) -> list[tuple[str, str, str]]:
        """What people said, as the audit log has it."""
        with self.ledger() as ledger:
            decided = [each for each in events(ledger) if each.kind in ("approved", "rejected")]
            return [(each.kind, each.by, each.note) for each in decided]

    # --- without Semel ----------------------------------------------------------------------------

    def test_without_semel_a_run_that_is_resumed_pays_twice(self) -> None:
        job = self.job(ONCE, guarded=False)
        self.provider.plan("kill inside")
        assert self.say(job).killed
        self.resume(job).unwrap()
        assert self.effects == 2

    def test_without_semel_the_frameworks_own_retry_pays_twice(self) -> None:
        self.provider.plan("fail once")
        self.say(self.job(self.retried(), guarded=False, options={"retry": True})).unwrap()
        assert self.effects == 2

    # --- crashes ----------------------------------------------------------------------------------

    def test_killed_inside_the_effect_and_resumed_it_is_not_repeated(self, mode: str) -> None:
        job = self.job(ONCE, mode=mode)
        self.provider.plan("kill inside")
        assert self.say(job).killed
        seen = self.resume(job).unwrap()
        assert seen.answers[0].startswith("OUTCOME_UNKNOWN: ")
        assert seen.text == "done"
        assert self.effects == 1

    def test_killed_inside_it_goes_on_where_the_provider_knows_the_key(self, mode: str) -> None:
        job = self.job([[refund(tool="keyed_refund")], "done"], mode=mode)
        self.provider.plan("kill inside")
        assert self.say(job).killed
        assert self.resume(job).unwrap().answers == ["refund of p-1"]
        assert self.effects == 1

    def test_killed_after_the_effect_and_resumed_its_answer_is_the_first_one(self, mode: str) -> None:
        job = self.job(ONCE, mode=mode)
        self.provider.plan("kill after")
        assert self.say(job).killed
        assert self.resume(job).unwrap().answers == ["refund of p-1"]
        assert self.effects == 1

    def test_an_asynchronous_tool_is_guarded_as_well(self) -> None:
        job = self.job([[refund(tool="async_refund")], "done"], mode=self.async_mode)
        self.provider.plan("kill inside")
        assert self.say(job).killed
        assert self.resume(job).unwrap().answers[0].startswith("OUTCOME_UNKNOWN: ")
        assert self.effects == 1

    # --- retries ----------------------------------------------------------------------------------

    def test_the_frameworks_own_retry_pays_once(self, mode: str) -> None:
        self.provider.plan("fail once")
        seen = self.say(self.job(self.retried(), mode=mode, options={"retry": True})).unwrap()
        assert seen.text == "done"
        assert self.effects == 1

    def test_the_frameworks_own_retry_goes_on_where_the_provider_knows_the_key(self) -> None:
        self.provider.plan("fail once")
        job = self.job(self.retried("keyed_refund"), options={"retry": True})
        assert self.say(job).unwrap().answers[-1] == "refund of p-1"
        assert self.effects == 1

    def test_a_model_that_calls_again_after_an_unknown_outcome_is_told_so_again(self) -> None:
        job = self.job([[refund()], [refund(reason="I try again")], "done"])
        self.provider.plan("kill inside")
        assert self.say(job).killed
        answers = self.resume(job).unwrap().answers
        assert [answer.partition(":")[0] for answer in answers] == ["OUTCOME_UNKNOWN"] * 2
        assert self.effects == 1

    def test_a_model_that_calls_again_while_the_first_call_runs_pays_once(self) -> None:
        again = refund(tool="busy_refund", reason="I try again")
        job = self.job([[refund(tool="busy_refund")], [again], "done"])
        self.provider.plan("hold")
        first = self.server.start("say", job)
        self.provider.wait_until_held()
        answers = self.resume(job).unwrap().answers
        self.provider.plan("let go")
        assert [answer.partition(":")[0] for answer in answers] == ["RETRY_IN_FLIGHT"] * 2
        assert not self.server.wait(first).killed
        assert self.effects == 1

    def test_what_the_contract_answers_is_told_to_the_model(self, mode: str) -> None:
        seen = self.say(self.job([[refund(tool="broken_refund")], "done"], mode=mode)).unwrap()
        [answer] = seen.answers
        assert answer.startswith("EFFECT_FAILED: ")
        assert "the till is closed" in answer
        assert seen.text == "done"

    def test_an_answer_that_is_an_exception_is_told_to_the_model_too(self, mode: str) -> None:
        declined = refund(tool="declined_refund")
        seen = self.say(self.job([[declined], [declined], "done"], mode=mode)).unwrap()
        assert [answer.partition(":")[0] for answer in seen.answers] == ["EFFECT_FAILED"] * 2
        assert all("the card is gone" in answer for answer in seen.answers)
        assert (seen.text, self.effects) == ("done", 1)

    # --- what is one action -----------------------------------------------------------------------

    def test_equal_calls_in_one_answer_are_one_action(self, mode: str) -> None:
        job = self.job([[refund(), refund(reason="in other words")], "done"], mode=mode)
        assert self.say(job).unwrap().answers == ["refund of p-1"] * 2
        assert self.effects == 1

    def test_equal_calls_in_two_rounds_are_one_action(self) -> None:
        job = self.job([[refund()], [refund(reason="in other words")], "done"])
        assert self.say(job).unwrap().answers == ["refund of p-1"] * 2
        assert self.effects == 1

    def test_other_arguments_are_another_action(self) -> None:
        self.say(self.job([[refund(), refund("p-2")], [refund(amount=100)], "done"])).unwrap()
        assert self.effects == 3

    def test_the_same_call_in_the_next_turn_is_another_action(self) -> None:
        job = self.job(ONCE, ONCE)
        self.say(job).unwrap()
        self.say(replace(job, message_id="message-2")).unwrap()
        assert self.effects == 2

    def test_a_client_that_posts_its_message_again_pays_once(self) -> None:
        job = self.job(ONCE)
        self.say(job).unwrap()
        self.say(job)  # some frameworks refuse it
        assert self.effects == 1

    def test_two_processes_that_answer_one_message_at_once_pay_once(self) -> None:
        job = self.job(ONCE)
        self.provider.plan("hold")
        first = self.server.start("say", job)
        self.provider.wait_until_held()
        second = self.server.start("say", job)
        self.provider.plan("let go")
        assert not self.server.wait(first).killed
        self.server.wait(second)  # some frameworks refuse it
        assert self.effects == 1

    def test_another_conversation_is_another_action(self) -> None:
        job = self.job(ONCE)
        self.say(job).unwrap()
        self.say(replace(job, conversation="conversation-2")).unwrap()
        assert self.effects == 2

    # --- where the history can be seen ------------------------------------------------------------

    def test_what_a_turn_left_in_doubt_goes_on_in_the_next_one(self) -> None:
        job = self.job(ONCE, [[refund(reason="the person asks again")], "done"])
        self.provider.plan("kill inside")
        assert self.say(job).killed
        self.resume(job).unwrap()
        seen = self.say(replace(job, message_id="message-2")).unwrap()
        assert seen.answers[0].startswith("OUTCOME_UNKNOWN: ")
        assert self.effects == 1

    @pytest.mark.parametrize(
        ("repeat", "in_one_answer", "in_two_rounds"),
        [("never", 1, 1), ("after-answer", 1, 2), ("always", 2, 2)],
    )
    def test_repeat_says_what_equal_calls_are(
        self, repeat: str, in_one_answer: int, in_two_rounds: int
    ) -> None:
        options = {"repeat": repeat}
        self.say(self.job([[refund(), refund()], "done"], options=options)).unwrap()
        assert self.effects == in_one_answer
        two_rounds = self.job([[refund("p-2")], [refund("p-2")], "done"], options=options)
        self.say(replace(two_rounds, conversation="conversation-2")).unwrap()
        assert self.effects == in_one_answer + in_two_rounds

    @pytest.mark.parametrize("repeat", ["after-answer", "always"])
    def test_however_often_calls_may_repeat_what_is_in_doubt_does_not(self, repeat: str) -> None:
        job = self.job([[refund()], [refund()], "done"], options={"repeat": repeat})
        self.provider.plan("kill inside")
        assert self.say(job).killed
        answers = self.resume(job).unwrap().answers
        assert [answer.partition(":")[0] for answer in answers] == ["OUTCOME_UNKNOWN"] * 2
        assert self.effects == 1

    # --- plain functions --------------------------------------------------------------------------

    def test_plain_functions_pass_untouched(self, mode: str) -> None:
        look = Call("plain_look", {"payment_id": "p-1"})
        seen = self.say(self.job([[look], [look], "done"], mode=mode)).unwrap()
        assert seen.answers == ["look 1", "look 2"]

    def test_plain_functions_are_guarded_on_request(self, mode: str) -> None:
        pay = refund(tool="plain_refund")
        options = {"undecorated": "guard"}
        seen = self.say(self.job([[pay, pay], [pay], "done"], mode=mode, options=options)).unwrap()
        assert seen.answers == ["refund of p-1"] * 3
        assert self.effects == 1

    def test_a_guarded_plain_function_is_not_repeated_after_a_crash(self) -> None:
        job = self.job([[refund(tool="plain_refund")], "done"], options={"undecorated": "guard"})
        self.provider.plan("kill inside")
        assert self.say(job).killed
        assert self.resume(job).unwrap().answers[0].startswith("OUTCOME_UNKNOWN: ")
        assert self.effects == 1

    def test_a_plain_function_that_says_that_it_only_reads_is_not_guarded(self) -> None:
        look = Call("plain_look", {"payment_id": "p-1"})
        options = {"undecorated": "guard", "reads": True}
        seen = self.say(self.job([[look], [look], "done"], options=options)).unwrap()
        assert seen.answers == ["look 1", "look 2"]

    # --- people -----------------------------------------------------------------------------------

    def test_a_person_is_asked_and_approves(self, mode: str) -> None:
        job = self.job(ASKED, mode=mode)
        [question] = self.say(job).unwrap().questions
        assert question["tool"] == "asked_refund"
        assert question["arguments"] == ASKED[0][0].arguments
        assert self.effects == 0
        verdict = {"approved": True, "by": "ann", "reason": "looks right"}
        seen = self.resume(job, verdict).unwrap()
        assert seen.answers == ["refund of p-1"]
        assert (seen.questions, seen.text, self.effects) == ([], "done", 1)
        assert self.decisions() == [("approved", "ann", "looks right")]

    def test_a_person_says_no(self, mode: str) -> None:
        job = self.job(ASKED, mode=mode)
        self.say(job).unwrap()
        seen = self.resume(job, {"approved": False, "by": "ann", "reason": "too much"}).unwrap()
        # In our words, or in the person's own where the framework itself tells the model of a denial.
        assert seen.answers[0].startswith(("APPROVAL_REJECTED: ", "too much"))
        assert (seen.text, self.effects) == ("done", 0)
        assert self.decisions() == [("rejected", "ann", "too much")]

    @pytest.mark.parametrize(("verdict", "effects"), [(True, 1), ("approve", 1), (False, 0), ("reject", 0)])
    def test_a_plain_verdict_is_the_approvers(self, verdict: Any, effects: int) -> None:
        job = self.job(ASKED, options={"approver": "bob"})
        self.say(job).unwrap()
        self.resume(job, verdict).unwrap()
        assert self.effects == effects
        assert [by for _, by, _ in self.decisions()] == ["bob"]

    def test_resumed_twice_it_is_decided_once_and_paid_once(self) -> None:
        job = self.job(ASKED)
        self.say(job).unwrap()
        self.resume(job, {"approved": True, "by": "ann"}).unwrap()
        self.resume(job, {"approved": False, "by": "bob"})
        assert self.effects == 1
        assert [(what, by) for what, by, _ in self.decisions()] == [("approved", "ann")]

    def test_killed_after_the_decision_it_is_resumed_without_asking_again(self) -> None:
        job = self.job([[refund(tool="asked_keyed_refund")], "done"])
        self.say(job).unwrap()
        self.provider.plan("kill inside")
        assert self.resume(job, {"approved": True, "by": "ann"}).killed
        seen = self.resume(job, {"approved": False, "by": "bob"}).unwrap()
        assert seen.answers == ["refund of p-1"]
        assert self.effects == 1
        assert [(what, by) for what, by, _ in self.decisions()] == [("approved", "ann")]

    def test_decided_elsewhere_meanwhile_it_goes_on_with_that(self) -> None:
        job = self.job(ASKED)
        [question] = self.say(job).unwrap().questions
        with self.ledger() as ledger:
            ledger.approvals.approve(question["job_id"], by="carl", job_hash=question["job_hash"])
        self.resume(job, {"approved": True, "by": "ann"}).unwrap()
        assert self.effects == 1
        assert [by for _, by, _ in self.decisions()] == ["carl"]

    # --- what the model sees, and sends -------------------------------------------------------------

    def test_the_schema_that_the_model_sees_has_no_key(self) -> None:
        tools = ("issue_refund", "keyed_refund", "asked_refund", "async_refund")
        shown = self.server.run("shown", self.job(["hello"], tools=tools, mode=self.async_mode)).unwrap()
        assert shown.keys() == set(tools)
        for schema in shown.values():
            assert sorted(schema["properties"]) == ["amount_minor", "payment_id", "reason"]

    def test_a_key_that_the_model_makes_up_is_not_used(self) -> None:
        call = refund(tool="keyed_refund")
        forged = call._replace(arguments={**call.arguments, "key": "0" * 64})
        self.say(self.job([[forged], "done"]))
        assert not any(effect["key"] == "0" * 64 for effect in self.provider.effects())
