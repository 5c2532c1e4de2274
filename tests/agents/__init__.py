"""Every agent framework, proven by a crash: one text of proofs (`proofs.py`), a small adapter for each.

    provider.py   what the tools act on; its effects are counted outside of every process
    shop.py       the tools, with and without a contract
    script.py     what the scripted model says: a function of the history, with other call ids each time
    server.py     a process that has imported the framework, and forks one child for each job
    proofs.py     the proofs
    NAME_agent.py the adapter of a framework, `test_NAME.py` its proofs

Another framework is an adapter, a module with these functions, and a subclass of `Proofs` that names it. Each
runs in a child of its own, which may die in it:

    say(job) -> Seen       the user sends `job.message`, with the id `job.message_id`, and the agent answers
    resume(job) -> Seen    the framework's own way to go on after a crash or a question; `job.verdict` is what
                           the person said, None after a crash
    shown(job) -> dict     the JSON Schema of each tool as the model sees it, by the tool's name

They read of the job: `folder` (for the framework's own state too), `script`, `tools` (names in `shop`),
`mode` (one of the class's `modes`), `guarded` (False: the control, without Semel), `options` for the
integration. What a framework cannot do is named in the subclass: `impossible = {"test_…": "why"}`; its page
says so too.

These run in an environment of their own, `.venv-agents`: `make test-all`, or `tools/setup-agents`.
"""
