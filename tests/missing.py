"""What a machine lacks: at a desk the tests that need it are skipped with one line, in CI they fail."""

from __future__ import annotations

import importlib
import os
from typing import Any, NoReturn

# pytest is imported where it is needed: hundreds of processes of scenes import this, and run no test.


def cannot(reason: str) -> NoReturn:
    """Ends the test: skipped, or failed where everything is promised to be there."""
    import pytest

    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def library(name: str) -> Any:
    """The module, for a whole file of tests that need it."""
    if os.environ.get("CI"):
        return importlib.import_module(name)
    import pytest

    return pytest.importorskip(name)
