"""Probes that the gateway asks in the background: of which contracts, for which tenants."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from semel.contract.contract import Contract
from semel.errors import SemelError
from semel.ledger.ledger import Ledger
from semel.ledger.probing import Prober, contracts_in
from semel.stores.base import CountUnsettled, Store
from semel.worker import module as modules


class ProbesRefused(SemelError):
    """These probes cannot be asked; nothing was started."""

    code = "PROBES_REFUSED"


def prober_of(names: Sequence[str], store: Store) -> Prober | None:
    """The prober for the contracts of these modules, if any are named."""
    if not names:
        return None
    contracts = [contract for name in names for contract in _contracts(name)]
    return Prober(Ledger(store), contracts, tenants=_tenants_in_doubt(store))


def _contracts(module: str) -> list[Contract]:
    """The module's contracts; ProbesRefused if it does not run, or none of them has a probe."""
    try:
        contracts = contracts_in(modules.run(module))
    except modules.NoModule as missing:
        raise ProbesRefused(f"--probes {module}: {missing} Nothing was started.") from None
    except Exception as error:  # a module may raise anything
        text = f"--probes {module} cannot be imported ({type(error).__name__}: {error}). Nothing was started."
        raise ProbesRefused(text) from error
    if not any(contract.declared.probe for contract in contracts):
        raise ProbesRefused(f"--probes {module} has no tool whose contract has a probe. Nothing was started.")
    return contracts


def _tenants_in_doubt(store: Store) -> Callable[[], Awaitable[Sequence[str]]]:
    """Whoever has a call in doubt in this store, whether or not the gateway knows them by anything else."""

    async def tenants() -> Sequence[str]:
        return sorted({whose.tenant for whose in await store.aask(CountUnsettled())})

    return tenants
