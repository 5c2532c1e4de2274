"""Semel at work.

demo      the Sunday incident; demo_worker: its agent, demo_provider: its payment provider
sample    what `semel serve --sample` runs; sample_shop: its tool and handlers
runbooks  the operating checks
"""
