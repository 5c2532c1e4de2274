"""What the scripted model says, in which turn and round; and what a test sees of an agent."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.agents.provider import Provider

_numbers = itertools.count()


class Call(NamedTuple):
    """The model calls a tool."""

    tool: str
    arguments: dict[str, Any]


def new_call_id() -> str:
    """Another one each time that the model is asked, as models do: nothing may depend on it."""
    return f"call_{os.urandom(6).hex()}_{next(_numbers)}"


def refund(
    payment_id: str = "p-1", reason: str = "damaged", tool: str = "issue_refund", amount: int = 700
) -> Call:
    return Call(tool, {"payment_id": payment_id, "amount_minor": amount, "reason": reason})


Round = list[Call] | str
"""What the model says at once: calls, or a text that ends its turn."""


@dataclass(frozen=True)
class Job:
    """What a child of the server does."""

    folder: Path
    script: list[list[Round]]  # turns, of rounds
    message: str = "refund p-1"
    message_id: str = "message-1"
    verdict: Any = None
    mode: str = "invoke"
    guarded: bool = True
    tools: tuple[str, ...] = ("issue_refund",)
    options: dict[str, Any] = field(default_factory=dict)
    conversation: str = "conversation-1"

    @property
    def provider(self) -> Provider:
        return Provider(self.folder)

    @property
    def ledger_url(self) -> str:
        return f"sqlite:///{self.folder}/ledger.db"

    def says(self, turn: int, round_: int) -> Round:
        """What the model says after so many messages of the user, and so many of its own since the last."""
        if round_:
            self.provider.dies_after()
        rounds = self.script[min(turn, len(self.script)) - 1]
        return rounds[min(round_, len(rounds) - 1)]


@dataclass
class Seen:
    """What came out, as far as a test looks at it."""

    answers: list[str] = field(default_factory=list)  # of tools, to the model, in the present turn
    questions: list[dict[str, Any]] = field(default_factory=list)  # that the framework shows to a person
    text: str = ""  # the model's last words
    extra: Any = None
