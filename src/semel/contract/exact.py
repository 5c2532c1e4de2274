"""One function per signature: binds, checks and makes canonical what has exactly the declared types.

The general way (arguments.py) binds by hand, asks pydantic, and walks each value. Where every argument has
exactly its declared type, that comes out as it went in, and a function written for the signature says so in a
few comparisons. Everything else it declines, and the general way answers, with a value or an error. The two
never differ by a byte: tests/unit/test_exact.py.

`print(inspect.getsource(function))` shows what was written; a debugger and a traceback show it too.
"""

from __future__ import annotations

import builtins
import itertools
import keyword
import linecache
import math
import re
import weakref
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import orjson

from semel.contract.exact_kinds import (
    Choice,
    Condition,
    DictOf,
    Inexact,
    Kind,
    Leaf,
    ListOf,
    ModelOf,
    Nullable,
    kind_of,
)
from semel.kernel import keys
from semel.kernel.limits import ARGUMENT_BYTES_MAX

Exact = tuple[dict[str, Any], bytes, bool]
"""The arguments by name, their canonical bytes, and whether these are what is stored, too."""

ExactFunction = Callable[..., Exact | None]

# What says that the general way has to answer: a call that does not fit the parameters, a text or number that
# orjson does not write, a number that has no canonical form, a model without one of its fields.
DECLINED = (TypeError, ValueError, LookupError)

# Each function has a file name of its own, so that a debugger shows its own source.
_numbers = itertools.count(1)

_MARK = "it"
_BACKSLASH = ord("\\")


class ExactParameter(NamedTuple):
    name: str
    kind: Kind
    positional: bool
    required: bool
    ignored: bool
    default: Any = None  # as validated


def exact_function(
    tool: str,
    fields: Mapping[str, Any],
    *,
    positional: Iterable[str],
    defaults: Mapping[str, Any],
    ignored: Iterable[str],
    plain: bool,
) -> ExactFunction | None:
    """The function of a signature, given pydantic's schemas of its parameters; None if it has to do without.

    `plain` is whether the stored arguments are their canonical form, ignored ones and defaults included.
    """
    try:
        parameters = [
            ExactParameter(
                name=name,
                kind=kind_of(field["schema"]),
                positional=name in positional,
                required=name not in defaults,
                ignored=name in ignored,
                default=defaults.get(name),
            )
            for name, field in fields.items()
        ]
        return _Writer(parameters, plain).function(tool)
    except Inexact:
        return None


def exact_check(schema: Mapping[str, Any], whose: str) -> Callable[[Any], bool] | None:
    """Whether a result is exactly of its declared type, so that it reads back equal from what is stored.

    None if nobody knows that of the type. What the check raises, a LookupError, means no.
    """
    try:
        return _Writer([], plain=False, kept_only=True).check(kind_of(schema), whose)
    except Inexact:
        return None


