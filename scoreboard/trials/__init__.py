"""Every trial, by what happens in it.

races      many at once
deaths     kill -9, and how soon it is noticed
freezes    an owner that is stopped, or slow, past its lease
ends       an owner that is cancelled, interrupted, exits
outages    the store is away, lost, back
answers    what a repeat is given: another payload, kinds of results, async
clocks     windows and wall clocks
figures    bytes, fsyncs, cost: these are measured, and run with nothing beside them
"""

from scoreboard.trials import answers, clocks, deaths, ends, figures, freezes, outages, races

__all__ = ["answers", "clocks", "deaths", "ends", "figures", "freezes", "outages", "races"]
