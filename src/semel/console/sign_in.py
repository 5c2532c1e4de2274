"""Signing in: with an API key, under --dev with any name, at a store with the token that was printed."""

from __future__ import annotations

import re

from semel.flow.problems import Refused
from semel.flow.values import Caller
from semel.gateway.auth import ROLES, KeyAuthenticator, is_principal
from semel.gateway.bodies import NAME
from semel.gateway.incoming import Incoming

EVERY_ROLE = frozenset(ROLES)


async def _never() -> dict[str, object]:
    raise AssertionError("a credential is in the headers")


async def by_key(keys: KeyAuthenticator, text: str) -> tuple[Caller, str]:
    """Whose key it is, and its id; Refused `unauthenticated` if it is nobody's."""
    text = text.strip()
    try:
        header = text.encode("latin-1")
    except UnicodeEncodeError:
        raise Refused("unauthenticated") from None
    scope = {"method": "GET", "headers": [(b"x-api-key", header)], "query_string": b""}
    caller = await keys.caller(Incoming(scope, _never))
    return caller, text.split("_")[1]


def by_name(name: str, tenant: str) -> Caller:
    """Under --dev: whoever they say they are."""
    name, tenant = name.strip(), tenant.strip() or "default"
    if not is_principal(name):
        raise Refused("request_invalid", "A name has 1 to 128 printable characters.", names=["name"])
    if not re.fullmatch(NAME, tenant):
        raise Refused("request_invalid", "That is not a tenant's name.", names=["tenant"])
    return Caller(tenant, name, EVERY_ROLE)
