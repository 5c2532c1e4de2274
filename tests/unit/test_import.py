"""`import semel` is nearly nothing; each public name is loaded when it is first used."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import semel


def loaded_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded once the code has run."""
    shown = f"{code}\nimport sys\nprint(*sys.modules)"
    made = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    return set(made.stdout.split())


def test_importing_semel_loads_neither_pydantic_nor_asyncio_nor_a_store() -> None:
    loaded = loaded_after("import semel")
    assert loaded.isdisjoint({"pydantic", "pydantic_core", "orjson", "asyncio", "ssl", "inspect"})
    ours = {name for name in loaded if name.split(".")[0] == "semel"}
    late = {"semel.kernel", "semel.kernel.late_imports"}
    assert ours == {"semel", "semel.ledger", "semel.ledger.beyond"} | late


def test_a_contract_needs_no_run_and_no_server() -> None:
    loaded = loaded_after("import semel\nsemel.tool_contract")
    assert loaded.isdisjoint({"semel.flow.model", "semel.stores.sqlite", "sqlite3", "http.client"})


@pytest.mark.parametrize("name", semel.__all__)
def test_a_public_name_is_the_thing_at_its_home(name: str) -> None:
    home = semel._HOMES[name]
    thing = (
        getattr(importlib.import_module(f"semel.{home}"), name)
        if home
        else importlib.import_module(f"semel.{name}")
    )
    assert getattr(semel, name) is thing
    assert name in dir(semel)


@pytest.mark.parametrize("name", ["testing", "agents", "client"])
def test_a_room_for_users_is_there_by_its_full_name(name: str) -> None:
    assert f"semel.{name}" not in loaded_after("import semel")
    assert f"semel.{name}" in loaded_after(f"import semel\nsemel.{name}.__name__")


def test_type_checkers_are_told_the_same_homes() -> None:
    tree = ast.parse(Path(semel.__file__).read_text())
    told = {
        alias.name: (node.module or "").removeprefix("semel").removeprefix(".")
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert told == semel._HOMES
    assert sorted(semel._HOMES) == sorted(semel.__all__)


def test_a_name_that_is_not_ours_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'semel' has no attribute 'nothing'"):
        semel.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_a_ledger_made_by_its_own_module_knows_of_runs_too() -> None:
    loaded = loaded_after("from semel.ledger.ledger import open\nopen('memory://').close()")
    assert "semel.flow.run_progress" in loaded
