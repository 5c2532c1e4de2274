"""What a tool's result looks like, without the tool: a value held to a JSON Schema, a form to fill in.

The schemas are those that `describe()` gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from semel.contract import schema_check
from semel.contract.schema_check import Schema, compact
from semel.contract.shapes import referred


def misfit(value: Any, schema: Schema, secret: Iterable[str] = ()) -> str | None:
    """Where and why a JSON value does not fit the schema, without quoting it; None if it fits.

    Nor does it fit if it has something at a `secret` path: what is secret is written nowhere.
    """
    secret_path = next((path for path in secret if _present(value, path.split("."))), None)
    if secret_path is not None:
        return f"$.{secret_path}: a secret is kept nowhere; leave it out."
    return schema_check.misfit(value, schema, kept=True)


def _present(value: Any, path: Sequence[str]) -> bool:
    """Whether something is there. Lists are passed through; `*` is every key of an object."""
    if isinstance(value, list):
        return any(_present(item, path) for item in value)
    if not path:
        return value is not None
    if not isinstance(value, dict):
        return False
    inner = value.values() if path[0] == "*" else [value.get(path[0])]
    return any(_present(member, path[1:]) for member in inner)


# --- a form to fill in ----------------------------------------------------------------------------

# Beyond this a form helps nobody.
_FORM_DEPTH = 12


def returns_nothing(schema: Schema) -> bool:
    """Whether null is the only value: then there is nothing to fill in."""
    return schema.get("type") == "null"


def template(schema: Schema) -> str:
    """The result's outline. It is no JSON until it is filled in, so that nobody sends it as it stands."""
    return "null" if returns_nothing(schema) else _outline(schema, schema, 0)


def _outline(schema: Any, root: Schema, depth: int) -> str:
    if not isinstance(schema, Mapping) or not schema or depth > _FORM_DEPTH:
        return "<any JSON>"
    if "$ref" in schema:
        return _outline(referred(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return compact(schema["const"])
    if "enum" in schema:
        return f"<{' | '.join(map(compact, schema['enum'][:5]))}>"
    choices = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    if choices:
        return _outline(choices[0], root, depth + 1)
    return _outline_of_type(schema, root, depth)


def _outline_of_type(schema: Schema, root: Schema, depth: int) -> str:
    match schema.get("type"):
        case "object" if schema.get("properties"):
            members = schema["properties"]
            names = [name for name in members if name in schema.get("required", members)] or list(members)
            return (
                "{" + ", ".join(f"{compact(n)}: {_outline(members[n], root, depth + 1)}" for n in names) + "}"
            )
        case "object":
            return "{<name>: " + _outline(schema.get("additionalProperties", True), root, depth + 1) + "}"
        case "array" if "prefixItems" in schema:
            return "[" + ", ".join(_outline(item, root, depth + 1) for item in schema["prefixItems"]) + "]"
        case "array":
            return f"[{_outline(schema.get('items', True), root, depth + 1)}, …]"
        case str(name):
            return f"<{schema.get('format', name)}>"
    return "<any JSON>"
