"""Runs and jobs: admitted once, leased, decided on by people, ended; each change one commit of documents.

model        workflow, run, job, message: what they are      progress    what follows what; no I/O
views        as people read them                             indexes     ids, and where documents stand
document_store      read, decide, commit, again if need be          keys        idempotency keys
workflows    definitions and limits                          admission   a run starts, in one atomic step
gate         the same behind a lock per tenant               problems    every refusal
runs         start, read, end, rerun                         jobs        create, lease, result
deciding     one decision per job                            asking      queries, by calling or awaiting
approvals    questions, for the gateway                      outbox      messages to the bus
inbox        each message handled once                       dead        messages put aside, retried once
flow         all of them on one store
upkeep       what time brings: lapsed leases, late questions, closed windows
"""
