-- Adds the next seal of a lane, unless somebody else did.
--
-- KEYS  1 seals    list of packed seals   2 lane
-- ARGV  1 the store's id   2 the time, or nothing: the server's own
--       3 how many seals there are   4 the seal without its time
-- answer           the time, or nothing if there are more seals by now

if redis.call('HGET', KEYS[2], 'id') ~= ARGV[1] then error({err = 'SEMELEMPTY'}) end
if redis.call('LLEN', KEYS[1]) ~= tonumber(ARGV[3]) then return false end
local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
redis.call('RPUSH', KEYS[1], ARGV[4] .. struct.pack('>I4I4', math.floor(now / 4294967296), now % 4294967296))
return now
