"""Semel at work: the demonstration, the measurements."""
