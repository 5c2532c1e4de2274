"""Calls as lines of a log. There is no argument, key or result in them."""

from __future__ import annotations

import logging

from semel.instrumentation.hooks import CallEnded


class LoggingHook:
    """A line for each call: WARNING if it is in doubt, else DEBUG."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._log = logging.getLogger("semel.calls") if logger is None else logger

    def __call__(self, call: CallEnded) -> None:
        if call.in_doubt:
            self._log.warning(
                "semel: %s %s: %s, it may have happened (claim %.6f s, tool %.6f s)",
                call.tool, call.version, call.answer, call.claim_s, call.tool_s,
            )  # fmt: skip
        elif not self._log.isEnabledFor(logging.DEBUG):
            pass
        elif call.retry_age_s is not None:
            self._log.debug(
                "semel: %s %s: %s, settled %.3f s ago",
                call.tool, call.version, call.answer, call.retry_age_s,
            )  # fmt: skip
        else:
            self._log.debug(
                "semel: %s %s: %s (claim %.6f s, tool %.6f s, settle %.6f s)",
                call.tool, call.version, call.answer, call.claim_s, call.tool_s, call.settle_s,
            )  # fmt: skip
