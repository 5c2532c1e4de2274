"""What `semel.Injected` marks is somebody else's to fill: no framework may ask the model for it."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import pytest

import semel
from semel.errors import ContractError

FRAMEWORKS = ("agent_framework", "anthropic", "google_adk", "openai_agents")


@semel.tool_contract
def say(text: str, user: Annotated[str, semel.Injected] = "nobody") -> str:
    """Say something as this user."""
    return f"{user}: {text}"


def tools_of(framework: str, tool: Any) -> Any:
    module = importlib.import_module(f"semel.integrations.{framework}")
    given = (semel.open("memory://"),) if framework == "google_adk" else ()
    return module.tools(*given, tool)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_one_that_the_framework_would_show_to_the_model_is_refused(framework: str) -> None:
    with pytest.raises(ContractError, match=r"'say'.*'user'.*the model"):
        tools_of(framework, say)
