"""What is asked of people, and its one decision, for plain code and the gateway alike.

job         job, question, decision, message: what they are  job_index   their indexes, and their drafts
change      what follows what; no I/O                        deciding    put, look, decide
calls       the job of a tool's call that asks               views       as people and the audit log read them
approvals   `ledger.approvals`                               refusals    why a decision cannot be taken
"""
