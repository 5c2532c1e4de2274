-- A person gives or corrects the result of what a person resolved as happened.
--
-- KEYS, ARGV 1-5  as in record.lua
-- ARGV  6 token seen   7 token   8 '1': there is an outcome   9 outcome   10 its digest   11 by
-- answer          changed or unchanged, with the record or nothing

local r, bytes = read()
if not r or r.token ~= ARGV[6] or r.state ~= CODES.done or closed(r) then return unchanged(bytes) end
if r.note ~= 'amended' and (r.note ~= 'resolved' or r.by == PROBE) then return unchanged(bytes) end

local state_before, end_before = r.state, end_of(r)
r.token, r.told, r.outcome, r.digest, r.note, r.by = ARGV[7], tonumber(ARGV[8]), ARGV[9], ARGV[10], 'amended', ARGV[11]
return changed(write(r, 'amended', state_before, end_before))
