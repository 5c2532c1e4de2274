"""Which action a call is, where the messages of the conversation can be seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from semel.agents.telling import is_told, is_unfinished
from semel.contract.contract import Contract
from semel.errors import CallError, NoStep
from semel.ledger.ledger import Ledger

# What equal calls inside one turn are: one action; a new one once the earlier one's answer is in the history;
# each written call one of its own.
Repeat = Literal["never", "after-answer", "always"]


class Written(NamedTuple):
    """A call as it stands in the history."""

    turn: str  # the id of the message that its turn answers
    round: int  # which of the model's messages it stands in, counted upwards
    tool: str
    arguments: Mapping[str, Any]
    answer: str | None  # what `tell` said, "" for what else its answer was, None if it has none
    within: tuple[str, ...] | None = None  # the agents around it, where its answer says so


class History:
    """The calls in a conversation's saved messages, which are handed over oldest first.

    An id tells the calls of one of the model's messages apart, and no more: there are models that count from
    nought in each message, or give no ids.
    """

    def __init__(self, turn: str = "") -> None:
        self._turn, self._round, self._calls = turn, 0, list[Written]()
        # Where the calls of an id's last message stand; of these, which have to be answered yet.
        self._places, self._unanswered = dict[Any, list[int]](), dict[Any, list[int]]()

    def user(self, message: str | None) -> None:
        """A message of the user, by its id: a turn begins."""
        self._turn = message or ""

    def model(self, calls: Iterable[tuple[Any, str, Mapping[str, Any]]]) -> None:
        """A message of the model, with its calls: id (which is in no key), tool, arguments."""
        self._round += 1
        places: dict[Any, list[int]] = {}
        for id_, tool, arguments in calls:
            places.setdefault(id_, []).append(len(self._calls))
            self._calls.append(Written(self._turn, self._round, tool, arguments, None))
        self._places |= places
        self._unanswered |= {id_: [*each] for id_, each in places.items()}

    def answer(self, id_: Any, failure: str = "", within: tuple[str, ...] | None = None) -> None:
        """A tool's answer; its text if it is a failure, and within which agents that was told.

        One that `tell` did not make is none: somebody put into other words what may be in doubt.
        """
        if not (unanswered := self._unanswered.get(id_)):
            return
        # Calls with one id are answered in turn; of several answers to a call the last one counts.
        place = unanswered.pop(0) if len(unanswered) > 1 else unanswered[0]
        if not failure or is_told(failure):
            self._calls[place] = self._calls[place]._replace(answer=failure, within=within)

    def until(self, id_: Any, tool: str, arguments: Mapping[str, Any]) -> list[Written]:
        """The calls up to this one, which is to be made now; NoStep if nobody knows whom it answers."""
        if not self._turn:
            raise NoStep(
                "No message of the user is in the history, so the turn has no name; the tool did not run.",
                corrective_action="Keep the user's message, with its id, in what the framework saves.",
            )
        if not (places := self._places.get(id_)):
            return [*self._calls, Written(self._turn, self._round, tool, arguments, None)]
        # What is made may have been changed on its way here; then its id alone says which it is.
        own = (each for each in places if self._calls[each][2:4] == (tool, arguments))
        place = next(own, places[-1])
        return [*self._calls[:place], self._calls[place]._replace(tool=tool, arguments=arguments)]


@dataclass
class PlacedAction:
    turn: str  # that began it
    number: int  # among the equal ones of that turn
    seen_in: str = ""  # the turn and the round of its last call
    round: int = 0
    finished: bool = False
    within: tuple[str, ...] | None = None  # the agents around it, if one was told that it is unfinished

    @property
    def path(self) -> tuple[str, ...]:
        return (self.turn, str(self.number)) if self.number else (self.turn,)


def place(history: Sequence[Written], tool: Any, ledger: Ledger, repeat: Repeat = "never") -> PlacedAction:
    """The action that the last call of the history begins or continues.

    An action that was left unfinished, by an earlier turn or another agent, goes on in what follows: its key
    stays.
    """
    *earlier, own = _equal_to_last(history, contract_of(tool), ledger)
    actions: list[PlacedAction] = []
    for call in earlier:
        _action(actions, call, repeat)
    return _action(actions, own, repeat)


def _action(actions: list[PlacedAction], call: Written, repeat: Repeat) -> PlacedAction:
    """The action that the call begins or continues, as it stands after it."""
    action = next((each for each in actions if _is_continued(each, call, repeat)), None)
    if action is None:
        number = sum(each.turn == call.turn for each in actions)
        actions.append(action := PlacedAction(call.turn, number))
    if action.within is None:  # the first one stands: there is its key, whoever goes on with it or repeats it
        action.within = call.within
    action.seen_in, action.round = call.turn, call.round
    action.finished = call.answer is not None and not is_unfinished(call.answer)
    return action


def _is_continued(action: PlacedAction, call: Written, repeat: Repeat) -> bool:
    match repeat:
        case "never":
            return not action.finished or action.seen_in == call.turn
        case "after-answer":
            return not action.finished or action.round == call.round
        case _:
            return not action.finished and action.round != call.round


def _equal_to_last(history: Sequence[Written], contract: Contract | None, ledger: Ledger) -> list[Written]:
    """The calls of the history that mean the same action, oldest first."""
    *before, last = history
    earlier = [call for call in before if call.tool == last.tool]
    if not earlier or contract is None or not contract.recorded:
        return [last]
    own = _canonical(last, contract, ledger)
    return [*(call for call in earlier if own and _canonical(call, contract, ledger) == own), last]


def _canonical(call: Written, contract: Contract, ledger: Ledger) -> bytes | None:
    arguments = contract.arguments
    try:
        bound = arguments.bind((), dict(call.arguments))
        return arguments.canonical(arguments.validate(bound), ledger.store.secret_key)
    except CallError:
        return None  # such a call never ran


def contract_of(tool: Any) -> Contract | None:
    """The contract of what a framework was given as a tool; None for a plain function."""
    contract = getattr(tool, "contract", None)
    return contract if isinstance(contract, Contract) else None
