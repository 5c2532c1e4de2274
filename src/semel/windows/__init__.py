"""How long to remember. (How long a key is honoured is its contract's `window`: contract/contract.py.)

entity        the window in an entity's own state      ages    how late keys come again
age_counters  ages kept in the store                   advice  which window covers them
"""
