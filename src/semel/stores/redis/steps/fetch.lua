-- Documents as they stand, all at one moment.
--
-- KEYS  1 lane   2... documents
-- ARGV  1-3 as in document.lua
-- answer           0 {the document or nothing, ...}

local found = {}
for n = 2, #KEYS do found[n - 1] = redis.call('GET', KEYS[n]) end
return told(0, found)
