"""Semel at work.

demo      the Sunday incident; demo_worker: its agent, demo_provider: its payment provider
runbooks  the operating checks
"""
