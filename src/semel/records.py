"""Records for people: list, look at, resolve what is in doubt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import orjson
from pydantic_core import from_json, to_json

from semel import owner
from semel.audit import Event
from semel.clock import rfc3339
from semel.errors import RecordNotFound, RecordNotInDoubt
from semel.keys import explicit
from semel.record import OWNER_GONE, Park, Record, Resolve, State, effective_state
from semel.stores.base import FindRecord, ListRecords, ReadEvents, Store
from semel.values import FOR_PYDANTIC

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

HAPPENED, DID_NOT_HAPPEN = "happened", "did_not_happen"

# Not None: null is a value that a tool may have returned.
NO_RESULT: Any = object()


class Resolution(NamedTuple):
    """The record as it stands, and whether this very answer was on file before."""

    record: Record
    replayed: bool


class Records:
    """The records of one tenant. `wrote` is called when something goes into the audit log."""

    def __init__(self, store: Store, tenant: str, wrote: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._tenant = tenant
        self._wrote = wrote

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
        states = frozenset(_MEANT[state]) if state else frozenset()
        keys: Iterable[str | None] = (key,) if key is None else {key, explicit(self._tenant, key)}
        found = [
            record
            for each in keys
            for record in self._store.ask(ListRecords(self._tenant, scope, states, each, tool, before, limit))
        ]
        return found[:limit]

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
        the key claimable again. The same answer again changes nothing; another one is RecordNotInDoubt.
        """
        return self.resolution(id, outcome, by=by, result=result).record

    def resolution(
        self, id: str, outcome: str, *, by: str, result: Any = NO_RESULT, fence: int | None = None
    ) -> Resolution:
        """The same, and whether it was said before.

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
            at=record.asked.at,
            seen=record.token,
            token=self._store.clock.token(),
            happened=outcome == HAPPENED,
            outcome=None if kept is NO_RESULT else FOR_PYDANTIC + to_json(kept, bytes_mode="base64"),
            window_us=terms(record).get("window_us"),
            by=by,
        )
        if record.state is State.PENDING and owner.is_gone(record.token):
            # Nobody can answer for it any more, so the person need not wait for its lease either.
            self._store.perform(Park(record.asked.at, record.token, OWNER_GONE))
        self._wrote()
        reply = self._store.perform(command)
        if reply.record is None or not (reply.applied or _resolved_alike(reply.record, command)):
            raise RecordNotInDoubt(f"Record {id} is not in doubt; nothing was changed.")
        # A store asks again after a lost reply: then the token is ours, and nobody said it before us.
        return Resolution(reply.record, replayed=reply.record.token != command.token)

    def effective_state(self, record: Record) -> str:
        state = effective_state(record, self._store.clock.now_us())
        return _SHOWN.get(state, state.value)

    def show(self, record: Record) -> dict[str, Any]:
        """The record as JSON data for a person; arguments and result as they are stored."""
        asked = record.asked
        return {
            "id": asked.id,
            "scope": asked.at.scope,
            "tool": asked.tool,
            "version": asked.version,
            "key": asked.at.key,
            "state": self.effective_state(record),
            "fence": record.fence,
            "attempts": record.attempts,
            "conversation": asked.conversation,
            "step": orjson.loads(asked.step),
            "principal": asked.principal,
            "created_at": rfc3339(record.created_at),
            "entered_at": rfc3339(record.entered_at),
            "lease_until": rfc3339(record.lease_until),
            "settled_at": rfc3339(record.settled_at),
            "expires_at": rfc3339(record.expires_at),
            "arguments": from_json(asked.arguments),
            "outcome": from_json(record.outcome) if record.outcome else None,
            "note": record.note,
            "by": record.by,
            "job_id": asked.job_id or None,
            "run_id": None,
            "contract": terms(record),
        }


def terms(record: Record) -> dict[str, Any]:
    """What the contract said when the key was claimed."""
    known: dict[str, Any] = orjson.loads(record.asked.terms)
    return known


def _resolved_alike(record: Record, command: Resolve) -> bool:
    """Whether the record was resolved before, in the same sense."""
    meant = State.DONE if command.happened else State.CLEARED
    return record.note == "resolved" and record.state is meant and command.outcome in (None, record.outcome)
