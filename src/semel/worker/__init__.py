"""`semel worker`: leases jobs, runs their handlers inside a step of the job, reports how they ended.

worker      all jobs of a worker; stopping      attempt       one job, from lease to report
job_source  where jobs come from: a protocol    store_jobs    straight from the store
handler_loops  where handlers run               gateway_jobs  through a gateway
module      where handlers are found            outcome       what is reported      traces  tracebacks
"""
