"""Semel at work: the demonstration, the runbooks."""
