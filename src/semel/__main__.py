"""`python -m semel` is the command `semel`."""

from semel.cli import main

main()
