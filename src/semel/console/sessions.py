"""Who is signed in: documents of the store, so that any gateway on it knows them and an end is an end.

A browser holds a random token; what is kept is its SHA-256, so that nobody who reads the store can use it.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, replace

import orjson

from semel.flow.document_store import DocumentStore
from semel.flow.values import Caller
from semel.stores.documents import Draft, Entry, Scan

# No name of a tenant begins with a dot, so no credential and no header reaches this one.
_TENANT = ".semel"
_INDEX = "console-sessions"

# A lunch break; a working day. After either, the person signs in again.
IDLE_US = 60 * 60 * 1_000_000
ABSOLUTE_US = 12 * 3_600 * 1_000_000

# How exactly the last use is known: not every page writes.
_NOTICED_US = 60 * 1_000_000

# Ended ones that a sign-in removes besides: more than it adds.
_SWEPT = 20


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    id: str
    tenant: str
    principal: str
    roles: tuple[str, ...]
    key_id: str  # of the API key that signed in; "" if it was none
    way: str  # how one signed in: good only where one signs in this way
    secret: str  # what the tokens of forms are made with
    created_us: int
    seen_us: int

    @property
    def caller(self) -> Caller:
        return Caller(self.tenant, self.principal, frozenset(self.roles))

    def over(self, now_us: int) -> bool:
        return now_us - self.seen_us >= IDLE_US or now_us - self.created_us >= ABSOLUTE_US

    def form_token(self, action: str) -> str:
        """The token of the form that is sent to this address in this session."""
        return hmac.new(bytes.fromhex(self.secret), action.encode(), hashlib.sha256).hexdigest()


class Sessions:
    """Those of one way to sign in: a name under --dev opens nothing that asks for keys, on the same store."""

    def __init__(self, document_store: DocumentStore, way: str) -> None:
        self._documents = document_store
        self._way = way

    async def begin(self, caller: Caller, key_id: str = "") -> str:
        """The token of a new session."""
        clock, now_us = self._documents.clock, await self._documents.now_us()
        token = (clock.token() + clock.token()).hex()
        session = ConsoleSession(
            _id_of(token), caller.tenant, caller.principal, tuple(sorted(caller.roles)), key_id, self._way,
            clock.token(2).hex(), now_us, now_us,
        )  # fmt: skip
        await self._documents.commit(
            _TENANT, {session.id: None}, (_draft(session),), drop=await self._ended(now_us)
        )
        return token

    async def find(self, token: str, by_itself: bool = False) -> ConsoleSession | None:
        """The session that is not over; in use from now on, unless a page asked `by_itself`."""
        id_ = _id_of(token)
        document = (await self._documents.fetch(_TENANT, id_)).get(id_)
        if document is None:
            return None
        data = orjson.loads(document.body)
        session = ConsoleSession(**data | {"roles": tuple(data["roles"])})
        now_us = await self._documents.now_us()
        if session.over(now_us) or session.way != self._way:
            return None
        if not by_itself and now_us - session.seen_us >= _NOTICED_US:
            # Fails only if another request notices it too, or it was ended.
            seen = replace(session, seen_us=now_us)
            await self._documents.commit(_TENANT, {id_: document.tag}, (_draft(seen),))
        return session

    async def end(self, token: str) -> None:
        await self._documents.commit(_TENANT, {}, drop=(_id_of(token),))

    async def _ended(self, now_us: int) -> tuple[str, ...]:
        scan = Scan(_TENANT, _INDEX, _SWEPT, upto=now_us - ABSOLUTE_US)
        return tuple(document.id for document in (await self._documents.scan(scan)).documents)


def _id_of(token: str) -> str:
    return f"console-session/{hashlib.sha256(token.encode()).hexdigest()}"


def _draft(session: ConsoleSession) -> Draft:
    return Draft(session.id, orjson.dumps(session), (Entry(_INDEX, session.created_us),))
