"""Who asks: API keys, roles, and `--dev` without either.

A key is `semel_<id>_<secret>`. The secret has 256 random bits and is shown once; what is kept is its SHA-256.
A slow hash protects what people choose, because that can be guessed; nobody guesses 256 bits, so a quick one
is right, and an answer does not wait for it. Keys are documents of a tenant that no caller can name.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import orjson

from semel.errors import SemelError
from semel.flow.document_store import DocumentStore
from semel.flow.problems import Refused
from semel.flow.values import Caller
from semel.gateway.incoming import Incoming
from semel.gateway.settings import is_loopback
from semel.kernel.clock import Clock, rfc3339
from semel.stores.documents import Document, Draft, Entry, Scan

ROLES = ("submitter", "worker", "approver", "auditor", "admin")
_EVERY_ROLE = frozenset(ROLES)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_KEY_ID = re.compile(r"[0-9a-f]{16}")

# No name of a tenant begins with a dot, so no credential and no header reaches this one.
_TENANT = ".semel"
_INDEX = "api-keys"

# How long a key is believed without asking the store: so a revoked one is dead within this time.
CACHED_S = 5.0
_CACHED_MAX = 10_000

# Compared with where there is no key, so that an unknown id takes as long as a wrong secret.
_NO_HASH = "0" * 64

_PRINCIPAL_CHARS_MAX = 128


class KeyRefused(SemelError):
    """The key cannot be made, or there is none to revoke; nothing was changed."""

    code = "KEY_REFUSED"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is kept of a key: whose it is, and what its secret hashes to."""

    id: str
    tenant: str
    principal: str
    roles: tuple[str, ...]
    secret_hash: str
    created_us: int
    revoked_us: int | None = None

    @property
    def caller(self) -> Caller:
        return Caller(self.tenant, self.principal, frozenset(self.roles))

    def shown(self) -> dict[str, object]:
        """Without the hash: nobody has a use for it."""
        return {
            "id": self.id,
            "tenant": self.tenant,
            "principal": self.principal,
            "roles": list(self.roles),
            "created_at": rfc3339(self.created_us),
            "revoked_at": rfc3339(self.revoked_us),
        }


class ApiKeys:
    """Make, list, revoke, look up."""

    def __init__(self, document_store: DocumentStore) -> None:
        self._document_store = document_store

    async def create(self, tenant: str, principal: str, roles: tuple[str, ...]) -> tuple[ApiKey, str]:
        """The key as it is kept, and as its owner needs it: this is the only time that it is seen."""
        _check(tenant, principal, roles)
        clock = self._document_store.clock
        secret = base64.urlsafe_b64encode(clock.token() + clock.token()).decode().rstrip("=")
        id_, now_us = clock.token().hex()[:16], await self._document_store.now_us()
        key = ApiKey(id_, tenant, principal, tuple(sorted(set(roles))), _hash(secret), now_us)
        await self._document_store.commit(_TENANT, {_document_id(id_): None}, (_draft(key),))
        return key, f"semel_{id_}_{secret}"

    async def find(self, id_: str) -> ApiKey | None:
        name = _document_id(id_)
        document = (await self._document_store.fetch(_TENANT, name)).get(name)
        return None if document is None else _key(document)

    async def list(self, tenant: str | None = None) -> list[ApiKey]:
        """Newest first; of one tenant, or all."""
        keys: list[ApiKey] = []
        after: tuple[int, str] | None = None
        while documents := (
            await self._document_store.scan(Scan(_TENANT, _INDEX, 200, newest=True, after=after))
        ).documents:
            keys += [_key(document) for document in documents]
            after = keys[-1].created_us, documents[-1].id
        return [key for key in keys if tenant in (None, key.tenant)]

    async def revoke(self, id_: str) -> ApiKey:
        """The key is refused from now on, everywhere within `CACHED_S`. Again, it changes nothing."""
        name = _document_id(id_)
        while True:
            document = (await self._document_store.fetch(_TENANT, name)).get(name)
            if document is None:
                raise KeyRefused(f"There is no key {id_}. Nothing was changed.")
            key = _key(document)
            if key.revoked_us is not None:
                return key
            revoked = replace(key, revoked_us=await self._document_store.now_us())
            if (await self._document_store.commit(_TENANT, {name: document.tag}, (_draft(revoked),))).done:
                return revoked


def _check(tenant: str, principal: str, roles: tuple[str, ...]) -> None:
    if not _NAME.fullmatch(tenant):
        raise KeyRefused(f"{tenant!r} is not a tenant's name. Nothing was made.")
    if not is_principal(principal):
        raise KeyRefused(f"{principal!r} is not a name of 1 to 128 printable characters. Nothing was made.")
    unknown = sorted(set(roles) - set(ROLES))
    if unknown or not roles:
        raise KeyRefused(f"A key has one or more of the roles {', '.join(ROLES)}. Nothing was made.")


def is_principal(name: str) -> bool:
    return 0 < len(name) <= _PRINCIPAL_CHARS_MAX and name.isprintable() and name == name.strip()


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _document_id(id_: str) -> str:
    return f"api-key/{id_}"


