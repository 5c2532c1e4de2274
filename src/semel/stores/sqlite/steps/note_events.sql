-- note_events: write several events, in the transaction of what they tell, numbered from next_event on.
-- For a crowd that shares a commit: two thirds of the price of note_event, and one statement for which the others
-- get the interpreter, not one for each.
--
-- writes      semel_events
-- parameters  the columns of each event
-- answers     nothing
--
-- The row is here once; statements.py repeats it as often as events are written at once.

INSERT INTO semel_events VALUES
    (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
