"""One call, from the decorated tool to its answer. Read `guard.py` first.

declare   `@tool_contract`                       tool        arguments in, value or result out
step      where keys are made                    unfinished  what holds a numbered step
guard     the only decider: claim, effect, settle; of a `guarded_call`. Where that leaves its straight way:
          claiming  the claim, and who holds the key     failing   the tool raised
          settling  the last word, until it is stored    doubt     it may have happened; probes
          question  a person has to approve
wishes    what the guard may wish                drive     carries it out, by calling or by awaiting
entering  your function runs, with key and fence
outcome   outcomes as bytes, and back            cache       settled records in the process
bound     methods of instances                   frames      what callers see of an exception
ending    how it ended, for those who are told
"""
