-- One record that was filed for now: marked as in doubt, removed, or filed anew.
--
-- KEYS, ARGV 1-5  as in record.lua
-- KEYS  8 closing  sorted set: digest by the time at which the window of a settled record ends. The sweeper moves a
--                  record from `due` to here when it first finds it settled: so `due` has what is unsettled, and what
--                  was settled since the sweeper looked, which it does when the lease would have ended
-- answer          what: 1 lapsed, 2 closed, 0 neither

local function file_anew(due_at, closes_at)
  if due_at then
    redis.call('ZADD', KEYS[3], string.format('%.0f', due_at), ARGV[5])
  else
    redis.call('ZREM', KEYS[3], ARGV[5])
  end
  if closes_at then
    redis.call('ZADD', KEYS[8], string.format('%.0f', closes_at), ARGV[5])
  else
    redis.call('ZREM', KEYS[8], ARGV[5])
  end
end

local r = read()
if not r then
  file_anew()
  return answer(0)
end
if lapsed(r) then
  local state_before = r.state
  r.state, r.lease, r.note = IN_DOUBT, NONE, LAPSED
  write(r, 'lapsed', state_before)
  file_anew()
  return answer(1)
end
if closed(r) then
  note('closed', r)
  redis.call('DEL', KEYS[1])
  forget(r)
  file_anew()
  return answer(2)
end
if unsettled(r) then file_anew(end_of(r)) else file_anew(nil, end_of(r)) end
return answer(0)
