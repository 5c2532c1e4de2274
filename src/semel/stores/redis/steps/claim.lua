-- Makes the key ours if nobody has it: absent, released, cleared, or its window closed.
--
-- KEYS, ARGV 1-5  as in record.lua
-- ARGV  6 token   7 lease   8 '1' if a person has to approve first   9 the body of the new record
--       10 the tenant   11 under which field `ids` has the id
--       12 or, in place of these three: id, fingerprint, who and rest of a record of the first form
-- answer          unread: a new record; changed: one that goes on; unchanged: somebody else's, or ours from an
--                 earlier try

local bytes = redis.call('GET', KEYS[1])
-- What is there is nearly always the answer, and whoever reads it looks whether it is whole.
if bytes and taken(bytes) then return unchanged(bytes) end

local entered, ends = ARGV[8] ~= '1', later(ARGV[7])
if not bytes and entered and ARGV[12] == '' and #ARGV[6] < 256 then
  -- Nearly every claim.
  local last = ZERO
  newest = newest + 1
  if ARGV[4] == '1' then
    add_event(event_head('claimed', PENDING, 0, ZERO, NONE) .. struct.unpack('>I3c0', ARGV[9]))
    last = packed(newest)
  end
  local page = enroll(ARGV[10], ARGV[11], nil, now8, ends)
  redis.call('SET', KEYS[1], struct.pack(PLAIN, 2, PENDING, 0, last, now8, page, ends, NONE, #ARGV[6], ARGV[6],
    #ARGV[9], ARGV[9], 0, ''))
  count(nil, PENDING)
  return unread()
end

local fresh = {fence = now8, attempts = 0, created = now8, last = ZERO}
if ARGV[12] == '' then
  fresh.form, fresh.body = 2, ARGV[9]
  fresh.fingerprint, fresh.identity, fresh.id = opened(ARGV[9])
else
  fresh.form = 1
  fresh.id, fresh.fingerprint, fresh.who, fresh.rest = struct.unpack('>I4c0I4c0I4c0I4c0', ARGV[12])
end
local r, state_before, move = bytes and parsed(bytes), nil, nil
local function begin_anew()
  -- If there was one, its history ended with its window.
  if r then forget(r) end
  place(fresh, ends)
end
local function change_form()
  unplace(r)
  place(fresh, ends)
end
if not r or closed(r) then
  move = begin_anew
elseif r.state == CODES.cleared and r.fingerprint == fresh.fingerprint then
  -- A re-entry carries the first call's arguments, whatever the present call says.
  fresh, state_before = parsed(bytes), r.state
elseif r.state == CODES.released then
  state_before = r.state
  fresh.attempts, fresh.created, fresh.last, fresh.page = r.attempts, r.created, r.last, r.page
  take_id(fresh, r)
  if r.form ~= fresh.form then move = change_form end
else
  return unchanged(bytes)
end

if r then fresh.fence = next_fence(number(r.fence)) end
fresh.state, fresh.token = entered and PENDING or WAITING, ARGV[6]
fresh.attempts, fresh.entries = fresh.attempts + (entered and 1 or 0), entered and 1 or 0
fresh.entered, fresh.lease, fresh.expires = NONE, NONE, ends
if entered then fresh.entered, fresh.lease, fresh.expires = now8, ends, NONE end
fresh.settled, fresh.told, fresh.outcome, fresh.digest, fresh.note, fresh.by = NONE, 0, '', '', '', ''

local after = write(fresh, entered and 'claimed' or 'asked', state_before, move and end_of(fresh), move)
if fresh.form == 1 then
  -- Not only if that is earlier: what was free may be filed below zero.
  redis.call('ZADD', KEYS[3], digits(number(ends)), ARGV[5])
end
if r then return changed(after) end
return unread()
