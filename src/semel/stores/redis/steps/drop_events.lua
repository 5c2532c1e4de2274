-- Drops the events of the oldest sealed run, and what was kept to find them, unless somebody else did.
--
-- KEYS  1 events   2 ids   3 lane
-- ARGV  1 the store's id   2 how many runs were dropped before   3 the last seq to drop
--       4... id of a record and the seq of an event of its, in turn
-- answer           how many events were dropped

if redis.call('HGET', KEYS[3], 'id') ~= ARGV[1] then error({err = 'SEMELEMPTY'}) end
if (redis.call('HGET', KEYS[3], 'dropped') or '0') ~= ARGV[2] then return 0 end
redis.call('HINCRBY', KEYS[3], 'dropped', 1)
for position = 4, #ARGV, 2 do
  -- The record is gone, and this was its last event: nobody can ask for its story any more.
  if redis.call('HGET', KEYS[2], ARGV[position]) == ARGV[position + 1] then
    redis.call('HDEL', KEYS[2], ARGV[position])
  end
end
return redis.call('XTRIM', KEYS[1], 'MINID', '=', '0-' .. string.format('%.0f', tonumber(ARGV[3]) + 1))
