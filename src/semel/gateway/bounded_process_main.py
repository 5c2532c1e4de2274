"""The program of a process apart (bounded_process.py): it does one piece of work after the other.

A piece that takes more processor time than it may ends the process: a timer of the system counts it, and its
signal needs nobody's cooperation, neither Python's nor that of a library in C or Rust. So does one that takes
more memory. Whoever asked sees the connection close.

A message, either way, is parts of bytes: how many, how long each is, then each.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import signal
import socket
import struct
from collections.abc import Callable, Sequence

import orjson

from semel.flow import schemas
from semel.flow.problems import Refused
from semel.gateway import strict_json
from semel.kernel.keys import canonical

# Of processor time, for one piece of work: what the largest body takes, many times over; and short enough
# that a tenant who asks for it again and again costs the others a fraction of one processor.
CPU_S = 2.0

# Many times what objects of the largest body need.
MEMORY_BYTES = 2 << 30

# Behind the gateway where both want the same processor.
_NICE = 2

# Answers: what the work gives, or a refusal: its code and its words.
DONE, REFUSED = b"done", b"refused"

COUNT, LENGTH = struct.Struct(">B"), struct.Struct(">I")

_FRACTION = re.compile(rb"\d[.eE]")


def main() -> None:
    channel = socket.socket(fileno=0)
    _bound()
    send(channel, (DONE,))
    while parts := receive(channel):
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        answer = answer_to(parts)
        signal.setitimer(signal.ITIMER_PROF, 0)
        send(channel, answer)


def _bound() -> None:
    os.nice(_NICE)
    gc.disable()  # JSON has no cycles, and a collector looks at a million objects again and again
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # what users sent is in no file of ours


def answer_to(parts: Sequence[bytes]) -> Sequence[bytes]:
    """What the named work gives."""
    name, *arguments = parts
    try:
        return (DONE, *WORKS[name](*arguments))
    except Refused as problem:
        return REFUSED, problem.code.encode(), problem.message.encode()


# --- the works ----------------------------------------------------------------------------------------


def _schema(schema: bytes) -> tuple[bytes, ...]:
    return _words(schemas.unusable(schema))


def _input(schema: bytes, value: bytes) -> tuple[bytes, ...]:
    return _words(schemas.misfit(schema, value))


def _words(wrong: str | None) -> tuple[bytes, ...]:
    return () if wrong is None else (wrong.encode(),)


def _sound(text: bytes) -> tuple[bytes, ...]:
    """Nothing, if the body is JSON as semel.gateway.strict_json has it."""
    strict_json.parse(text)
    return ()


def _forms(text: bytes) -> tuple[bytes, ...]:
    """The body in its two forms (semel.kernel.large)."""
    value = strict_json.parse(text)
    written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return written, _canonical(value, written)


def _member(name: bytes, text: bytes) -> tuple[bytes, ...]:
    """The rest of the body and one member in its two forms; or the body, if it has none of that name."""
    value = strict_json.parse(text)
    if not isinstance(value, dict) or name.decode() not in value:
        return (text,)
    member = value.pop(name.decode())
    written = orjson.dumps(member, option=orjson.OPT_SORT_KEYS)
    return orjson.dumps(value), written, _canonical(member, written)


def _canonical(value: object, written: bytes) -> bytes:
    """Without fractions and names that begin with $, the canonical form is what is written."""
    if b'"$' in written or _FRACTION.search(written):
        return canonical(value)
    return written


WORKS: dict[bytes, Callable[..., tuple[bytes, ...]]] = {
    b"schema": _schema,
    b"input": _input,
    b"sound": _sound,
    b"forms": _forms,
    b"member": _member,
}


# --- messages -----------------------------------------------------------------------------------------


def packed(parts: Sequence[bytes]) -> bytes:
    lengths = (LENGTH.pack(len(part)) for part in parts)
    return b"".join([COUNT.pack(len(parts)), *lengths, *parts])


def send(channel: socket.socket, parts: Sequence[bytes]) -> None:
    channel.sendall(packed(parts))


def receive(channel: socket.socket) -> list[bytes]:
    """The next message; empty once the other side has gone away."""
    head = _exactly(channel, COUNT.size)
    if not head:
        return []
    (count,) = COUNT.unpack(head)
    lengths = [LENGTH.unpack(_exactly(channel, LENGTH.size))[0] for _ in range(count)]
    return [_exactly(channel, length) for length in lengths]


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = channel.recv(min(size - len(data), 1 << 20))
        if not part:
            return b""
        data += part
    return bytes(data)


if __name__ == "__main__":
    main()
