-- What all steps share: the record as bytes, and what each transition has to write.
--
-- KEYS  1 record   the packed record; also the channel on which its changes are told
--       2 lane     hash: `id` of the store, `seq` of the newest transition or event, how many records in each state
--       3 due      sorted set: digest by the time at which the sweeper looks at the record. A settled one that the
--                  sweeper has looked at stands by the time at which its window ends, below zero: so what is
--                  unsettled is found among what is not, and what was settled since
--       4 list     sorted set, all scores 0: tenant, created_at, id, digest; and once more behind a byte of 255, if the
--                  record is stopped: if it waits for a person or is in doubt. The usual call never touches these
--       5 ids      hash: id -> digest, or where no record lives (any more) the seq of the id's last event
--       6 events   stream: 0-seq -> one packed event
-- ARGV  1 the store's id   2 the newest seq that the caller saw   3 the time, or nothing: the server's own
--       4 '1' if events are written   5 digest of the record's address   6... the step's own
--       and last the number of the request, which the answer repeats: an answer out of turn is recognised
--
-- Before this file stand STATES, CODES, LEASE_LAPSED, REFUSED_LATER and PROBE, made from semel.kernel.record. The server reads it
-- once; KEYS and ARGV are those of the step that runs, and one step runs at a time.
-- A step checks everything before its first write: Lua does not roll back. Times are 8 bytes, big-endian: a
-- double would lose digits beyond 2^53.
-- Errors: SEMELEMPTY, SEMELLOST the data went missing; SEMELCORRUPT this record is damaged.

local WAITING, PENDING, IN_DOUBT = CODES.waiting, CODES.pending, CODES.in_doubt
-- Written out: while a library is loaded there is no string library.
local NONE, TWO32 = '\255\255\255\255\255\255\255\255', 4294967296
local ZERO = '\0\0\0\0\0\0\0\0'
local HEAD = '>BBBc8I4I4c8c8c8c8c8c8'
local TAIL = 'I4c0I4c0I4c0I4c0I4c0I4c0I4c0I4c0I4c0'
local FORMAT = HEAD .. TAIL

local KEYS, ARGV, lane, now, now8, newest

local function read_clock()
  now = tonumber(ARGV[3])
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  end
end

-- Before a step: the time, and the lane, which has to be there and as far on as the caller saw it.
local function arrive()
  lane = redis.call('HMGET', KEYS[2], 'id', 'seq', PENDING)
  if lane[1] ~= ARGV[1] then error({err = 'SEMELEMPTY'}) end
  newest = tonumber(lane[2] or 0)
  if newest < tonumber(ARGV[2]) then error({err = 'SEMELLOST'}) end
  read_clock()
  now8 = struct.pack('>I4I4', math.floor(now / TWO32), now % TWO32)
end

local function packed(number) return struct.pack('>I4I4', math.floor(number / TWO32), number % TWO32) end

local function number(time)
  local high, low = struct.unpack('>I4I4', time)
  return high * TWO32 + low
end

-- `by` microseconds from now, exactly; NONE if `by` is nothing.
local function later(by)
  if by == '' then return NONE end
  local high, low = struct.unpack('>I4I4', by)
  high, low = high + math.floor(now / TWO32), low + now % TWO32
  if low >= TWO32 then high, low = high + 1, low - TWO32 end
  return struct.pack('>I4I4', high, low)
end

local function over(time) return time ~= NONE and number(time) <= now end

local function fields(bytes)
  local version, state, told, fence, attempts, entries, created, entered, lease, settled, expires, last, token,
    note, by, id, digest, fingerprint, who, rest, outcome, stop = struct.unpack(FORMAT, bytes)
  if version ~= 1 or not STATES[state] or stop ~= #bytes + 1 then error('damaged') end
  return {state = state, told = told, fence = fence, attempts = attempts, entries = entries, created = created,
    entered = entered, lease = lease, settled = settled, expires = expires, last = last, token = token,
    note = note, by = by, id = id, digest = digest, fingerprint = fingerprint, who = who, rest = rest,
    outcome = outcome}
end

local function parsed(bytes)
  local sound, r = pcall(fields, bytes)
  if not sound then error({err = 'SEMELCORRUPT'}) end
  return r
end

local function read()
  local bytes = redis.call('GET', KEYS[1])
  if not bytes then return nil end
  return parsed(bytes), bytes
end

-- Whether a record's head alone tells that nobody may claim it now: it is not free, and its window is open.
local function taken(bytes)
  if #bytes < 67 then return false end
  local version, state, _, _, _, _, _, _, _, _, expires = struct.unpack(HEAD, bytes)
  return version == 1 and STATES[state] and state ~= CODES.released and state ~= CODES.cleared and not over(expires)
end

