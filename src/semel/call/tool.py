"""One contract at work: from the arguments of a call to the guard, and back as a value or a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from semel import errors
from semel.call.drive import adrive, drive
from semel.call.ending import tell
from semel.call.entering import current_call
from semel.call.guard import guarded, unrecorded
from semel.call.guarded_call import Call
from semel.call.outcome import cleaned, error_text, recorded_error, replayed_value, stored_error
from semel.call.question import put_question
from semel.call.settling import in_doubt_error
from semel.call.step import Visit, current_visit
from semel.call.unfinished import Action, Watched
from semel.call.wishes import Unrecorded
from semel.contract.contract import Contract
from semel.contract.exact import DECLINED, Exact, ExactFunction
from semel.contract.exception_meaning import Meaning, meaning
from semel.contract.result import ToolCall, ToolError, ToolResult
from semel.instrumentation.hooks import LISTENERS, Observed
from semel.instrumentation.numbers import DONE, REPLAYED, UNUSED, numbers_of
from semel.kernel.clock import SYSTEM
from semel.kernel.keys import Key, derive, derive_digits, explicit, fingerprint, key_with, step_seed
from semel.kernel.own_thread import NoThread, on_own_thread
from semel.kernel.record import OF_TOOL, SETTLED, UNSETTLED, Address, Record, State
from semel.ledger.counters import PERFORMED, REFUSED, Hit
from semel.ledger.default import default_ledger
from semel.ledger.ledger import Ledger
from semel.questions.approvals import Question

# What is on record, as a settlement or a doubt, has its own event; other answers are counted as refusals.
_ON_RECORD = frozenset(("EFFECT_FAILED", "PARTIAL_SUCCESS", "UPSTREAM_TIMEOUT"))

# Not retriable, but open: the effect may be there, and a call with another key would repeat it.
_OPEN = frozenset(("OUTCOME_UNKNOWN", "OWNERSHIP_LOST", "STORE_CORRUPT"))

# The key is another call's: the record that was met says nothing about this one.
_OF_ANOTHER = frozenset(("KEY_REUSED", "VERSION_MISMATCH", "STEP_ERROR"))


# A record stands for a call whose settlement is known in this process.
Prepared = Call | Unrecorded | Record

_NO_SCOPES: frozenset[str] = frozenset()


class Tool:
    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.is_async = contract.is_async
        # For the straight way from arguments to the cache; None while there may be something else to ask.
        self._exact_function: ExactFunction | None = None
        self._identity = (contract.name, contract.version, contract.class_)
        self._numbers = UNUSED  # until the first call

    # --- the plain call: a value, or an exception -------------------------------------------------

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        observed = LISTENERS.started(*self._identity) if LISTENERS.asks else None
        prepared: Prepared | None = None
        try:
            prepared = self._prepare_plain(args, kwargs)
            if type(prepared) is Record:
                value = replayed_value(self.contract, prepared)
                if observed is None:
                    self._numbers.replayed += 1
                    return value
            else:
                value = self._drive(prepared)
            self._ended(observed, prepared)
            return value
        except BaseException as error:
            self._failed(observed, prepared, error)
            raise

    async def arun(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        observed = LISTENERS.started(*self._identity) if LISTENERS.asks else None
        prepared: Prepared | None = None
        try:
            prepared = self._prepare_plain(args, kwargs)
            if type(prepared) is Record:
                value = replayed_value(self.contract, prepared)
                if observed is None:
                    self._numbers.replayed += 1
                    return value
            else:
                value = await self._adrive(prepared)
            self._ended(observed, prepared)
            return value
        except BaseException as error:
            self._failed(observed, prepared, error)
            raise

    def _prepare_plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Prepared:
        visit, exact_function = current_visit(), self._exact_function
        if visit is None or exact_function is None:
            return self._prepare_by_name(visit, args, kwargs)
        try:
            exact = exact_function(*args, **kwargs)
        except DECLINED:
            exact = None
        if exact is None:
            return self._prepare_by_name(visit, args, kwargs)
        # Nothing is made before the cache was asked.
        step, contract = visit.step, self.contract
        ledger = step.ledger
        if ledger.tool_names.functions.get(contract.frame) is not contract.function_name:
            ledger.tool_names.admit(contract)
        digits = derive_digits(step.seed, contract.frame, exact[1])
        now_us = ledger.clock.now_us()
        record = ledger.cache.get(digits, now_us)
        if record is None:
            return self._call(ledger, key_with(digits), exact[0], exact, exact[1], None, visit, now_us)
        ledger.counters.replayed(record, now_us)
        if visit.open_calls:
            _strike(ledger, digits, visit)
        return record

    def _prepare_by_name(
        self, visit: Visit | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Prepared:
        instance = None
        if self.contract.arguments.takes_self:
            if not args:
                raise errors.InvalidArguments(
                    "This is a method: call it on an instance. The tool did not run."
                )
            instance, args = args[0], args[1:]
        ledger, scopes = (None, _NO_SCOPES) if visit is None else (visit.step.ledger, visit.step.scopes)
        try:
            if self.contract.ready and not self.contract.injected_parameters:
                return self._prepare(ledger, visit, scopes, None, self._bound(args, kwargs), instance)
            return self._prepare_injected(ledger, visit, scopes, None, args, kwargs, instance)
        except errors.CallError as error:
            self._count_refusal(ledger, visit, error, "")
            raise

    # --- the call as data: a ToolResult, whatever the contract decides ----------------------------

    def call(self, request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None) -> Any:
        """How the call ended; awaitable for an async tool. `instance` is the `self` of a method."""
        if self.is_async:
            return self.acall(request, ledger, instance=instance)
        observed = LISTENERS.started(*self._identity) if LISTENERS.asks else None
        prepared: Prepared | None = None
        try:
            prepared = self._prepare_request(request, ledger, instance)
            value = self._drive(prepared)
            self._ended(observed, prepared, ledger)
            return self._success(value, prepared)
        except BaseException as error:
            self._failed(observed, prepared, error, ledger)
            if not isinstance(error, Exception):
                raise
            return self._failure(error, prepared)

    async def acall(
        self, request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None
    ) -> ToolResult[Any]:
        """How the call ended, from an event loop: a function that is no coroutine runs on a thread."""
        observed = LISTENERS.started(*self._identity) if LISTENERS.asks else None
        prepared: Prepared | None = None
        try:
            prepared = self._prepare_request(request, ledger, instance)
            value = await self._adrive(prepared)
            self._ended(observed, prepared, ledger)
            return self._success(value, prepared)
        except BaseException as error:
            self._failed(observed, prepared, error, ledger)
            if not isinstance(error, Exception):
                raise
            return self._failure(error, prepared)

    # --- the question to a person, alone ----------------------------------------------------------

    def ask(self, request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None) -> Question:
        """The question of the contract's `approval` about this call, put unless it was before; runs nothing.

        ContractError without `approval`; raises what is refused.
        """
        call, watched = self._begin_question(request, ledger, instance)
        try:
            question: Question = drive(put_question(call), call.ledger.store, call.ledger.clock)
        except BaseException as error:
            self._ended_without_value(call, watched, error)
            raise
        return self._with_question(call, watched, question)

    async def aask(
        self, request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None
    ) -> Question:
        """The same from an event loop."""
        call, watched = self._begin_question(request, ledger, instance)
        try:
            question: Question = await adrive(put_question(call), call.ledger.store, call.ledger.clock)
        except BaseException as error:
            self._ended_without_value(call, watched, error)
            raise
        return self._with_question(call, watched, question)

    def _begin_question(
        self, request: ToolCall, ledger: Ledger | None, instance: Any
    ) -> tuple[Call, Watched | None]:
        if self.contract.approval is None:
            raise errors.ContractError(
                f"The tool {self.contract.name!r} asks nobody: its contract has no approval=….",
                corrective_action='Declare it with approval="required", or call it.',
            )
        call = self._prepare_request(request, ledger, instance, asks=True)
        assert isinstance(call, Call), "what asks is recorded, and was not looked for in the cache"
        return call, _watched(call) if call.open_calls else None

    def _with_question(self, call: Call, watched: Watched | None, question: Question) -> Question:
        record = call.record
        if watched is None or record is None:
            return question
        if record.state in SETTLED:
            watched.settled()
        else:
            # The call is still to be made, or its end is open: the step does not move on without it.
            left = {State.WAITING: errors.ApprovalRequired.code, State.PENDING: errors.InFlight.code}
            code = left.get(record.state, in_doubt_error(self.contract).code)
            watched.left(code, record.request.id, question.job_id)
        return question

    # --- from arguments to a key ------------------------------------------------------------------

    def _prepare_request(
        self, request: Any, ledger: Ledger | None, instance: Any, *, asks: bool = False
    ) -> Prepared:
        if not isinstance(request, ToolCall):
            raise errors.InvalidArguments(
                f"A call as data is written {self.contract.name}.call(semel.ToolCall({{…}})), with the "
                f"arguments by name; this is {type(request).__name__}. The tool did not run."
            )
        visit = current_visit()
        chosen = ledger or (None if visit is None else visit.step.ledger)
        if chosen is None and request.idempotency_key is not None and self.contract.recorded:
            chosen = default_ledger()  # a key that is given needs no step
        scopes = _NO_SCOPES if visit is None else visit.step.scopes
        if request.scopes is not None:
            # A request can narrow the scopes of its step; without a step it has its own.
            requested = frozenset((request.scopes,) if isinstance(request.scopes, str) else request.scopes)
            scopes = requested if visit is None else scopes & requested
        try:
            self._check_version(request.version)
            if self.contract.arguments.takes_self and instance is None:
                raise errors.InvalidArguments("This is a method: pass instance=…. The tool did not run.")
            if not isinstance(request.arguments, Mapping):
                raise errors.InvalidArguments(
                    f"Arguments are a dict, by name, not {type(request.arguments).__name__}; what a model "
                    "sends as JSON goes through json.loads first. The tool did not run."
                )
            given, key = dict(request.arguments), request.idempotency_key
            if self.contract.ready and not self.contract.injected_parameters:
                return self._prepare(chosen, visit, scopes, key, self._bound((), given), instance, asks)
            return self._prepare_injected(chosen, visit, scopes, key, (), given, instance, asks)
        except errors.CallError as error:
            self._count_refusal(chosen, visit, error, "")
            raise

    def _check_version(self, version: str | None) -> None:
        if version is not None and str(version).partition(".")[0] != str(self.contract.major):
            raise errors.VersionMismatch(
                f"The caller asks for version {version}, the tool is {self.contract.version} and did not run."
            )

    def _success(self, value: Any, prepared: Prepared) -> ToolResult[Any]:
        replayed = prepared.replayed if isinstance(prepared, Call) else isinstance(prepared, Record)
        return ToolResult(ok=True, value=value, replayed=replayed, key=_key_of(prepared))

    def _failure(self, error: Exception, prepared: Prepared | None) -> ToolResult[Any]:
        key = _key_of(prepared)
        failure = self._semel_error(error, prepared)
        told = ToolError.of(failure)
        by_tool = isinstance(prepared, Unrecorded) or (isinstance(prepared, Call) and prepared.entered)
        if by_tool and (secrets := self._secrets_of(prepared)):
            # What is recorded has lost its secrets there. What is not, or is in doubt, goes to models too.
            cleared = ToolError.of(recorded_error(stored_error(told, secrets)))
            told = replace(cleared, retry_after_s=told.retry_after_s)
        return ToolResult(ok=False, error=told, replayed=failure.replayed, key=key)

    def _semel_error(self, error: Exception, prepared: Prepared | None) -> errors.SemelError:
        """The error of a result, for an exception that the plain call lets through."""
        if isinstance(error, errors.SemelError):
            return error
        contract = self.contract
        match meaning(error, contract.refused, contract.transient, contract.raises):
            case Meaning.UNKNOWN | Meaning.TRANSIENT if contract.recorded:
                return in_doubt_error(contract, prepared.record if isinstance(prepared, Call) else None)
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

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | Exact:
        """The arguments by name; those of exactly the declared types validated and canonical already."""
        arguments = self.contract.arguments
        exact = arguments.exactly(args, kwargs) if self.contract.recorded else None
        return arguments.bind(args, kwargs) if exact is None else exact

    def _prepare_injected(
        self,
        ledger: Ledger | None,
        visit: Visit | None,
        scopes: frozenset[str],
        given_key: str | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        instance: Any,
        asks: bool = False,
    ) -> Prepared:
        """As `_prepare`: what is injected goes to the function alone, past everything that is kept."""
        if not self.contract.ready:
            self.contract.check_late_names()
        args, kwargs, injected = self.contract.arguments.without_injected(args, kwargs)
        if not asks:
            self.contract.arguments.check_injected(injected)
        given = self._bound(args, kwargs)
        prepared = self._prepare(ledger, visit, scopes, given_key, given, instance, asks)
        if isinstance(prepared, Unrecorded):
            return prepared._replace(injected=injected)
        if isinstance(prepared, Call):
            prepared.injected = injected
        return prepared

    def _prepare(
        self,
        ledger: Ledger | None,
        visit: Visit | None,
        scopes: frozenset[str],
        given_key: str | None,  # by the caller, in place of the derived one
        given: dict[str, Any] | Exact,
        instance: Any,
        asks: bool = False,  # for the question alone, which no answer in the cache replaces
    ) -> Prepared:
        """The settled answer if it is in the cache, else the call, ready to be decided."""
        contract = self.contract
        if self._numbers is UNUSED:
            self._numbers = numbers_of(contract.name, recorded=contract.recorded)
        if ledger is not None:
            ledger.tool_names.admit(contract)
        if not contract.recorded:
            return self._prepare_unrecorded(ledger, visit, scopes, cast(dict[str, Any], given), instance)
        if ledger is None or (visit is None and given_key is None):
            raise errors.NoStep()
        exact = given if type(given) is tuple else None
        arguments = contract.arguments.validate(cast(dict[str, Any], given)) if exact is None else exact[0]
        if contract.scopes and not contract.scopes <= scopes:
            raise self._scope_denied(scopes)
        if exact is None:
            canonical = contract.arguments.canonical(arguments, ledger.store.secret_key)
        else:
            canonical = exact[1]
        if contract.declared.key_of is not None:
            canonical = contract.told_apart(canonical, instance, ledger.store.secret_key)
        elif not (contract.scopes or contract.arguments.takes_self or contract.injected_parameters):
            self._exact_function = contract.arguments.exact_function
        key = self._key(ledger, visit, given_key, canonical)
        now_us = ledger.clock.now_us()
        record = None if asks else ledger.cache.get(key, now_us)
        if record is None or not (given_key is None or self._is_of(record, canonical)):
            call = self._call(ledger, key, arguments, exact, canonical, instance, visit, now_us)
            # A Key given by hand may be one that another tool derives: what is derived is not compared again.
            call.keep = not isinstance(given_key, Key)
            return call
        ledger.counters.replayed(record, now_us)
        if visit is not None:
            _strike(ledger, key, visit)
        return record

    def _call(
        self,
        ledger: Ledger,
        key: Key,
        arguments: dict[str, Any],
        exact: Exact | None,
        canonical: bytes,
        instance: Any,
        visit: Visit | None,
        now_us: int,
    ) -> Call:
        contract = self.contract
        ledger.sightings.saw(contract, now_us)
        call = Call(contract, ledger, key, arguments, exact, canonical, instance, visit, current_call())
        if self._numbers.measured or LISTENERS.asks:
            call.timed, call.asked_at = True, ledger.clock.monotonic()
        call.looks_first = ledger.expects_settlements and ledger.store.looks_first and not self.is_async
        return call

    def _key(self, ledger: Ledger, visit: Visit | None, given: str | None, canonical: bytes) -> Key:
        if given is not None:
            try:
                return explicit(ledger.tenant, given)
            except ValueError as wrong:
                raise errors.InvalidArguments(f"{wrong} The tool did not run.") from None
        assert visit is not None
        step = visit.step
        if ledger is step.ledger:
            return derive(step.seed, self.contract.frame, canonical)
        return derive(step_seed(ledger.tenant, step.conversation, step.path), self.contract.frame, canonical)

    def _is_of(self, record: Record, canonical: bytes) -> bool:
        """Whether a cached record is of this very action; if not, the guard says what is wrong."""
        contract = self.contract
        return record.request.fingerprint == fingerprint(contract.name, canonical) and (
            record.request.version.partition(".")[0] == contract.version.partition(".")[0]
        )

    def _prepare_unrecorded(
        self,
        ledger: Ledger | None,
        visit: Visit | None,
        scopes: frozenset[str],
        raw: dict[str, Any],
        instance: Any,
    ) -> Unrecorded:
        contract = self.contract
        arguments = contract.arguments.validate(raw)
        if contract.scopes and not contract.scopes <= scopes:
            raise self._scope_denied(scopes)
        resource = contract.declared.resource
        if resource is not None and not contract.arguments.holds_secret(resource):
            self._count(ledger, visit, PERFORMED, "", "", f"{resource}={arguments.get(resource)}"[:256])
        if ledger is not None:
            ledger.sightings.saw(contract, ledger.clock.now_us())
        began = SYSTEM.monotonic() if self._numbers.measured or LISTENERS.asks else None
        return Unrecorded(contract, arguments, instance, current_call(), began)

    def _scope_denied(self, scopes: frozenset[str]) -> errors.ScopeDenied:
        missing = sorted(self.contract.scopes - scopes)
        text = f"The step does not grant {', '.join(missing)}; the tool did not run."
        return errors.ScopeDenied(text, missing=missing)

    # --- driving ----------------------------------------------------------------------------------

    def _drive(self, prepared: Prepared) -> Any:
        if isinstance(prepared, Record):
            return replayed_value(self.contract, prepared)
        if isinstance(prepared, Unrecorded):
            return drive(unrecorded(prepared, SYSTEM.random), None, SYSTEM)
        watched = _watched(prepared) if prepared.open_calls else None
        try:
            value = drive(guarded(prepared), prepared.ledger.store, prepared.ledger.clock)
        except BaseException as error:
            self._ended_without_value(prepared, watched, error)
            raise
        if watched is not None:
            watched.settled()
        return value

    async def _adrive(self, prepared: Prepared) -> Any:
        if isinstance(prepared, Record):
            return replayed_value(self.contract, prepared)
        if isinstance(prepared, Unrecorded):
            return await adrive(unrecorded(prepared, SYSTEM.random), None, SYSTEM)
        if prepared.contract.transaction_parameters and not self.is_async:
            return await self._drive_on_thread(prepared)
        watched = _watched(prepared) if prepared.open_calls else None
        try:
            value = await adrive(guarded(prepared), prepared.ledger.store, prepared.ledger.clock)
        except BaseException as error:
            self._ended_without_value(prepared, watched, error)
            raise
        if watched is not None:
            watched.settled()
        return value

    async def _drive_on_thread(self, call: Call) -> Any:
        """For a tool that blocks and writes into a transaction: the whole call is made on one thread.

        That goes on for a caller who is cancelled: a connection in use is rolled back by nobody else.
        """
        try:
            return await on_own_thread(self._drive, call)
        except NoThread as full:
            raise errors.StoreUnavailable(full.text, corrective_action=full.fix) from full

    def _ended_without_value(self, call: Call, watched: Watched | None, error: BaseException) -> None:
        if isinstance(error, errors.CallError):
            self._count_refusal(call.ledger, current_visit(), error, call.key)
        if watched is None:
            return
        record, code = call.record, self._unfinished_code(call, error)
        if call.settled:
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
        record = call.record
        if failure.code in _OF_ANOTHER or record is None or record.state not in UNSETTLED:
            return None
        return in_doubt_error(self.contract).code

    # --- counting and telling ---------------------------------------------------------------------

    def _ended(
        self, observed: Observed | None, prepared: Prepared | None, ledger: Ledger | None = None
    ) -> None:
        """The call has a value."""
        # First what most calls are, for which nothing is made.
        if observed is None and type(prepared) is Call and not prepared.replayed:
            if prepared.timed:
                now, began, left = prepared.ledger.clock.monotonic(), prepared.began, prepared.left
                self._numbers.performed(began - prepared.asked_at, left - began, now - left)
            else:
                self._numbers.done += 1
        elif observed is None and type(prepared) is Unrecorded:
            if prepared.began is not None:
                self._numbers.ran(SYSTEM.monotonic() - prepared.began)
            else:
                self._numbers.done += 1
        else:
            replayed = prepared.replayed if isinstance(prepared, Call) else isinstance(prepared, Record)
            tell(self._numbers, observed, prepared, REPLAYED if replayed else DONE, replayed, ledger)

    def _failed(
        self,
        observed: Observed | None,
        prepared: Prepared | None,
        error: BaseException,
        ledger: Ledger | None = None,
    ) -> None:
        """The call ended with an exception."""
        if self._numbers is UNUSED:
            self._numbers = numbers_of(self.contract.name, recorded=self.contract.recorded)
        code, replayed = self._code(error, prepared)
        if not self._numbers.shows(code):
            code = self._numbers.shown(code, self._secrets_of(prepared))
        tell(self._numbers, observed, prepared, code, replayed, ledger)

    def _code(self, error: BaseException, prepared: Prepared | None) -> tuple[str, bool]:
        """The code of a call that has no value, and whether that is an earlier call's."""
        if isinstance(error, Exception):
            failure = self._semel_error(error, prepared)
            return failure.code, failure.replayed
        if self.contract.recorded:
            return in_doubt_error(self.contract).code, False
        return errors.UpstreamUnavailable.code, False

    def _secrets_of(self, prepared: Prepared | None) -> list[str] | None:
        if isinstance(prepared, Call | Unrecorded):
            return self.contract.arguments.secrets_of(prepared.arguments)
        return None

    def _count_refusal(
        self, ledger: Ledger | None, visit: Visit | None, error: errors.CallError, key: str
    ) -> None:
        if not (error.replayed or error.code in _ON_RECORD):
            self._count(ledger, visit, REFUSED, error.code, key, "")

    def _count(
        self, ledger: Ledger | None, visit: Visit | None, kind: str, code: str, key: str, note: str
    ) -> None:
        if ledger is None:
            return
        step = None if visit is None else visit.step
        where = (step.conversation, step.path_text, step.principal) if step else ("", "[]", "")
        at = Address(ledger.tenant, OF_TOOL, key)
        hit = Hit(kind, at, self.contract.name, self.contract.version, "", code, *where, note)
        ledger.counters.add(hit, ledger.clock.now_us())
        ledger.keeper.notice()


def _watched(call: Call) -> Watched:
    return Watched(call.open_calls, call.contract.name, _action(call.ledger, call.key))


def _strike(ledger: Ledger, key: str, visit: Visit) -> None:
    """The call of this key is finished in all numbered steps around."""
    for calls in visit.open_calls:
        calls.settle(_action(ledger, key))


def _action(ledger: Ledger, key: str) -> Action:
    return Action(ledger.store.secret_key, ledger.tenant, key)


def _key_of(prepared: Prepared | None) -> Key | None:
    if isinstance(prepared, Record):
        return Key(prepared.request.at.key)
    return prepared.key if isinstance(prepared, Call) else None
