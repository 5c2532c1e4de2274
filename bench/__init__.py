"""`make bench`: the figures, each beside its yardstick, in one run.

Everything is on that is on by default: audit, heartbeat, cache. There are three yardsticks:

by hand   the least code that does the same durable writes with the plain client library (by_hand.py,
          by_hand_redis.py, by_hand_postgres.py, and pgbench), as durable as the other side: SQLite with
          synchronous FULL; Redis with an append-only file and appendfsync everysec; PostgreSQL with fsync and
          synchronous_commit on
bare      the same promises for one tool without layers (bare.py), or for the start of a run over HTTP
          (bare_app.py)
rival     another package that guards calls (rivals.py), pinned, in an environment and a process of its own;
          what it leaves out is named beside its row

Beside these: what an integration adds to a run of each agent framework (agent_rows.py), in its environment.

Servers are the bench's own. Without a server, a package or the commit of an earlier release the rows that
need it say so, and the others are measured.

The sides of an experiment take turns, 15 rounds of them. A ratio is made of the two sides of one round, which
met the same noise, and the figure is the median of the rounds: on a busy machine the mean follows the worst
round, and the best round flatters.

A guarded call is one with new arguments in an open step; opening the step is not counted. Rows about a
million records make them in bulk first: by the store's steps in a pipeline on Redis, by two statements in
SQLite and PostgreSQL. All their events are sealed before it counts.

It is no part of the wheel: it runs where the repository is. `python -m bench --help` says how.
"""
