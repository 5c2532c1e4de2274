"""The pages of the frameworks; CrewAI's is with its own tests, in its own environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.pages import run_page

# Each page, and the adapter whose `model(job)` it is run with, if it has a model. Restate's is with its own
# tests, which have the server.
PAGES: dict[str, str | None] = {
    "langgraph": "langgraph_agent",
    "pydantic-ai": "pydantic_ai_agent",
    "openai-agents": "openai_agents_agent",
    "google-adk": "google_adk_agent",
    "agent-framework": "agent_framework_agent",
    "anthropic": "anthropic_agent",
    "mcp": None,
    "dbos": None,
    "celery": None,
}


# Some of what they use calls itself experimental.
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(page, PAGES[page], tmp_path, monkeypatch)["ledger"].close()
