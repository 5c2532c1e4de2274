"""Runs and jobs: admitted once, leased, decided on by people, ended; each change one commit of documents.

assembly          all of them on one store                     model         workflow, run: what they are
run_progress      what follows what in a run; no I/O           views         as people read them
workflows         definitions and limits                       schemas       what users write about inputs
admission         a run starts, in one atomic step             lock          the same behind a lock per tenant
tenant_turns      so many of a tenant at a time
slot_queue        who waits for a slot                         slot_pace     how fast slots are freed
idempotency_keys  one key, one run or job                      storage       how much a tenant keeps
runs              start, read, end, rerun                      jobs          create, lease, result
job_admin         jobs listed and cancelled by people          approvals     questions, for the gateway
tools             the catalogue, for the gateway               problems      every refusal
document_store    read, decide, commit, again if need be       indexes       ids, and where documents stand
outbox            messages to the bus                          inbox         each message handled once
dead_letters      messages put aside, retried once             bus           from process to process
upkeep            what time brings                             forgetting    closed windows
values            who asks, an answer, a page

A job, the question about it and its one decision are `semel.questions`, which knows nothing of runs.
"""
