-- What stands in a part of an index, in its order or the other way round.
--
-- KEYS  1 lane   2 indexes
-- ARGV  1-3 as in document.lua   4 from   5 to   6 how many at most   7 '1' if the last come first
-- answer           0 {entry and id, ...}

if ARGV[7] == '1' then return told(0, redis.call('ZREVRANGEBYLEX', KEYS[2], ARGV[5], ARGV[4], 'LIMIT', 0, ARGV[6])) end
return told(0, redis.call('ZRANGEBYLEX', KEYS[2], ARGV[4], ARGV[5], 'LIMIT', 0, ARGV[6]))
