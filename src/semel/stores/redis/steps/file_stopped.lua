-- One record as the list should have it: once more, if it is stopped.
--
-- KEYS, ARGV 1-5  as in record.lua
-- ARGV  6 what stands there for it
-- answer          unchanged
--
-- For what was written by a Semel that listed no record twice.

local r = read()
if r and stopped(r.state) then
  redis.call('ZADD', KEYS[4], 0, '\255' .. list_member(r))
else
  redis.call('ZREM', KEYS[4], ARGV[6])
end
return unchanged()
