"""Which function answers to which name: two that share one would be answered with each other's results."""

from __future__ import annotations

from semel.contract.contract import Contract
from semel.errors import ContractError


class ToolNames:
    """The tools that one ledger of this process has met, by name and major version."""

    def __init__(self) -> None:
        self.functions: dict[bytes, tuple[str, str]] = {}
        """By `frame` the `function_name`: what is this very object here has been admitted."""

    def admit(self, contract: Contract) -> None:
        """Nothing, or ContractError if another function has the name. Defined again it is the same one."""
        first = self.functions.get(contract.frame)
        if first is contract.function_name:
            return
        if first is None:
            first = self.functions.setdefault(contract.frame, contract.function_name)
        if first != contract.function_name:
            raise ContractError(
                f"{_written(contract.function_name)} calls itself {contract.name!r}, version "
                f"{contract.major}, which on this ledger is {_written(first)}; the tool did not run.",
                corrective_action="Give one of the two another name=… or major version.",
            )
        # The very object, so that the next call of this contract need not compare.
        self.functions[contract.frame] = contract.function_name


def _written(function_name: tuple[str, str]) -> str:
    return ".".join(function_name)
