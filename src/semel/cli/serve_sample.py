"""`semel serve --sample`: a worker and three refunds beside the gateway, and what to try with them."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from semel.cli.output import Cell, Output
from semel.cli.serve import tell_where
from semel.lab import sample
from semel.lab.sample import SampleOrder, SampleRun

if TYPE_CHECKING:
    from semel.gateway.services import Services


class ServedSample:
    """Begun with the gateway and ended with it; it tells what there is as soon as it knows."""

    def __init__(self, out: Output, *, console: bool) -> None:
        self._out = out
        self._console = console  # else the gateway has no pages
        self._where: asyncio.Future[str] | None = None

    def began(self, where: str, services: Services) -> None:
        tell_where(self._out, where, services)
        assert self._where is not None
        self._where.set_result(where)

    async def play(self, services: Services) -> None:
        """The sample's runs are on their way and told of; its worker works until this is cancelled."""
        self._where = asyncio.get_running_loop().create_future()
        async with sample.working(services.store, services.settings.run_key_window_us) as ledger:
            try:
                await sample.define(services.flow)
                runs = await sample.start(services.flow, services.clock, ledger)
            except Exception as refused:  # whatever it is, the gateway serves
                await self._where
                self._out.say(f"The sample is not there: {refused}", "bold red")
                self._out.say("Ctrl-C stops.")
            else:
                self._tell(await self._where, runs)
            await asyncio.Event().wait()

    def _tell(self, where: str, runs: Sequence[SampleRun]) -> None:
        out = self._out
        out.say("A worker runs here too. Three refunds, each started once in this store:")
        out.say()
        out.table(("ORDER", "AMOUNT", "RUN", "WHAT CAME OF IT"), [_row(run) for run in runs])
        out.say()
        out.say("Try, in another terminal:")
        for line, outcome, *after in _lines(where, runs):
            out.command(line)
            out.say(f"    {outcome}")
            for command in after:
                out.command(f"  {command}", "")
        out.say()
        if self._console:
            out.say("The same in a browser, under any name:")
            out.command(f"{where}/console/")
        else:
            out.say('To have the same in a browser: pip install "semel[console]", and start this again.')
        out.say()
        out.say("Ctrl-C stops.")


def _row(run: SampleRun) -> Sequence[Cell]:
    order = run.order
    return str(order.number), f"{order.amount_minor / 100:,.2f}", run.status, _story(run)


def _story(run: SampleRun) -> str:
    match run:
        case SampleRun(record_id=str()):
            return "IN DOUBT: the provider's answer was lost. Nobody pays again until a person has looked"
        case SampleRun(job_id=str()):
            return "it is a lot: a person has to approve it"
        case SampleRun(status="succeeded"):
            return "paid once, however often it is asked for"
        case SampleRun(status="failed", order=SampleOrder(workflow=sample.LARGE_REFUND)):
            return "nobody approved it: nothing was paid"
        case SampleRun(status="failed"):
            return "a person has settled it; run again, it reads what they said"
    return "still under way"


def _lines(where: str, runs: Sequence[SampleRun]) -> list[tuple[str, ...]]:
    """Three lines that work as they stand, and what comes of each."""
    paid, large, lost = runs
    return [_again(where, paid.order), _decide(where, large), _settle(where, lost)]


def _again(where: str, order: SampleOrder) -> tuple[str, ...]:
    start = f"curl -i {where}/api/v1/workflows/{order.workflow}/runs -H 'Idempotency-Key: {order.key}'"
    body = orjson.dumps(order.input).decode()
    return f"{start} -d '{body}'", "the same run, and `idempotent-replayed: true`: nothing is paid again"


def _decide(where: str, run: SampleRun) -> tuple[str, ...]:
    if run.job_id is None:
        return _command(where, "runs", "show", run.run_id), "who decided, and when"
    return _command(where, "approvals", "approve", run.job_id), f"order {run.order.number} is paid"


def _settle(where: str, run: SampleRun) -> tuple[str, ...]:
    again = _command(where, "runs", "rerun", run.run_id, "--from-step", "pay")
    if run.record_id is None:
        return again, "a new run, which reads what a person said and pays nothing"
    result = orjson.dumps(run.order.booked).decode()
    line = _command(where, "records", "resolve", run.record_id, "--happened", "--result", result)
    return line, "you have looked: it was paid. After that its run ends, and pays nothing:", again


def _command(where: str, *words: str) -> str:
    """A command to type, by the name that this one was started by if `semel` alone is not on the path."""
    started = Path(sys.argv[0])
    plain = started.name != "semel" or shutil.which("semel") == str(started.absolute())
    return shlex.join(["semel" if plain else str(started), *words, "--server", where])
