-- The owner cannot tell whether it happened.
--
-- KEYS, ARGV 1-5  as in record.lua
-- ARGV  6 token   7 why
-- answer          changed or unchanged, with the record or nothing

local r, bytes = read()
if not r or r.token ~= ARGV[6] or not alive(r) then return unchanged(bytes) end

local state_before = r.state
r.state, r.lease, r.note = IN_DOUBT, NONE, ARGV[7]
return changed(write(r, 'parked', state_before))
