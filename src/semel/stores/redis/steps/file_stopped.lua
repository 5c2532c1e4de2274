-- One record as `stopped` should have it: there if it waits for a person or is in doubt, else not.
--
-- KEYS, ARGV 1-5  as in record.lua
-- ARGV  6 what stands there for it
-- answer          unchanged
--
-- For what was written by a Semel that knew no `stopped`.

local r = read()
if r and stopped(r.state) then
  redis.call('ZADD', KEYS[7], 0, list_member(r))
else
  redis.call('ZREM', KEYS[7], ARGV[6])
end
return unchanged()
