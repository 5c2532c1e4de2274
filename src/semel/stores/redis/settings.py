"""What the servers say about themselves, and what that means for an acknowledged write."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import hiredis

from semel.errors import OpenError
from semel.stores.base import Finding
from semel.stores.redis import trouble
from semel.stores.redis.options import Node, RedisOptions

log = logging.getLogger("semel")

_VERSION_MIN = (7, 0)
_UNKNOWN = "?"
_CONFIG_NAMES = (
    b"appendonly", b"appendfsync", b"save", b"maxmemory-policy", b"maxmemory", b"min-replicas-to-write",
)  # fmt: skip

# Beyond this share of its memory a server that grows is soon full.
_FULL = 0.9


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """One server's; None where it does not say."""

    node: Node
    version: tuple[int, ...]
    role: str
    replicas: int
    used_bytes: int
    memory_bytes: int
    policy: str
    appends: bool | None
    fsync: str
    snapshots: str
    replicas_needed: int | None  # fewer, and it takes no writes

    @property
    def fails_over(self) -> bool:
        """Whether a replica may take its place."""
        return self.replicas > 0 or self.node.way == "sentinel"


def read(node: Node, ask: Callable[..., Any]) -> ServerSettings:
    """Asked of the server itself; `ask(node, *words)` gives its answer."""
    info = _info(node, ask)
    config = _config(node, ask)
    return ServerSettings(
        node=node,
        version=tuple(int(part) for part in info.get("redis_version", "0").split(".") if part.isdigit()),
        role=info.get("role", ""),
        replicas=int(info.get("connected_slaves", 0)),
        used_bytes=int(info.get("used_memory", 0)),
        memory_bytes=int(config.get("maxmemory", info.get("maxmemory", 0))),
        policy=config.get("maxmemory-policy", info.get("maxmemory_policy", "")),
        appends=_appends(config, info),
        fsync=config.get("appendfsync", ""),
        snapshots=config.get("save", _UNKNOWN),
        replicas_needed=int(config["min-replicas-to-write"]) if "min-replicas-to-write" in config else None,
    )


def _info(node: Node, ask: Callable[..., Any]) -> dict[str, str]:
    answer = ask(node, b"INFO")
    if isinstance(answer, hiredis.ReplyError):
        raise trouble.refused(answer)
    if not isinstance(answer, bytes):
        raise OpenError(f"{node} does not speak the Redis protocol.")
    lines = (line.partition(":") for line in answer.decode().splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in lines}


def _config(node: Node, ask: Callable[..., Any]) -> dict[str, str]:
    """Nothing where it is forbidden, as managed servers do."""
    answer = ask(node, b"CONFIG", b"GET", *_CONFIG_NAMES)
    if not isinstance(answer, list):
        return {}
    return {name.decode(): value.decode() for name, value in zip(answer[::2], answer[1::2], strict=True)}


def _appends(config: dict[str, str], info: dict[str, str]) -> bool | None:
    if "appendonly" in config:
        return config["appendonly"] == "yes"
    return {"1": True, "0": False}.get(info.get("aof_enabled", ""))


def check(settings: Sequence[ServerSettings], options: RedisOptions) -> None:
    """OpenError if a record could go without anyone having removed it, or the server is too old."""
    for each in settings:
        if each.version < _VERSION_MIN:
            version = ".".join(map(str, each.version))
            raise OpenError(f"Redis {version} at {each.node} is too old; Semel needs Redis 7 or newer.")
        if evicts(each):
            text = (
                f"the Redis server at {each.node} evicts keys when memory is short "
                f"(maxmemory-policy {each.policy}): records would vanish, and their tools run again"
            )
            if not options.evicting:
                raise OpenError(
                    f"{text[0].upper()}{text[1:]}.",
                    corrective_action="`CONFIG SET maxmemory-policy noeviction`, or ?eviction=allow.",
                )
            log.warning("semel: %s", text)


def evicts(settings: ServerSettings) -> bool:
    return settings.policy not in ("", "noeviction")


# --- in words -------------------------------------------------------------------------------------


def durability(settings: Sequence[ServerSettings]) -> str:
    """What an acknowledged write survives: of several servers, on the weakest."""
    weakest = min(settings, key=_strength)
    text = _words(weakest)
    if any(each.fails_over for each in settings):
        text += " A failover to a replica may take back writes that it had not yet received."
    return text


