"""Settings that hold for every test."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

from tests import storeys
from tests.evidence import evidence, pytest_addoption, pytest_configure  # noqa: F401  a fixture and two hooks
from tests.tools import end_other_processes

# No deadline: how long one example takes says more about the machine than about the code.
# The same commit gives the same answer; finding new examples is for `make soak`.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("soak", deadline=None)
settings.load_profile("same")

# A shell that starts tests in the background has them ignore ctrl-C, and with them all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Before the marks that are asked for are looked at.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    storeys.divide(items)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    end_other_processes()
