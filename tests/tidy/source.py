"""The library's source as syntax trees, for the rules that tests read off it."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARY = ROOT / "src" / "semel"


@dataclass(frozen=True)
class Module:
    """One Python file of the library; its name is `stores.sqlite`, or "" for the package itself."""

    name: str
    path: Path
    tree: ast.Module

    def at(self, node: ast.stmt | ast.expr) -> str:
        return f"{self.path.name if not self.name else self.name}:{node.lineno}"


def modules(folder: Path = LIBRARY, named_from: Path = LIBRARY) -> dict[str, Module]:
    """Every module in the folder by its name."""
    paths = sorted(folder.rglob("*.py"))
    found = (parse(path.read_text(encoding="utf-8"), path, named_from) for path in paths)
    return {module.name: module for module in found}


def parse(text: str, path: Path, library: Path = LIBRARY) -> Module:
    parts = path.relative_to(library).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, path, ast.parse(text))


def imports(module: Module, known: set[str]) -> Iterator[tuple[ast.stmt, str]]:
    """Each import of the library by the library, wherever it stands, as the module it reaches."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "semel" or alias.name.startswith("semel."):
                    yield node, alias.name.removeprefix("semel").removeprefix(".")
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(module, node)
            if origin is not None:
                for alias in node.names:
                    yield node, _reached(origin, alias.name, known)


def bench_imports(module: Module) -> Iterator[ast.stmt]:
    """Each import of the bench, which stands beside the library and not in the wheel."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            reached = [alias.name for alias in node.names]
        else:
            reached = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        if any(name.split(".")[0] == "bench" for name in reached):
            assert isinstance(node, ast.stmt)
            yield node


def _origin(module: Module, node: ast.ImportFrom) -> str | None:
    """The library's module that `from … import` names, None for one of another package."""
    if node.level == 0:
        name = node.module or ""
        return name.removeprefix("semel").removeprefix(".") if name.split(".")[0] == "semel" else None
    package = module.name.split(".") if module.name else []
    if module.path.name != "__init__.py":
        package = package[:-1]
    kept = package[: len(package) - (node.level - 1)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _reached(origin: str, name: str, known: set[str]) -> str:
    submodule = f"{origin}.{name}" if origin else name
    return submodule if submodule in known else origin


def called_names(module: Module) -> Iterator[tuple[ast.expr, str]]:
    """Each use of an imported name, spelt in full: `dt.now` after `from datetime import datetime as dt`
    is `datetime.datetime.now`. A use counts even without a call: it may be handed on and called there."""
    full_names = _full_names(module.tree)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name | ast.Attribute):
            name = _dotted(node)
            first, _, rest = name.partition(".")
            if first in full_names:
                yield node, f"{full_names[first]}.{rest}" if rest else full_names[first]


def _full_names(tree: ast.Module) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return node.id if isinstance(node, ast.Name) else ""


def texts(module: Module) -> Iterator[tuple[ast.expr, str]]:
    """Each string of the module that is no docstring; of an f-string the fixed parts, with ? between."""
    skipped = _docstrings(module.tree) | _parts_of_f_strings(module.tree)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.JoinedStr):
            yield node, "".join(_text(part) or "?" for part in node.values)
        elif isinstance(node, ast.Constant) and id(node) not in skipped and _text(node):
            yield node, _text(node)


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _parts_of_f_strings(tree: ast.Module) -> set[int]:
    return {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}


def _docstrings(tree: ast.Module) -> set[int]:
    # Any string that stands alone is prose: a docstring, or one below an attribute.
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def classes(module: Module) -> Iterator[ast.ClassDef]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            yield node


def prints(module: Module) -> Iterator[ast.Call]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield node


def numbers(module: Module) -> Iterator[tuple[ast.expr, int]]:
    """Each whole number that is written out."""
    return _numbers(node for node in ast.walk(module.tree) if isinstance(node, ast.expr))


def numbers_beside(module: Module, word: str) -> Iterator[tuple[ast.expr, int]]:
    """Each whole number that is compared with something whose name has this word, or given as one."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(word in _dotted(side) for side in sides):
                yield from _numbers(sides)
        elif isinstance(node, ast.keyword) and word in (node.arg or ""):
            yield from _numbers([node.value])


def _numbers(nodes: Iterable[ast.expr]) -> Iterator[tuple[ast.expr, int]]:
    for node in nodes:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            yield node, node.value


def text_files(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Every text file that is, or on the next commit could be, part of the repository."""
    # The folder may belong to somebody else, as it does in some CI machines; git would refuse to look.
    listing = [
        "git",
        "-c",
        "safe.directory=*",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    names = subprocess.run(listing, cwd=root, capture_output=True, check=True).stdout.split(b"\0")
    for name in sorted({name.decode() for name in names if name}):
        try:
            yield Path(name), (root / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
