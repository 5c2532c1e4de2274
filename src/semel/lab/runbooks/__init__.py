"""`semel runbook …`: the operating checks, step by step, each with its result.

runbook     the list of checks that every runbook fills
served      a gateway to work on
admission   no rejection poisons a key, no key starts two runs
approvals   a decision is taken once
contention  who waits and who is refused, with plots
window      what an entity carries over three years, with a plot
"""