def _strength(settings: ServerSettings) -> int:
    if settings.appends is None or (not settings.appends and settings.snapshots == _UNKNOWN):
        return 1
    if not settings.appends:
        return 2 if settings.snapshots else 0
    return {"always": 5, "everysec": 4}.get(settings.fsync, 3)


def _words(settings: ServerSettings) -> str:
    match _strength(settings):
        case 5:
            return (
                "An acknowledged write survives a crash of the server and of its machine, and power "
                "loss as far as the disk keeps what it says it has written (Redis append-only file, "
                "appendfsync always)."
            )
        case 4:
            return (
                "An acknowledged write survives a crash of the server's process; a crash of its machine or "
                "power loss may take back the last second (Redis append-only file, appendfsync everysec)."
            )
        case 3:
            return (
                "An acknowledged write survives a crash of the server's process; a crash of its machine or "
                "power loss may take back half a minute or more (Redis append-only file, "
                f"appendfsync {settings.fsync or 'unknown'})."
            )
        case 2:
            return (
                "An acknowledged write is lost in a crash of the server unless a snapshot was taken since: "
                f"minutes of writes may go (Redis snapshots only, save {settings.snapshots})."
            )
        case 1:
            return (
                "Unknown: the server does not tell its settings. Ask who runs it whether the append-only "
                "file is on (Redis, CONFIG forbidden)."
            )
        case _:
            return "An acknowledged write is lost when the server stops (Redis without persistence)."


def findings(settings: Sequence[ServerSettings], drift_us: int) -> Iterator[Finding]:
    for each in settings:
        yield from _of_one(each)
    yield _clock(drift_us)


def _of_one(settings: ServerSettings) -> Iterator[Finding]:
    where = str(settings.node)
    yield _persistence(settings, where)
    if evicts(settings):
        yield Finding(
            "danger",
            "eviction",
            f"{where} evicts keys when memory is short (maxmemory-policy {settings.policy}): records vanish",
            "`redis-cli CONFIG SET maxmemory-policy noeviction`, and keep it in the configuration file.",
        )
    elif settings.policy:
        yield Finding("ok", "eviction", f"{where} evicts nothing")
    else:
        yield Finding("note", "eviction", f"{where} does not tell its policy", "It has to be noeviction.")
    if settings.fails_over:
        yield _failover(settings, where)
    yield _memory(settings, where)
    version = ".".join(map(str, settings.version))
    replicas = f"{settings.replicas} replicas" if settings.replicas else "no replica"
    yield Finding(
        "ok", "version", f"Redis {version} at {where}, {settings.role or 'role unknown'}, {replicas}"
    )


def _persistence(settings: ServerSettings, where: str) -> Finding:
    strength, text = _strength(settings), _words(settings)
    fix = "`CONFIG SET appendonly yes` and `CONFIG SET appendfsync always`, and keep both in its file."
    if strength == 5:
        return Finding("ok", "durability", f"{where}: {text}")
    if strength in (1, 3, 4):
        return Finding("note", "durability", f"{where}: {text}", fix)
    return Finding("danger", "durability", f"{where}: {text}", fix)


def _failover(settings: ServerSettings, where: str) -> Finding:
    loses = f"{where}: a failover to a replica may take back writes that it had not yet received"
    if settings.replicas_needed:
        return Finding("note", "failover", f"{loses}; without a replica that keeps up it takes no writes")
    return Finding(
        "note",
        "failover",
        f"{loses}, and a primary that is cut off from its replicas goes on taking writes that are lost",
        "`CONFIG SET min-replicas-to-write 1` ends the latter after min-replicas-max-lag seconds.",
    )


def _memory(settings: ServerSettings, where: str) -> Finding:
    used = f"{settings.used_bytes >> 20} MiB"
    if not settings.memory_bytes:
        return Finding("ok", "memory", f"{where} uses {used}, without a limit of its own")
    text = f"{where} uses {used} of {settings.memory_bytes >> 20} MiB"
    if settings.used_bytes > _FULL * settings.memory_bytes:
        return Finding("danger", "memory", text, "Raise maxmemory: a full server refuses every call.")
    return Finding("ok", "memory", text)


# Leases are counted in tens of seconds: a second of difference shows nowhere.
_DRIFT_US_MAX = 1_000_000


def _clock(drift_us: int) -> Finding:
    if abs(drift_us) > _DRIFT_US_MAX:
        return Finding(
            "note",
            "clock",
            f"the server's clock is {drift_us / 1e6:+.1f} s from this machine's, and the server's counts",
            "Set both by NTP.",
        )
    return Finding("ok", "clock", "the server's clock and this machine's agree")
