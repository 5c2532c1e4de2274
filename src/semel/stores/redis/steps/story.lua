-- The events of one record, the newest first: each knows the one before it.
--
-- KEYS  1 events
-- ARGV  1 seq of the newest   2 how many at most
-- answer           {{id, {'e', event}}, ...}, as XRANGE gives them

local found, seq = {}, tonumber(ARGV[1])
while seq > 0 and #found < tonumber(ARGV[2]) do
  local id = '0-' .. digits(seq)
  local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
  -- What is missing was dropped for its age, and all before it as well.
  if not entry then break end
  found[#found + 1] = entry
  local event = entry[2][2]
  if string.byte(event) == 2 then
    local flags = string.byte(event, 4)
    seq = bit(flags, REFERS) and seq - struct.unpack('>I2', event, 12)
      or bit(flags, LINKED) and struct.unpack('>I6', event, 12) or 0
  else
    local high, low = struct.unpack('>I4I4', event)
    seq = high * 4294967296 + low
  end
end
return found
