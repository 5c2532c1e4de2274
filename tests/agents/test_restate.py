"""Restate: one action by invocation and name, whoever crashes, retries or decides."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from bench.servers import free_port
from tests.agents.engines import EngineProofs
from tests.agents.pages import run_page
from tests.agents.restate_server import RestateServer
from tests.faults.checks import until


@pytest.fixture(scope="module")
def restate() -> Iterator[RestateServer]:
    server = RestateServer()
    yield server
    server.close()


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


class TestRestate(EngineProofs):
    adapter = "tests.agents.restate_engine"

    @pytest.fixture(autouse=True)
    def programs(self, stage: None, restate: RestateServer) -> Iterator[None]:
        self.restate, self.port, self.running = restate, free_port(), 0
        yield
        if self.running:
            self.stop()

    def serve(self, tool: str = "issue_refund", *, guarded: bool = True, **options: Any) -> None:
        """The program is up; the first one of a test is made known to Restate."""
        job = self.job(tool, guarded=guarded, options={"port": self.port, **options})
        self.running = self.server.start("serve", job)
        until(lambda: _listens(self.port), "the program listens")
        self.restate.register(self.port)

    def dies(self) -> None:
        """It was killed from inside."""
        assert self.server.wait(self.running).killed
        self.running = 0

    def stop(self) -> None:
        os.kill(self.running, signal.SIGKILL)
        self.dies()

    def send(self, handler: str = "settle", what: str = "refund", key: str = "") -> str:
        return self.restate.send(f"shop/{handler}", what, key)

    # --- its page --------------------------------------------------------------------------------

    def test_what_its_page_shows_runs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        page = run_page("restate", None, self.folder, monkeypatch)
        config = uvicorn.Config(page["app"], host="127.0.0.1", port=self.port, log_level="error")
        program = uvicorn.Server(config)
        thread = threading.Thread(target=program.run)
        thread.start()
        until(lambda: _listens(self.port), "the program listens")
        self.restate.register(self.port)
        try:
            assert self.restate.result(self.send(what="p-1")) == "refunded p-1, refunded p-1"
        finally:
            program.should_exit = True
            thread.join()
            page["ledger"].close()
        assert page["paid"] == ["p-1"]

    # --- without Semel ----------------------------------------------------------------------------

    @pytest.mark.parametrize("moment", ["kill inside", "kill after"])
    def test_without_semel_an_invocation_whose_program_dies_pays_twice(self, moment: str) -> None:
        self.serve(guarded=False)
        self.provider.plan(moment)
        invocation = self.send()
        self.dies()
        self.serve(guarded=False)
        assert self.restate.result(invocation) == "refund of p-1"
        assert self.effects == 2

    def test_without_semel_an_action_that_is_retried_pays_twice(self) -> None:
        self.serve(guarded=False)
        self.provider.plan("fail once")
        assert self.restate.result(self.send()) == "refund of p-1"
        assert self.effects == 2

    # --- crashes ----------------------------------------------------------------------------------

    @pytest.mark.parametrize("tool", ["issue_refund", "async_refund"])
    def test_killed_inside_the_effect_it_waits_until_a_person_says_what_happened(self, tool: str) -> None:
        self.serve(tool)
        self.provider.plan("kill inside")
        invocation = self.send()
        self.dies()
        self.serve(tool)
        until(lambda: self.ledger.records.effective_state(self.record()) == "in_doubt", "it is in doubt")
        self.it_happened()
        assert self.restate.result(invocation) == "refund of p-1, as the provider says"
        assert self.effects == 1

    def test_killed_inside_the_effect_a_downstream_that_knows_the_key_pays_once(self) -> None:
        self.serve("keyed_refund")
        self.provider.plan("kill inside")
        invocation = self.send()
        self.dies()
        self.serve("keyed_refund")
        assert self.restate.result(invocation) == "refund of p-1"
        assert self.effects == 1

    @pytest.mark.parametrize("tool", ["issue_refund", "async_refund"])
    def test_killed_before_restate_wrote_it_down_it_is_replayed(self, tool: str) -> None:
        self.serve(tool, crash="after settle")
        invocation = self.send()
        self.dies()
        self.serve(tool)
        assert self.restate.result(invocation) == "refund of p-1"
        assert self.effects == 1
        assert self.record().request.conversation == f"restate:{invocation}"

    # --- Restate's own retry ----------------------------------------------------------------------

    def test_doubt_that_the_key_resolves_is_tried_again_by_restate(self) -> None:
        self.serve("keyed_refund")
        self.provider.plan("fail once")
        assert self.restate.result(self.send()) == "refund of p-1"
        assert self.effects == 1

    def test_doubt_is_not_written_down_as_the_end(self) -> None:
        self.serve()
        self.provider.plan("fail once")
        invocation = self.send()
        until(
            lambda: self.effects and self.ledger.records.effective_state(self.record()) == "in_doubt", "doubt"
        )
        self.it_happened()
        assert self.restate.result(invocation) == "refund of p-1, as the provider says"
        assert self.effects == 1

    def test_a_failure_ends_the_invocation_and_says_which(self) -> None:
        self.serve("broken_refund")
        failed = self.restate.result(self.send())
        assert "the till is closed" in failed["message"]
        assert failed["metadata"]["code"] == "EFFECT_FAILED"
        assert self.effects == 1

    # --- who is asked -----------------------------------------------------------------------------

    @pytest.mark.parametrize("dies", [False, True])
    def test_a_person_is_waited_for_without_a_limit_of_tries_and_pays_once(self, dies: bool) -> None:
        self.serve("asked_refund")
        invocation = self.send()
        until(lambda: self.ledger.approvals.list("waiting"), "a person is asked")
        if dies:
            self.stop()
            self.serve("asked_refund")
        self.decide("approve")
        assert self.restate.result(invocation) == "refund of p-1"
        assert self.effects == 1
        assert self.deciders() == {"ann"}

    def test_a_rejection_ends_the_invocation(self) -> None:
        self.serve("asked_refund")
        invocation = self.send()
        self.decide("reject")
        assert self.restate.result(invocation)["metadata"]["code"] == "APPROVAL_REJECTED"
        assert self.effects == 0

    # --- two at once ------------------------------------------------------------------------------

    def test_a_second_invocation_while_the_first_one_pays_is_tried_again(self) -> None:
        self.serve("busy_refund")
        self.provider.plan("hold")
        order = f"order 42 {self.folder}"
        first = self.send("settle_in_step", order)
        self.provider.wait_until_held()
        second = self.send("settle_in_step", order)
        until(lambda: (self.folder / "settling-2").exists(), "the second one is under way")
        self.provider.plan("let go")
        assert [self.restate.result(each) for each in (first, second)] == ["refund of p-1"] * 2
        assert self.effects == 1

    # --- what is one action -----------------------------------------------------------------------

    def test_another_invocation_is_another_action_unless_restate_says_that_it_is_the_same(self) -> None:
        self.serve()
        for key in ("first", "second", "second"):
            assert self.restate.result(self.send(key=key + str(self.folder))) == "refund of p-1"
        assert self.effects == 2

    def test_a_conversation_of_the_authors_outlives_its_invocations(self) -> None:
        self.serve()
        for _ in range(2):
            assert (
                self.restate.result(self.send("settle_in_step", f"order 42 {self.folder}")) == "refund of p-1"
            )
        assert self.effects == 1
