"""Hooks that are made when they are used, so that nobody waits for the import of a library before."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from semel.instrumentation.hooks import Hook, MadeLater
from semel.kernel.late_imports import late_import


class ReadyMade(MadeLater):
    """A hook of ours by its name: given as it is, or called for one with other options."""

    def __init__(self, module: str, name: str, needs: tuple[str, str] | None = None) -> None:
        self._module, self._name, self._needs = module, name, needs
        self._made: Hook | None = None

    def __call__(self, **options: Any) -> Any:
        """A hook of its own, with these options; OpenError, with the command that installs it, if need be."""
        with late_import:
            if self._needs is not None:
                from semel.stores.urls import need  # further out, and not needed before

                need(*self._needs)
            module = import_module(f"semel.instrumentation.{self._module}")
        return getattr(module, self._name)(**options)

    def hook(self) -> Hook:
        """The one that everybody shares who gives no options."""
        if self._made is None:
            self._made = self()
        return self._made
