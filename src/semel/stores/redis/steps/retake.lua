-- Enters again, or for the first time after an approval, in place of the attempt that the caller saw.
--
-- KEYS, ARGV 1-5  as in record.lua
-- ARGV  6 token seen   7 token   8 lease   9 not once the first entry is older than this, or nothing
-- answer          changed or unchanged, with the record or nothing

local r, bytes = read()
if not r or r.token ~= ARGV[6] or not (r.state == WAITING or doubtful(r)) then return unchanged(bytes) end
local first = r.entered == NONE and now8 or r.entered
if ARGV[9] ~= '' and number(first) + number(ARGV[9]) <= now then return unchanged(bytes) end

local state_before, end_before = r.state, end_of(r)
r.state, r.token, r.fence = PENDING, ARGV[7], next_fence(number(r.fence))
r.attempts, r.entries, r.entered = r.attempts + 1, r.entries + 1, first
r.lease, r.expires, r.note, r.by = later(ARGV[8]), NONE, '', ''
return changed(write(r, 'retaken', state_before, end_before))
