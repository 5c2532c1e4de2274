"""One contract at work: from the arguments of a call to the guard, and back as a value or a result."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from semel import errors
from semel.call.drive import Answer, adrive, current_attempt, drive
from semel.call.guard import SCOPE, Call, guarded, in_doubt_error, unrecorded
from semel.call.outcome import cleaned, error_text, replayed_value
from semel.call.step import Step, current_step, lists_of_open_calls
from semel.call.unfinished import Action, Watched
from semel.contract.contract import Contract
from semel.contract.exact import Exact
from semel.contract.exception_meaning import Meaning, meaning
from semel.contract.result import ToolCall, ToolError, ToolResult
from semel.kernel.clock import SYSTEM
from semel.kernel.keys import Key, derive, explicit, fingerprint, step_seed
from semel.kernel.record import UNSETTLED, Address, Record, State
from semel.ledger.counters import PERFORMED, REFUSED, Hit
from semel.ledger.ledger import Ledger
from semel.ledger.running import Attempt

# What is on record, as a settlement or a doubt, has its own event; other answers are counted as refusals.
_ON_RECORD = frozenset(("EFFECT_FAILED", "PARTIAL_SUCCESS", "UPSTREAM_TIMEOUT"))

# Not retriable, but open: the effect may be there, and a call with another key would repeat it.
_OPEN = frozenset(("OUTCOME_UNKNOWN", "OWNERSHIP_LOST", "STORE_CORRUPT"))

# The key is another call's: the record that was met says nothing about this one.
_OF_ANOTHER = frozenset(("KEY_REUSED", "VERSION_MISMATCH", "STEP_ERROR"))


class CallOrigin(NamedTuple):
    """On whose behalf a call is made."""

    ledger: Ledger | None
    step: Step | None
    scopes: frozenset[str]
    key: str | None  # given by the caller, in place of the derived one


class Unrecorded(NamedTuple):
    """A call of a tool that keeps no record, ready to run."""

    contract: Contract
    arguments: dict[str, Any]
    instance: Any


# A record stands for a call whose settlement is known in this process.
Prepared = Call | Unrecorded | Record

_NOBODY = CallOrigin(None, None, frozenset(), None)


class Tool:
    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.is_async = inspect.iscoroutinefunction(contract.function)

    # --- the plain call: a value, or an exception -------------------------------------------------

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        prepared = self._prepare_plain(args, kwargs)
        if type(prepared) is Record:
            return replayed_value(self.contract, prepared)
        return self._drive(prepared).value

    async def arun(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        prepared = self._prepare_plain(args, kwargs)
        if type(prepared) is Record:
            return replayed_value(self.contract, prepared)
        return (await self._adrive(prepared)).value

    def _prepare_plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Prepared:
        instance = None
        if self.contract.arguments.takes_self:
            if not args:
                raise errors.InvalidArguments(
                    "This is a method: call it on an instance. The tool did not run."
                )
            instance, args = args[0], args[1:]
        step = current_step()
        caller = _NOBODY if step is None else CallOrigin(step.ledger, step, step.scopes, None)
        try:
            return self._prepare(caller, self._bound(args, kwargs), instance)
        except errors.CallError as error:
            self._count_refusal(caller, error, "")
            raise

    # --- the call as data: a ToolResult, whatever the contract decides ----------------------------

    def call(self, request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None) -> Any:
        """How the call ended; awaitable for an async tool. `instance` is the `self` of a method."""
        if self.is_async:
            return self._acall(request, ledger, instance)
        prepared: Prepared | None = None
        try:
            prepared = self._prepare_request(request, ledger, instance)
            return self._success(self._drive(prepared), prepared)
        except Exception as error:
            return self._failure(error, prepared)

    async def _acall(self, request: ToolCall, ledger: Ledger | None, instance: Any) -> ToolResult[Any]:
        prepared: Prepared | None = None
        try:
            prepared = self._prepare_request(request, ledger, instance)
            return self._success(await self._adrive(prepared), prepared)
        except Exception as error:
            return self._failure(error, prepared)

    def _prepare_request(self, request: Any, ledger: Ledger | None, instance: Any) -> Prepared:
        if not isinstance(request, ToolCall):
            raise errors.InvalidArguments(
                f"A call as data is written {self.contract.name}.call(semel.ToolCall({{…}})), with the "
                f"arguments by name; this is {type(request).__name__}. The tool did not run."
            )
        step = current_step()
        chosen = ledger or (step.ledger if step else None)
        scopes = step.scopes if step else frozenset()
        if request.scopes is not None:
            # A request can narrow the scopes of its step; without a step it has its own.
            requested = frozenset((request.scopes,) if isinstance(request.scopes, str) else request.scopes)
            scopes = scopes & requested if step else requested
        caller = CallOrigin(chosen, step, scopes, request.idempotency_key)
        try:
            self._check_version(request.version)
            if self.contract.arguments.takes_self and instance is None:
                raise errors.InvalidArguments("This is a method: pass instance=…. The tool did not run.")
            if not isinstance(request.arguments, Mapping):
                raise errors.InvalidArguments("Arguments are given by name. The tool did not run.")
            return self._prepare(caller, self._bound((), dict(request.arguments)), instance)
        except errors.CallError as error:
            self._count_refusal(caller, error, "")
            raise

    def _check_version(self, version: str | None) -> None:
        if version is not None and str(version).partition(".")[0] != str(self.contract.major):
            raise errors.VersionMismatch(
                f"The caller asks for version {version}, the tool is {self.contract.version} and did not run."
            )

    def _success(self, answer: Answer, prepared: Prepared) -> ToolResult[Any]:
        key = _key_of(prepared)
        return ToolResult(ok=True, value=answer.value, replayed=answer.replayed, key=key)

    def _failure(self, error: Exception, prepared: Prepared | None) -> ToolResult[Any]:
        key = _key_of(prepared)
        failure = self._semel_error(error, prepared)
        return ToolResult(ok=False, error=ToolError.of(failure), replayed=failure.replayed, key=key)

    def _semel_error(self, error: Exception, prepared: Prepared | None) -> errors.SemelError:
        """The error of a result, for an exception that the plain call lets through."""
        if isinstance(error, errors.SemelError):
            return error
        contract = self.contract
        match meaning(error, contract.refused, contract.transient):
            case Meaning.UNKNOWN | Meaning.TRANSIENT if contract.recorded:
                return in_doubt_error(contract)
            case Meaning.UNKNOWN | Meaning.TRANSIENT:
                return errors.UpstreamUnavailable(
                    "The downstream did not answer.", corrective_action="Call again."
                )
            case Meaning.REFUSED:
                refused = errors.EffectFailed(
                    self._text_of(error, prepared), corrective_action="Nothing happened: call again."
                )
                refused.retriable = True
                return refused
            case _:
                return errors.EffectFailed(
                    self._text_of(error, prepared), corrective_action="Correct what it says, then call again."
                )

    def _text_of(self, error: Exception, prepared: Prepared | None) -> str:
        if not isinstance(prepared, Call | Unrecorded):
            return type(error).__name__
        return cleaned(error_text(error), self.contract.arguments.secrets_of(prepared.arguments))

    # --- from arguments to a key ------------------------------------------------------------------

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | Exact:
        """The arguments by name; those of exactly the declared types validated and canonical already."""
        arguments = self.contract.arguments
        exact = arguments.exactly(args, kwargs) if self.contract.recorded else None
        return arguments.bind(args, kwargs) if exact is None else exact

    def _prepare(self, caller: CallOrigin, given: dict[str, Any] | Exact, instance: Any) -> Prepared:
        """The settled answer if it is in the cache, else the call, ready to be decided."""
        contract = self.contract
        if not contract.ready:
            contract.check_late_names()
        ledger, step = caller.ledger, caller.step
        if ledger is not None:
            ledger.tool_names.admit(contract)
        if not contract.recorded:
            return self._prepare_unrecorded(caller, cast(dict[str, Any], given), instance)
        if ledger is None or (step is None and caller.key is None):
            raise errors.NoStep()
        exact = given if type(given) is tuple else None
        arguments = contract.arguments.validate(cast(dict[str, Any], given)) if exact is None else exact[0]
        if contract.scopes and not contract.scopes <= caller.scopes:
            raise self._scope_denied(caller)
        canonical = (
            contract.arguments.canonical(arguments, ledger.store.secret_key) if exact is None else exact[1]
        )
        if contract.declared.key_of is not None:
            canonical = contract.told_apart(canonical, instance, ledger.store.secret_key)
        key = self._key(caller, canonical)
        now_us = ledger.clock.now_us()
        record = ledger.cache.get(key, now_us)
        if record is not None and (caller.key is None or self._is_of(record, canonical)):
            ledger.counters.replayed(record, now_us)
            for calls in lists_of_open_calls():
                calls.settle(_action(ledger, key))
            return record
        ledger.sightings.saw(contract, now_us)
        at = Address(ledger.tenant, SCOPE, key)
        where = (step.conversation, step.path_text, step.principal) if step else ("", "[]", "")
        # A Key given by hand may be one that another tool derives, and what is derived is not compared again.
        keep = not isinstance(caller.key, Key)
        attempt, noted = Attempt(at, contract.window_us, current_attempt()), lists_of_open_calls()
        stored = None if exact is None else contract.arguments.dump_exactly(exact)
        return Call(
            contract, ledger, key, at, arguments, canonical, stored, instance, *where, keep, attempt, noted
        )

    def _key(self, caller: CallOrigin, canonical: bytes) -> Key:
        ledger, step = caller.ledger, caller.step
        assert ledger is not None
        if caller.key is not None:
            try:
                return explicit(ledger.tenant, caller.key)
            except ValueError as wrong:
                raise errors.InvalidArguments(f"{wrong} The tool did not run.") from None
        assert step is not None
        if ledger is step.ledger:
            return derive(step.seed, self.contract.frame, canonical)
        return derive(step_seed(ledger.tenant, step.conversation, step.path), self.contract.frame, canonical)

    def _is_of(self, record: Record, canonical: bytes) -> bool:
        """Whether a cached record is of this very action; if not, the guard says what is wrong."""
        contract = self.contract
        return record.request.fingerprint == fingerprint(contract.name, canonical) and (
            record.request.version.partition(".")[0] == contract.version.partition(".")[0]
        )

    def _prepare_unrecorded(self, caller: CallOrigin, raw: dict[str, Any], instance: Any) -> Unrecorded:
        contract = self.contract
        arguments = contract.arguments.validate(raw)
        if contract.scopes and not contract.scopes <= caller.scopes:
            raise self._scope_denied(caller)
        resource = contract.declared.resource
        if resource is not None and not contract.arguments.holds_secret(resource):
            self._count(caller, PERFORMED, "", "", f"{resource}={arguments.get(resource)}"[:256])
        if caller.ledger is not None:
            caller.ledger.sightings.saw(contract, caller.ledger.clock.now_us())
        return Unrecorded(contract, arguments, instance)

    def _scope_denied(self, caller: CallOrigin) -> errors.ScopeDenied:
        missing = sorted(self.contract.scopes - caller.scopes)
        text = f"The step does not grant {', '.join(missing)}; the tool did not run."
        return errors.ScopeDenied(text, missing=missing)

    # --- driving ----------------------------------------------------------------------------------

    def _drive(self, prepared: Prepared) -> Answer:
        if isinstance(prepared, Record):
            return Answer(replayed_value(self.contract, prepared), replayed=True)
        if isinstance(prepared, Unrecorded):
            contract, arguments, instance = prepared
            return drive(unrecorded(contract, instance, arguments, SYSTEM.random), None, SYSTEM)
        watched = _watched(prepared) if prepared.open_calls else None
        try:
            answer = drive(guarded(prepared), prepared.ledger.store, prepared.ledger.clock)
        except BaseException as error:
            self._ended_without_value(prepared, watched, error)
            raise
        if watched is not None:
            watched.settled()
        return answer

    async def _adrive(self, prepared: Prepared) -> Answer:
        if isinstance(prepared, Record):
            return Answer(replayed_value(self.contract, prepared), replayed=True)
        if isinstance(prepared, Unrecorded):
            contract, arguments, instance = prepared
            return await adrive(unrecorded(contract, instance, arguments, SYSTEM.random), None, SYSTEM)
        watched = _watched(prepared) if prepared.open_calls else None
        try:
            answer = await adrive(guarded(prepared), prepared.ledger.store, prepared.ledger.clock)
        except BaseException as error:
            self._ended_without_value(prepared, watched, error)
            raise
        if watched is not None:
            watched.settled()
        return answer

    def _ended_without_value(self, call: Call, watched: Watched | None, error: BaseException) -> None:
        if isinstance(error, errors.CallError):
            self._count_refusal(CallOrigin(call.ledger, current_step(), frozenset(), None), error, call.key)
        if watched is None:
            return
        record, code = call.attempt.record, self._unfinished_code(call, error)
        if call.attempt.settled:
            watched.settled()
        elif code is None:
            watched.refused()
        else:
            job_id = record.request.job_id if record is not None and record.state is State.WAITING else ""
            watched.left(code, "" if record is None else record.request.id, job_id)

    def _unfinished_code(self, call: Call, error: BaseException) -> str | None:
        """The code of a call without settlement; None for one that was turned away and left nothing open."""
        if not isinstance(error, Exception):
            return in_doubt_error(self.contract).code
        failure = self._semel_error(error, call)
        if failure.retriable or failure.code in _OPEN:
            return failure.code
        record = call.attempt.record
        if failure.code in _OF_ANOTHER or record is None or record.state not in UNSETTLED:
            return None
        return in_doubt_error(self.contract).code

    # --- counting ---------------------------------------------------------------------------------

    def _count_refusal(self, caller: CallOrigin, error: errors.CallError, key: str) -> None:
        if not (error.replayed or error.code in _ON_RECORD):
            self._count(caller, REFUSED, error.code, key, "")

    def _count(self, caller: CallOrigin, kind: str, code: str, key: str, note: str) -> None:
        ledger, step = caller.ledger, caller.step
        if ledger is None:
            return
        where = (step.conversation, step.path_text, step.principal) if step else ("", "[]", "")
        at = Address(ledger.tenant, SCOPE, key)
        hit = Hit(kind, at, self.contract.name, self.contract.version, "", code, *where, note)
        ledger.counters.add(hit, ledger.clock.now_us())
        ledger.keeper.notice()


def _watched(call: Call) -> Watched:
    return Watched(call.open_calls, call.contract.name, _action(call.ledger, call.key))


def _action(ledger: Ledger, key: str) -> Action:
    return Action(ledger.store.secret_key, ledger.tenant, key)


def _key_of(prepared: Prepared | None) -> Key | None:
    if isinstance(prepared, Record):
        return Key(prepared.request.at.key)
    return prepared.key if isinstance(prepared, Call) else None
