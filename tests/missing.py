"""What a machine lacks: at a desk the tests that need it are skipped with one line, in CI they fail."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def cannot(reason: str) -> NoReturn:
    """Ends the test: skipped, or failed where everything is promised to be there."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
