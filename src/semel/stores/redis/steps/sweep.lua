-- One record that was filed for now: marked as in doubt, removed, or if it has the first form filed anew.
--
-- KEYS, ARGV 1-5  as in record.lua
-- answer          what: 1 lapsed, 2 closed, 0 neither

local r = read()
if not r then
  redis.call('ZREM', KEYS[3], ARGV[5])
  return answer(0)
end
if lapsed(r) then
  local state_before = r.state
  r.state, r.lease, r.note = IN_DOUBT, NONE, LEASE_LAPSED
  write(r, 'lapsed', state_before)
  if r.form == 1 then redis.call('ZREM', KEYS[3], ARGV[5]) end
  return answer(1)
end
if closed(r) then
  note('closed', r)
  redis.call('DEL', KEYS[1])
  forget(r)
  if r.form == 1 then redis.call('ZREM', KEYS[3], ARGV[5]) end
  return answer(2)
end
if r.form == 1 then
  local ends = end_of(r)
  if ends then
    redis.call('ZADD', KEYS[3], digits(unsettled(r) and ends or -ends), ARGV[5])
  else
    redis.call('ZREM', KEYS[3], ARGV[5])
  end
end
return answer(0)
