"""MCP: what travels with a call, whom a server trusts with it, and what it does without it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.exceptions import ToolError
from fastmcp.server.middleware.error_handling import RetryMiddleware
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer

import semel
from bench.servers import free_port
from semel.errors import ContractError, NoStep, StepError
from semel.integrations import mcp_guard
from semel.integrations.fastmcp import SemelMiddleware
from semel.integrations.mcp import guard_server, meta
from semel.integrations.mcp_guard import STEP
from tests.agents.engines import EngineProofs
from tests.agents.script import refund
from tests.faults.checks import until
from tests.tools import declared

effects: list[str] = []


@pytest.fixture(autouse=True)
def nothing_happened() -> None:
    effects.clear()


@pytest.fixture
def ledger() -> Iterator[semel.Ledger]:
    with semel.open("memory://") as ledger:
        yield ledger


@pytest.fixture
def clients_ledger() -> Iterator[semel.Ledger]:
    """Of another store, as a client has it who is somebody else."""
    with semel.open("memory://") as ledger:
        yield ledger


@declared()
def pay(account: str) -> str:
    effects.append(account)
    if account == "slow" and len(effects) == 1:
        raise TimeoutError("no answer")
    return f"paid {account}"


@declared(scopes={"payments"})
def pay_out(account: str) -> str:
    effects.append(account)
    return f"paid {account}"


@declared(approval="required")
def pay_much(account: str) -> str:
    effects.append(account)
    return f"paid {account}"


def look(account: str) -> str:
    """A plain function."""
    effects.append(account)
    return f"{account} has {len(effects)}"


def fastmcp(ledger: semel.Ledger, **rules: Any) -> FastMCP:
    return with_tools(FastMCP("pay", middleware=[SemelMiddleware(ledger, **rules)]))


def official(ledger: semel.Ledger, **rules: Any) -> Any:
    server = MCPServer("pay")
    for tool in (pay, pay_out, pay_much, look):
        server.add_tool(tool)
    guard_server(server, ledger, **rules)
    return server


def with_tools(server: FastMCP) -> FastMCP:
    for tool in (pay, pay_out, pay_much, look):
        server.tool(tool)
    return server


every_server = pytest.mark.parametrize("server_of", [fastmcp, official])
every_era = pytest.mark.parametrize("era", ["auto", "legacy"])


def run(server: Any, story: Callable[[Any], Any], era: str = "auto", **how: Any) -> Any:
    """What a client sees."""

    async def told() -> Any:
        async with Client(server, mode=era, **how) as client:

            async def call(tool: str, account: str, sent: Any = None) -> str:
                answer = await client.call_tool(tool, {"account": account}, meta=sent, raise_on_error=False)
                return str(answer.content[0].text)

            return await story(call)

    return asyncio.run(told())


def in_step(ledger: semel.Ledger, name: str = "s", **said: Any) -> Any:
    return ledger.step(conversation="c", step=name, **said)


# --- what travels ---------------------------------------------------------------------------------------


def test_the_step_travels_without_scopes_and_signed(ledger: semel.Ledger) -> None:
    with in_step(ledger, scopes={"payments"}):
        sent = meta()
    assert sent.keys() == {STEP}
    assert "payments" not in json.dumps(sent)
    assert {"conversation": "c", "path": ["s"]}.items() <= sent[STEP].items()
    assert len(sent[STEP]["signature"]) == 64


def test_outside_a_step_nothing_can_travel() -> None:
    with pytest.raises(NoStep, match="nothing was sent"):
        meta()


@every_era
@every_server
def test_equal_calls_of_one_step_are_one_action(server_of: Any, era: str, ledger: semel.Ledger) -> None:
    async def story(call: Any) -> list[str]:
        with in_step(ledger):
            first = [await call("pay", "a", meta()) for _ in range(2)]
        with in_step(ledger, "another"):
            return [*first, await call("pay", "a", meta())]

    assert run(server_of(ledger), story, era) == ["paid a"] * 3
    assert effects == ["a", "a"]


@every_server
def test_a_client_of_another_store_has_its_own_steps(
    server_of: Any, ledger: semel.Ledger, clients_ledger: semel.Ledger
) -> None:
    async def story(call: Any) -> None:
        for theirs in (clients_ledger, ledger):
            with in_step(theirs):
                assert [await call("pay", "a", meta()) for _ in range(2)] == ["paid a"] * 2

    run(server_of(ledger), story)
    assert effects == ["a", "a"]


@every_server
@pytest.mark.parametrize(
    "changed",
    [{"conversation": "d"}, {"path": ["t"]}, {"principal": "root"}, {"signature": ""}, {"tenant": "x"}],
)
def test_a_step_that_was_changed_on_its_way_is_refused(
    server_of: Any, changed: dict[str, Any], ledger: semel.Ledger
) -> None:
    async def story(call: Any) -> str:
        with in_step(ledger):
            return str(await call("pay", "a", {STEP: {**meta()[STEP], **changed}}))

    assert run(server_of(ledger), story).startswith("STEP_ERROR: ")
    assert effects == []


@every_server
@pytest.mark.parametrize(
    "sent",
    [None, "c", [], {}, {"path": []}, {"path": ["s"] * 1_000}, {"path": [1], "conversation": "c"},
     {"path": ["s"]}, {"path": ["s"], "conversation": "c" * 1_000}, {"path": ["s"], "conversation": ["c"]}],
)  # fmt: skip
def test_what_is_no_step_is_refused(server_of: Any, sent: Any, ledger: semel.Ledger) -> None:
    async def story(call: Any) -> str:
        return str(await call("pay", "a", {STEP: sent}))

    assert run(server_of(ledger), story).startswith(("STEP_ERROR: ", "NO_STEP: "))
    assert effects == []


@every_server
def test_a_changed_store_does_not_lead_to_somebody_elses_action(server_of: Any, ledger: semel.Ledger) -> None:
    async def story(call: Any) -> str:
        with in_step(ledger):
            await call("pay", "a", meta())
            return str(await call("pay", "a", {STEP: {**meta()[STEP], "store": "x", "signature": "x"}}))

    assert run(server_of(ledger), story) == "paid a"
    assert effects == ["a", "a"]


# --- without a step -------------------------------------------------------------------------------------


@every_era
@every_server
def test_without_a_step_a_recorded_tool_refuses_and_a_plain_one_does_not(
    server_of: Any, era: str, ledger: semel.Ledger
) -> None:
    async def story(call: Any) -> list[str]:
        return [await call("pay", "a"), await call("look", "b")]

    refused, looked = run(server_of(ledger), story, era)
    assert refused.startswith("NO_STEP: ")
    assert 'missing="each"' in refused
    assert (looked, effects) == ("b has 1", ["b"])


@every_server
def test_a_server_in_the_process_of_its_client_does_not_see_that_ones_step(
    server_of: Any, ledger: semel.Ledger
) -> None:
    async def story(call: Any) -> str:
        return str(await call("pay", "a"))

    with in_step(ledger):
        assert run(server_of(ledger), story).startswith("NO_STEP: ")
    assert effects == []


@every_era
@every_server
def test_each_call_is_an_action_of_its_own_on_request(server_of: Any, era: str, ledger: semel.Ledger) -> None:
    async def story(call: Any) -> list[str]:
        plain = [await call("pay", "a") for _ in range(2)]
        with in_step(ledger):
            return [*plain, *[await call("pay", "a", meta()) for _ in range(2)]]

    assert run(server_of(ledger, missing="each"), story, era) == ["paid a"] * 4
    assert effects == ["a"] * 3


def test_calls_of_their_own_are_not_remembered_for_ever(
    ledger: semel.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_guard, "_ALONE_MAX", 2)
    guard = SemelMiddleware(ledger, missing="each")
    left: list[int] = []

    async def story(call: Any) -> None:
        for _ in range(5):
            await call("pay", "a")
            left.extend(len(each) for each in guard._guard._alone.values())

    run(with_tools(FastMCP("pay", middleware=[guard])), story, "legacy")
    assert len(effects) == 5
    assert max(left, default=0) <= 2  # none at all, where the session has gone already


def test_what_retries_inside_the_server_is_the_same_call(ledger: semel.Ledger) -> None:
    async def story(call: Any) -> str:
        return str(await call("pay", "slow"))

    guard = SemelMiddleware(ledger, missing="each")
    retrying = RetryMiddleware(max_retries=2, base_delay=0)
    server = with_tools(FastMCP("pay", middleware=[retrying, guard]))
    assert run(server, story).startswith("OUTCOME_UNKNOWN: ")
    assert effects == ["slow"]


def test_what_is_missing_is_said_in_one_of_two_words(ledger: semel.Ledger) -> None:
    with pytest.raises(StepError, match="refuse, each"):
        SemelMiddleware(ledger, missing="guess")  # type: ignore[arg-type]


def test_the_servers_own_program_calls_in_no_step(ledger: semel.Ledger) -> None:
    answer = asyncio.run(fastmcp(ledger).call_tool("pay", {"account": "a"}))
    assert answer.content[0].text.startswith("NO_STEP: ")
    assert asyncio.run(fastmcp(ledger).call_tool("look", {"account": "a"})).content[0].text == "a has 1"


# --- plain functions ------------------------------------------------------------------------------------


@every_server
def test_plain_functions_get_the_bare_contract_on_request(server_of: Any, ledger: semel.Ledger) -> None:
    async def story(call: Any) -> list[str]:
        with in_step(ledger):
            return [await call("look", "a", meta()) for _ in range(2)] + [await call("pay", "b", meta())]

    assert run(server_of(ledger, undecorated="guard"), story) == ["a has 1", "a has 1", "paid b"]
    assert effects == ["a", "b"]


def test_a_plain_function_that_only_reads_is_left_alone(ledger: semel.Ledger) -> None:
    server = FastMCP("pay", middleware=[SemelMiddleware(ledger, undecorated="guard")])
    server.tool(look, annotations={"readOnlyHint": True})

    async def story(call: Any) -> list[str]:
        with in_step(ledger):
            return [await call("look", "a", meta()) for _ in range(2)]

    assert run(server, story) == ["a has 1", "a has 2"]


def test_a_low_level_server_cannot_say_which_functions_are_plain(ledger: semel.Ledger) -> None:
    with pytest.raises(ContractError, match="low-level"):
        guard_server(Server("pay"), ledger, undecorated="guard")


# --- people ---------------------------------------------------------------------------------------------


def person(*answers: Any) -> tuple[Any, list[str]]:
    """Gives these answers one after the other; and what they were asked."""
    left, asked = list(answers), []

    async def answer(message: str, *_: Any) -> Any:
        asked.append(message)
        return left.pop(0)

    return answer, asked


async def _pay_much(call: Any) -> str:
    return str(await call("pay_much", "a", meta()))


@every_era
@every_server
@pytest.mark.parametrize("missing", ["refuse", "each"])
def test_a_person_is_asked_what_exactly_and_decides(
    server_of: Any, era: str, missing: Any, ledger: semel.Ledger
) -> None:
    answer, asked = person({"decision": "approve", "reason": "known customer"})

    async def story(call: Any) -> str:
        return str(await call("pay_much", "a", meta() if missing == "refuse" else None))

    server = server_of(ledger, missing=missing, approver="ann")
    with in_step(ledger) if missing == "refuse" else nullcontext():
        assert run(server, story, era, elicitation_handler=answer) == "paid a"
    assert effects == ["a"]
    [question] = asked
    assert question.startswith('May pay_much run with {"account": "a"}? Open until ')
    [decided] = ledger.approvals.list()
    assert (decided.status, decided.decided_by, decided.reason) == ("approved", "ann", "known customer")


@every_era
@every_server
@pytest.mark.parametrize(
    "no", [{"decision": "reject"}, ElicitResult(action="decline")], ids=["reject", "decline"]
)
def test_a_no_stays(server_of: Any, era: str, no: Any, ledger: semel.Ledger) -> None:
    answer, asked = person(no)
    with in_step(ledger):
        for _ in range(2):
            told = run(server_of(ledger), _pay_much, era, elicitation_handler=answer)
            assert told.startswith("APPROVAL_REJECTED: ")
    assert (effects, len(asked)) == ([], 1)


@every_era
@every_server
@pytest.mark.parametrize(
    "first", [ElicitResult(action="cancel"), {"decision": "perhaps"}, {}], ids=["cancel", "other", "none"]
)
def test_who_cancels_has_not_decided(server_of: Any, era: str, first: Any, ledger: semel.Ledger) -> None:
    answer, asked = person(first, {"decision": "approve"})
    with in_step(ledger):
        told = run(server_of(ledger), _pay_much, era, elicitation_handler=answer)
        assert told.startswith("APPROVAL_REQUIRED: ")
        assert run(server_of(ledger), _pay_much, era, elicitation_handler=answer) == "paid a"
    assert (effects, len(asked)) == (["a"], 2)


@every_era
@every_server
def test_a_client_that_cannot_ask_is_told_and_somebody_else_decides(
    server_of: Any, era: str, ledger: semel.Ledger
) -> None:
    with in_step(ledger):
        assert run(server_of(ledger), _pay_much, era).startswith("APPROVAL_REQUIRED: ")
        [question] = ledger.approvals.list("waiting")
        ledger.approvals.approve(question.job_id, by="ann")
        assert run(server_of(ledger), _pay_much, era) == "paid a"
    assert effects == ["a"]


# --- a server in a process of its own ----------------------------------------------------------------------


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


class TestOverHttp(EngineProofs):
    adapter = "tests.agents.mcp_agent"

    @pytest.fixture(autouse=True)
    def programs(self, stage: None, tmp_path: Path) -> Iterator[None]:
        self.port, self.running = free_port(), 0
        with semel.open(f"sqlite:///{tmp_path}/client.db") as self.clients:
            yield
        if self.running:
            os.kill(self.running, signal.SIGKILL)
            self.dies()

    def serve(self, tool: str = "issue_refund", *, guarded: bool = True, **options: Any) -> None:
        job = self.job(tool, guarded=guarded, options={"port": self.port, **options})
        self.running = self.server.start("serve", job)
        until(lambda: _listens(self.port), "the server listens")

    def dies(self) -> None:
        assert self.server.wait(self.running).killed
        self.running = 0

    def call(self, tool: str = "issue_refund", token: str | None = None) -> str:
        """As a program does that was resumed: in the same step each time, over a connection of its own."""

        async def called() -> str:
            transport = StreamableHttpTransport(f"http://127.0.0.1:{self.port}/mcp", auth=token)
            async with Client(transport) as client:
                with in_step(self.clients):
                    answer = await client.call_tool(
                        tool, refund().arguments, meta=meta(), raise_on_error=False
                    )
            return str(answer.content[0].text)

        return asyncio.run(called())

    def test_without_semel_a_client_that_calls_again_after_the_servers_death_pays_twice(self) -> None:
        self.serve(guarded=False)
        self.provider.plan("kill inside")
        with pytest.raises((Exception, ExceptionGroup)):
            self.call()
        self.dies()
        self.serve(guarded=False)
        assert self.call() == "refund of p-1"
        assert self.effects == 2

    @pytest.mark.parametrize("tool", ["issue_refund", "async_refund"])
    def test_killed_inside_the_effect_a_client_that_calls_again_is_told(self, tool: str) -> None:
        self.serve(tool)
        self.provider.plan("kill inside")
        with pytest.raises((Exception, ExceptionGroup)):
            self.call(tool)
        self.dies()
        self.serve(tool)
        assert self.call(tool).startswith("OUTCOME_UNKNOWN: ")
        self.it_happened()
        assert self.call(tool) == "refund of p-1, as the provider says"
        assert self.effects == 1

    def test_killed_inside_the_effect_a_downstream_that_knows_the_key_pays_once(self) -> None:
        self.serve("keyed_refund")
        self.provider.plan("kill inside")
        with pytest.raises((Exception, ExceptionGroup)):
            self.call("keyed_refund")
        self.dies()
        self.serve("keyed_refund")
        assert [self.call("keyed_refund") for _ in range(2)] == ["refund of p-1"] * 2
        assert self.effects == 1

    def test_one_callers_step_is_nothing_to_another(self) -> None:
        self.serve(tokens=True)
        assert [self.call(token=token) for token in ("ann", "bob", "ann")] == ["refund of p-1"] * 3
        assert self.effects == 2
        principals = {record.request.principal for record in self.ledger.records.list(scope="tool")}
        assert principals == {'["agent", null, "ann"]', '["agent", null, "bob"]'}

    def test_a_token_grants_its_scopes_and_no_others(self) -> None:
        self.serve("scoped_refund", tokens=True)
        assert self.call("scoped_refund", "ann") == "refund of p-1"
        assert self.call("scoped_refund", "bob").startswith("SCOPE_DENIED: ")
        assert self.effects == 1

    def test_a_caller_without_a_token_is_turned_away_by_the_server(self) -> None:
        self.serve(tokens=True)
        with pytest.raises((Exception, ToolError)):
            self.call()
        assert self.effects == 0