def _draft(key: ApiKey) -> Draft:
    return Draft(_document_id(key.id), orjson.dumps(key), (Entry(_INDEX, key.created_us),))


def _key(document: Document) -> ApiKey:
    data = orjson.loads(document.body)
    return ApiKey(**data | {"roles": tuple(data["roles"])})


# --- requests -------------------------------------------------------------------------------------


class KeyAuthenticator:
    """Lets in whoever has a key."""

    def __init__(self, keys: ApiKeys, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock
        self._cache: dict[str, _CachedKey] = {}

    async def caller(self, request: Incoming) -> Caller:
        """Who asks; Refused `unauthenticated` if nobody can tell."""
        id_, secret = _credential(request)
        cached = self._cache.get(id_)
        if cached is None or self._clock.monotonic() >= cached.until:
            cached = await self._read(id_)
        kept = _NO_HASH if cached is None else cached.key.secret_hash
        right = hmac.compare_digest(_hash(secret), kept)
        if cached is None or not right or cached.key.revoked_us is not None:
            raise Refused("unauthenticated")
        return cached.caller

    async def _read(self, id_: str) -> _CachedKey | None:
        """The key as the store has it; believed from now on for a while."""
        key = await self._keys.find(id_)
        if key is None:
            return None  # absence is not remembered: a key works from the moment it was made
        if len(self._cache) >= _CACHED_MAX:
            self._cache.clear()
        cached = self._cache[id_] = _CachedKey(key, key.caller, self._clock.monotonic() + CACHED_S)
        return cached


class _CachedKey(NamedTuple):
    key: ApiKey
    caller: Caller
    until: float


def _credential(request: Incoming) -> tuple[str, str]:
    """Id and secret; a request may name its key twice if it names the same."""
    given = set(request.header_values(b"x-api-key"))
    given.update(map(_bearer, request.header_values(b"authorization")))
    if len(given) != 1:
        raise Refused("unauthenticated")
    scheme, _, rest = given.pop().decode("latin-1").strip().partition("_")
    id_, _, secret = rest.partition("_")
    if scheme != "semel" or not _KEY_ID.fullmatch(id_) or not secret:
        raise Refused("unauthenticated")
    return id_, secret


def _bearer(value: bytes) -> bytes:
    scheme, _, token = value.partition(b" ")
    if scheme.lower() != b"bearer":
        raise Refused("unauthenticated", "Only `Authorization: Bearer` and `X-API-Key` are understood.")
    return token.strip()


class DevAuthenticator:
    """`--dev`: whoever is at this machine may do everything, as whoever they say they are.

    A page in a browser on this machine is not at this machine: its requests are recognised by a `Host` that
    is a name of somebody else's (DNS rebinding), or by an `Origin` that is not this machine.
    """

    async def caller(self, request: Incoming) -> Caller:
        host, origin = request.header(b"host"), request.header(b"origin")
        if host is not None and not _is_here(host):
            raise Refused("forbidden", "With --dev only this machine is served, under its own name.")
        if origin is not None and not _is_here(origin.partition(b"://")[2]):
            raise Refused("forbidden", "With --dev pages of other hosts are not served.")
        return _named(request.header(b"x-tenant-id"), request.header(b"x-principal-id"))


@lru_cache(256)  # a gateway has one or two names
def _is_here(host: bytes) -> bool:
    return is_loopback(_host_name(host))


@lru_cache(4_096)  # the same few again and again
def _named(tenant_header: bytes | None, principal_header: bytes | None) -> Caller:
    """Whoever the headers say, with every role; a Refused if that is nobody's name."""
    tenant = _header_text(tenant_header, b"x-tenant-id", "default")
    principal = _header_text(principal_header, b"x-principal-id", "dev")
    if not _NAME.fullmatch(tenant):
        raise Refused("request_invalid", "X-Tenant-ID is not a tenant's name.", names=["X-Tenant-ID"])
    if not is_principal(principal):
        raise Refused("request_invalid", "X-Principal-Id is not a name.", names=["X-Principal-Id"])
    return Caller(tenant, principal, _EVERY_ROLE)


def _host_name(host: bytes) -> str:
    """`[::1]:8765` and `localhost:8765` without the port."""
    text = host.decode("latin-1").strip()
    return text.partition("]")[0] if text.startswith("[") else text.partition(":")[0]


def _header_text(value: bytes | None, name: bytes, default: str) -> str:
    try:
        return default if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("request_invalid", f"{name.decode()} is not UTF-8.", names=[name.decode()]) from None


Authenticator = KeyAuthenticator | DevAuthenticator


def check_role(caller: Caller, roles: frozenset[str]) -> None:
    if not roles & caller.roles:
        raise Refused("forbidden", f"This takes one of the roles {', '.join(sorted(roles))}.")


def check_tenant(caller: Caller, request: Incoming) -> None:
    """Every X-Tenant-ID is the credential's own tenant."""
    for value in request.header_values(b"x-tenant-id"):
        if value.decode("latin-1") != caller.tenant:
            raise Refused("tenant_mismatch")
