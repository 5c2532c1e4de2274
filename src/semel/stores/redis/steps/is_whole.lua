-- Whether the list has as many stopped records as there are by the lane's own count.
--
-- KEYS  1 lane   2 list
-- ARGV  1 the store's id
-- answer           1 or 0

local told = redis.call('HMGET', KEYS[1], 'id', CODES.waiting, CODES.in_doubt)
if told[1] ~= ARGV[1] then error({err = 'SEMELEMPTY'}) end
local listed = redis.call('ZLEXCOUNT', KEYS[2], '[\255', '+')
return listed == tonumber(told[2] or 0) + tonumber(told[3] or 0) and 1 or 0
