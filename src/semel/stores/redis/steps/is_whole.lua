-- Whether `stopped` has as many as wait for a person or are in doubt by the lane's own count.
--
-- KEYS  1 lane   2 stopped
-- ARGV  1 the store's id
-- answer           1 or 0

local told = redis.call('HMGET', KEYS[1], 'id', CODES.waiting, CODES.in_doubt)
if told[1] ~= ARGV[1] then error({err = 'SEMELEMPTY'}) end
return redis.call('ZCARD', KEYS[2]) == tonumber(told[2] or 0) + tonumber(told[3] or 0) and 1 or 0
