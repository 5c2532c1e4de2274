-- Drops the events of the oldest sealed run, and what was kept to find them, unless somebody else did.
--
-- KEYS  1 events   2 ids   3 lane
-- ARGV  1 the store's id   2 how many runs were dropped before   3 the last seq to drop
--       4 the first seq that stays: of an event to which a later one refers, or the one behind the last to drop
--       5 how many of the following drop besides   6... their seqs
--       then what `ids` has for a record and the seq of an event of its, in turn
-- answer           1 dropped; 0 somebody else did

if redis.call('HGET', KEYS[3], 'id') ~= ARGV[1] then error({err = 'SEMELEMPTY'}) end
if (redis.call('HGET', KEYS[3], 'dropped') or '0') ~= ARGV[2] then return 0 end
local traces = 6 + tonumber(ARGV[5])
redis.call('HINCRBY', KEYS[3], 'dropped', 1)
-- Nobody reads below this any more, also where something has to stay.
redis.call('HSET', KEYS[3], 'floor', ARGV[3])
for position = traces, #ARGV, 2 do
  -- The record is gone, and this was its last event: nobody can ask for its story any more.
  if redis.call('HGET', KEYS[2], ARGV[position]) == ARGV[position + 1] then
    redis.call('HDEL', KEYS[2], ARGV[position])
  end
end
redis.call('XTRIM', KEYS[1], 'MINID', '=', '0-' .. ARGV[4])
for position = 6, traces - 1 do redis.call('XDEL', KEYS[1], '0-' .. ARGV[position]) end
return 1
