"""`semel worker`: leases jobs, runs their handlers inside a step of the job, reports how they ended.

handlers    what a handler is; light, for everybody's `import semel`     module   where handlers are found
doors       how a worker reaches jobs: a protocol                        loops    where handlers run
store_door  straight to the store     http_door  through a gateway       outcome  what is reported
attempt     one job, from lease to report                                work     all of them; stopping
"""
