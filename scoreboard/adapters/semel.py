"""Semel: the bare contract (what is in doubt is parked), with an explicit key."""

NAME, STORES, INSTALL = "semel", ("sqlite", "redis", "postgres"), [".[redis,postgres]"]
PROMISES = {
    "docs/concepts/guarantees.md": "races kills freezes interrupts outages window-closes clocks-apart "
    "other-payload dead-owner async result-types plain-results",
}
BUSY = ("RETRY_IN_FLIGHT",)


def read(result, place):
    if not result.ok:
        raise place.refused(result.error.code, result.error.message)
    return result.value


def tool(effect, place):
    import semel

    times = {"lease": place.lease_s, "window": place.window_s}
    given = {name: f"{int(seconds * 1000)}ms" for name, seconds in times.items() if seconds}
    made = semel.tool_contract(**given)(effect)
    ledger = semel.open(f"sqlite:///{place.url}" if place.url.startswith("/") else place.url)
    asked = lambda order, amount: semel.ToolCall({"order": order, "amount": amount}, idempotency_key=order)
    return lambda order, amount: made.call(asked(order, amount), ledger)


def guard(effect, place):
    call = tool(effect, place)
    return lambda order, amount: read(call(order, amount), place)


def aguard(effect, place):
    call = tool(effect, place)

    async def awaited(order, amount):
        return read(await call(order, amount), place)

    return awaited
