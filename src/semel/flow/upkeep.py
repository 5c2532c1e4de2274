"""What time brings: lapsed leases are queued again, late questions denied, closed windows forgotten."""

from __future__ import annotations

import logging

from semel.errors import SemelError
from semel.flow import progress, shelves
from semel.flow.cabinet import Cabinet
from semel.flow.model import Job, job_of, run_of
from semel.flow.progress import Change
from semel.stores.documents import Document, Scan, Tenants

log = logging.getLogger("semel")

# Handled of one tenant before the next one's turn.
_BATCH = 200


class Upkeep:
    """Any number of gateways may do it at once: each change is committed on what was read."""

    def __init__(self, cabinet: Cabinet, kept_us: int | None) -> None:
        self._cabinet = cabinet
        self._kept_us = kept_us

    async def run_once(self) -> int:
        """How many documents changed."""
        changed = 0
        for tenant in await self._cabinet.ask(Tenants(shelves.DUE)):
            changed += await self._due(tenant)
        for tenant in await self._cabinet.ask(Tenants(shelves.EXPIRY)):
            changed += await self._close(tenant)
        return changed

    async def run(self, every_s: float = 1.0) -> None:
        while True:
            try:
                await self.run_once()
            except SemelError:
                pass  # the store is away: what is due stays due
            except Exception:
                log.exception("upkeep failed, and goes on with the next round")
            await self._cabinet.clock.asleep(every_s)

    async def _due(self, tenant: str) -> int:
        now_us = await self._cabinet.now_us()
        scanned = await self._cabinet.scan(Scan(tenant, shelves.DUE, _BATCH, upto=now_us))
        return sum([await self._pass_time(tenant, each, scanned.now_us) for each in scanned.documents])

    async def _pass_time(self, tenant: str, document: Document, now_us: int) -> bool:
        job = job_of(document.body)
        expect: dict[str, str | None] = {document.id: document.tag}
        run = None
        if job.run_id is not None:
            parent = (await self._cabinet.fetch(tenant, job.run_id)).get(job.run_id)
            if parent is not None:
                run, expect[parent.id] = run_of(parent.body), parent.tag
        change = Change(tenant, now_us, self._cabinet.new_id, run)
        _lapse_or_expire(change, job)
        return (await self._cabinet.commit(tenant, expect, change.drafts(self._kept_us))).done

    async def _close(self, tenant: str) -> int:
        """What has been kept for as long as it had to be is dropped, with all that belongs to it."""
        now_us = await self._cabinet.now_us()
        scanned = await self._cabinet.scan(Scan(tenant, shelves.EXPIRY, _BATCH, upto=now_us))
        for document in scanned.documents:
            drop = (document.id, *(await self._belongings(tenant, document)))
            await self._cabinet.commit(tenant, {document.id: document.tag}, drop=drop)
        return len(scanned.documents)

    async def _belongings(self, tenant: str, document: Document) -> tuple[str, ...]:
        if not document.id.startswith("run_"):
            return ()
        run = run_of(document.body)
        events = tuple(shelves.event_id(run.run_id, seq) for seq in range(1, run.seq + 1))
        found = await self._cabinet.fetch(tenant, *(step.job_id for step in run.steps if step.job_id))
        own = tuple(id_ for id_, job in found.items() if job_of(job.body).run_id == run.run_id)
        return events + own


def _lapse_or_expire(change: Change, job: Job) -> None:
    if job.status == "leased":
        progress.lapse(change, job)
    else:
        progress.expire(change, job)