class _Writer:
    """Writes one function, and collects what its source names."""

    def __init__(self, parameters: list[ExactParameter], plain: bool, *, kept_only: bool = False) -> None:
        self._parameters = parameters
        self._plain = plain
        # A result has no canonical form, which would say which numbers are too large or none at all.
        self._further = _NUMBERS if kept_only else {}
        self._names = are_ascii if kept_only else keys.stand_for_themselves
        self._taken = {each.name for each in parameters} | {_MARK, "exact_arguments", "is_exact", "value"}
        self._locals: dict[str, str] = {}
        self._objects: dict[str, Any] = {}
        self._helpers: dict[tuple[str, Kind], tuple[str, list[str]]] = {}
        if not all(_is_name(each.name) for each in parameters):
            raise Inexact

    # --- the whole --------------------------------------------------------------------------------

    def function(self, tool: str) -> ExactFunction:
        made: ExactFunction = self._compiled("exact_arguments", self._written(tool), tool)
        return made

    def check(self, kind: Kind, whose: str) -> Callable[[Any], bool]:
        lines = ["def is_exact(value):", f"    return not ({self._misfit(kind, 'value')})"]
        made: Callable[[Any], bool] = self._compiled("is_exact", lines, whose)
        return made

    def _compiled(self, name: str, lines: list[str], whose: str) -> Any:
        helpers = [line for _, written in self._helpers.values() for line in [*written, "", ""]]
        source = "\n".join([*helpers, *lines, ""])
        file_name = f"<semel: {name} of {keys.printable(whose)}, {next(_numbers)}>"
        exec(compile(source, file_name, "exec"), self._objects)
        made = self._objects[name]
        linecache.cache[file_name] = (len(source), None, source.splitlines(keepends=True), file_name)
        weakref.finalize(made, linecache.cache.pop, file_name, None).atexit = False
        return made

    def _written(self, tool: str) -> list[str]:
        arguments, apart, ignored = (self._local(name) for name in ("arguments", "told_apart", "ignored"))
        first = list(itertools.takewhile(lambda each: each.required, self._parameters))
        later = self._parameters[len(first) :]
        aside = [each for each in first if each.ignored]
        ignores = any(each.ignored for each in self._parameters)
        leaves_out = bool(later) or ignores
        if not leaves_out and all(self._is_itself(each.kind) for each in first):
            apart = arguments
        what = f"The arguments of {keys.printable(tool)} if all have exactly their declared types, else None."
        lines = [
            f"def exact_arguments({self._header()}):",
            f"    {what!r}",
            *self._refusals(first),
            f"    {arguments} = {self._dict(first, self._copy)}",
        ]
        if apart != arguments:
            lines.append(f"    {apart} = {self._dict([e for e in first if not e.ignored], self._form)}")
        # What is ignored is stored all the same, so it has to be fit for that. Where all is plain, storing it
        # shows that (`Arguments.dump_exactly`), and a replay stores nothing.
        ignores = ignores and not self._plain
        if ignores:
            lines.append(f"    {ignored} = {self._dict(aside, self._form)}")
        for each in later:
            lines += self._later(each, arguments, apart if not each.ignored else ignored if ignores else None)
        if ignores:
            lines.append("    # What is ignored is stored all the same, so it has to be fit for that.")
            lines += self._writing(self._local("aside"), ignored)
        data = self._local("canonical")
        return [*lines, *self._writing(data, apart), *self._answer(arguments, data, apart, leaves_out)]

    def _header(self) -> str:
        absent = self._name("absent", _ABSENT) if any(not each.required for each in self._parameters) else ""
        written = {
            each.name: each.name if each.required else f"{each.name}={absent}" for each in self._parameters
        }
        positional = [written[each.name] for each in self._parameters if each.positional]
        by_name = [written[each.name] for each in self._parameters if not each.positional]
        return ", ".join([*positional, *(["*", *by_name] if by_name else [])])

    def _refusals(self, parameters: Iterable[ExactParameter]) -> list[str]:
        written = [
            (f"    if {self._misfit(each.kind, each.name)}:", "        return None") for each in parameters
        ]
        return [line for pair in written for line in pair]

    def _later(self, each: ExactParameter, arguments: str, forms: str | None) -> list[str]:
        """An argument that may be left out, or stands behind one that may be; its form goes into `forms`."""
        if not each.required:
            self._check_default(each)
        misfit, copy, form = (write(each.kind, each.name) for write in (self._misfit, self._copy, self._form))
        lines = [f"if {misfit}:", "    return None", f"{arguments}[{each.name!r}] = {copy}"]
        if forms is None:
            pass
        elif each.required or each.ignored:
            lines.append(f"{forms}[{each.name!r}] = {form}")
        else:
            value = each.name
            if form != each.name:
                value = self._local("form")
                lines.append(f"{value} = {form}")
            lines.append(f"if {self._differs(each, value)}:  # else it is as if not given")
            lines.append(f"    {forms}[{each.name!r}] = {value}")
        if each.required:
            return [f"    {line}" for line in lines]
        absent = self._name("absent", _ABSENT)
        return [f"    if {each.name} is not {absent}:", *(f"        {line}" for line in lines)]

    def _writing(self, data: str, forms: str) -> list[str]:
        dumps, sort = self._name("dumps", orjson.dumps), self._name("SORTED", orjson.OPT_SORT_KEYS)
        holds_nul = self._name("holds_nul", keys.holds_nul)
        length, most = self._builtin("len"), self._name("BYTES_MAX", ARGUMENT_BYTES_MAX)
        return [
            f"    {data} = {dumps}({forms}, None, {sort})",
            # Without a backslash there is no NUL; and one byte is found ten times as fast as several.
            f"    if {length}({data}) > {most} or ({_BACKSLASH} in {data} and {holds_nul}({data})):",
            "        return None",
        ]

    def _answer(self, arguments: str, data: str, apart: str, leaves_out: bool) -> list[str]:
        whole = "False"
        if self._plain:
            # Nothing was ignored, left out, or equal to its default.
            length = self._builtin("len")
            whole = f"{length}({apart}) == {len(self._parameters)}" if leaves_out else "True"
        return [f"    return {arguments}, {data}, {whole}"]

    def _dict(self, parameters: Iterable[ExactParameter], write: Callable[[Kind, str], str]) -> str:
        return "{" + ", ".join(f"{each.name!r}: {write(each.kind, each.name)}" for each in parameters) + "}"

    # --- defaults ---------------------------------------------------------------------------------

    def _check_default(self, each: ExactParameter) -> None:
        """Raises Inexact unless the default is such a value itself: it is stored with the others."""
        if _holds_model(each.kind) and each.default is not None:
            raise Inexact  # the tool may change it, and the next call would not equal it any more
        misfit = self._misfit(each.kind, _MARK)
        if eval(misfit, self._objects, {_MARK: each.default}):
            raise Inexact
        try:
            data = orjson.dumps({"v": self._default_form(each)})
        except (TypeError, ValueError):
            raise Inexact from None
        if keys.holds_nul(data):
            raise Inexact

    def _default_form(self, each: ExactParameter) -> Any:
        return eval(self._form(each.kind, _MARK), self._objects, {_MARK: each.default})

    def _differs(self, each: ExactParameter, form: str) -> str:
        """Whether the form of an argument is another than that of its default."""
        if each.default is None or each.default is True or each.default is False:
            return f"{form} is not {each.default}"
        default = self._name(f"default_{each.name}", self._default_form(each))
        if isinstance(each.kind, Choice):
            # The type counts, because True equals 1.
            kind = self._builtin("type")
            return f"{form} != {default} or {kind}({form}) is not {kind}({default})"
        if _holds_choice(each.kind):
            raise Inexact
        return f"{form} != {default}"

    # --- what is not exactly of its kind ----------------------------------------------------------

    def _misfit(self, kind: Kind, it: str) -> str:
        """A condition that holds for values that are not exactly of this kind."""
        match kind:
            case Leaf(of, unless):
                outer = f"{self._builtin('type')}({it}) is not {self._type(of)}"
                conditions = (*unless, *self._further.get(of, ()))
                return " or ".join([outer, *(self._condition(each, it) for each in conditions)])
            case Choice(leaves):
                return " and ".join(_grouped(self._misfit(leaf, it)) for leaf in leaves)
            case Nullable(inner):
                return f"{it} is not None and {_grouped(self._misfit(inner, it))}"
            case ListOf(item):
                return self._misfit_of_container(list, it, item, it)
            case DictOf(member):
                values = f"{it}.values()"
                outer = self._misfit_of_container(dict, it, member, values)
                return f"{outer} or not {self._name(self._names.__name__, self._names)}({it})"
            case ModelOf():
                return self._misfit_of_model(kind, it)

    def _misfit_of_container(self, of: type, it: str, item: Kind, items: str) -> str:
        outer = f"{self._builtin('type')}({it}) is not {self._type(of)}"
        types = _bare_types(item)
        if types is not None and types.isdisjoint(self._further):
            only = self._name(f"only_{'_or_'.join(sorted(map(_spelled, types)))}", types)
            mapping, kind = self._builtin("map"), self._builtin("type")
            return f"{outer} or not {only}.issuperset({mapping}({kind}, {items}))"
        return f"{outer} or {self._builtin('any')}({self._misfit(item, _MARK)} for {_MARK} in {items})"

    def _condition(self, condition: Condition, it: str) -> str:
        than = condition.than
        written = repr(than) if type(than) is int else self._name(condition.name, than)
        return condition.text.format(it=it, than=written, len=self._builtin("len"))

    # --- the canonical form -----------------------------------------------------------------------

    def _is_itself(self, kind: Kind) -> bool:
        """Whether orjson writes the canonical form of the values, which need no copy, without help."""
        return self._form(kind, _MARK) == self._copy(kind, _MARK) == _MARK

    def _form(self, kind: Kind, it: str) -> str:
        """What orjson writes as the canonical bytes of the value."""
        match kind:
            case Leaf(of):
                return self._leaf_form(of, it)
            case Choice(leaves):
                written = it
                for leaf in leaves:
                    form = self._leaf_form(leaf.type, it)
                    if form != it:
                        is_it = f"{self._builtin('type')}({it}) is {self._type(leaf.type)}"
                        written = f"({form} if {is_it} else {written})"
                return written
            case Nullable(inner):
                form = self._form(inner, it)
                return it if form == it else f"(None if {it} is None else {form})"
            case ListOf(item):
                form = self._form(item, _MARK)
                return it if form == _MARK else f"[{form} for {_MARK} in {it}]"
            case DictOf(member):
                form = self._form(member, _MARK)
                name = self._local("name")
                return it if form == _MARK else f"{{{name}: {form} for {name}, {_MARK} in {it}.items()}}"
            case ModelOf():
                return self._form_of_model(kind, it)

    def _leaf_form(self, of: type, it: str) -> str:
        if type(of) is not type:  # an Enum, which orjson writes by its value
            return it
        form = keys.leaf_form(of)
        return it if form is None else f"{self._name(f'form_of_{_spelled(of)}', form)}({it})"

    def _form_of_model(self, kind: ModelOf, it: str) -> str:
        fields = self._local("fields")
        forms = [(name, f"{fields}[{name!r}]", inner) for name, inner in kind.fields]
        written = [(name, value, self._form(inner, value)) for name, value, inner in forms]
        others = ", ".join(f"{name!r}: {form}" for name, value, form in written if form != value)
        if not others:
            return f"{it}.__dict__"

        def write(name: str) -> list[str]:
            return [f"def {name}({fields}):", f"    return {{**{fields}, {others}}}"]

        return f"{self._helper('form_of', kind, write)}({it}.__dict__)"

    def _misfit_of_model(self, kind: ModelOf, it: str) -> str:
        model, fields = self._local("model"), self._local("fields")

        def write(name: str) -> list[str]:
            its_type, length = self._builtin("type"), self._builtin("len")
            lines = [
                f"def {name}({model}):",
                f"    if {its_type}({model}) is not {self._type(kind.type)}:",
                "        return True",
                f"    {fields} = {model}.__dict__",
                # Cached properties live there too.
                f"    if {length}({fields}) != {len(kind.fields)}:",
                "        return True",
            ]
            for field, inner in kind.fields:
                lines += [f"    if {self._misfit(inner, f'{fields}[{field!r}]')}:", "        return True"]
            return [*lines, "    return False"]

        return f"{self._helper('is_no', kind, write)}({it})"

    def _helper(self, purpose: str, kind: ModelOf, write: Callable[[str], list[str]]) -> str:
        """The name of a function about a model, written once."""
        if (purpose, kind) not in self._helpers:
            name = self._name(f"{purpose}_{_spelled(kind.type)}", (purpose, kind))
            self._helpers[purpose, kind] = name, write(name)
        return self._helpers[purpose, kind][0]

    # --- copies -----------------------------------------------------------------------------------

    def _copy(self, kind: Kind, it: str) -> str:
        """The value as validation hands it on: lists and dicts anew, models as they are."""
        match kind:
            case Nullable(inner):
                copy = self._copy(inner, it)
                return it if copy == it else f"(None if {it} is None else {copy})"
            case ListOf(item):
                copy = self._copy(item, _MARK)
                return f"{it}.copy()" if copy == _MARK else f"[{copy} for {_MARK} in {it}]"
            case DictOf(member):
                copy = self._copy(member, _MARK)
                name = self._local("name")
                if copy == _MARK:
                    return f"{it}.copy()"
                return f"{{{name}: {copy} for {name}, {_MARK} in {it}.items()}}"
        return it

    # --- names ------------------------------------------------------------------------------------

    def _builtin(self, name: str) -> str:
        return self._name(name, getattr(builtins, name))

    def _type(self, kind: type) -> str:
        return self._name(_spelled(kind), kind)

    def _name(self, wanted: str, thing: Any) -> str:
        """A name for this object in the source: the wanted one, unless something else has it."""
        name = wanted
        while name in self._taken or not _same(self._objects.get(name, thing), thing):
            name += "_"
        self._objects[name] = thing
        return name

    def _local(self, wanted: str) -> str:
        """A name for a variable or function that nothing else has."""
        if wanted not in self._locals:
            name = wanted
            while name in self._taken or name in self._objects:
                name += "_"
            self._taken.add(name)
            self._locals[wanted] = name
        return self._locals[wanted]


