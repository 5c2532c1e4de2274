"""A tool's signature, read once: parameters, types and defaults, and the validators made of them."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NotRequired, Optional, Union, cast, get_args, get_origin

import typing_extensions
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic_core import SchemaSerializer, SchemaValidator

from semel.contract import shapes
from semel.contract.exact import ExactFunction, exact_function
from semel.contract.filled import Injected, filled
from semel.contract.result import ToolCall
from semel.contract.shapes import NOWHERE, NotYet, Paths, Unfit
from semel.contract.transaction import Transaction
from semel.errors import ContractError
from semel.kernel import keys

PLAIN_TYPES = frozenset({str, int, bool, type(None)})

_CONFIG = ConfigDict(
    extra="forbid",
    allow_inf_nan=False,
    ser_json_bytes="base64",
    val_json_bytes="base64",
    hide_input_in_errors=True,
)

_FIXES = {
    inspect.Parameter.VAR_POSITIONAL: "takes *{name}, so its arguments have no names. Take one list instead.",
    inspect.Parameter.VAR_KEYWORD: "takes **{name}, so its arguments are open. Name them, or take one dict.",
    inspect.Parameter.POSITIONAL_ONLY: "takes {name!r} by position only. Remove the `/` from its signature.",
}

_NO_DEFAULT: Any = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    kind: Any
    default: Any
    positional: bool

    @property
    def required(self) -> bool:
        return self.default is _NO_DEFAULT

    def alone(self) -> Parameter:
        """The same as the only, and required, parameter of something."""
        return replace(self, default=_NO_DEFAULT)


@dataclass(frozen=True, slots=True)
class Beside:
    """The parameters that are no arguments, by who fills them."""

    key: tuple[str, ...]
    transaction: tuple[str, ...]
    injected: tuple[str, ...]
    injected_required: frozenset[str]

    @classmethod
    def of(cls, parameters: Iterable[Parameter]) -> Beside:
        every = tuple(parameters)
        injected = [each for each in every if is_injected(each.kind)]
        return cls(
            tuple(each.name for each in every if is_key(each.kind)),
            tuple(each.name for each in every if each.kind is Transaction),
            tuple(each.name for each in injected),
            frozenset(each.name for each in injected if each.required),
        )


@dataclass(frozen=True, slots=True)
class Signature:
    """Everything that follows from a signature once its annotations are resolved."""

    beside: Beside
    argument_names: tuple[str, ...]
    # The arguments that may be given by position; without, and with, those that are injected.
    order: tuple[str, ...]
    order_with_injected: tuple[str, ...]
    names: frozenset[str]
    required: frozenset[str]
    schema: dict[str, Any]
    validator: SchemaValidator
    # The same without the arguments that are secret as a whole: what is stored.
    stored_validator: SchemaValidator
    stored_serializer: SchemaSerializer
    defaults: Mapping[str, Any]
    # Canonical bytes of the defaults, of the values themselves and as their serializers write them.
    default_bytes: Mapping[str, bytes]
    dumped_default_bytes: Mapping[str, bytes]
    ignored: Paths
    ignored_tops: tuple[str, ...]
    secret: Paths
    secret_tops: frozenset[str]
    guarded: frozenset[str]
    unknown_secrets: tuple[str, ...]
    # Some arguments may be left out of the canonical form.
    elides: bool
    # The arguments whose defaults are no plain values.
    rich_defaults: frozenset[str]
    # No path leads below the top, and nothing is secret: plain values need no walk.
    shallow: bool
    # Besides, no value can be anything but plain.
    plain: bool
    # Binds and makes canonical in one go what has exactly the declared types; None where that is not known.
    exact: ExactFunction | None


class Reader:
    """Reads one function's signature, now or when the names that it uses are there."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        tool: str,
        ignore: Iterable[str],
        secret: Iterable[str],
        local_names: Mapping[str, Any],
    ) -> None:
        self._function = function
        self._tool = tool
        self._ignore = tuple(ignore)
        self._secret = tuple(secret)
        self._local_names = local_names
        written = list(inspect.signature(function).parameters.values())
        self.takes_self = bool(written) and written[0].name in ("self", "cls")
        self._written = written[1:] if self.takes_self else written
        self._refuse_what_no_annotation_heals()

    def _refuse_what_no_annotation_heals(self) -> None:
        plain = inspect.unwrap(self._function)
        if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
            raise self.error("is a generator, whose result cannot be recorded. Return a list instead.")
        for parameter in self._written:
            if parameter.kind in _FIXES:
                raise self.error(_FIXES[parameter.kind].format(name=parameter.name))

    def error(self, text: str) -> ContractError:
        return ContractError(f"The tool {self._tool!r} {text}")

    def argument_names(self) -> tuple[str, ...]:
        """The parameters that are not known by now to be filled otherwise."""
        beside = {*self.key_parameters(), *self.transaction_parameters(), *self.injected_parameters()}
        return tuple(
            each.name for each in self._written if each.name not in beside and each.default is not filled
        )

    def key_parameters(self) -> tuple[str, ...]:
        """The parameters that are known by now to take the key."""
        return tuple(each.name for each in self._written if self._is_known_key(each))

    def transaction_parameters(self) -> tuple[str, ...]:
        """The parameters that are known by now to take the transaction."""
        return tuple(each.name for each in self._written if self._is_known_transaction(each))

    def injected_parameters(self) -> tuple[str, ...]:
        """The parameters that are known by now to be injected."""
        return tuple(each.name for each in self._written if self._is_known_injected(each))

    def _is_known_injected(self, written: inspect.Parameter) -> bool:
        try:
            return is_injected(self._resolved(written).kind)
        except NotYet:
            return False

    def _is_known_key(self, written: inspect.Parameter) -> bool:
        try:
            return is_key(self._resolved(written).kind)
        except NotYet:
            return False

    def _is_known_transaction(self, written: inspect.Parameter) -> bool:
        try:
            return self._resolved(written).kind is Transaction
        except NotYet:
            return False

    def read(self) -> Signature:
        """The signature; raises NotYet while a name is missing, and ContractError."""
        resolved = [self._resolved(written) for written in self._written]
        shown = [self._unfilled(each) for each in resolved if not is_hidden(each.kind)]
        parameters = [self._with_fitting_default(each) for each in shown if not is_injected(each.kind)]
        whole = self._adapter(parameters)
        inside = shapes.json_schema(whole, by_alias=False)
        ignored = self._ignored(inside)
        secrets = [path for path in self._secret if shapes.names_instead(inside, path) is None]
        secret = Paths.of(secrets)
        kept = [each for each in parameters if each.name not in secret.tops()]
        defaults = {each.name: self._default(each) for each in parameters if not each.required}
        rich_defaults = frozenset(name for name in defaults if type(defaults[name]) not in PLAIN_TYPES)
        shallow = not secret and not ignored.below_top()
        plain = shallow and not rich_defaults and all(_is_plain(each.kind) for each in parameters)
        guarded = frozenset(secret.members) | _write_only(inside)
        self._local_names = {}  # no longer needed, and it may keep a whole frame alive
        return Signature(
            beside=Beside.of(resolved),
            argument_names=tuple(each.name for each in parameters),
            order=tuple(each.name for each in parameters if each.positional),
            order_with_injected=tuple(each.name for each in shown if each.positional),
            names=frozenset(each.name for each in parameters),
            required=frozenset(each.name for each in parameters if each.required),
            schema=_published(shapes.json_schema(whole), defaults, secret),
            validator=cast(SchemaValidator, whole.validator),
            stored_validator=cast(SchemaValidator, self._adapter(kept).validator),
            stored_serializer=self._serializer(kept),
            defaults=defaults,
            default_bytes=default_bytes(defaults, ignored),
            dumped_default_bytes=default_bytes(whole.dump_python(defaults, warnings=False), ignored),
            ignored=ignored,
            ignored_tops=tuple(sorted(ignored.tops())),
            secret=secret,
            secret_tops=secret.tops(),
            guarded=guarded,
            unknown_secrets=tuple(path for path in self._secret if path not in secrets),
            elides=bool(ignored or defaults),
            rich_defaults=rich_defaults,
            shallow=shallow,
            plain=plain,
            exact=self._exact(whole, parameters, defaults, ignored, plain)
            if shallow and not guarded
            else None,
        )

    def _exact(
        self,
        whole: TypeAdapter[Any],
        parameters: list[Parameter],
        defaults: Mapping[str, Any],
        ignored: Paths,
        plain: bool,
    ) -> ExactFunction | None:
        schema: Any = whole.core_schema
        if schema["type"] != "typed-dict":  # a model that holds itself
            return None
        return exact_function(
            self._tool,
            schema["fields"],
            positional={each.name for each in parameters if each.positional},
            defaults=defaults,
            ignored=ignored.tops(),
            plain=plain,
        )

    def _resolved(self, written: inspect.Parameter) -> Parameter:
        kind = shapes.annotation(written.annotation, self._function, self._local_names)
        if kind is ToolCall:
            raise self._takes_whole_call(written.name)
        positional = written.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        return Parameter(written.name, kind, written.default, positional)

    def _unfilled(self, parameter: Parameter) -> Parameter:
        if parameter.default is filled:
            raise self.error(
                f"has the default semel.filled for {parameter.name!r}, which is for parameters of type "
                "semel.Key or semel.Transaction. Annotate it so, or give it a value of its own type."
            )
        return parameter

    def _with_fitting_default(self, parameter: Parameter) -> Parameter:
        """`x: int = None` is read as `int | None`, as it is meant."""
        if parameter.default is not None:
            return parameter
        try:
            self._adapter([parameter.alone()]).validate_python({parameter.name: None})
        except ValidationError:
            return replace(parameter, kind=Optional[parameter.kind])  # noqa: UP045  a value, not text
        return parameter

    def _default(self, parameter: Parameter) -> Any:
        try:
            given = {parameter.name: parameter.default}
            return self._adapter([parameter.alone()]).validate_python(given)[parameter.name]
        except ValidationError:
            raise self.error(
                f"has a default for {parameter.name!r} that does not fit its annotation. "
                f"Use a value of that type, or `{parameter.name}: … | None = None`."
            ) from None

    def _takes_whole_call(self, name: str) -> ContractError:
        return self.error(
            f"takes the whole call ({name}: ToolCall). Here a tool is a function of its arguments, whose "
            "types are its schema, and returns its value, as in def issue_refund(payment_id: str, "
            "amount_minor: int) -> Refund. Validation, look-up, reservation and replay are the contract's. "
            "The key to hand on, where the tool is recorded, is one more parameter, of type semel.Key; "
            "transient=… and refused=… say what exceptions mean. Whoever has a ToolCall calls the tool so: "
            f"{self._tool}.call({name})."
        )

    def _serializer(self, parameters: list[Parameter]) -> SchemaSerializer:
        # With the config given once more: on its own, pydantic writes the fields of a TypedDict without it.
        return shapes.adapter(_typed_dict(self._tool, parameters), _CONFIG).serializer

    def _adapter(self, parameters: list[Parameter]) -> TypeAdapter[Any]:
        try:
            made = shapes.adapter(_typed_dict(self._tool, parameters))
            shapes.json_schema(made)
        except Unfit as reason:
            if len(parameters) == 1:
                raise self._unfit(parameters[0].name, reason) from None
            for each in parameters:  # the culprit fails alone too, and is named
                self._adapter([each])
            raise self.error(f"has arguments that cannot be stored and read back: {reason}.") from None
        return made

    def _unfit(self, name: str, reason: Unfit) -> ContractError:
        return self.error(
            f"has the argument {name!r}, whose type cannot be read from JSON and written to it ({reason}). "
            "If it is no part of the action, annotate it Annotated[…, semel.Injected]: then it is in no "
            f"schema, key or record. Else make the tool a method and {name!r} an attribute of its self."
        )

    def _ignored(self, schema: Mapping[str, Any]) -> Paths:
        for path in self._ignore:
            names = shapes.names_instead(schema, path)
            if names is not None:
                there = f"Possible names there: {', '.join(names)}." if names else "Nothing has a name there."
                raise self.error(f"ignores {path!r}, which is not among its arguments. {there}")
        return Paths.of(self._ignore)


