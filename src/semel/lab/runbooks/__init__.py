"""`semel runbook …`: the operating checks, step by step, each with its result.

runbook     the list of checks that every runbook fills; report_page: the page that is left of them
served      a gateway to work on
admission   no rejection poisons a key, no key starts two runs
approvals   a decision is taken once
contention  who waits and who is refused; contention_callers: processes of callers;
            watched_gateway: one whose lock is watched; contention_report: conclusions, table and plots
window      what an entity carries over three years; window_report, window_work, entity_traffic belong to it
"""
