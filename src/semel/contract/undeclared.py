"""What can be seen of a result that is not declared: the classes whose objects a function's own text
returns.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

# Whose objects are plain data, or are declared by hand: what a contract itself reads.
_KEPT = frozenset({"builtins", "decimal", "datetime", "uuid", "semel.contract.result"})


def returned_class(function: Callable[..., Any]) -> type | None:
    """A class that the function calls in a `return`, and whose objects no replay could give back undeclared.

    None where nothing is known: the text is not to be had, or it returns a name, a member, another's result.
    """
    try:
        text = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    names = {**inspect.getclosurevars(function).globals, **inspect.getclosurevars(function).nonlocals}
    for returned in _returns(tree):
        kind = names.get(returned.id)
        if isinstance(kind, type) and kind.__module__ not in _KEPT:
            return kind
    return None


def _returns(tree: ast.AST) -> Iterator[ast.Name]:
    """The names that are called in the `return`s of this function, not of those inside of it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Name):
                yield called
        yield from _returns(node)
