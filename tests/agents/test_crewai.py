"""CrewAI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

import pytest

import semel
from semel.errors import ContractError
from tests.agents.pages import run_page
from tests.agents.proofs import Proofs
from tests.agents.told_questions import UNSEEN


class TestCrewAI(Proofs):
    adapter = "tests.agents.crewai_agent"
    impossible: ClassVar = UNSEEN


@pytest.mark.filterwarnings("ignore")
def test_what_its_page_shows_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page("crewai", "crewai_agent", tmp_path, monkeypatch)["ledger"].close()


@pytest.mark.filterwarnings("ignore")
def test_an_injected_parameter_that_crewai_would_show_to_the_model_is_refused() -> None:
    # Here, not on top: importing CrewAI warns.
    from semel.integrations.crewai import tools

    @semel.tool_contract
    def say(text: str, user: Annotated[str, semel.Injected] = "nobody") -> str:
        """Say something as this user."""
        return f"{user}: {text}"

    with pytest.raises(ContractError, match=r"'say'.*'user'.*the model"):
        tools(say)
