"""What a URL says about NATS: `nats://user:password@host:4222,other:4222?duplicates=2m&stream=semel`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from semel.kernel.durations import microseconds
from semel.stores.urls import StoreUrl

PORT = 4222

_STREAM = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REPLICAS = re.compile(r"[1-5]")


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """`shown` has no password in it; the credentials are in no repr."""

    servers: tuple[str, ...]
    shown: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    stream: str = "semel"
    duplicates_s: float = 120.0  # JetStream's own default: an optimisation, for the inbox is the truth
    replicas: int = 1


def read(url: StoreUrl) -> NatsSettings:
    """OpenError that says what is wrong with the URL, without its password."""
    who, _, addresses = url.parts.netloc.rpartition("@")
    # A token stands where others have a user's name, so whoever connects is not shown at all.
    url.shown = f"{url.parts.scheme}://{addresses}"
    url.allow("duplicates", "stream", "replicas")
    user, colon, password = who.partition(":")
    return NatsSettings(
        servers=tuple(_server(url, address) for address in addresses.split(",")),
        shown=url.shown,
        user=unquote(user) if colon else None,
        password=unquote(password) if colon else None,
        token=unquote(user) if user and not colon else None,
        stream=_fitting(url, "stream", "semel", _STREAM),
        duplicates_s=_duplicates_s(url),
        replicas=int(_fitting(url, "replicas", "1", _REPLICAS)),
    )


def _server(url: StoreUrl, address: str) -> str:
    host, _, port = address.rpartition(":") if re.search(r":\d+$", address) else (address, "", str(PORT))
    if not host or url.parts.path.strip("/"):
        raise url.error("names no server: write nats://host:4222")
    return f"{url.parts.scheme}://{host}:{port}"


def _fitting(url: StoreUrl, name: str, default: str, form: re.Pattern[str]) -> str:
    text = url.option(name, default)
    if not form.fullmatch(text):
        raise url.error(f"says {name}={text}, which is not of the form {form.pattern}")
    return text


def _duplicates_s(url: StoreUrl) -> float:
    try:
        return microseconds(url.option("duplicates", "2m"), "duplicates") / 1_000_000
    except ValueError as wrong:
        raise url.error(f"cannot be read: {wrong}") from None
