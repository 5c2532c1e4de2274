"""What the servers of MCP share: from a call as it came in to the step in which its tool runs."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypedDict, TypeVar, Unpack, get_args
from weakref import WeakKeyDictionary

from mcp.server.auth.provider import AccessToken, principal_components
from mcp.server.session import ServerSession
from mcp_types import (
    CallToolResult,
    ClientCapabilities,
    ElicitationCapability,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequests,
    InputRequiredResult,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from semel.agents import UNNAMED, AgentGuard, Kept, Told, ToolUse, Turn, check_rules, turn
from semel.call.step import Step, outside_step, resumed_step
from semel.contract.raised import contracts_answer
from semel.errors import NoStep, StepError
from semel.ledger.ledger import Ledger

T = TypeVar("T")

STEP = "dev.semel/step"

Missing = Literal["refuse", "each"]

# Of a step that came from outside: more names than any program nests, so that nobody sends a million.
_PATH_MAX = 64

# Steps of calls that came without one: more than a session has under way at once, and no more for ever.
_ALONE_MAX = 1_000

# Says what the store's key is used for here.
_NAME_PURPOSE = b"semel name of a store"

# A caller whose names are longer is known by their digest: a step's name is no longer than 512 bytes.
_CALLER_CHARS_MAX = 200

_FIX_NO_STEP = (
    "The client sends its step, call_tool(…, meta=semel.integrations.mcp.meta()), or the server takes each "
    'call for an action of its own, missing="each".'
)


def sendable(step: Step) -> dict[str, Any]:
    """The step without its scopes, as it travels."""
    bare = Step(step.ledger, step.conversation, step.path, (), step.principal)
    return {**bare.carry(), "store": _name_of_store(step.ledger)}


def _name_of_store(ledger: Ledger) -> str:
    """By which a server knows its own store, and tells others apart; nobody learns the key from it."""
    return hmac.digest(ledger.store.secret_key, _NAME_PURPOSE, "sha256")[:8].hex()


@dataclass(frozen=True)
class Received:
    """A request of a client, as far as it says who asks, in which step, and what a person answered."""

    session: ServerSession
    request_id: Any
    meta: Mapping[str, Any]
    answers: Mapping[str, Any]  # to what was asked, in a protocol where the client then calls again
    state: str | None  # what was sent with the question, and came back
    token: AccessToken | None  # of who calls, where that is known


class McpRules(TypedDict, total=False):
    """The options of every server."""

    missing: Missing  # what a call without a step is
    scopes: Iterable[str]  # granted to every call, beside those of an authenticated caller's token
    approver: str | None  # who decides where nobody else is known to
    undecorated: Literal["pass", "guard"]  # what happens to plain functions


class McpGuard(AgentGuard):
    """A ledger, and what a server's author says about the calls that come in."""

    def __init__(self, ledger: Ledger, **rules: Unpack[McpRules]) -> None:
        check_rules(rules, McpRules)
        super().__init__(ledger, undecorated=rules.get("undecorated", "pass"))
        self._missing, self._approver = rules.get("missing", "refuse"), rules.get("approver")
        if self._missing not in get_args(Missing):
            raise StepError(f"missing= is one of {', '.join(get_args(Missing))}, not {self._missing!r}.")
        self._alone: WeakKeyDictionary[ServerSession, dict[Any, Any]] = WeakKeyDictionary()
        scopes = rules.get("scopes", ())
        self._scopes = frozenset((scopes,) if isinstance(scopes, str) else scopes)

    async def call(
        self,
        received: Received | None,
        use: Callable[[Callable[[], Any]], ToolUse],
        do: Callable[[], Awaitable[T]],
        as_data: Callable[[T], Any],
    ) -> T | Kept | Told | InputRequiredResult:
        """The tool's answer, or what the contract says in its place, or what a person is asked."""
        # A server in the process of its client would see that one's step.
        with outside_step():
            try:
                sent = None if received is None else self._sent(received)
                at = None if received is None or sent is None else self._step(sent, received)
                ask = None if received is None or at is None else self._asking(received, sent)
                made, act = use(lambda: at), partial(_contracts_answer, do)
                try:
                    return await self.arun(made, act, ask, as_data)
                except _Cancelled:
                    return await self.arun(made, act, None, as_data)
            except _Asked as waits:
                return waits.result
            except NoStep as refused:
                refused.corrective_action = _FIX_NO_STEP
                return Told(f"{refused.code}: {refused}", refused)
            except StepError as refused:
                return Told(f"{refused.code}: {refused} No tool ran.", NoStep(str(refused)))

    def at(self, tool: Any, locate: Callable[[], Any]) -> Turn | None:  # noqa: ARG002
        """It came with the call."""
        step: Turn | None = locate()
        return step

    # --- the step ---------------------------------------------------------------------------------

    def _sent(self, received: Received) -> Any:
        """The step as the client sent it, or one for this call alone; None, and no recorded tool runs."""
        if STEP in received.meta:
            return received.meta[STEP]
        if received.state is not None:
            return _read(received.state).get("step")
        if self._missing == "refuse":
            return None
        # One for each request: what retries inside the server meets it again.
        alone = self._alone.setdefault(received.session, {})
        if received.request_id not in alone:
            step = Step(self.ledger, "mcp", (self.ledger.clock.token().hex(),))
            alone[received.request_id] = sendable(step)
            if len(alone) > _ALONE_MAX:
                del alone[next(iter(alone))]
        return alone[received.request_id]

    def _step(self, sent: Any, received: Received) -> Turn:
        if not isinstance(sent, Mapping):
            raise StepError(f"{STEP} is not what meta() gave, but {type(sent).__name__}.")
        carried, store = {**sent}, sent.get("store")
        carried.pop("store", None)
        if store == _name_of_store(self.ledger):
            step = resumed_step(self.ledger, carried)
            return self._turn(step.conversation, step.path, received.token, step.principal)
        path = carried.get("path")
        if not isinstance(path, list) or not 0 < len(path) <= _PATH_MAX:
            raise StepError(f"{STEP} is not what meta() gave: it has no path.")
        return self._turn(carried.get("conversation"), (*path, f"of store {store}"), received.token, "")

    def _turn(
        self, conversation: Any, path: tuple[str, ...], token: AccessToken | None, principal: str
    ) -> Turn:
        if token is None:
            return turn(self.ledger, conversation, path, self._scopes, principal)
        # As JSON, because joined names could be another caller's.
        caller = json.dumps(principal_components(token))
        if len(caller) > _CALLER_CHARS_MAX:
            caller = hashlib.sha256(caller.encode()).hexdigest()
        scopes = self._scopes | {*token.scopes}
        return turn(self.ledger, conversation, (*path, f"by {caller}"), scopes, caller)

    # --- what a person is asked -------------------------------------------------------------------

    def _asking(self, received: Received, sent: Any) -> Any:
        can_ask = ClientCapabilities(elicitation=ElicitationCapability())
        if not received.session.check_client_capability(can_ask):
            return None
        subject = None if received.token is None else received.token.subject
        return partial(_ask, received, sent, self._approver or subject or UNNAMED)


