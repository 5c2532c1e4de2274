"""One support agent in five frameworks, each run by one command, without a network: its model is scripted."""
