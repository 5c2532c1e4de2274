"""The console: pages made on the server. A page is a template and a function that asks the routes.

app         from a request to a page                    operations  the gateway's routes, asked from here
sessions    who is signed in, kept in the store         protection  Host, Origin, tokens of forms, headers
visit       one request as a page gets it               sign_in     signing in and out
overview    what needs a person now                     lists       every list: filters, columns, next page
records     in doubt; a record; settling it             questions   approvals; a question; deciding it
result_fields  fields for what a tool returned
runs        a run, its graph; cancel, rerun             jobs        a job; a dead letter; cancel, retry
tools       a tool; its retry ages                      audit       the chain's head, search, export
words       times, JSON and names for people            graph       the steps of a run as SVG
"""
