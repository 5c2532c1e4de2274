"""The examples of agents run as they are, each by its one command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples" / "agents").glob("*_support.py"))


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_support_agent_refunds_and_mails_once(example: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", f"examples.agents.{example}"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "approved by bob; 2 effects: refund of 4200 for p-7, mail to ada@example.org" in ran.stdout
