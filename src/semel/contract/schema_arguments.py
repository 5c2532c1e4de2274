"""The arguments of a tool that has a JSON Schema and no typed function: plain data, held to the schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import orjson
from pydantic import JsonValue, TypeAdapter
from pydantic_core import SchemaValidator

from semel.contract import schema_check, shapes
from semel.contract.arguments import Arguments
from semel.contract.shapes import NotYet, Paths
from semel.contract.signature import (
    Beside,
    Reader,
    Signature,
    default_bytes,
    is_hidden,
    is_injected,
    written_only,
)
from semel.errors import ContractError

_DATA: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, JsonValue])


class SchemaArguments(Arguments):
    """What the schema says, and nothing that is not plain data. 5.0 is 5, as in JSON, and so is their key."""

    @classmethod
    def of_schema(
        cls,
        function: Callable[..., Any],
        *,
        schema: Mapping[str, Any],
        ignore: Iterable[str] = (),
        secret: Iterable[str] = (),
        tool: str,
        local_names: Mapping[str, Any],
    ) -> SchemaArguments:
        """The arguments of a function that takes those of the schema by name; raises ContractError."""
        reader = _SchemaReader(function, tool=tool, ignore=ignore, secret=secret, local_names=local_names)
        reader.schema = _usable(schema, reader)
        made = cls(tool, reader)
        made.__dict__["_signature"] = reader.read()
        return made

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if args:
            raise self._invalid("they are given by name")
        for name in self._signature.beside.key:
            if name in kwargs:
                raise self._invalid(f"{name} was given, but Semel makes the key")
        return kwargs

    def validate(self, raw: dict[str, Any]) -> dict[str, Any]:
        validated = super().validate(raw)
        self._check(validated)
        return validated

    def canonical(self, validated: dict[str, Any], secret_key: bytes) -> bytes:
        return super().canonical(schema_check.whole(validated), secret_key)

    def _read(self, stored: bytes) -> dict[str, Any]:
        read = super()._read(stored)
        # Secrets are not stored, and put back later.
        if not self._signature.secret:
            self._check(read, "what the first call stored is not accepted now: ")
        return read

    def _check(self, values: dict[str, Any], whose: str = "") -> None:
        problem = schema_check.misfit(values, self._signature.schema)
        if problem is not None:
            raise self._invalid(whose + problem.removeprefix("$.").removeprefix("$: ").rstrip("."))


class _SchemaReader(Reader):
    """Arguments are read from the schema; from the function only what else it is to be given."""

    schema: dict[str, Any]

    def _refuse_what_no_annotation_heals(self) -> None:
        self._written = [each for each in self._written if each.kind is not inspect.Parameter.VAR_KEYWORD]
        super()._refuse_what_no_annotation_heals()

    def read(self) -> Signature:
        schema, beside = self.schema, [self._resolved(each) for each in self._written]
        properties = schema.get("properties", {})
        for each in beside:
            if each.name in properties:
                raise self.error(
                    f"has an argument {each.name!r} in its schema, and a parameter of that name that others "
                    "fill. Give the parameter another name."
                )
        ignored = self._ignored(schema)
        secrets = [path for path in self._secret if shapes.names_instead(schema, path) is None]
        secret = Paths.of([*secrets, *written_only(schema)])
        elided = {
            name: schema_check.whole(rule["default"])
            for name, rule in properties.items()
            if isinstance(rule, Mapping) and "default" in rule
        }
        return Signature(
            beside=Beside.of(beside),
            argument_names=tuple(properties),
            order=(),
            order_with_injected=(),
            names=frozenset(properties),
            required=frozenset(),
            schema=schema,
            validator=cast(SchemaValidator, _DATA.validator),
            stored_validator=cast(SchemaValidator, _DATA.validator),
            stored_serializer=_DATA.serializer,
            # Not written out for the function, which has its own; a call that names them is the same action.
            defaults={},
            default_bytes=default_bytes(elided, ignored),
            dumped_default_bytes={},
            ignored=ignored,
            ignored_tops=tuple(sorted(ignored.tops())),
            secret=secret,
            secret_tops=secret.tops(),
            guarded=frozenset(secret.members),
            unknown_secrets=tuple(path for path in self._secret if path not in secrets),
            elides=True,
            rich_defaults=frozenset(),
            shallow=False,
            plain=False,
            exact=None,
        )


def _usable(given: Any, reader: Reader) -> dict[str, Any]:
    """A copy of the schema, which nobody changes; ContractError if it describes no arguments by name."""
    if not isinstance(given, Mapping):
        raise reader.error(f"needs a JSON Schema of its arguments, as a dict, not {type(given).__name__}.")
    try:
        schema: dict[str, Any] = orjson.loads(orjson.dumps(dict(given)))
    except (TypeError, ValueError) as reason:
        raise reader.error(f"has a schema that is no JSON: {reason}.") from None
    problem = schema_check.unusable(schema)
    if problem is not None:
        raise reader.error(f"has a schema by which nothing can be checked: {problem[:500]}.")
    if "object" not in (schema_check.types_of(schema) or ["object"]):
        raise reader.error("has a schema of something else than an object, whose members are its arguments.")
    return schema


def by_name(function: Any, schema: Any, local_names: Mapping[str, Any]) -> Any:
    """A function that takes arguments by name and hands them to whatever was given: a partial, an object.

    Of its parameters those remain that are filled otherwise, as a Key is.
    """
    if not callable(function):
        raise ContractError(f"contract_for takes a function of the tool's arguments, not {function!r}.")
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):

        async def call(**arguments: Any) -> Any:
            return await function(**arguments)

    else:

        def call(**arguments: Any) -> Any:  # type: ignore[misc]
            return function(**arguments)

    # Annotations written as text mean what they mean in the module of what was given.
    call.__wrapped__ = function  # type: ignore[attr-defined]
    described = schema.get("description") if isinstance(schema, Mapping) else None
    call.__doc__ = (inspect.isroutine(function) and inspect.getdoc(function)) or str(described or "")
    call.__module__ = getattr(function, "__module__", None) or __name__
    call.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
    rest = inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD, annotation=Any)
    call.__signature__ = inspect.Signature([*_beside(function, local_names), rest])  # type: ignore[attr-defined]
    return call


def _beside(function: Any, local_names: Mapping[str, Any]) -> list[inspect.Parameter]:
    """The parameters of a function that no argument of the schema fills."""
    try:
        written = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of a builtin
        return []
    beside = []
    for each in written:
        try:
            kind = shapes.annotation(each.annotation, function, local_names)
        except NotYet:
            continue
        if is_hidden(kind) or is_injected(kind):
            beside.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kind))
    return beside
