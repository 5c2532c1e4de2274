"""The atomic steps: one Lua file each, together one library that the server reads once.

A function of a library and not a script of its own: what the steps share is then set up once, and not before
every call, which took about 5 µs. The library is named after its content, so that versions of
Semel side by side never call each other's steps.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import NamedTuple

from semel.audit import events
from semel.kernel.record import LEASE_LAPSED, PROBE, REFUSED_LATER, State

CODES: dict[State, int] = {state: code for code, state in enumerate(State, 1)}
STATES: dict[int, State] = {code: state for state, code in CODES.items()}

# Of what happens to a record, as events have it: what was written stays, so a new one comes last.
KINDS = (
    events.CLAIMED, events.ASKED, events.RETAKEN, events.REVIVED, events.SETTLED, events.PARKED,
    events.RELEASED, events.RESOLVED, events.AMENDED, events.LAPSED, events.CLOSED,
)  # fmt: skip

# record, lane, due, list, ids, events, book, pages
_KEYS_OF_A_RECORD = 8

_OF_A_RECORD = (
    "look", "claim", "retake", "renew", "settle", "park", "release", "resolve", "append_event",
    "file_stopped", "sweep", "amend",
)  # fmt: skip
_OTHERS = {"add_seal": 2, "drop_events": 3, "story": 1, "is_whole": 2}
_OF_DOCUMENTS = ("commit", "fetch", "scan", "count", "tenants", "weigh")
_READING = frozenset(("look", "story", "is_whole", "fetch", "scan", "count", "tenants", "weigh"))


class Script(NamedTuple):
    """A step as the server knows it."""

    name: bytes
    keys: bytes


def text(name: str) -> str:
    return files(__package__).joinpath("steps", f"{name}.lua").read_text("utf-8")


def _constants() -> str:
    """What the record's own module defines, so that it is written once."""
    states = ", ".join(f"'{state.value}'" for state in State)
    codes = ", ".join(f"{state.value} = {code}" for state, code in CODES.items())
    kinds = ", ".join(f"{kind} = {code}" for code, kind in enumerate(KINDS))
    return (
        f"local STATES, CODES = {{{states}}}, {{{codes}}}\n"
        f"local KINDS = {{{kinds}}}\n"
        f"local LEASE_LAPSED, REFUSED_LATER, PROBE = '{LEASE_LAPSED}', '{REFUSED_LATER}', '{PROBE}'\n"
    )


def _function(name: str) -> str:
    begins = "KEYS, ARGV = keys, argv"
    if name in _OF_A_RECORD:
        begins += "; arrive()"
    elif name in _OF_DOCUMENTS:
        begins += "; enter()"
    # A server that is out of memory still answers what only reads.
    flags = "'no-writes'" if name in _READING else ""
    return (
        f"redis.register_function{{function_name = '@_{name}', flags = {{{flags}}}, "
        f"callback = function(keys, argv) {begins}\n{text(name)}\nend}}\n"
    )


def _library() -> tuple[str, str]:
    """Its name, and its source."""
    functions = "".join(map(_function, (*_OF_A_RECORD, *_OTHERS, "file_page", *_OF_DOCUMENTS)))
    body = _constants() + text("record") + text("document") + functions
    name = f"semel_{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    return name, f"#!lua name={name}\n" + body.replace("'@_", f"'{name}_")


_NAME, _SOURCE = _library()

LIBRARY = _NAME.encode()
LOAD = (b"FUNCTION", b"LOAD", b"REPLACE", _SOURCE.encode())


def _step(name: str) -> Script:
    return Script(f"{_NAME}_{name}".encode(), b"%d" % _OTHERS.get(name, _KEYS_OF_A_RECORD))


(
    LOOK, CLAIM, RETAKE, RENEW, SETTLE, PARK, RELEASE, RESOLVE, APPEND_EVENT, FILE_STOPPED, SWEEP, AMEND,
) = map(_step, _OF_A_RECORD)  # fmt: skip
ADD_SEAL, DROP_EVENTS, STORY, IS_WHOLE = map(_step, _OTHERS)

# Their names only: how many keys they have is the caller's to say.
FILE_PAGE = f"{_NAME}_file_page".encode()
COMMIT, FETCH, SCAN, COUNT, TENANTS, WEIGH = (f"{_NAME}_{name}".encode() for name in _OF_DOCUMENTS)

# Asked once, while a store is opened, and therefore not in the library.
BEGIN = text("begin").encode()
