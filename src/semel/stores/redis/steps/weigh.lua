-- How many bytes the bodies of a tenant's documents have, as commits counted them.
--
-- KEYS  1 lane
-- ARGV  1-3 as in document.lua   4 the tenant
-- answer           0 how many

return told(0, math.max(0, tonumber(redis.call('HGET', KEYS[1], BYTES_OF .. ARGV[4]) or 0)))
