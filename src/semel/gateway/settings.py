"""What `semel serve` is told: flags, else the environment, else what is safe and works on a laptop."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from semel.errors import SemelError
from semel.kernel.durations import microseconds
from semel.ledger.ledger import DEFAULT_URL

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")

# Far above what one tenant needs, below what one process answers: the others always get their turn.
TENANT_RATE_PER_S = 2_000.0
TENANT_BURST = 4_000.0

# Some hundred thousand runs of a usual size: a client in a loop is stopped before it fills the disk.
TENANT_BYTES = 1 << 30


class HostRefused(SemelError):
    """This host is not served without credentials; nothing was started."""

    code = "HOST_REFUSED"


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """All of it; the defaults are those of the command."""

    url: str = DEFAULT_URL
    bus: str = "local"
    host: str = "127.0.0.1"
    port: int = 8765
    admission: Literal["atomic", "lock"] = "atomic"
    lock_retry: Literal["jitter", "fixed"] = "jitter"
    lock_wait_us: int = 2_000_000
    lock_ttl_us: int = 10_000_000
    run_key_window_us: int | None = 90 * 86_400_000_000  # None: for ever
    probes: tuple[str, ...] = ()  # modules whose contracts have probes
    public_url: str | None = None  # how browsers reach the console, behind a proxy
    dev: bool = False
    log: Literal["all", "problems", "none"] = "all"
    tenant_rate_per_s: float = TENANT_RATE_PER_S  # 0: no limit
    tenant_burst: float = TENANT_BURST
    tenant_bytes: int | None = TENANT_BYTES  # None: no limit

    def __post_init__(self) -> None:
        if self.dev and not is_loopback(self.host):
            raise HostRefused(
                f"--dev asks nobody who they are, so it serves this machine only, not {self.host}.",
                corrective_action="Leave out --host; or leave out --dev, and `semel keys create`.",
            )


def read(given: Mapping[str, Any], environ: Mapping[str, str]) -> GatewaySettings:
    """Settings from flags (None: not given) and `SEMEL_…`; ValueError that names what cannot be meant."""
    chosen: dict[str, Any] = {}
    for name, (field, meaning) in _READ.items():
        text = given.get(name)
        if text is None:
            text = environ.get(f"SEMEL_{name.upper()}")
        if text is not None:
            chosen[field] = meaning(name, str(text))
    return GatewaySettings(**chosen)


def _text(name: str, text: str) -> str:
    if not text:
        raise ValueError(f"{_flag(name)} is empty")
    return text


def _bus(name: str, text: str) -> str:
    if text != "local" and not text.startswith(("nats://", "tls://")):
        # Not repeated: a URL may hold a password.
        raise ValueError(f"{_flag(name)} is local or nats://host:port")
    return text


def _one_of(*choices: str) -> Callable[[str, str], str]:
    def meaning(name: str, text: str) -> str:
        if text not in choices:
            raise ValueError(f"{_flag(name)} is one of {', '.join(choices)}, not {text!r}")
        return text

    return meaning


def _port(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise ValueError(f"{_flag(name)} is a number up to 65535 (0: any free one), not {text!r}")
    return int(text)


def _duration(name: str, text: str) -> int:
    return microseconds(text, _flag(name))


def _window(name: str, text: str) -> int | None:
    return None if text == "forever" else _duration(name, text)


def _modules(name: str, text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise ValueError(f"{_flag(name)} is one module, or several with commas between them, not {text!r}")
    return names


def _switch(name: str, text: str) -> bool:
    if text.lower() not in (*_TRUE, *_FALSE):
        raise ValueError(f"{_flag(name)} is on or off, not {text!r}")
    return text.lower() in _TRUE


def _origin(name: str, text: str) -> str:
    """`https://host[:port]`, as a browser's `Origin` says it."""
    read = re.fullmatch(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:]+\])(:[0-9]{1,5})?/?", text.lower(), re.ASCII)
    if read is None:
        raise ValueError(f"{_flag(name)} is https://host or https://host:port, not {text!r}")
    port = read[3] or ""
    usual = {"http": ":80", "https": ":443"}[read[1]]
    return f"{read[1]}://{read[2]}{'' if port == usual else port}"


def _rate(name: str, text: str) -> float:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{_flag(name)} is a whole number (0: no limit), not {text!r}")
    return float(text)


_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def _size(name: str, text: str) -> int | None:
    read = re.fullmatch(r"([0-9]{1,15})(|KiB|MiB|GiB|TiB)", text, re.ASCII)
    if read is None:
        raise ValueError(f"{_flag(name)} is a number of bytes, as 512MiB or 1GiB (0: no limit), not {text!r}")
    return int(read[1]) * _UNITS[read[2]] or None


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')} (SEMEL_{name.upper()})"


# The name of the flag and of the variable, the field, and what a text means.
_READ: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "url": ("url", _text),
    "bus": ("bus", _bus),
    "host": ("host", _text),
    "port": ("port", _port),
    "admission": ("admission", _one_of("atomic", "lock")),
    "lock_retry": ("lock_retry", _one_of("jitter", "fixed")),
    "lock_wait": ("lock_wait_us", _duration),
    "lock_ttl": ("lock_ttl_us", _duration),
    "run_key_window": ("run_key_window_us", _window),
    "probes": ("probes", _modules),
    "public_url": ("public_url", _origin),
    "dev": ("dev", _switch),
    "log": ("log", _one_of("all", "problems", "none")),
    "tenant_rate": ("tenant_rate_per_s", _rate),
    "tenant_burst": ("tenant_burst", _rate),
    "tenant_bytes": ("tenant_bytes", _size),
}

assert {field for field, _ in _READ.values()} == {field.name for field in fields(GatewaySettings)}


def is_loopback(host: str) -> bool:
    """Whether the name or address can only be this machine."""
    bare = host.strip("[]").lower()
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False
