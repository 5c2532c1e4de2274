"""How long to remember: the window of an entity, the ages of retries, and the advice that follows."""