local function bytes_of(r)
  return struct.pack(FORMAT, 1, r.state, r.told, r.fence, r.attempts, r.entries, r.created, r.entered, r.lease,
    r.settled, r.expires, r.last, #r.token, r.token, #r.note, r.note, #r.by, r.by, #r.id, r.id, #r.digest,
    r.digest, #r.fingerprint, r.fingerprint, #r.who, r.who, #r.rest, r.rest, #r.outcome, r.outcome)
end

-- When the sweeper has something to do with it: its lease or its window ends. Nil: never.
local function end_of(r)
  local time = r.lease ~= NONE and r.lease or r.expires
  if time ~= NONE then return number(time) end
end

local function lapsed(r) return over(r.lease) end
local function closed(r) return over(r.expires) end
local function doubtful(r) return r.state == IN_DOUBT or lapsed(r) end
local function stopped(state) return state == WAITING or state == IN_DOUBT end
local function unsettled(r) return r.state == WAITING or r.state == PENDING or r.state == IN_DOUBT end
local function alive(r) return r.state == PENDING or (r.state == IN_DOUBT and r.note == LEASE_LAPSED) end

local function next_fence(previous) return previous < now and now8 or packed(previous + 1) end

local function tenant_of(r) return string.sub(r.who, 1, 4 + struct.unpack('>I4', r.who)) end
local function list_member(r) return tenant_of(r) .. r.created .. r.id .. '\0' .. ARGV[5] end

-- An event, under the next number of this lane; it knows the record's event before it. The record's link to it.
local function note_packed(last, fence, expires, tail)
  newest = newest + 1
  if ARGV[4] ~= '1' then return last end
  local event = struct.pack('>c8c8c8c8I4', last, now8, fence, expires, 1) .. tail
  redis.call('XADD', KEYS[6], '0-' .. string.format('%.0f', newest), 'e', event)
  return packed(newest)
end

local function note(kind, r)
  local digest = r.digest ~= '' and r.digest or r.fingerprint
  local state = STATES[r.state]
  local tail = struct.pack('>Bc0Bc0I4c0I4c0I4c0I4c0I4c0', #kind, kind, #state, state, #digest, digest, #r.by, r.by,
    #r.note, r.note, #r.id, r.id, #r.who, r.who)
  r.last = note_packed(r.last, r.fence, r.expires, tail)
end

-- How far the events of an id are told: the link to the last one, and the record that keeps the link, if it lives;
-- else `ids` does. This reads only. `digest`: of the address of `record`.
local function story_of(id, ids, record, digest)
  local known = redis.call('HGET', ids, id)
  if known == digest and redis.call('EXISTS', record) == 1 then
    -- Only the link is read, and then written, at its fixed offset: such an event changes nothing else.
    local last = redis.call('GETRANGE', record, 59, 66)
    if #last ~= 8 then error({err = 'SEMELCORRUPT'}) end
    return {id = id, ids = ids, record = record, last = last}
  end
  return {id = id, ids = ids, last = known and #known == 8 and known or ZERO}
end

-- An event that the caller packed, but for its link, under the next number of this lane. The stream is written
-- first: should it refuse, nothing is.
local function tell(story, events, event)
  newest = newest + 1
  redis.call('XADD', events, '0-' .. string.format('%.0f', newest), 'e', story.last .. event)
  story.last = packed(newest)
  if story.record then
    redis.call('SETRANGE', story.record, 59, story.last)
  else
    redis.call('HSET', story.ids, story.id, story.last)
  end
end

-- It is filed no later than its end; what is filed too early the sweeper files anew.
local function file(r, end_before)
  local ends = end_of(r)
  if ends and not (end_before and end_before <= ends) then
    redis.call('ZADD', KEYS[3], 'LT', string.format('%.0f', ends), ARGV[5])
  end
end

-- How far the lane is, and how many of its records are in which state.
local function count(state_before, state)
  local pending = tonumber(lane[3] or 0)
  if state_before ~= state then
    if state_before == PENDING then
      pending = pending - 1
    elseif state_before then
      redis.call('HINCRBY', KEYS[2], state_before, -1)
    end
    if state == PENDING then
      pending = pending + 1
    elseif state then
      redis.call('HINCRBY', KEYS[2], state, 1)
    end
  end
  lane[3] = pending
  redis.call('HSET', KEYS[2], 'seq', string.format('%.0f', newest), PENDING, pending)
end

local function file_stopped(r, state_before)
  if stopped(r.state) then
    redis.call('ZADD', KEYS[4], 0, '\255' .. list_member(r))
  elseif stopped(state_before) then
    redis.call('ZREM', KEYS[4], '\255' .. list_member(r))
  end
end

-- The record as it is now, with its event; `before`: its state and its end as they were.
local function write(r, kind, state_before, end_before)
  if kind then note(kind, r) end
  local bytes = bytes_of(r)
  redis.call('SET', KEYS[1], bytes)
  count(state_before, r.state)
  file(r, end_before)
  file_stopped(r, state_before)
  if state_before then redis.call('PUBLISH', KEYS[1], '') end
  return bytes
end

-- It is gone; its events are still found by its id.
local function forget(r)
  redis.call('ZREM', KEYS[4], list_member(r))
  if stopped(r.state) then redis.call('ZREM', KEYS[4], '\255' .. list_member(r)) end
  if r.last == ZERO then
    redis.call('HDEL', KEYS[5], r.id)
  else
    redis.call('HSET', KEYS[5], r.id, r.last)
  end
  count(r.state, nil)
end

-- Answers: {what, now, seq, number of the request, record}. What is 0 unchanged, 1 changed, 2 changed as the
-- caller can tell by itself: then the record is not sent.
local function answer(what, bytes) return {what, now, newest, ARGV[#ARGV], bytes} end
local function unchanged(bytes) return answer(0, bytes) end
local function changed(bytes) return answer(1, bytes) end
local function unread() return answer(2) end
