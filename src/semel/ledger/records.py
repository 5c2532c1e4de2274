"""Records for people: list, look at, resolve what is in doubt, amend what a person said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson
from pydantic_core import from_json, to_json

from semel.audit.events import Event
from semel.contract.contract import Contract
from semel.contract.http_answer import answer_values
from semel.contract.result_check import misfit
from semel.contract.values import FOR_PYDANTIC, Values
from semel.errors import RecordNotFound, RecordNotInDoubt, ResultInvalid
from semel.kernel import owner
from semel.kernel.answers import RecordJson
from semel.kernel.clock import rfc3339
from semel.kernel.keys import explicit
from semel.kernel.limits import RESULT_BYTES_MAX
from semel.kernel.record import (
    AMENDED,
    OF_HTTP,
    OF_TOOL,
    OWNER_GONE,
    RESOLVED,
    Address,
    Amend,
    Look,
    Park,
    Record,
    Resolve,
    State,
    amendable,
    closed,
    effective_state,
    unsettled_only,
)
from semel.ledger import catalogue
from semel.stores.base import FindRecord, ListRecords, ReadEvents, Store

# What a person sees: waiting for an approval is one way of pending.
_SHOWN = {State.WAITING: "pending"}
_MEANT = {
    "pending": {State.PENDING, State.WAITING},
    "in_doubt": {State.IN_DOUBT},
    "done": {State.DONE},
    "failed": {State.FAILED},
    "partial": {State.PARTIAL},
}
STATES = tuple(_MEANT)

# Looked at for one page of what is rare: some ten milliseconds, however many records there are.
_BATCH, _BATCHES_MAX = 200, 10

HAPPENED, DID_NOT_HAPPEN = "happened", "did_not_happen"

# Not None: null is a value that a tool may have returned.
NO_RESULT: Any = object()


# Each try fails only if somebody else amended the record in between.
_TRIES = 20


class Resolution(NamedTuple):
    """The record as it stands, and whether this very answer was on file before.

    `checked` says whether the given result was held against the tool's schema; None if none was given.
    """

    record: Record
    replayed: bool
    checked: bool | None = None


class _Wanted(NamedTuple):
    """Which records; None, or no state: whichever."""

    scope: str | None
    states: frozenset[State]
    tool: str | None

    def fits(self, record: Record, now_us: int) -> bool:
        request = record.request
        return (
            self.scope in (None, request.at.scope)
            and self.tool in (None, request.tool)
            and (not self.states or effective_state(record, now_us) in self.states)
        )


def _position(record: Record) -> tuple[int, str]:
    return record.created_at, record.request.id


class Records:
    """The records of one tenant.

    `wrote` is called when something goes into the audit log; `contract_of(name, version)` gives a contract
    that runs in this process.
    """

    def __init__(
        self,
        store: Store,
        tenant: str,
        wrote: Callable[[], None] = lambda: None,
        contract_of: Callable[[str, str], Contract | None] = lambda *_: None,
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._wrote = wrote
        self._contract_of = contract_of

    def list(
        self,
        *,
        scope: str | None = None,
        state: str | None = None,
        key: str | None = None,
        tool: str | None = None,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> Sequence[Record]:
        """Newest first. `key` is a Semel key, or the idempotency key that a caller gave."""
        if state is not None and state not in _MEANT:
            raise ValueError(f"state is one of {', '.join(STATES)}, not {state!r}")
        wanted = _Wanted(scope, frozenset(_MEANT[state]) if state else frozenset(), tool)
        if key is None:
            return self._store.ask(ListRecords(self._tenant, scope, wanted.states, None, tool, before, limit))
        return self._of_key(key, wanted, before)[:limit]

    def _of_key(self, key: str, wanted: _Wanted, before: tuple[int, str] | None) -> Sequence[Record]:
        """Looked for at its addresses: no list is read."""
        records = []
        for scope in (OF_TOOL, OF_HTTP) if wanted.scope is None else (wanted.scope,):
            for each in sorted({key, explicit(self._tenant, key)}):
                reply = self._store.perform(Look(Address(self._tenant, scope, each)))
                record = reply.record
                if record is None or closed(record, reply.now_us) or not wanted.fits(record, reply.now_us):
                    continue
                if before is None or _position(record) < before:
                    records.append(record)
        return sorted(records, key=_position, reverse=True)

    def sifted(
        self,
        *,
        scope: str | None = None,
        state: str | None = None,
        tool: str | None = None,
        before: tuple[int, str] | None = None,
        limit: int = 50,
    ) -> tuple[Sequence[Record], tuple[int, str] | None]:
        """As `list`, but of a long history only a part is looked at: what fits of it, and where to go on.

        None as that place: there is nothing else, or there were as many as were asked for.
        """
        wanted = _Wanted(scope, frozenset(_MEANT[state]) if state else frozenset(), tool)
        if not any(wanted) or unsettled_only(wanted.states):
            return self.list(scope=scope, state=state, tool=tool, before=before, limit=limit), None
        fitting: list[Record] = []
        size = limit
        for _ in range(_BATCHES_MAX):
            records = self._store.ask(ListRecords(self._tenant, before=before, limit=size))
            now_us = self._store.clock.now_us()
            fitting += [record for record in records if wanted.fits(record, now_us)]
            if len(fitting) >= limit or len(records) < size:
                return fitting[:limit], None
            before, size = _position(records[-1]), _BATCH
        return fitting, before

    def get(self, id: str) -> Record:
        record = self._store.ask(FindRecord(self._tenant, id))
        if record is None:
            raise RecordNotFound(f"There is no record {id} in the tenant {self._tenant}.")
        return record

    def history(self, id: str) -> Sequence[Event]:
        """The record's events, oldest first."""
        events: list[Event] = []
        while page := self._store.ask(
            ReadEvents(after=events[-1].seq if events else 0, tenant=self._tenant, record_id=id)
        ):
            events.extend(page)
        return events

    def resolve(self, id: str, outcome: str, *, by: str, result: Any = NO_RESULT) -> Record:
        """Settle what is in doubt, as a person who asked the downstream.

        `happened` settles it as done (without a result its value is not available); `did_not_happen` makes
        the key claimable again. The same answer again changes nothing; another one is RecordNotInDoubt. A
        result that is none of the tool is ResultInvalid, where the catalogue knows the tool.
        """
        return self.resolution(id, outcome, by=by, result=result).record

    def resolution(
        self, id: str, outcome: str, *, by: str, result: Any = NO_RESULT, fence: int | None = None
    ) -> Resolution:
        """The same, and whether this answer was given before.

        With a `fence` only the attempt that had it is answered for: an answer that was delayed, or sent again
        by a client, does not resolve the doubt of a later attempt.
        """
        if outcome not in (HAPPENED, DID_NOT_HAPPEN):
            raise ValueError(f"outcome is {HAPPENED} or {DID_NOT_HAPPEN}, not {outcome!r}")
        if not by:
            raise ValueError("resolving needs the name of the person who answers for it: by=…")
        kept = result if outcome == HAPPENED else NO_RESULT
        record = self.get(id)
        if fence not in (None, record.fence):
            raise RecordNotInDoubt(
                f"Record {id} went on to another attempt (fence {record.fence}); nothing was changed."
            )
        command = Resolve(
            at=record.request.at,
            seen=record.token,
            token=self._store.clock.token(),
            happened=outcome == HAPPENED,
            outcome=_written(kept),
            window_us=terms(record).get("window_us"),
            by=by,
        )
        checked = None
        if command.outcome is not None and not _resolved_alike(record, command):
            checked = self._check_result(record, command.outcome)
        if record.state is State.PENDING and owner.is_gone(record.token):
            # Nobody can answer for it any more, so the person need not wait for its lease either.
            self._store.perform(Park(record.request.at, record.token, OWNER_GONE))
        self._wrote()
        reply = self._store.perform(command)
        if reply.record is None or not (reply.applied or _resolved_alike(reply.record, command)):
            raise RecordNotInDoubt(
                f"Record {id} is not in doubt; nothing was changed.{_amending(reply.record)}"
            )
        # Not `applied`: after a lost reply the store repeats the command, and the token is ours all the same.
        return Resolution(reply.record, reply.record.token != command.token, checked)

    def amend(self, id: str, *, by: str, result: Any) -> Record:
        """Give or correct the result of what a person resolved as happened; from then on replays give it.

        RecordNotInDoubt for any other record: what a tool or its probe settled stays as it is. The same
        result again changes nothing.
        """
        return self.amendment(id, by=by, result=result).record

    def amendment(self, id: str, *, by: str, result: Any) -> Resolution:
        """The same, and whether the record had this result before."""
        if not by:
            raise ValueError("amending needs the name of the person who answers for it: by=…")
        outcome = _written(result)
        if outcome is None:
            raise ValueError("amending gives a result: result=…")
        for _ in range(_TRIES):
            record = self.get(id)
            if not amendable(record) or closed(record, self._store.clock.now_us()):
                raise _not_amendable(id)
            if record.outcome == outcome:
                return Resolution(record, replayed=True)
            checked = self._check_result(record, outcome)
            command = Amend(record.request.at, record.token, self._store.clock.token(), outcome, by)
            self._wrote()
            reply = self._store.perform(command)
            if reply.record is not None and reply.record.token == command.token:
                return Resolution(reply.record, replayed=False, checked=checked)
        raise _not_amendable(id)

    def _check_result(self, record: Record, outcome: bytes) -> bool:
        """Whether somebody knows what the tool returns; ResultInvalid if they do, and this is not it."""
        tool, version = record.request.tool, record.request.version
        if len(outcome) > RESULT_BYTES_MAX:
            raise ResultInvalid(
                f"The result takes {len(outcome)} bytes; {RESULT_BYTES_MAX} are kept. Nothing was changed."
            )
        form = catalogue.results_of(self._store, record)
        if form is not None and (why := misfit(from_json(outcome), form.schema, form.secret)) is not None:
            raise ResultInvalid(f"{tool} {version} does not return this. {why} Nothing was changed.")
        values = self._values_of(record)
        if values is not None:
            try:
                values.load(outcome)
            except ValueError:
                raise ResultInvalid(
                    f"{tool} {version} does not return this: it cannot be read back as what the tool "
                    "returns. Nothing was changed."
                ) from None
        return form is not None or values is not None

    def _values_of(self, record: Record) -> Values | None:
        """What reads the record's result, if it is known here."""
        if record.request.at.scope == OF_HTTP:
            return answer_values()
        contract = self._contract_of(record.request.tool, record.request.version)
        return None if contract is None else contract.values

    def result_form(self, record: Record) -> catalogue.ResultForm | None:
        """What a result of the record's tool looks like; None if nobody knows."""
        return catalogue.results_of(self._store, record)

    def effective_state(self, record: Record) -> str:
        state = effective_state(record, self._store.clock.now_us())
        return _SHOWN.get(state, state.value)

    def show(self, record: Record) -> RecordJson:
        """The record as JSON data for a person; arguments and result as they are stored."""
        request = record.request
        return {
            "id": request.id,
            "scope": request.at.scope,
            "tool": request.tool,
            "version": request.version,
            "key": request.at.key,
            "state": self.effective_state(record),
            "fence": record.fence,
            "attempts": record.attempts,
            "conversation": request.conversation,
            "step": orjson.loads(request.step),
            "principal": request.principal,
            "created_at": rfc3339(record.created_at),
            "entered_at": rfc3339(record.entered_at),
            "lease_until": rfc3339(record.lease_until),
            "settled_at": rfc3339(record.settled_at),
            "expires_at": rfc3339(record.expires_at),
            "arguments": from_json(request.arguments),
            "outcome": from_json(record.outcome) if record.outcome else None,
            "note": record.note,
            "by": record.by,
            "job_id": request.job_id or None,
            "run_id": None,
            "contract": terms(record),
        }


def terms(record: Record) -> dict[str, Any]:
    """What the contract said when the key was claimed."""
    contract_terms: dict[str, Any] = orjson.loads(record.request.terms)
    contract_terms.pop(catalogue.RETURNS, None)
    return contract_terms


def _resolved_alike(record: Record, command: Resolve) -> bool:
    """Whether the record was resolved before, in the same sense."""
    meant = State.DONE if command.happened else State.CLEARED
    by_word = record.note in (RESOLVED, AMENDED)
    return by_word and record.state is meant and command.outcome in (None, record.outcome)


def _written(result: Any) -> bytes | None:
    """The result as it is stored; None if there is none."""
    return None if result is NO_RESULT else FOR_PYDANTIC + to_json(result, bytes_mode="base64")


def _amending(record: Record | None) -> str:
    """What to do instead, if the record was resolved before."""
    if record is None or not amendable(record):
        return ""
    return f" {record.by} resolved it before: its result is corrected with `semel records amend`."


def _not_amendable(id: str) -> RecordNotInDoubt:
    return RecordNotInDoubt(
        f"Record {id} was not resolved as happened by a person, or its window closed: what a tool or a probe "
        "settled stays as it is. Nothing was changed."
    )
