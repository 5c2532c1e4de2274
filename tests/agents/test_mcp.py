"""MCP: FastMCP's servers and the official ones, in both eras of the protocol."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.agents.proofs import Proofs
from tests.agents.script import Job
from tests.agents.told_questions import UNTOLD


class McpProofs(Proofs):
    adapter = "tests.agents.mcp_agent"
    modes = ("async",)
    impossible: ClassVar[dict[str, str]] = UNTOLD
    options: ClassVar[dict[str, Any]]

    def job(self, *turns: Any, **said: Any) -> Job:
        said["options"] = {**self.options, **said.get("options", {})}
        return super().job(*turns, **said)


class TestFastMcp(McpProofs):
    options: ClassVar = {"server": "fastmcp"}


class TestFastMcpWithHandshake(McpProofs):
    options: ClassVar = {"server": "fastmcp", "era": "legacy"}


class TestOfficialServer(McpProofs):
    options: ClassVar = {"server": "official"}
    model_retries = True


class TestOfficialServerWithHandshake(McpProofs):
    options: ClassVar = {"server": "official", "era": "legacy"}
    model_retries = True


_ITS_FUNCTIONS = "a low-level server does not say which functions are its tools: it is refused"


class TestLowLevelServer(McpProofs):
    options: ClassVar = {"server": "low-level"}
    model_retries = True
    impossible: ClassVar = {
        **UNTOLD,
        "test_plain_functions_are_guarded_on_request": _ITS_FUNCTIONS,
        "test_a_guarded_plain_function_is_not_repeated_after_a_crash": _ITS_FUNCTIONS,
        "test_a_plain_function_that_says_that_it_only_reads_is_not_guarded": _ITS_FUNCTIONS,
    }
