-- The store's own facts, made by whoever comes first.
--
-- KEYS  1 meta     hash: format, id, secret, lanes, and once its lanes are marked, ready; in a store of the first form
--                  that takes the second for what is new, writes
-- ARGV  1 id   2 secret   3 lanes   4 format
-- answer           {format, id, secret, lanes, ready, writes}

if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'format', ARGV[4], 'id', ARGV[1], 'secret', ARGV[2], 'lanes', ARGV[3])
end
return redis.call('HMGET', KEYS[1], 'format', 'id', 'secret', 'lanes', 'ready', 'writes')
