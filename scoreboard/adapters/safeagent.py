"""safeagent-exec-guard on SQLite, its local durable store. It replays a receipt; the result is the
program's to keep.
"""

import threading

NAME, STORES = "safeagent-exec-guard", ("sqlite",)
INSTALL = ["safeagent-exec-guard==0.1.25"]
PROMISES = {
    "README, What it does: suppresses concurrent attempts": "races",
    "README, What it does: a key left PENDING after a crash remains blocked": "kills freezes "
    "interrupted exiting clocks-apart store-lost window-closes",
}
BUSY = ("claim_pending",)


def guard(effect, place):
    from safeagent_exec_guard import SettlementRequestRegistry

    own = threading.local()  # a registry has one connection, which threads would share

    def call(order, amount):
        results = []
        if not hasattr(own, "registry"):
            own.registry = SettlementRequestRegistry(sqlite_path=place.url)
        receipt = own.registry.execute(
            request_id=order,
            action="pay",
            payload={"order": order, "amount": amount},
            execute_fn=lambda payload: results.append(effect(**payload)),
        )
        if not receipt["ok"]:
            raise place.refused(receipt["reason"])
        return results[0] if results else receipt

    return call
