"""Anthropic's tool runner."""

from __future__ import annotations

from typing import ClassVar

from tests.agents.proofs import Proofs
from tests.agents.told_questions import UNSEEN


class TestAnthropic(Proofs):
    adapter = "tests.agents.anthropic_agent"
    impossible: ClassVar = UNSEEN