async def _contracts_answer(do: Callable[[], Awaitable[T]]) -> T:
    """What the tool answers; raises what its contract says, out of what a server has made of that."""
    try:
        return await do()
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and contracts_answer(cause) is None:
            cause = cause.__cause__
        raise cause or error from error.__cause__


def result_of(answer: Told) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=answer.text)], is_error=True)


_FORM = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["approve", "reject"], "title": "Decision"},
        "reason": {"type": "string", "title": "Reason"},
    },
    "required": ["decision"],
}

_QUESTION = "approval"

# Another word is no decision.
_DECISIONS = {"approve": True, "reject": False}


class _Asked(Exception):
    """The question goes out as the call's result; the client calls again with the answer."""

    def __init__(self, result: InputRequiredResult) -> None:
        self.result = result


class _Cancelled(Exception):
    """The person has not decided."""


async def _ask(
    received: Received, sent: Any, person: str, question: Mapping[str, Any], _new: bool
) -> dict[str, Any]:
    """The person's verdict on exactly this question."""
    form = ElicitRequestFormParams(message=_words(question), requested_schema=_FORM)
    if received.session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return _verdict(await received.session.elicit_form(form.message, form.requested_schema), person)
    answer, state = received.answers.get(_QUESTION), _read(received.state or "{}")
    if answer is None or state.get("job_hash") != question["job_hash"]:
        state = {"step": sent, "job_hash": question["job_hash"]}
        requests: InputRequests = {_QUESTION: ElicitRequest(params=form)}
        raise _Asked(InputRequiredResult(input_requests=requests, request_state=json.dumps(state)))
    return _verdict(answer, person)


def _words(question: Mapping[str, Any]) -> str:
    arguments = json.dumps(question["arguments"], ensure_ascii=False)
    return f"May {question['tool']} run with {arguments}? Open until {question['expires_at']}."


def _verdict(answer: ElicitResult, person: str) -> dict[str, Any]:
    content = answer.content or {}
    if answer.action == "decline":
        return {"approved": False, "by": person, "reason": "declined"}
    approved = _DECISIONS.get(str(content.get("decision")))
    if answer.action == "cancel" or approved is None:
        raise _Cancelled
    return {"approved": approved, "by": person, "reason": content.get("reason")}


def _read(state: str) -> dict[str, Any]:
    try:
        read = json.loads(state)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise StepError("What came back with the answer is not what was sent with the question.")
    return read
