"""The same trials for Semel, for other packages that guard calls, and for what is written by hand.

run        which rows and trials run, and what is said meanwhile
libraries  adapters as rows, each with an environment of its own
adapters/  one file per library, 40 lines at most
trials/    what is done to every row, with its text
cells      what was seen, and its colour
caller     the hold on workers, and on the effects that they had
worker     a process that makes guarded calls
values     kinds of results
stores     private servers and files that are lost and come back
results    raw results as JSON
page       made of the results, as is the picture
"""