def _typed_dict(name: str, parameters: list[Parameter]) -> Any:
    fields = {each.name: each.kind if each.required else NotRequired[each.kind] for each in parameters}
    make: Any = typing_extensions.TypedDict
    return with_config(_CONFIG)(make(name, fields))


def _published(schema: dict[str, Any], defaults: Mapping[str, Any], secret: Paths) -> dict[str, Any]:
    """The schema as callers see it: with the defaults that JSON can carry, and `required` even if empty."""
    for name, default in defaults.items():
        if type(default) in PLAIN_TYPES and not secret.below(name):
            schema["properties"][name]["default"] = default
    return {**schema, "required": schema.get("required", [])}


def default_bytes(defaults: Mapping[str, Any], ignored: Paths) -> dict[str, bytes]:
    made = {}
    for name, default in defaults.items():
        try:
            made[name] = comparable(default, ignored.below(name))
        except keys.Uncanonical:  # then no argument equals it either
            continue
    return made


def comparable(value: Any, ignored: Paths) -> bytes:
    """Bytes that tell whether an argument equals its default; they are never stored or hashed."""
    kept = shapes.without(value, ignored, NOWHERE, lambda secret: secret)
    return keys.canonical({"v": kept}, unfold=shapes.unfolding(b""))


def _write_only(schema: Mapping[str, Any]) -> frozenset[str]:
    """The arguments that hold, somewhere, what their JSON Schema calls write-only: a password."""
    properties = schema.get("properties", {})
    return frozenset(name for name, part in properties.items() if _mentions(part, schema, set()))


