"""Anthropic's tool runner."""

from __future__ import annotations

from typing import ClassVar

import semel
from semel.integrations.anthropic import turn
from tests.agents.proofs import Proofs
from tests.agents.told_questions import UNSEEN


class TestAnthropic(Proofs):
    adapter = "tests.agents.anthropic_agent"
    impossible: ClassVar = UNSEEN


def test_its_turn_is_named_as_the_interface_names_it() -> None:
    with semel.open("memory://") as ledger:
        made = turn(ledger, conversation="ticket-42", message_id="message-1")
        assert (made.conversation, made.path) == ("ticket-42", ("message-1",))
