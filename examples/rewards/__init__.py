"""Rewards: points per customer, in a Temporal workflow that lives as long as the customer stays.

account.py   what a customer's workflow carries from run to run, and the rules of points and tiers
entity.py    the workflow
notices.py   the message about a new tier: a tool contract, called in an activity
worker.py    a worker process
server.py    a private Temporal dev server
__main__.py  the story, played: `python -m examples.rewards`
"""