def written_only(schema: Mapping[str, Any]) -> list[str]:
    """The arguments that are write-only themselves."""
    properties = schema.get("properties", {})
    return [
        name for name, part in properties.items() if isinstance(part, dict) and part.get("writeOnly") is True
    ]


def _mentions(part: Any, root: Mapping[str, Any], seen: set[str]) -> bool:
    if isinstance(part, list):
        return any(_mentions(item, root, seen) for item in part)
    if not isinstance(part, dict):
        return False
    reference = part.get("$ref")
    if isinstance(reference, str) and reference not in seen:
        seen.add(reference)
        if _mentions(shapes.referred(reference, root), root, seen):
            return True
    return part.get("writeOnly") is True or any(_mentions(inner, root, seen) for inner in part.values())


def _is_plain(kind: Any) -> bool:
    return kind in PLAIN_TYPES or (bool(_choices(kind)) and PLAIN_TYPES.issuperset(_choices(kind)))


def is_injected(kind: Any) -> bool:
    if get_origin(kind) is not Annotated or is_hidden(kind):
        return False
    return any(map(_marks_injected, get_args(kind)[1:]))


def without_marker(kind: Any) -> Any:
    """As it is shown to frameworks: not all of them know their own type inside an `Annotated`."""
    if not is_injected(kind):
        return kind
    of, *beside = get_args(kind)
    kept = [each for each in beside if not _marks_injected(each)]
    return Annotated[(of, *kept)] if kept else of


def _marks_injected(each: Any) -> bool:
    return each is Injected or isinstance(each, Injected)


def is_hidden(kind: Any) -> bool:
    return kind is Transaction or is_key(kind)


def is_key(kind: Any) -> bool:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return kind is keys.Key or set(_choices(kind)) == {keys.Key, type(None)}


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else ()
