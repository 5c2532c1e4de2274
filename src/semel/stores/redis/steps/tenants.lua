-- The tenants of a lane that have something due in an index.
--
-- KEYS  1 lane   2 heads
-- ARGV  1-3 as in document.lua   4 the index behind its length   5 the last score that counts, or nothing: now
-- answer           0 {tenant, ...}

local upto = ARGV[5]
if upto == '' then upto = struct.pack('>I4I4', 2147483648 + math.floor(now / TWO32), now % TWO32) end
local found = redis.call('ZRANGEBYLEX', KEYS[2], '[' .. ARGV[4], '(' .. ARGV[4] .. upto .. '\255')
for n, head_on_shelf in ipairs(found) do found[n] = string.sub(head_on_shelf, #ARGV[4] + 9) end
return told(0, found)
