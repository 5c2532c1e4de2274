"""MODULE of `semel worker` and `--probes`: a name that can be imported, or the path of a Python file."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from semel.contract.handlers import Handler, marked


class NoHandlers(Exception):
    """There is no such module, or it marks no function."""


class NoModule(NoHandlers):
    """There is no such module."""


def load(module: str) -> Mapping[str, Handler]:
    """The handlers by topic, once the module has run; NoHandlers if there are none."""
    return handlers_of(run(module))


def run(module: str) -> ModuleType:
    """The module, which has run; NoModule if there is none, and whatever it raises itself."""
    if module.endswith(".py") or os.sep in module:
        return _run_file(Path(module))
    return _import(module)


def handlers_of(module: ModuleType) -> Mapping[str, Handler]:
    """What was marked by now, in the module and in those that it imports."""
    handlers = marked()
    if not handlers:
        raise NoHandlers(f'{module.__name__} marks no function with @semel.handler("topic").')
    return handlers


def _import(name: str) -> ModuleType:
    # As `python -m` does: what lies in the present folder can be imported.
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        # Only if it is the module itself; an import that fails inside it is raised as it is.
        if missing.name is None or not f"{name}.".startswith(f"{missing.name}."):
            raise
        raise NoModule(
            f"There is no module {name} here. A file is given as a path, {name.replace('.', '/')}.py."
        ) from None


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise NoModule(f"There is no file {path}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise NoModule(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    # Known by its name, so that annotations written as text can be resolved.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
