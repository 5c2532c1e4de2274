"""Handles on a store with one interface: a test asks synchronously, or through an event loop."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from semel.kernel.record import Command, Reply
from semel.stores.base import Query, Store

T = TypeVar("T")


class StoreHandle:
    """Calls the synchronous methods of a store."""

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


class AsyncStoreHandle(StoreHandle):
    """Calls the asynchronous methods, on one event loop for as long as the handle is open."""

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
