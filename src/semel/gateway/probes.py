"""Probes that the gateway asks in the background: of which contracts, for which tenants."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from semel.contract import Contract
from semel.errors import SemelError
from semel.flow import shelves
from semel.gateway.auth import ApiKeys
from semel.ledger import Ledger
from semel.probing import Prober, contracts_in
from semel.stores.base import Store
from semel.stores.documents import Tenants
from semel.worker import module as modules

# Whoever has used the gateway for anything stands on one of these, at some score.
_SHELVES = (
    shelves.WORKFLOWS,
    shelves.RUNS,
    shelves.KEYS,
    shelves.LIVE,
    shelves.APPROVALS,
    shelves.EXPIRY,
)
_ANY_SCORE = (1 << 53) - 1


class ProbesRefused(SemelError):
    """These probes cannot be asked; nothing was started."""

    code = "PROBES_REFUSED"


def prober_of(names: Sequence[str], store: Store, api_keys: ApiKeys) -> Prober | None:
    """The prober for the contracts of these modules, if any are named."""
    if not names:
        return None
    contracts = [contract for name in names for contract in _contracts(name)]
    return Prober(Ledger(store), contracts, tenants=_known_tenants(store, api_keys))


def _contracts(module: str) -> list[Contract]:
    """The module's contracts; ProbesRefused if it does not run, or none of them has a probe."""
    try:
        found = contracts_in(modules.run(module))
    except modules.NoModule as missing:
        raise ProbesRefused(f"--probes {module}: {missing} Nothing was started.") from None
    except Exception as error:  # a module may raise anything
        text = f"--probes {module} cannot be imported ({type(error).__name__}: {error}). Nothing was started."
        raise ProbesRefused(text) from error
    if not any(contract.declared.probe for contract in found):
        raise ProbesRefused(f"--probes {module} has no tool whose contract has a probe. Nothing was started.")
    return found


def _known_tenants(store: Store, api_keys: ApiKeys) -> Callable[[], Awaitable[Sequence[str]]]:
    """Those that the gateway knows by a key or a document, and the one that nobody has to name.

    No store lists the tenants of records: tenants are part of every address, so that they cannot meet.
    """

    async def known() -> Sequence[str]:
        found = {"default", *(key.tenant for key in await api_keys.list())}
        for shelf in _SHELVES:
            standing = await store.aask(Tenants(shelf, _ANY_SCORE))
            found.update(standing)
        return sorted(found)

    return known
