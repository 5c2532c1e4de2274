"""Who holds a key: an ownership token ends with the identity of the process that made it.

So a caller on the same machine need not wait for the lease of a process that it can see to be gone. Where
nothing can be seen (another machine, another namespace, no /proc) nobody is taken for dead, and the lease
decides. The identity is no secret and proves nothing; who may write is decided by the token as a whole.
"""

from __future__ import annotations

import hashlib
import os
import struct
from functools import lru_cache
from os import getpid
from typing import NamedTuple

from semel.kernel.clock import Clock

_RANDOM_BYTES = 16

# Where process numbers mean the same, then pid and start time. The time in four bytes: ticks since the boot
# come round after 497 days. Where two are equal by chance, the lease decides.
_IDENTITY = struct.Struct(">8sII")
_TICKS = 1 << 32

_PROC = "/proc"

# Positions after the name of the command, which may hold anything, in /proc/PID/stat (proc_pid_stat(5)).
_STATE, _THREADS, _STARTED = 0, 17, 19

_DEAD = frozenset("ZXx")


class _Stat(NamedTuple):
    state: str
    threads: int
    started: int


def token(clock: Clock) -> bytes:
    """A new token of this process."""
    return token_of(clock.token())


def token_of(chance: bytes) -> bytes:
    """The token of this process with these 16 random bytes."""
    return chance + _identity(getpid())


def is_neighbour(of: bytes) -> bool:
    """Whether the token was made by another process whose end can be seen from here."""
    return _neighbour(of) is not None


def is_gone(of: bytes) -> bool:
    """Whether the process that made this token is certainly no more: gone, a zombie, or its number reused.

    One that is frozen is not gone, and neither is one of which nothing can be seen.
    """
    neighbour = _neighbour(of)
    return neighbour is not None and _process_is_gone(*neighbour)


def _neighbour(of: bytes) -> tuple[int, int] | None:
    """Pid and start of the process that made the token, if it is another one of this pid space."""
    theirs, here = of[_RANDOM_BYTES:], _identity(getpid())
    if theirs == here or not here or len(theirs) != _IDENTITY.size:
        return None
    pid_space, pid, started = _IDENTITY.unpack(theirs)
    return (pid, started) if pid_space == here[: len(pid_space)] else None


def _process_is_gone(pid: int, started: int) -> bool:
    try:
        # Asked first: under `hidepid` other users' processes are not in /proc, though they live.
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it exists, and is not ours to signal
    stat = _stat(pid)
    if stat is None:
        return False
    # A process whose main thread has ended looks like a zombie while its other threads work.
    return stat.started % _TICKS != started or (stat.state in _DEAD and stat.threads <= 1)


# Cached by pid, because a child of a fork that ran no hooks is another process too.
@lru_cache(maxsize=1)
def _identity(pid: int) -> bytes:
    """The identity of this process; empty if /proc does not show it."""
    stat, pid_space = _stat(pid), _pid_space(pid)
    if stat is None or pid_space is None:
        return b""
    return _IDENTITY.pack(pid_space, pid, stat.started % _TICKS)


# A descendant may get the number of an ancestor that is no more.
os.register_at_fork(after_in_child=_identity.cache_clear)


def _pid_space(pid: int) -> bytes | None:
    """Where a pid and a start time mean the same process: one boot of one machine, one namespace of each."""
    if _numbers(pid) != [pid]:
        return None  # /proc shows another namespace, so the numbers in it are not those that we know
    parts = [
        _read("/etc/machine-id"),
        _read(f"{_PROC}/sys/kernel/random/boot_id"),
        _namespace("pid"),
        _namespace("time"),  # /proc shows start times by the clock of the reader's namespace
    ]
    if not (parts[1] and parts[2]):
        return None
    return hashlib.sha256(b"\0".join(parts)).digest()[:8]


def _numbers(pid: int) -> list[int]:
    """The pids of this process from the namespace that /proc shows down to its own."""
    for line in _read(f"{_PROC}/{pid}/status").splitlines():
        name, _, rest = line.partition(b":")
        if name == b"NSpid":
            return [int(number) for number in rest.split()]
    return []


def _namespace(kind: str) -> bytes:
    try:
        return b"%d" % os.stat(f"{_PROC}/self/ns/{kind}").st_ino
    except OSError:
        return b""


def _stat(pid: int) -> _Stat | None:
    fields = _read(f"{_PROC}/{pid}/stat").rpartition(b") ")[2].split()
    if len(fields) <= _STARTED:
        return None
    return _Stat(fields[_STATE].decode(), int(fields[_THREADS]), int(fields[_STARTED]))


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
