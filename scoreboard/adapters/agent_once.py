"""agent-once on SQLite, its default store, by `execute` with a key of one's own."""

NAME, STORES = "agent-once", ("sqlite",)
INSTALL = ["agent-once==0.1.0"]
PROMISES = {
    "README, Limitations: at-most-once; the record stays pending": "kills freezes clocks-apart window-closes",
    "README, Storage: whoever inserts the row runs; across threads and processes": "races",
    "README, States: interrupted mid-call is unknown; Async: cancelled is unknown": "interrupts",
    "README, Keys: other arguments raise KeyConflict; Async": "other-payload async",
}
BUSY = ("EffectPending",)


def once_of(place):
    from once import Once

    return Once(place.url, ttl=place.window_s)


def guard(effect, place):
    once = once_of(place)
    return lambda order, amount: once.execute(effect, key=order, order=order, amount=amount)


def aguard(effect, place):
    once = once_of(place)

    async def call(order, amount):
        return await once.aexecute(effect, key=order, order=order, amount=amount)

    return call
