-- Makes the key ours if nobody has it: absent, released, cleared, or its window closed.
--
-- KEYS, ARGV 1-5  as in record.lua
-- ARGV  6 token   7 lease   8 '1' if a person has to approve first   9 the tenant behind its length   10 id
--       11 the new record behind its head   12 its event behind its times
-- answer          unread: a new record; changed: one that goes on; unchanged: somebody else's, or ours from an
--                 earlier try

local entered, ends = ARGV[8] ~= '1', later(ARGV[7])
local bytes = redis.call('GET', KEYS[1])
if not bytes then
  -- Nearly every claim: the caller has packed all of it but the times.
  local state, lease, expires = WAITING, NONE, ends
  if entered then state, lease, expires = PENDING, ends, NONE end
  local entries = entered and 1 or 0
  local last = note_packed(ZERO, now8, expires, ARGV[12])
  redis.call('SET', KEYS[1], struct.pack(HEAD, 1, state, 0, now8, entries, entries, now8, entered and now8 or NONE,
    lease, NONE, expires, last) .. ARGV[11])
  count(nil, state)
  redis.call('ZADD', KEYS[3], 'LT', string.format('%.0f', number(ends)), ARGV[5])
  local member = ARGV[9] .. now8 .. ARGV[10] .. '\0' .. ARGV[5]
  redis.call('ZADD', KEYS[4], 0, member)
  if not entered then redis.call('ZADD', KEYS[4], 0, '\255' .. member) end
  redis.call('HSET', KEYS[5], ARGV[10], ARGV[5])
  return unread()
end

-- Nearly every other: what is there is the answer, and whoever reads it looks whether it is whole.
if taken(bytes) then return unchanged(bytes) end

local r = parsed(bytes)
local _, _, _, id, _, fingerprint, who, rest = struct.unpack('>' .. TAIL, ARGV[11])
local fresh = {id = id, fingerprint = fingerprint, who = who, rest = rest, attempts = 0, created = now8, last = ZERO}
local over_and_done, state_before = false, r.state
if closed(r) then
  -- Its history ended with its window; what is left of it goes below, after the first write.
  over_and_done, state_before = true, nil
elseif r.state == CODES.cleared and r.fingerprint == fingerprint then
  -- A re-entry carries the first call's arguments, whatever the present call says.
  fresh = parsed(bytes)
elseif r.state == CODES.released then
  fresh.id, fresh.attempts, fresh.created, fresh.last = r.id, r.attempts, r.created, r.last
else
  return unchanged(bytes)
end

fresh.state, fresh.token, fresh.fence = entered and PENDING or WAITING, ARGV[6], next_fence(number(r.fence))
fresh.attempts, fresh.entries = fresh.attempts + (entered and 1 or 0), entered and 1 or 0
fresh.entered, fresh.lease, fresh.expires = NONE, NONE, ends
if entered then fresh.entered, fresh.lease, fresh.expires = now8, ends, NONE end
fresh.settled, fresh.told, fresh.outcome, fresh.digest, fresh.note, fresh.by = NONE, 0, '', '', '', ''

local after = write(fresh, entered and 'claimed' or 'asked', state_before, end_of(fresh))
-- Not only if that is earlier: what was free or over may be filed below zero.
redis.call('ZADD', KEYS[3], string.format('%.0f', number(ends)), ARGV[5])
if over_and_done then
  forget(r)
  redis.call('ZADD', KEYS[4], 0, list_member(fresh))
  redis.call('HSET', KEYS[5], fresh.id, ARGV[5])
end
return changed(after)
