"""agent-ledger on PostgreSQL, its store for production, with nothing run again when it is stale (its
default).

It is asynchronous only.
"""

NAME, STORES = "agent-ledger", ("postgres",)
INSTALL = ["agent-ledger==0.2.1", "psycopg[binary]==3.3.8", "psycopg-pool==3.3.3"]
PROMISES = {
    "README: two workers hit the same task: first writer wins, others wait": "races",
    "README, Quick Start: same inputs, recorded result": "async",
    "README: process crashed mid-execution: a new process resumes safely": "kills",
}
BUSY = ("EffectTimeoutError",)


async def aguard(effect, place):
    from agent_ledger import EffectLedger, EffectLedgerOptions, ToolCall
    from agent_ledger.stores.postgres import SCHEMA_SQL, PostgresStore
    from agent_ledger.types import ConcurrencyOptions, LedgerDefaults, RunOptions
    from psycopg_pool import AsyncConnectionPool

    pool = AsyncConnectionPool(conninfo=place.url, open=False, max_size=16)
    await pool.open()
    async with pool.connection() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock(1)")
        await connection.execute(SCHEMA_SQL)
    defaults = LedgerDefaults(run=RunOptions(concurrency=ConcurrencyOptions(effect_timeout_s=10)))
    ledger = EffectLedger(EffectLedgerOptions(store=PostgresStore(pool=pool), defaults=defaults))

    async def call(order, amount):
        named = {"args": {"order": order, "amount": amount}, "idempotency_keys": ["order"]}
        return await ledger.run(
            ToolCall(workflow_id=order, tool="pay", **named), handler=lambda _: effect(order, amount)
        )

    return call
