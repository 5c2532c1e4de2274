"""LangGraph and LangChain agents: a tool's effect lands once per turn, however often the graph is resumed.

    agent = create_agent(model, [issue_refund], middleware=[SemelMiddleware(ledger)], checkpointer=saver)

Last in the list, so that it is next to the tool: what retries, limits or rewrites calls stands outside of it.
In nodes of your own: `with step(ledger): issue_refund(…)`.

    conversation   the `thread_id`
    step           the names of the subgraphs, and the id of the user's last message in the saved state

`task_id`, `tool_call_id` and checkpoint ids are in no key: they change when a run is resumed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Annotated, Any, NotRequired, TypeAlias, Unpack
from uuid import UUID

from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain.agents.middleware.types import PrivateStateAttr, ToolCallRequest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph._internal._constants import (
    CONFIG_KEY_CHECKPOINT_MAP,
    CONFIG_KEY_CHECKPOINTER,
    CONFIG_KEY_READ,
    CONFIG_KEY_SCRATCHPAD,
    CONFIG_KEY_TASK_ID,
    INTERRUPT,
    NULL_TASK_ID,
    RESUME,
)
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.types import Command, interrupt

from semel.agents import (
    AgentGuard,
    History,
    Kept,
    Location,
    Rules,
    Told,
    ToolUse,
    Turn,
    adecide,
    decide,
    unless_decided,
)
from semel.errors import NoStep
from semel.ledger.ledger import Ledger

Answer: TypeAlias = "ToolMessage | Command[Any]"


class _TurnState(AgentState[Any]):
    semel_turn: NotRequired[Annotated[str, PrivateStateAttr]]  # type: ignore[valid-type]


class SemelMiddleware(AgentMiddleware[Any, Any, Any]):
    """Tools with a contract run in the turn that calls them; what the contract says is a tool message.

    A contract with `approval` interrupts the graph with its question; `Command(resume=True)`, or another form
    of verdict, answers it. `approver` decides where the verdict names nobody.
    """

    state_schema = _TurnState

    def __init__(self, ledger: Ledger, **rules: Unpack[Rules]) -> None:
        super().__init__()
        self._guard = AgentGuard(ledger, **rules)

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:  # noqa: ARG002
        """The turn's name is saved: a summary may replace the user's message in the middle of it."""
        return {"semel_turn": _users_message(state["messages"])}

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Answer]
    ) -> Answer:
        ask = partial(_ask, self._guard)
        outcome = self._guard.run(_use(request), partial(handler, request), ask, _data)
        return _answer(request, outcome)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Answer]]
    ) -> Answer:
        ask = partial(_aask, self._guard)
        outcome = await self._guard.arun(_use(request), partial(handler, request), ask, _data)
        return _answer(request, outcome)


def step(ledger: Ledger, **rules: Unpack[Rules]) -> Turn:
    """The turn in which the present node runs; in a graph without messages, this visit to the node."""
    config = get_config()
    thread, names = _thread(config)
    message = _users_message(_state_messages(config))
    visit = (*names[:-1], message) if message else (*names, *_visit(config))
    return AgentGuard(ledger, **rules).turn(thread, visit)


def _visit(config: Mapping[str, Any]) -> Iterator[str]:
    """The number of this step in the run, after those of the graphs around: a subgraph counts from nought.

    LangGraph hands a node its own graph's number; another's is the clock sequence of its checkpoint's id.
    """
    settings = config["configurable"]
    places = str(settings.get("checkpoint_ns") or "").split("|")
    for namespace in ("|".join(places[:depth]) for depth in range(len(places) - 1)):
        if checkpoint := settings[CONFIG_KEY_CHECKPOINT_MAP].get(namespace):
            yield str((UUID(checkpoint).clock_seq + 1) % _CLOCK_SEQUENCES)
    yield str(config["metadata"]["langgraph_step"])


_CLOCK_SEQUENCES = 2**14


def _ask(guard: AgentGuard, question: dict[str, Any], new: bool) -> Any:
    """What the person said to this question. The graph is interrupted if they were shown another one."""
    answer = _Resumed(question)
    other = answer.other(question, new, [answer.saver.get_tuple(each) for each in answer.places])
    answer.saver.put_writes(answer.places[0], _TAKEN, NULL_TASK_ID)
    if other is None:
        return answer.verdict
    if other:
        with unless_decided():
            decide(guard.ledger, other, answer.verdict, guard.approver)
    raise answer.interrupted


async def _aask(guard: AgentGuard, question: dict[str, Any], new: bool) -> Any:
    """The same from an event loop."""
    answer = _Resumed(question)
    other = answer.other(question, new, [await answer.saver.aget_tuple(each) for each in answer.places])
    await answer.saver.aput_writes(answer.places[0], _TAKEN, NULL_TASK_ID)
    if other is None:
        return answer.verdict
    if other:
        with unless_decided():
            await adecide(guard.ledger, other, answer.verdict, guard.approver)
    raise answer.interrupted


# The calls of a ToolNode run side by side and take their answers from one list.
_taking_answers = Lock()

# LangGraph leaves an answer where it was, and would give it to the next question of a resumed run as well.
_TAKEN = [(RESUME, None)]


class _Resumed:
    """What the graph was resumed with last. GraphInterrupt if it was not."""

    def __init__(self, question: dict[str, Any]) -> None:
        settings = get_config()["configurable"]
        with _taking_answers:
            try:
                while True:
                    interrupt(question)
            except GraphInterrupt as interrupted:
                self.interrupted = interrupted
        self._all = [*settings[CONFIG_KEY_SCRATCHPAD].resume]
        if not self._all:
            raise self.interrupted
        self.verdict, self.saver = self._all[-1], settings[CONFIG_KEY_CHECKPOINTER]
        self._task = settings[CONFIG_KEY_TASK_ID]
        around = str(settings.get("checkpoint_ns") or "").rpartition("|")[0]
        # Of the whole graph, which has what the person was shown; of the one around this node.
        self.places = [_place(settings, each) for each in ("", around)]

    def other(self, question: Mapping[str, Any], new: bool, saved: Sequence[Any]) -> dict[str, Any] | None:
        """The question that was answered instead, empty if that was none of ours; None if it was this one."""
        whole, here = ([] if each is None else each.pending_writes or [] for each in saved)
        if (self._task, RESUME, self._all) in here:  # it was read before, for what was asked then
            return {}
        shown = [each.value for _, channel, value in whole if channel == INTERRUPT for each in value]
        if not new and (not shown or any(_get(each, "job_hash") == question["job_hash"] for each in shown)):
            return None
        return shown[0] if len(shown) == 1 and _get(shown[0], "job_hash") else {}


def _place(settings: Mapping[str, Any], namespace: str) -> Any:
    """A checkpoint on the way here, as its saver finds it."""
    checkpoint = settings[CONFIG_KEY_CHECKPOINT_MAP].get(namespace)
    named = {"thread_id": settings["thread_id"], "checkpoint_ns": namespace, "checkpoint_id": checkpoint}
    return {"configurable": named}


def _use(request: ToolCallRequest) -> ToolUse:
    call, tool = request.tool_call, request.tool

    def locate() -> Location:
        thread, names = _thread(request.runtime.config)
        return thread, names[:-1], _history(request.state).until(call["id"], call["name"], call["args"])

    def schema() -> Any:
        return tool.tool_call_schema.model_json_schema()

    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    return ToolUse(function, call["name"], call["args"], locate, schema, getattr(tool, "metadata", None))


def _data(answer: Answer) -> Any:
    """What is kept of a plain function's answer; nothing of a Command, which changes the graph's state."""
    return {"content": answer.content} if isinstance(answer, ToolMessage) else answer


def _answer(request: ToolCallRequest, outcome: Answer | Told | Kept) -> Answer:
    name, id_ = request.tool_call["name"], request.tool_call["id"]
    if isinstance(outcome, Told):
        # Not for the model: it says to other agents whose action this is.
        within = outcome.at.within if isinstance(outcome.at, Turn) else None
        artifact = None if within is None else {_WITHIN: [*within]}
        return ToolMessage(outcome.text, name=name, tool_call_id=id_, status="error", artifact=artifact)
    return ToolMessage(**outcome.data, name=name, tool_call_id=id_) if isinstance(outcome, Kept) else outcome


def _thread(config: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The thread, and the names of the nodes on the way here; their ids change when a run is resumed."""
    settings = config.get("configurable", {})
    thread = settings.get("thread_id")
    if thread is None:
        raise NoStep(
            "This graph runs without a thread, so its turns have no name that outlives a crash; no tool ran.",
            corrective_action='Give it a checkpointer and config={"configurable": {"thread_id": …}}.',
        )
    places = str(settings.get("checkpoint_ns") or "").split("|")
    return str(thread), tuple(place.partition(":")[0] for place in places)


