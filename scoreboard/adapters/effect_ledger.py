"""effect-ledger on SQLite, its default store, by `EffectExecutor`."""

NAME, STORES = "effect-ledger", ("sqlite",)
INSTALL = ["effect-ledger==0.1.2"]
PROMISES = {
    "README: the claim is committed before the effect; nothing is retried on a guess": "races kills freezes "
    "store-away store-lost clocks-apart window-closes",
    "README, Execution contract: another request under the same ID is a conflict": "other-payload",
    "operations.py: cancellation never grants a retry; BaseException leaves in_flight": "interrupts",
    "operations.py: aexecute": "async",
}
BUSY = ("in_flight",)


def read(operation, place):
    if operation.state != "completed":
        raise place.refused(operation.state)
    return operation.result


def guard(effect, place):
    from effect_ledger import EffectExecutor

    run, pay = EffectExecutor(place.url, scope="shop").execute, lambda it: effect(**it.request)
    return lambda order, amount: read(run(order, "pay:v1", {"order": order, "amount": amount}, pay), place)


def aguard(effect, place):
    from effect_ledger import EffectExecutor

    run, pay = EffectExecutor(place.url, scope="shop").aexecute, lambda it: effect(**it.request)

    async def call(order, amount):
        return read(await run(order, "pay:v1", {"order": order, "amount": amount}, pay), place)

    return call
