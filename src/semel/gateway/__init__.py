"""The gateway: the flow and the records of a store, over HTTP. What is decided here is about HTTP only.

settings     what `semel serve` is told                 server       sockets, signals, an orderly stop
app          from a request to an answer                routes       every address: who may, what it takes
auth         credentials, roles, `--dev`                ratelimit    one tenant's share of a process
incoming     a request before the flow sees it          bodies       what bodies and queries look like
strict_json  bytes to JSON, or why not                  idempotency  the key that a client sends
cursors      where a list goes on                       problems     whatever goes wrong, as RFC 9457
services     what handlers call                         exchange     one request as a handler gets it
flows        workflows, runs, jobs, approvals           records      handlers of records
every_record records of every kind, as one list        audit        handlers of the audit log
operate      health, readiness, metrics                 metrics      what is counted; key_ages: of repeats
background   what goes on besides requests              probes       which probes it asks, for whom
bounded_http headers and bodies: how long, how late     large_requests  one of a tenant at a time
bounded_process  for what users make costly             bounded_process_main  the program of such a process
openapi      the routes as OpenAPI                      paths        which resource a path names
tools        handlers of the catalogue                  front_page   `GET /`
last_hour    replays and conflicts, minute by minute   preferences  what a client would like (`Prefer`)
retry_times  when to come back, spread
"""
