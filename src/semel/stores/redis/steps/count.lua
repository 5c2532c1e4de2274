-- How many documents stand in a part of an index.
--
-- KEYS  1 lane   2 indexes
-- ARGV  1-3 as in document.lua   4 from   5 to
-- answer           0 how many

return told(0, redis.call('ZLEXCOUNT', KEYS[2], ARGV[4], ARGV[5]))
