"""What the client says of itself is what it does: its models, its table of retries, its methods."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from semel.client import AsyncGateway, Gateway, operations
from semel.client.answer import Answer, read
from semel.client.gateway import AwaitingGroup, CallingGroup
from semel.client.models import RunAnswer
from semel.client.routes import ROUTES, Repeat
from semel.flow.problems import KINDS
from semel.gateway.routes import ROUTES as GATEWAY_ROUTES
from tests.tidy.source import Module, modules
from tools import client_text


def test_the_models_follow_from_the_gateways_own() -> None:
    assert client_text.MODELS.read_text(encoding="utf-8") == client_text.models()


def test_the_page_has_the_tables_as_they_are() -> None:
    text = client_text.PAGE.read_text(encoding="utf-8")
    assert client_text.page(text) == text
    assert all(f"`{code}`" in text for code, kind in KINDS.items() if kind.retriable)


def test_every_route_of_the_gateway_is_in_the_table_and_its_keys_are_kept() -> None:
    """Both tables, line for line: what takes a key there has one here."""
    theirs = {(route.method, route.path): route.keyed is not None for route in GATEWAY_ROUTES}
    ours = {(route.method, route.path): route.repeat is Repeat.KEYED for route in ROUTES}
    assert ours == theirs


def groups(client: Any, kind: type) -> dict[str, Any]:
    return {name: group for name, group in vars(client).items() if isinstance(group, kind)}


def methods(client: Any, kind: type) -> dict[str, Any]:
    return {
        f"{name}.{method}": getattr(group, method)
        for name, group in groups(client, kind).items()
        for method in vars(type(group))
        if not method.startswith("_")
    }


@pytest.fixture
def both() -> tuple[dict[str, Any], dict[str, Any]]:
    with Gateway("http://127.0.0.1:1") as gateway:
        called = methods(gateway, CallingGroup)
    return called, methods(AsyncGateway("http://127.0.0.1:1"), AwaitingGroup)


def test_both_clients_have_every_method_of_the_table_with_the_same_parameters(
    both: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    called, awaited = both
    assert set(called) == {route.name for route in ROUTES} | {"runs.wait"}
    assert [*called] == [*awaited]
    for name, method in called.items():
        assert inspect.signature(method) == inspect.signature(awaited[name])
        assert method.__doc__, name


def test_a_method_shows_the_parameters_of_its_operation(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    parameters = inspect.signature(both[0]["runs.start"]).parameters
    assert list(parameters) == ["workflow", "input", "key", "wait"]
    assert both[0]["runs.start"].__doc__ == operations.start_run.__doc__


def test_an_answer_cannot_be_changed() -> None:
    run = a_run()
    with pytest.raises(AttributeError):
        run.status = "succeeded"  # type: ignore[misc]
    assert isinstance(run, Answer)


def a_run() -> RunAnswer:
    at = "2026-11-18T12:00:00.000001Z"
    members = {"run_id": "run_1", "workflow_id": "w", "status": "running", "input": 1 << 80, "result": None,
               "error": None, "created_at": at, "started_at": at, "ended_at": None, "rerun_of": None,
               "steps": []}  # fmt: skip
    return read(RunAnswer, members)


def test_without_httpx_one_error_names_the_fix() -> None:
    code = "import sys; sys.modules['httpx'] = None; import semel.client"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (*_, told) = done.stderr.strip().splitlines()
    assert told.endswith('httpx is not installed: pip install "semel[client]".')


def test_the_client_needs_neither_a_store_nor_the_gateway() -> None:
    code = "import sys, semel.client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint({"semel.gateway", "semel.flow", "semel.stores.sqlite", "sqlite3", "uvicorn"})


HTTP_CLIENTS = {"aiohttp", "http.client", "httpcore", "httpx", "requests", "urllib.request", "urllib3"}

# They ask the payment provider of the demonstration, which is no gateway.
NO_GATEWAY = {"lab.demo", "lab.demo_worker"}


def reached(module: Module) -> Iterator[str]:
    """Every module that it imports, wherever the import stands."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def test_whoever_asks_a_gateway_asks_it_through_the_client() -> None:
    """The command line, the worker and the runbooks have no HTTP of their own."""
    asking = {name for name, module in modules().items() if HTTP_CLIENTS & set(reached(module))}
    assert {name for name in asking if not name.startswith("client.")} == NO_GATEWAY
