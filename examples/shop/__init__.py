"""A shop that is killed all the time, and takes the money for each order once.

app         the shop: FastAPI behind the middleware       downstream  what it does elsewhere, by contract
fulfilment  runs at the gateways, and the worker's part   provider    takes money and parcels, by key
buyers      people who click until they have an answer    parts       the processes, kept alive
story       opens the shop, kills, counts, and says it
"""
