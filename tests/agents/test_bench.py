"""What `make bench ROWS=agents` measures: both sides of each framework do what they say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import agent_rows


@pytest.mark.parametrize("side", ["guarded", "alone"])
@pytest.mark.parametrize("framework", [each for each in agent_rows.FRAMEWORKS if each != "crewai"])
def test_each_run_calls_the_tool_once(framework: str, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(agent_rows.ENVIRONMENTS, framework, Path(sys.prefix))
    measured = agent_rows.side_of(framework, side)
    try:
        assert all(measured.round(2) > 0 for _ in range(2))
        assert measured.did() == {"asked": 4, "effects": 4}
    finally:
        measured.close()
