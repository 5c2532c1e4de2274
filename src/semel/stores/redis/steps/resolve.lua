-- A person or a probe says whether the attempt that it saw happened. The owner that comes back owns no more.
--
-- KEYS, ARGV 1-5  as in record.lua
-- ARGV  6 token seen   7 token   8 '1' if it happened   9 '1' if there is an outcome   10 outcome
--       11 its digest   12 window, or nothing: for ever   13 by
-- answer          changed or unchanged, with the record or nothing

local r, bytes = read()
if not r or r.token ~= ARGV[6] or not doubtful(r) then return unchanged(bytes) end

local state_before, end_before = r.state, end_of(r)
r.token, r.lease, r.expires, r.note, r.by = ARGV[7], NONE, later(ARGV[12]), 'resolved', ARGV[13]
if ARGV[8] == '1' then
  r.state, r.settled, r.told, r.outcome, r.digest = CODES.done, now8, tonumber(ARGV[9]), ARGV[10], ARGV[11]
else
  r.state, r.entries, r.entered = CODES.cleared, 0, NONE
end
return changed(write(r, 'resolved', state_before, end_before))
