"""The arguments of a call: bound to the signature, validated, made canonical, stored and read back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from semel.contract import secrecy, shapes
from semel.contract.exact import DECLINED, Exact, ExactFunction
from semel.contract.shapes import READ, WRITE, NotYet
from semel.contract.signature import PLAIN_TYPES, Reader, Signature, comparable
from semel.errors import InvalidArguments, TooLarge
from semel.kernel import keys
from semel.kernel.limits import ARGUMENT_BYTES_MAX

# Enough to correct a call by; nobody reads a list of a million wrong items.
_PROBLEMS_MAX = 8
_PROBLEM_CHARS_MAX = 200

# What pydantic says of these cannot hold a part of the value.
_SAFE_PROBLEMS = frozenset({"missing", "extra_forbidden"})

_NO_NAMES: Mapping[str, Any] = MappingProxyType({})


class Arguments:
    """What one tool accepts. Made by `Arguments.of`."""

    def __init__(self, tool: str, reader: Reader) -> None:
        self._tool = tool
        self._reader = reader
        self.takes_self = reader.takes_self

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        ignore: Iterable[str] = (),
        secret: Iterable[str] = (),
        tool: str = "",
        local_names: Mapping[str, Any] = _NO_NAMES,
    ) -> Arguments:
        """The arguments of a function; raises ContractError for what no contract can keep.

        `local_names` are the local names where the function is defined, for annotations written as
        text. While such a name is not there yet, the reading and its checks wait for the first use.
        """
        tool = tool or getattr(function, "__name__", "tool")
        made = cls(tool, Reader(function, tool=tool, ignore=ignore, secret=secret, local_names=local_names))
        try:
            made.__dict__["_signature"] = made._reader.read()
        except NotYet:
            pass
        return made

    @cached_property
    def _signature(self) -> Signature:
        try:
            return self._reader.read()
        except NotYet as missing:
            raise self._reader.error(
                f"has an annotation that cannot be resolved ({missing}). "
                "Define or import that name at run time in the tool's module."
            ) from None

    @property
    def ready(self) -> bool:
        """Whether every annotation is resolved, so that all checks were made."""
        return "_signature" in self.__dict__

    @property
    def key_parameters(self) -> tuple[str, ...]:
        """The parameters that receive the key; while annotations are missing, those that are known to."""
        return self._signature.beside.key if self.ready else self._reader.key_parameters()

    @property
    def transaction_parameters(self) -> tuple[str, ...]:
        """The parameters that receive the open transaction; known as the key's are."""
        if self.ready:
            return self._signature.beside.transaction
        return self._reader.transaction_parameters()

    @property
    def injected_parameters(self) -> tuple[str, ...]:
        """The parameters that a framework or the calling code fills; known as the key's are."""
        return self._signature.beside.injected if self.ready else self._reader.injected_parameters()

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The parameters that callers fill; while annotations are missing, all that may be."""
        return self._signature.argument_names if self.ready else self._reader.argument_names()

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments; Key parameters are not among them."""
        return self._signature.schema

    @property
    def unknown_secrets(self) -> tuple[str, ...]:
        """The secret paths that are no arguments; they may be fields of the result."""
        return self._signature.unknown_secrets

    # --- all at once ------------------------------------------------------------------------------

    @property
    def exact_function(self) -> ExactFunction | None:
        """What `exactly` asks: it raises one of DECLINED, or gives None, for arguments that are not exact."""
        return self._signature.exact

    def exactly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exact | None:
        """What `bind`, `validate` and `canonical` give, at once, for arguments of exactly the declared types.

        None for all others, and where no such function could be made: then these three say what it is.
        """
        exact = self._signature.exact
        if exact is None:
            return None
        try:
            return exact(*args, **kwargs)
        except DECLINED:
            return None

    def dump_exactly(self, exact: Exact) -> bytes | None:
        """What `dump` gives for what `exactly` gave; None if `dump` has to say what is wrong."""
        validated, canonical, whole = exact
        if whole:
            return canonical
        signature = self._signature
        full = {**signature.defaults, **validated} if signature.defaults else validated
        if signature.plain:
            data = keys.plain(full)
        else:
            # Not read back to be compared: values of exactly these types are known to come back equal.
            data = signature.stored_serializer.to_json(full, **WRITE)
        return data if data is not None and len(data) <= ARGUMENT_BYTES_MAX else None

    # --- binding and validating -------------------------------------------------------------------

    def without_injected(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
        """The arguments of a call without what is injected, and that by name; raises InvalidArguments."""
        injected = self._signature.beside.injected
        places = dict(zip(self._signature.order_with_injected, args, strict=False))
        taken = {name: value for name, value in places.items() if name in injected}
        for name in taken.keys() & kwargs.keys():
            raise self._invalid(f"{name} was given twice")
        taken |= {name: value for name, value in kwargs.items() if name in injected}
        args = (
            *(value for name, value in places.items() if name not in injected),
            *args[len(places) :],
        )
        return args, {name: value for name, value in kwargs.items() if name not in injected}, taken

    def check_injected(self, given: Mapping[str, Any]) -> None:
        """InvalidArguments if something is missing that has to be injected."""
        missing = sorted(self._signature.beside.injected_required - given.keys())
        if missing:
            raise self._invalid(f"{', '.join(missing)} is missing, which whoever calls the tool injects")

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, however they were passed; raises InvalidArguments."""
        signature = self._signature
        if not args and kwargs.keys() == signature.names:
            return kwargs
        raw = dict(zip(signature.order, args, strict=False))
        raw.update(kwargs)
        # Fewer names than values: one was given twice, or there are more values than parameters.
        if len(raw) == len(args) + len(kwargs) and (
            raw.keys() == signature.names or signature.required <= raw.keys() <= signature.names
        ):
            return raw
        raise self._invalid("; ".join(_misfits(signature, args, kwargs)))

    def validate(self, raw: dict[str, Any]) -> dict[str, Any]:
        """The arguments as values of their types; raises InvalidArguments, which never holds a secret."""
        try:
            validated: dict[str, Any] = self._signature.validator.validate_python(raw)
        except ValidationError as error:
            # Without its cause, which holds what was passed.
            raise self._invalid("; ".join(_problems(error, self._signature.guarded))) from None
        except Exception as error:  # a type's own validator may raise anything
            cause = None if self._signature.guarded else error
            raise self._invalid(f"their validation ended with {type(error).__name__}") from cause
        return validated

    # --- the canonical form -----------------------------------------------------------------------

    def canonical(self, validated: dict[str, Any], secret_key: bytes) -> bytes:
        """The bytes that tell this action apart: without ignored arguments and those equal to their default.

        Raises InvalidArguments for values that have no canonical form, and TooLarge.
        """
        signature = self._signature
        if signature.plain or _is_plain(signature, validated):
            data = keys.plain(_told_apart_plainly(signature, validated) if signature.elides else validated)
        else:
            data = None
        if data is None:
            data = self._canonical(validated, secret_key)
        if len(data) > ARGUMENT_BYTES_MAX:
            raise self._too_large(data)
        return data

    def _canonical(self, validated: dict[str, Any], secret_key: bytes) -> bytes:
        signature = self._signature
        try:
            try:
                return _told_apart(signature, validated, signature.default_bytes, secret_key)
            except keys.UnknownType:
                # A type of the caller's own: what its serializer makes of it tells it apart.
                dumped = self._dumped(validated)
                return _told_apart(signature, dumped, signature.dumped_default_bytes, secret_key)
        except keys.Uncanonical as error:
            raise self._invalid(str(error)) from None

    def _dumped(self, validated: dict[str, Any]) -> dict[str, Any]:
        """The arguments as their serializers leave them, sets still being sets."""
        stored = self._without_secret_tops(validated)
        return {**validated, **self._signature.stored_serializer.to_python(stored, **WRITE)}

    def _without_secret_tops(self, validated: dict[str, Any]) -> dict[str, Any]:
        tops = self._signature.secret_tops
        return {name: value for name, value in validated.items() if name not in tops}

    # --- stored and read back ---------------------------------------------------------------------

    def dump(self, validated: dict[str, Any]) -> bytes:
        """All arguments, ignored ones and defaults included, without the secrets, as JSON.

        Raises InvalidArguments for what would not come back as it was given, and TooLarge.
        """
        signature = self._signature
        # The defaults too, so that a new default does not change what a re-entry does.
        full = {**signature.defaults, **validated} if signature.defaults else validated
        data = keys.plain(full) if signature.plain else None
        if data is None:
            data = self._dump(full)
        if len(data) > ARGUMENT_BYTES_MAX:
            raise self._too_large(data)
        return data

    def _dump(self, full: dict[str, Any]) -> bytes:
        self._refuse_uncanonical(full)
        data = self._written(full)
        path = shapes.difference(full, self.restore(data, full), loose=True)
        if path is not None:
            raise self._invalid(
                f"{'.'.join(path)} would not be read back as it was given. Annotate it with its exact type"
            )
        return data

    def _refuse_uncanonical(self, full: dict[str, Any]) -> None:
        """Ignored arguments are held to the bounds of the others, since they are stored too."""
        ignored = {name: full[name] for name in self._signature.ignored.members if name in full}
        try:
            keys.canonical(ignored, unfold=shapes.unfolding(b""))
        except keys.UnknownType:
            pass
        except keys.Uncanonical as error:
            raise self._invalid(str(error)) from None

    def _written(self, full: dict[str, Any]) -> bytes:
        if not self._holds_secrets(full):
            data: bytes = self._serialized(self._signature.stored_serializer.to_json, full)
            return data
        kept = self._without_secret_tops(full)
        try:
            return to_json(secrecy.shed(kept, self._jsonable(kept), self._signature.secret))
        except secrecy.Misplaced:
            raise self._invalid("a serializer of their own writes a secret to another place") from None

    def _jsonable(self, kept: dict[str, Any]) -> Any:
        return self._serialized(self._signature.stored_serializer.to_python, kept, mode="json")

    def _serialized(self, serialize: Callable[..., Any], values: dict[str, Any], **options: Any) -> Any:
        try:
            return serialize(values, **WRITE, **options)
        except Exception as error:  # a type's own serializer may raise anything
            # Its text may hold anything, so it is repeated only where there is nothing to hide.
            why = type(error).__name__ if self._signature.guarded else str(error)[:_PROBLEM_CHARS_MAX]
            raise self._invalid(f"they cannot be written as JSON ({why})") from None

    def _holds_secrets(self, values: dict[str, Any]) -> bool:
        signature = self._signature
        return bool(signature.secret) or (not signature.plain and secrecy.present_in(values))

    def restore(self, stored: bytes, present: dict[str, Any]) -> dict[str, Any]:
        """The first call's arguments as they were given; only the secret ones are of the present call.

        Raises InvalidArguments if what was stored does not fit the signature any more.
        """
        if not self._holds_secrets(present):
            return self._read(stored)
        tops = {name: present[name] for name in self._signature.secret_tops & present.keys()}
        return {**self._read(self._grafted(stored, self._without_secret_tops(present))), **tops}

    def _grafted(self, stored: bytes, present: dict[str, Any]) -> bytes:
        written = self._jsonable(present)
        try:
            return to_json(secrecy.graft(from_json(stored), present, written, self._signature.secret))
        except ValueError:  # damaged, or bytes that their model would not read
            raise self._invalid("its secrets cannot be put into what the first call stored") from None

    def _read(self, stored: bytes) -> dict[str, Any]:
        try:
            read: dict[str, Any] = self._signature.stored_validator.validate_json(stored, **READ)
        except ValidationError as error:
            problems = "; ".join(_problems(error, self._signature.guarded))
            raise self._invalid(f"what the first call stored is not accepted now: {problems}") from None
        except Exception as error:  # a type's own validator may raise anything
            name = type(error).__name__
            raise self._invalid(f"what was stored of them is not read back: {name}") from None
        return read

    def holds_secret(self, name: str) -> bool:
        """Whether this argument is secret, or holds something that is."""
        return name in self._signature.guarded

    @property
    def guards(self) -> bool:
        """Whether some argument is declared or typed as secret, as a whole or in part."""
        return bool(self._signature.guarded)

    def secrets_of(self, validated: dict[str, Any]) -> list[str]:
        """The spellings of this call's secrets, longest first, to be struck out of error texts."""
        if self._signature.plain:
            return []
        spellings = set(secrecy.texts(validated, self._signature.secret)) - {""}
        return sorted(spellings, key=lambda text: (-len(text), text))

    # --- refusals ---------------------------------------------------------------------------------

    def _invalid(self, problem: str) -> InvalidArguments:
        return InvalidArguments(f"The arguments do not fit {self._tool!r}, which did not run: {problem}.")

    def _too_large(self, data: bytes) -> TooLarge:
        return TooLarge(
            f"The arguments of {self._tool!r}, which did not run, take {len(data)} bytes; "
            f"{ARGUMENT_BYTES_MAX} are allowed."
        )


def _is_plain(signature: Signature, validated: dict[str, Any]) -> bool:
    return (
        signature.shallow
        and PLAIN_TYPES.issuperset(map(type, validated.values()))
        and signature.rich_defaults.isdisjoint(validated)
    )


def _told_apart_plainly(signature: Signature, validated: dict[str, Any]) -> dict[str, Any]:
    """The plain arguments that tell actions apart."""
    kept = validated.copy()
    for name in signature.ignored_tops:
        kept.pop(name, None)
    for name, default in signature.defaults.items():
        # The type counts, because True equals 1.
        if name in kept and kept[name] == default and type(kept[name]) is type(default):
            del kept[name]
    return kept


def _told_apart(
    signature: Signature, values: dict[str, Any], default_bytes: Mapping[str, bytes], secret_key: bytes
) -> bytes:
    """The canonical bytes of what tells actions apart, with marks in place of secrets."""
    unfold = shapes.unfolding(secret_key)

    def mark(value: Any) -> Any:
        return keys.secret_mark(secret_key, value, unfold=unfold)

    def is_default(name: str, value: Any) -> bool:
        default = default_bytes.get(name)
        return default is not None and comparable(value, signature.ignored.below(name)) == default

    given = {name: value for name, value in values.items() if not is_default(name, value)}
    return keys.canonical(shapes.without(given, signature.ignored, signature.secret, mark), unfold=unfold)


def _misfits(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[str]:
    if len(args) > len(signature.order):
        yield f"{len(args)} arguments were given by position, where {len(signature.order)} are taken"
    first = dict.fromkeys(signature.order[: len(args)])
    for name in first.keys() & kwargs.keys():
        yield f"{name} was given twice"
    for name in kwargs.keys() - signature.names:
        if name in signature.beside.key:
            yield f"{name} was given, but Semel makes the key"
        else:
            yield f"there is no argument {keys.printable(name)}"
    for name in sorted(signature.required - first.keys() - kwargs.keys()):
        yield f"{name} is missing"


def _problems(error: ValidationError, guarded: frozenset[str]) -> Iterable[str]:
    """Each path and reason, in words that never hold a part of a secret argument."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    for problem in problems[:_PROBLEMS_MAX]:
        path = ".".join(keys.printable(name) for name in problem["loc"])
        silent = problem["type"] not in _SAFE_PROBLEMS and problem["loc"][:1] and problem["loc"][0] in guarded
        yield f"{path}: {'does not fit' if silent else problem['msg'][:_PROBLEM_CHARS_MAX]}"
    if len(problems) > _PROBLEMS_MAX:
        yield f"and {len(problems) - _PROBLEMS_MAX} more"
