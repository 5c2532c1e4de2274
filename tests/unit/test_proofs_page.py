"""The page that says what is proven for each agent framework names tests that there are."""

from __future__ import annotations

import re

from tools.pages import ROOT

PLACES = ("tests/agents/*.py", "tests/faults/test_sqlalchemy.py")


def test_every_proof_that_the_page_names_is_a_test() -> None:
    page = (ROOT / "docs" / "how-to" / "agents" / "proofs.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    text = "".join(path.read_text() for place in PLACES for path in ROOT.glob(place))
    assert len(named) > 40
    assert {name for name in named if f"def {name}(" not in text} == set()
