"""What integrations with agent frameworks share, and what anyone can build another on.

The step is the user's turn: conversation = the framework's durable thread, step = the id of the message that
the turn answers, both from the framework's own saved state. So a model that calls again meets the same key,
and the next turn is new.

turns     `turn`: where keys are made while an agent answers one message
telling   `tell`: a contract's answer as a message for the model; `told_by_engine`: out of an engine's error
asking    `question`, `decide`, and the same awaited: what a person is asked, and what they said
guarding  `guard`, `aguard`: one call; what its contract answers is told, what it asks is asked
calling   `perform`, `aperform`: the same for tools that an integration calls itself; `with_contract`;
          `refuse_shown`: no model fills what is injected
history   `History`, `place`: which action of its turn a call is, where the history can be seen (`repeat=`)
tool_use  `AgentGuard`: all of this for one call of a model, by the rules of the integration's user

An integration hands over what its framework calls things by, and keeps nothing of its own.
"""

from __future__ import annotations

from semel.agents.asking import UNNAMED, adecide, aquestion, decide, question, unless_decided
from semel.agents.calling import Undecorated, afunction, aperform, perform, refuse_shown, with_contract
from semel.agents.guarding import Ask, Told, aguard, guard
from semel.agents.history import History, Repeat, Written, contract_of, place
from semel.agents.telling import is_told, is_unfinished, tell, told_by_engine
from semel.agents.tool_use import AgentGuard, Kept, Location, Rules, ToolUse, check_rules
from semel.agents.turns import Turn, turn

__all__ = [
    "UNNAMED",
    "AgentGuard",
    "Ask",
    "History",
    "Kept",
    "Location",
    "Repeat",
    "Rules",
    "Told",
    "ToolUse",
    "Turn",
    "Undecorated",
    "Written",
    "adecide",
    "afunction",
    "aguard",
    "aperform",
    "aquestion",
    "check_rules",
    "contract_of",
    "decide",
    "guard",
    "is_told",
    "is_unfinished",
    "perform",
    "place",
    "question",
    "refuse_shown",
    "tell",
    "told_by_engine",
    "turn",
    "unless_decided",
    "with_contract",
]
