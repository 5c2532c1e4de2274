-- Writes one counted event, linked with the record's earlier ones.
--
-- KEYS, ARGV 1-5  as in record.lua
-- ARGV  6 id of the record   7 the event after its link
-- answer          changed, without the record

local last = ZERO
local known = redis.call('HGET', KEYS[5], ARGV[6])
local held = known == ARGV[5] and redis.call('EXISTS', KEYS[1]) == 1
if held then
  -- Only the link is read and written, at its fixed place: a counted answer changes nothing else.
  last = redis.call('GETRANGE', KEYS[1], 59, 66)
elseif known and #known == 8 then
  last = known
end
local seq = redis.call('HINCRBY', KEYS[2], 'seq', 1)
redis.call('XADD', KEYS[6], '0-' .. string.format('%.0f', seq), 'e', last .. ARGV[7])
if held then
  redis.call('SETRANGE', KEYS[1], 59, packed(seq))
else
  redis.call('HSET', KEYS[5], ARGV[6], packed(seq))
end
newest = seq
return changed()
