"""What the client has in common with the gateway, written once: `python -m tools.client_text`.

Its models follow from the gateway's own (`kernel/answers.py`), and the tables of `docs/reference/client.md`
from the client's routes and the gateway's refusals. A test fails if a file is not what this writes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from semel.client.retrying import NOT_BEGUN
from semel.client.routes import ROUTES, Repeat
from semel.flow.problems import KINDS
from semel.gateway.openapi import described
from semel.gateway.routes import ROUTES as GATEWAY_ROUTES

ROOT = Path(__file__).parents[1]
ANSWERS = ROOT / "src/semel/kernel/answers.py"
MODELS = ROOT / "src/semel/client/models.py"
PAGE = ROOT / "docs/reference/client.md"

# Lists are iterators, problems are raised, and nobody asks how the gateway is through the client.
LEFT_OUT = ("ListJson", "ProblemJson", "HealthJson")

_HEAD = '''"""What the gateway answers, as classes. `python -m tools.client_text` writes them.

What an answer may lack is None where it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from semel.client.answer import Answer
'''


# --- models -----------------------------------------------------------------------------------------


def models() -> str:
    tree = ast.parse(ANSWERS.read_text(encoding="utf-8"))
    made = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name not in LEFT_OUT]
    mentioned = {name for node in made for name in _mentioned(node)}
    odd = dict(_odd_members(tree))
    texts = [_model(node, odd, part=node.name in mentioned) for node in made]
    return "\n\n".join([_HEAD, *texts])


def _mentioned(node: ast.ClassDef) -> Iterator[str]:
    """The models that are parts of this one."""
    for member in _members(node):
        for name in ast.walk(member.annotation):
            if isinstance(name, ast.Name) and name.id.endswith("Json"):
                yield name.id


def _odd_members(tree: ast.Module) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Models whose members have names that no class can write down."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.value.args) == 2:
            (target,), members = node.targets, node.value.args[1]
            assert isinstance(target, ast.Name)
            assert isinstance(members, ast.Dict)
            names = [ast.literal_eval(key) for key in members.keys if key is not None]
            yield target.id, dict(zip(names, map(ast.unparse, members.values), strict=True))


def _members(node: ast.ClassDef) -> list[ast.AnnAssign]:
    return [each for each in node.body if isinstance(each, ast.AnnAssign)]


def _model(node: ast.ClassDef, odd: Mapping[str, Mapping[str, str]], *, part: bool) -> str:
    bases = [ast.unparse(base) for base in node.bases]
    ours = [_name(base) for base in bases if base.endswith("Json")]
    base = ours or ([] if part else ["Answer"])
    head = f"class {_name(node.name)}{f'({base[0]})' if base else ''}:"
    lines = ["@dataclass(frozen=True, kw_only=True)", head]
    lines += [f'    """{text}"""\n' for text in [ast.get_docstring(node)] if text]
    for name in bases:
        for member, kind in odd.get(name, {}).items():
            lines.append(f'    {member}_: Annotated[{kind}, Field(alias="{member}")]')
    lines += [f"    {_field(member)}" for member in _members(node)]
    return "\n".join(lines) + "\n"


def _name(model: str) -> str:
    """A class has a name of its own in the library, so it is not that of what it tells of."""
    return model.removesuffix("Json") + "Answer"


def _field(member: ast.AnnAssign) -> str:
    kind = ast.unparse(member.annotation)
    for pattern, ours in ((r"\bTime\b", "datetime"), (r"\bLabels\b", "dict[str, str]"),
                          (r"\bSchema\b", "dict[str, Any]"), (r"(\w+)Json\b", r"\1Answer")):  # fmt: skip
        kind = re.sub(pattern, ours, kind)
    optional = re.fullmatch(r"NotRequired\[(.*)\]", kind)
    if optional:
        kind = optional[1]
        kind = f"{kind if kind == 'Any' or 'None' in kind else f'{kind} | None'} = None"
    return f"{ast.unparse(member.target)}: {kind}"


# --- tables -----------------------------------------------------------------------------------------

_WHEN = {
    Repeat.SAME: "always",
    Repeat.KEYED: "always, with the same key",
    Repeat.NOT_BEGUN: "only if it was certainly not begun",
}


def route_table() -> str:
    rows = ["| method | request | tried again | because |", "|---|---|---|---|"]
    rows += [
        f"| `{route.name}` | `{route.method} {route.path}` | {_WHEN[route.repeat]} | {route.because} |"
        for route in ROUTES
    ]
    return "\n".join(rows)


def code_table() -> str:
    rows = ["| `code` | means | tried again |", "|---|---|---|"]
    rows += [f"| `{code}` | {means} | {_tried(code)} |" for code, means in _retriable()]
    return "\n".join(rows)


def _retriable() -> Iterator[tuple[str, str]]:
    yield "unreachable", "Nobody is there, or no answer came in time, or it was cut short."
    yield "bad_gateway", "Somebody else answered, or the answer was to another request."
    for code, kind in KINDS.items():
        if kind.retriable:
            yield code, kind.title


def _tried(code: str) -> str:
    if code == "unreachable":
        return "yes; a lease only if no connection was made"
    lease = described(GATEWAY_ROUTES)["paths"]["/api/v1/leases"]["post"]["responses"]
    told_of_a_lease = {"bad_gateway", *re.findall(r"`(\w+)`", str(lease))}
    return "yes, but for a lease" if code in told_of_a_lease - NOT_BEGUN else "yes"


def page(text: str) -> str:
    """The page with both tables as they are now."""
    for name, table in (("routes", route_table()), ("codes", code_table())):
        between = re.compile(rf"(<!-- {name}: [^>]*-->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)
        place = between.search(text)
        assert place is not None, f"the page has no place for the table of {name}"
        text = text[: place.end(1)] + table + text[place.start(2) :]
    return text


if __name__ == "__main__":
    MODELS.write_text(models(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
