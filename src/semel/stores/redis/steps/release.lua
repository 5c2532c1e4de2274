-- Nothing happened in this entry: frees the key, unless an earlier entry is still in doubt.
--
-- KEYS, ARGV 1-5  as in record.lua
-- ARGV  6 token   7 window, or nothing: for ever
-- answer          changed or unchanged, with the record or nothing

local r, bytes = read()
if not r or r.token ~= ARGV[6] or not unsettled(r) then return unchanged(bytes) end
if r.entries > 1 and r.note == REFUSED_LATER then return unchanged(bytes) end

local state_before, end_before = r.state, end_of(r)
r.lease = NONE
if r.entries > 1 then
  r.state, r.note = IN_DOUBT, REFUSED_LATER
else
  r.state, r.entries, r.entered, r.expires, r.note = CODES.released, 0, NONE, later(ARGV[7]), ''
end
return changed(write(r, 'released', state_before, end_before))