def _history(state: Any) -> History:
    history = History(_get(state, "semel_turn") or "")
    for message in _get(state, "messages") or ():
        if _is_users(message):
            history.user(message.id)
        elif isinstance(message, AIMessage):
            history.model((call["id"], call["name"], call["args"]) for call in message.tool_calls)
        elif isinstance(message, ToolMessage):
            failure = str(message.content) if message.status == "error" else ""
            history.answer(message.tool_call_id, failure, _told_within(message))
    return history


_WITHIN = "semel_within"


def _told_within(message: ToolMessage) -> tuple[str, ...] | None:
    artifact = message.artifact
    within = artifact.get(_WITHIN) if isinstance(artifact, Mapping) else None
    return tuple(within) if isinstance(within, list) else None


def _is_users(message: Any) -> bool:
    """A summary of earlier messages is written as if the user had sent it."""
    return isinstance(message, HumanMessage) and not message.additional_kwargs.get("lc_source")


def _users_message(messages: Iterable[Any]) -> str:
    """The id of the last one."""
    return next((str(each.id or "") for each in reversed([*messages]) if _is_users(each)), "")


def _get(state: Any, name: str) -> Any:
    if isinstance(state, Mapping):
        return state.get(name)
    return state if isinstance(state, list) and name == "messages" else getattr(state, name, None)


def _state_messages(config: Mapping[str, Any]) -> Any:
    """The messages of the state that the present node was given, if its graph has any."""
    try:
        return config["configurable"][CONFIG_KEY_READ]("messages") or ()
    except KeyError:
        return ()
