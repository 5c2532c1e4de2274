"""Exceptions of a tool's own that are answers (`raises=…`): kept as plain data, and rebuilt as themselves.

Rebuilding runs no code of the exception's class and imports nothing: only classes that the contract lists,
and those that derive from them and are there already, are looked through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import MemberDescriptorType
from typing import Any

from semel.contract import secrecy
from semel.contract.exception_meaning import Kinds, leaves_open
from semel.contract.values import is_plain
from semel.errors import CallError, EffectFailed

# Of what Python keeps beside the attributes, only what people added to the text.
_NOTES = "__notes__"

# On one that a call has raised: what its record says in words, without secrets.
_RECORDED = "__semel_recorded__"


class _NotPlain(Exception):
    pass


def is_answer(error: BaseException | None, raises: Kinds) -> bool:
    """Whether the contract lists it. Whoever lists a whole family does not mean a member that leaves open
    what happened: that has to be listed itself."""
    if not isinstance(error, raises) or isinstance(error, ExceptionGroup) or not isinstance(error, Exception):
        return False
    return type(error) in raises or not leaves_open(error)


def as_data(error: Exception, secrets: Sequence[str]) -> dict[str, Any] | None:
    """Its type, arguments and attributes as plain data, without secrets; None if it cannot be rebuilt so."""
    kind = type(error)
    try:
        data = {
            "module": kind.__module__,
            "name": kind.__qualname__,
            "args": [_kept(each, secrets) for each in _builtin(kind).__reduce__(error)[1]],
            "attributes": dict(_plain_attributes(error, secrets)),
        }
        str(_built(kind, data))  # whatever it needs for its text is there
    except Exception:  # whatever its class does: that the tool failed has to be recorded
        return None
    return data


def left_out(error: Exception, data: dict[str, Any]) -> list[str]:
    """The public attributes that a replay will not have."""
    names = (*vars(error), *(name for name, slot in _slots(type(error)) if _is_set(error, slot)))
    return [name for name in names if not name.startswith("_") and name not in data["attributes"]]


def mark_recorded(error: BaseException, message: str) -> None:
    """Whoever meets the exception later can tell that it is the recorded answer of a call."""
    with suppress(Exception):  # of a class that lets nobody do so
        vars(error)[_RECORDED] = message


def contracts_answer(error: BaseException) -> CallError | None:
    """What a contract says by this exception; None if none does.

    For those who tell it to others or decide whether to try again: an answer of the tool's own is
    `EffectFailed` to them, in the words of its record.
    """
    if isinstance(error, CallError):
        return error
    try:
        message = vars(error)[_RECORDED]
    except Exception:  # it is none, or of a class that lets nobody look
        return None
    return EffectFailed(message, type=type(error).__name__)


def rebuilt(data: Any, raises: Kinds) -> BaseException | None:
    """The exception that the data describes; None unless its class is listed, or derives from such a one."""
    try:
        kind = _kind_named(data["module"], data["name"], raises)
        return None if kind is None else _built(kind, data)
    except (TypeError, ValueError, KeyError, AttributeError):  # what was stored is none
        return None


def _plain_attributes(error: Exception, secrets: Sequence[str]) -> Iterator[tuple[str, Any]]:
    slots = ((name, slot.__get__(error)) for name, slot in _slots(type(error)) if _is_set(error, slot))
    for name, value in (*vars(error).items(), *slots):
        try:
            if _is_attribute(name):
                yield _kept(name, ()), _kept(value, secrets)
        except _NotPlain:
            continue


def _is_attribute(name: str) -> bool:
    return name == _NOTES or not name.startswith("__")


def _kept(value: Any, secrets: Sequence[str]) -> Any:
    """The value as it may be kept: plain data without secrets, which in a text are struck out."""
    if not is_plain(value):
        raise _NotPlain
    if not secrets or not secrecy.holds(value, secrets):
        return value
    if type(value) is not str:
        raise _NotPlain
    return secrecy.struck(value, secrets)


def _kind_named(module: str, name: str, raises: Kinds) -> type[BaseException] | None:
    same_name = [kind for kind in _family(raises, set()) if kind.__qualname__ == name]
    # The module of a program that is run has another name where it is imported.
    alias = (kind for kind in same_name if "__main__" in (module, kind.__module__))
    return next((kind for kind in same_name if kind.__module__ == module), None) or next(alias, None)


def _family(kinds: Sequence[type], seen: set[type]) -> Iterator[type[BaseException]]:
    for kind in kinds:
        if kind not in seen:
            seen.add(kind)
            yield kind
            yield from _family(type.__subclasses__(kind), seen)


def _built(kind: type[BaseException], data: Any) -> BaseException:
    base, args = _builtin(kind), data["args"]
    error: BaseException = base.__new__(kind, *args)
    base.__init__(error, *args)
    slots = dict(_slots(kind))
    for name, value in data["attributes"].items():
        if name in slots:
            slots[name].__set__(error, value)
        elif _is_attribute(name):
            vars(error)[name] = value
    return error


def _slots(kind: type) -> Iterator[tuple[str, MemberDescriptorType]]:
    """What its classes keep outside of `__dict__`; read and written past any code of theirs."""
    for each in kind.__mro__:
        if each.__module__ != "builtins":
            for name, slot in vars(each).items():
                if isinstance(slot, MemberDescriptorType):
                    yield name, slot


def _is_set(error: Exception, slot: MemberDescriptorType) -> bool:
    try:
        slot.__get__(error)
    except AttributeError:
        return False
    return True


def _builtin(kind: type[BaseException]) -> Any:
    """The class of Python's own that it is laid out like: its methods are no code of anybody else's."""
    each: Any = kind
    while each.__module__ != "builtins":
        each = each.__base__
    return each
