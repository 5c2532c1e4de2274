"""Every record of a tenant as one list: of tools and HTTP requests, keys of runs and jobs, questions.

The first live in the ledger and are read synchronously, so on a thread; the others are documents of the flow.
The gateway's handlers and the command line at a store both ask here. Nothing of HTTP is in this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from semel.contract.result_check import template
from semel.errors import RecordNotInDoubt
from semel.flow.approvals import JobApprovals
from semel.flow.idempotency_keys import Keys
from semel.flow.values import Page
from semel.kernel.answers import ExplainedRecordJson, ExplanationJson, RecordJson, WantedResultJson
from semel.kernel.record import OF_HTTP, OF_TOOL, Record
from semel.ledger.explain import DECISIONS, explained, happening
from semel.ledger.records import NO_RESULT, Records, Resolution
from semel.questions.views import job_of_question
from semel.stores.base import Store

# Of calls, which live in the ledger.
_CALL_SCOPES = (None, OF_TOOL, OF_HTTP)

# Scopes of keys, with the names that the flow files them under.
_KEY_SCOPES = {"run": ("run", "rerun"), "job": ("job",)}

# A key's answer commits with what it stands for: nothing about it is ever in doubt. Nor is a question.
_KEY_STATES = (None, "pending", "done")
_QUESTION_STATES = (None, "pending", "done", "failed")

# Read at once where a filter leaves some out, and how often for one page.
_PAGE = 200
_BATCHES_MAX = 10

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")

ListPosition = tuple[int, str]
Items = list[RecordJson]


class ListPart(NamedTuple):
    """What one kind gives to a page; `until` is how far back it was looked through, if not to its end."""

    items: Items
    until: ListPosition | None = None


@dataclass(frozen=True)
class RecordFilter:
    """Which records; None: whichever."""

    scope: str | None = None
    state: str | None = None
    key: str | None = None
    tool: str | None = None


class DoubtAnswer(NamedTuple):
    """What a person answers about a record in doubt."""

    outcome: str  # happened, did_not_happen
    by: str
    result: Any = NO_RESULT
    fence: int | None = None


class Correction(NamedTuple):
    """What a person gives as the result of a record that a person resolved."""

    by: str
    result: Any


class EveryRecord:
    """Records as JSON data."""

    def __init__(self, store: Store, tenant: str, keys: Keys, questions: JobApprovals) -> None:
        self._store = store
        self._tenant = tenant
        self._keys = keys
        self._questions = questions
        self._records = Records(store, tenant)

    async def list(self, filters: RecordFilter, after: ListPosition | None, limit: int) -> Page[RecordJson]:
        """Newest first. A page may be shorter than `limit` and still not be the last."""
        parts: list[ListPart] = []
        if filters.scope in (None, "approval") and filters.state in _QUESTION_STATES:
            parts.append(await self._of_questions(filters, after, limit))
        if filters.scope in _CALL_SCOPES:
            parts.append(await asyncio.to_thread(self._of_calls, filters, after, limit))
        if filters.tool is None and filters.state in _KEY_STATES:
            scopes = _KEY_SCOPES if filters.scope is None else [filters.scope]
            names = [filed for scope in scopes for filed in _KEY_SCOPES.get(scope, ())]
            parts += [await self._of_keys(filters, filed, after, limit) for filed in names]
        # What is older than where one of them stopped, is for the next page.
        until = max((part.until for part in parts if part.until is not None), default=None)
        items = [item for part in parts for item in part.items if until is None or position(item) >= until]
        items = sorted(items, key=position, reverse=True)[:limit]
        if filters.key is not None:
            return Page(items, None)
        return Page(items, position(items[-1]) if len(items) == limit else until)

    def _of_calls(self, filters: RecordFilter, after: ListPosition | None, limit: int) -> ListPart:
        scope, state, tool = filters.scope, filters.state, filters.tool
        until = None
        if filters.key is not None:
            records = self._records.list(
                scope=scope, state=state, key=filters.key, tool=tool, before=after, limit=limit
            )
        else:
            records, until = self._records.sifted(
                scope=scope, state=state, tool=tool, before=after, limit=limit
            )
        return ListPart([self._records.show(record) for record in records], until)

    async def _of_questions(self, filters: RecordFilter, after: ListPosition | None, limit: int) -> ListPart:
        def fits(item: RecordJson) -> bool:
            return filters.state in (None, item["state"]) and filters.tool in (None, item["tool"])

        async def read(after: ListPosition | None, limit: int) -> Items:
            # Most questions were answered long ago: whoever wants the open ones does not read all of them.
            status = "waiting" if filters.state == "pending" else None
            return await self._questions.records(self._tenant, status, after, limit)

        if filters.key is None:
            return await _sifted(read, fits, after, limit)
        question = await self._questions.record(self._tenant, filters.key)
        return _beyond(after, [question] if question is not None and fits(question) else [])

    async def _of_keys(
        self, filters: RecordFilter, filed: str, after: ListPosition | None, limit: int
    ) -> ListPart:
        def fits(item: RecordJson) -> bool:
            return filters.state in (None, item["state"])

        async def read(after: ListPosition | None, limit: int) -> Items:
            return (await self._keys.list(self._tenant, filed, after, limit)).items

        if filters.key is not None:
            key = await self._keys.find(self._tenant, filed, filters.key)
            return _beyond(after, [key] if key is not None and fits(key) else [])
        if filters.state == "pending":
            # A key is reserved for seconds, so those that are stand among the newest.
            return ListPart(list(filter(fits, await read(after, _PAGE)))[:limit])
        return await _sifted(read, fits, after, limit)

    async def get(self, id_: str) -> ExplainedRecordJson:
        """The record, explained, with its history; RecordNotFound if there is none."""
        key = await self._keys.get(self._tenant, id_)
        if key is not None:
            return {**key, "explanation": _key_explained(key), "history": []}
        question = await self._questions.record(self._tenant, job_of_question(id_))
        if question is not None:
            return await asyncio.to_thread(self._with_history, question)
        return await asyncio.to_thread(self._of_tool, id_)

    def _with_history(self, question: RecordJson) -> ExplainedRecordJson:
        history = self._records.history(question["id"])
        explanation = _question_explained(question)
        return {**question, "explanation": explanation, "history": [happening(event) for event in history]}

    def _of_tool(self, id_: str) -> ExplainedRecordJson:
        record = self._records.get(id_)
        history = self._records.history(id_)
        explanation = explained(record, history, self._store.clock.now_us())
        if explanation["choices"] and explanation["choices"] != DECISIONS:
            explanation["result"] = self._wanted_result(record)
        events = [happening(event) for event in history]
        return {**self._records.show(record), "explanation": explanation, "history": events}

    def _wanted_result(self, record: Record) -> WantedResultJson:
        """What the tool returns, for whoever has to say what it returned; nothing where nobody knows."""
        form = self._records.result_form(record)
        if form is None:
            return {"schema": None, "template": None}
        return {"schema": form.schema, "template": template(form.schema)}

    async def resolve(self, id_: str, answer: DoubtAnswer) -> tuple[RecordJson, bool]:
        """The record as it stands, and whether the same was said before; RecordNotInDoubt if it cannot be."""
        await self._check_kind(id_)
        return await asyncio.to_thread(self._resolve, id_, answer)

    async def amend(self, id_: str, correction: Correction) -> tuple[RecordJson, bool]:
        """The same, of a record that a person resolved, whose result is corrected."""
        await self._check_kind(id_)
        return await asyncio.to_thread(self._amend, id_, correction)

    async def _check_kind(self, id_: str) -> None:
        if await self._keys.get(self._tenant, id_) is not None:
            raise RecordNotInDoubt(f"Record {id_} is a key, and never in doubt; nothing was changed.")
        if await self._questions.record(self._tenant, job_of_question(id_)) is not None:
            raise RecordNotInDoubt(f"Record {id_} is a question, and never in doubt; nothing was changed.")

    def _resolve(self, id_: str, answer: DoubtAnswer) -> tuple[RecordJson, bool]:
        resolution = self._records.resolution(
            id_, answer.outcome, by=answer.by, result=answer.result, fence=answer.fence
        )
        return self._answer(resolution)

    def _amend(self, id_: str, correction: Correction) -> tuple[RecordJson, bool]:
        return self._answer(self._records.amendment(id_, by=correction.by, result=correction.result))

    def _answer(self, resolution: Resolution) -> tuple[RecordJson, bool]:
        """`result_checked`: whether a result that was given was held against what the tool returns."""
        record = self._records.show(resolution.record)
        return {**record, "result_checked": resolution.checked}, resolution.replayed


async def _sifted(
    read: Callable[[ListPosition | None, int], Awaitable[Items]],
    fits: Callable[[RecordJson], bool],
    after: ListPosition | None,
    limit: int,
) -> ListPart:
    """The first so many that fit; fewer if there are no more, or too many were looked at."""
    fitting: Items = []
    size = limit
    for _ in range(_BATCHES_MAX):
        items = await read(after, size)
        fitting += filter(fits, items)
        if len(fitting) >= limit or len(items) < size:
            return ListPart(fitting[:limit])
        after, size = position(items[-1]), max(limit, _PAGE)
    return ListPart(fitting, after)


def _beyond(after: ListPosition | None, items: Items) -> ListPart:
    return ListPart([item for item in items if after is None or position(item) < after])


def position(item: RecordJson) -> ListPosition:
    """Where an item stands in the list: when it was made, then its id."""
    created = datetime.fromisoformat(item["created_at"])
    return (created - _EPOCH) // timedelta(microseconds=1), item["id"]


def _question_explained(item: RecordJson) -> ExplanationJson:
    status = item["status"]
    if status == "waiting":
        known = f"Waits for a person until {item['expires_at']}: {item['job_id']}."
        return {"known": known, "attempt": item["attempts"], "choices": ["approve", "reject"]}
    known = f"{status.capitalize()} at {item['settled_at']} before anybody decided; nobody can any more."
    if item["by"]:
        known = f"{status.capitalize()} at {item['settled_at']} by {item['by']}; a repeat is told so."
    return {"known": known, "attempt": item["attempts"], "choices": []}


def _key_explained(item: RecordJson) -> ExplanationJson:
    if item["state"] == "done":
        known = f"Answered at {item['settled_at']}: the same request with this key has the same answer."
    else:
        known = "Being admitted right now: reserved, and nothing has begun."
    return {"known": known, "attempt": item["attempts"], "choices": []}
