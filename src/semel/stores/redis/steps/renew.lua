-- A sign of life. A record that was taken for lapsed is pending again, and only that has an event.
--
-- KEYS, ARGV 1-5  as in record.lua
-- ARGV  6 token   7 lease
-- answer          changed or unchanged, with the record or nothing

local r, bytes = read()
if not r or r.token ~= ARGV[6] or not alive(r) then return unchanged(bytes) end

local state_before, end_before = r.state, end_of(r)
r.state, r.lease, r.note = PENDING, later(ARGV[7]), ''
return changed(write(r, state_before == IN_DOUBT and 'revived' or nil, state_before, end_before))
