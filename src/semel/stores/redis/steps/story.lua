-- The events of one record, the newest first: each knows the one before it.
--
-- KEYS  1 events
-- ARGV  1 seq of the newest   2 how many at most
-- answer           {{id, {'e', event}}, ...}, as XRANGE gives them

local found, seq = {}, tonumber(ARGV[1])
while seq > 0 and #found < tonumber(ARGV[2]) do
  local id = '0-' .. string.format('%.0f', seq)
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  -- What is missing was dropped for its age, and all before it as well.
  if not entry then break end
  found[#found + 1] = entry
  local high, low = struct.unpack('>I4I4', entry[2][2])
  seq = high * 4294967296 + low
end
return found
