"""What the page of a framework shows runs as it stands there; only the model is ours, and scripted."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.agents.script import Job, refund
from tools.pages import ROOT, blocks

# What the pages call the model that refunds, and the one whose refund a person is asked about.
MODELS = {
    "model": [[[refund()], "done"]],
    "asking_model": [[[refund("p-3", tool="refund_much")], "done"]],
}


def run_page(page: str, adapter: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Runs its blocks one after the other, with the models that `adapter.model(job)` makes.

    What the blocks have defined; its ledger is closed with the test's process at the latest.
    """
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": page}
    if adapter is not None:
        model = importlib.import_module(f"tests.agents.{adapter}").model
        names |= {name: model(Job(folder, turns)) for name, turns in MODELS.items()}
    path = ROOT / "docs" / "how-to" / "agents" / f"{page}.md"
    shown = [block for block in blocks(path.read_text()) if block.language == "python"]
    for block in shown:
        # On the page's own lines, so that a failure names them.
        text = "\n" * (block.first_line - 1) + "\n".join(block.lines)
        exec(compile(text, str(path), "exec"), names)
    assert shown
    return names
