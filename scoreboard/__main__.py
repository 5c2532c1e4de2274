"""`python -m scoreboard`: every trial on every row, then the page, the picture and the raw results."""

from scoreboard.run import main

main()
