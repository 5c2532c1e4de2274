"""The turn: the step of an agent that answers one message."""

from __future__ import annotations

from collections.abc import Iterable

from semel.call.step import Step
from semel.call.unfinished import OpenCalls, Unfinished
from semel.ledger.ledger import Ledger


class Turn(Step):
    """The time in which an agent answers one message: `with` and `async with`."""

    within: tuple[str, ...] | None = None  # the agents around its action, where their names are in its path

    def __init__(
        self, ledger: Ledger, conversation: str, path: tuple[str, ...], scopes: Iterable[str], principal: str
    ) -> None:
        super().__init__(ledger, conversation, path, scopes, principal)
        self.open_calls = OpenCalls()

    @property
    def unfinished(self) -> tuple[Unfinished, ...]:
        """Calls made here that are in doubt, in flight, retriable or wait for a person.

        Whoever names turns by hand gives the same name again while there are any, so that they go on.
        """
        return () if self.open_calls is None else self.open_calls.listed()


def turn(
    ledger: Ledger,
    conversation: str,
    message: str | tuple[str, ...],
    scopes: Iterable[str] = (),
    principal: str = "",
) -> Turn:
    """The turn that answers this message; the same names give the same keys, in whichever process."""
    return Turn(ledger, conversation, (message,) if isinstance(message, str) else message, scopes, principal)