_ABSENT: Any = object()


# Numbers of which nobody knows here whether they read back equal from what is stored.
_NUMBERS: Mapping[type, tuple[Condition, ...]] = {
    int: (Condition("not -0x8000_0000_0000_0000 <= {it} <= 0xFFFF_FFFF_FFFF_FFFF", 0),),
    float: (Condition("not {than}({it})", math.isfinite, "isfinite"),),
    Decimal: (Condition("not {it}.is_finite()", 0),),
}


def are_ascii(names: Iterable[Any]) -> bool:
    """Whether all keys of a dict are text without surrogates, which pydantic writes as something else."""
    return all(type(name) is str and name.isascii() for name in names)


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) is frozenset and one == other)


def _spelled(kind: type) -> str:
    name = re.sub(r"\W", "_", kind.__name__, flags=re.ASCII)
    return name if _is_name(name) else f"kind_{name}"


def _is_name(name: str) -> bool:
    # Python reads other spellings of a letter as the same name.
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def _grouped(condition: str) -> str:
    return f"({condition})" if " or " in condition else condition


def _bare_types(kind: Kind) -> frozenset[type] | None:
    """The types of a kind that nothing but the type decides."""
    match kind:
        case Leaf(of, ()):
            return frozenset({of})
        case Choice(leaves):
            return frozenset(leaf.type for leaf in leaves)
        case Nullable(inner):
            types = _bare_types(inner)
            return None if types is None else types | {type(None)}
    return None


def _holds_model(kind: Kind) -> bool:
    return isinstance(kind, ModelOf) or any(map(_holds_model, _inner(kind)))


def _holds_choice(kind: Kind) -> bool:
    return isinstance(kind, Choice) or any(map(_holds_choice, _inner(kind)))


def _inner(kind: Kind) -> Iterable[Kind]:
    match kind:
        case Nullable(inner) | ListOf(inner) | DictOf(inner):
            return (inner,)
    return ()
