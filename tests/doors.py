"""The two ways into a store, as one: what a test asks, it asks synchronously or through an event loop."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from semel.kernel.record import Command, Reply
from semel.stores.base import Query, Store

T = TypeVar("T")


class Door:
    """The synchronous way into a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def perform(self, command: Command) -> Reply:
        return self.store.perform(command)

    def ask(self, query: Query[T]) -> T:
        return self.store.ask(query)

    def leave(self) -> None:
        """The store stays open for others."""

    def close(self) -> None:
        self.store.close()


class AsyncDoor(Door):
    """The asynchronous way: one event loop for as long as the door is open."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._runner = asyncio.Runner()

    def perform(self, command: Command) -> Reply:
        return self._runner.run(self.store.aperform(command))

    def ask(self, query: Query[T]) -> T:
        return self._runner.run(self.store.aask(query))

    def leave(self) -> None:
        self._runner.close()

    def close(self) -> None:
        self._runner.run(self.store.aclose())
        self._runner.close()
