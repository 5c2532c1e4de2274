-- What all steps share: the record as bytes, and what each transition has to write.
--
-- KEYS  1 record   the packed record; also the channel on which its changes are told
--       2 lane     hash: `id` of the store, `seq` of the newest transition or event, how many records in each state
--       3 due      of records of the first form a sorted set: digest by the time at which the sweeper looks at it,
--                  once settled and looked at by the time at which its window ends, below zero
--       4 list     sorted set, all scores 0: tenant, created_at, digest of records that are stopped, behind a byte of
--                  255: of those that wait for a person or are in doubt. The usual call never touches these. Of
--                  records of the first form all, and the stopped ones once more behind that byte; with their ids
--       5 ids      hash: id -> digest, or where no record lives (any more) the seq of the id's last event
--       6 events   stream: 0-seq -> one packed event
--       7 book     hash: the records of a tenant as they came, in pages: a head and 16 digests. The page that is
--                  being filled stands under the tenant's name, the others behind a byte of 255 and
--                  their number. Of the second form; and one field that is no page, so that the key is never absent
--       8 pages    sorted set: name and number of a page by the time at which the sweeper looks at it; below zero, if
--                  nothing on it was pending when it did, so what is pending is found among the others
-- ARGV  1 the store's id   2 the newest seq that the caller saw   3 the time, or nothing: the server's own
--       4 '1' if events are written   5 digest of the record's address, as long as the store's format has it
--       6... the step's own
--       and last the number of the request, which the answer repeats: an answer out of turn is recognised
--
-- Before this file stand STATES, CODES, KINDS, LEASE_LAPSED, REFUSED_LATER and PROBE, made from semel.kernel.record
-- and semel.audit.events. The server reads it
-- once; KEYS and ARGV are those of the step that runs, and one step runs at a time.
-- A step checks everything before its first write: Lua does not roll back. Times are 8 bytes, big-endian: a
-- double would lose digits beyond 2^53.
-- Records and events have two forms, which packed_records, packed_events and first_form describe. A record is written in
-- the form in which it was found: whoever made it may still run, and read no other.
-- Errors: SEMELEMPTY, SEMELLOST the data went missing; SEMELCORRUPT this record is damaged.

local WAITING, PENDING, IN_DOUBT, DONE = CODES.waiting, CODES.pending, CODES.in_doubt, CODES.done
-- As fields of the lane: a number takes the server longer to write out than to count.
local PENDING_COUNT, DONE_COUNT = PENDING .. '', DONE .. ''
-- Written out: while a library is loaded there is no string library.
local NONE, TWO32 = '\255\255\255\255\255\255\255\255', 4294967296
local ZERO = '\0\0\0\0\0\0\0\0'

-- Of the first form: a head of fixed length, then strings behind their lengths.
local OLD_HEAD = '>BBBc8I4I4c8c8c8c8c8c8'
local OLD_TAIL = 'I4c0I4c0I4c0I4c0I4c0I4c0I4c0I4c0I4c0'

-- Of the second: what every record has, then the head of a plain one or of any, then token, body and outcome.
-- Plain is what was entered once, when it was made, and is pending or was settled by its owner.
local PLAIN, FULL = '>BBBc8c8I4c8c8Bc0I3c0Bc0', '>BBBc8c8I4c8I4I4c8c8c8c8I4c0I3c0Bc0I4c0I4c0'
local TOLD, IS_FULL, SPOKEN_OF = 1, 2, 4
local LINK_AT = 2

-- An event that leaves out what its record's claim said is no more than so many events and microseconds behind it:
-- long before the claim's event is dropped for its age.
local NEAR, RECENT = 1000, 600000000
-- What an event's fourth byte says of it.
local REFERS, EXPIRES, FENCED, SAID, LINKED = 1, 2, 4, 8, 16

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
  lane = redis.call('HMGET', KEYS[2], 'id', 'seq', PENDING_COUNT, DONE_COUNT)
  if lane[1] ~= ARGV[1] then error({err = 'SEMELEMPTY'}) end
  newest = tonumber(lane[2] or 0)
  if newest < tonumber(ARGV[2]) then error({err = 'SEMELLOST'}) end
  read_clock()
  now8 = struct.pack('>I8', now)
end

local function packed(number) return struct.pack('>I8', number) end
local function number(time) return (struct.unpack('>I8', time)) end
-- The short way is quicker, and ends at 2^63.
local function digits(number)
  return string.format(number < 9e15 and number > -9e15 and '%d' or '%.0f', number)
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

local function bit(flags, which) return math.floor(flags / which) % 2 == 1 end

-- --- records as bytes -----------------------------------------------------------------------------

local function old_fields(bytes)
  local _, state, told, fence, attempts, entries, created, entered, lease, settled, expires, last, token,
    note, by, id, digest, fingerprint, who, rest, outcome, stop = struct.unpack(OLD_HEAD .. OLD_TAIL, bytes)
  return {form = 1, state = state, told = told, fence = fence, attempts = attempts, entries = entries,
    created = created, entered = entered, lease = lease, settled = settled, expires = expires, last = last,
    token = token, note = note, by = by, id = id, digest = digest, fingerprint = fingerprint, who = who, rest = rest,
    outcome = outcome}, stop
end

local function plain_fields(bytes)
  local _, state, flags, last, created, page, first, second, token, body, digest, stop = struct.unpack(PLAIN, bytes)
  local pending = state == PENDING
  return {form = 2, state = state, told = flags % 2, spoken_of = bit(flags, SPOKEN_OF), fence = created, attempts = 1,
    entries = 1, created = created, page = page, entered = created, lease = pending and first or NONE,
    settled = pending and NONE or first, expires = second, last = last, token = token, note = '', by = '',
    body = body, digest = digest, outcome = string.sub(bytes, stop)}, #bytes + 1
end

local function full_fields(bytes)
  local _, state, flags, last, created, page, fence, attempts, entries, entered, lease, settled, expires, token, body,
    digest, by, note, stop = struct.unpack(FULL, bytes)
  return {form = 2, state = state, told = flags % 2, spoken_of = bit(flags, SPOKEN_OF), fence = fence,
    attempts = attempts, entries = entries, created = created, page = page, entered = entered, lease = lease,
    settled = settled, expires = expires, last = last, token = token, note = note, by = by, body = body, digest = digest,
    outcome = string.sub(bytes, stop)}, #bytes + 1
end

-- What a length and, if that is 255, four bytes more stand before; and where it ends.
local function text(bytes, at)
  local length = string.byte(bytes, at)
  if length < 255 then return struct.unpack('>Bc0', bytes, at) end
  return struct.unpack('>I4c0', bytes, at + 1)
end

local function behind_length(bytes)
  if #bytes < 255 then return string.char(#bytes) .. bytes end
  return '\255' .. struct.pack('>I4c0', #bytes, bytes)
end

-- A body begins with fingerprint and identity, behind the length of both, and the identity with the id: these three,
-- and where the rest of the body begins.
local function opened(body)
  local asked, rest_at = struct.unpack('>I3c0', body)
  local fingerprint, at = text(asked, 1)
  local identity = string.sub(asked, at)
  return fingerprint, identity, (text(identity, 1)), rest_at
end

local function plain(bytes) return not bit(string.byte(bytes, 3), IS_FULL) end

local function fields(bytes)
  local version, state, flags = struct.unpack('>BBB', bytes)
  if not STATES[state] then error('damaged') end
  local r, stop
  if version == 1 then
    r, stop = old_fields(bytes)
  elseif version == 2 then
    if plain(bytes) then r, stop = plain_fields(bytes) else r, stop = full_fields(bytes) end
    if r.told == 0 and r.outcome ~= '' then error('damaged') end
    r.fingerprint, r.identity, r.id = opened(r.body)
  else
    error('damaged')
  end
  if stop ~= #bytes + 1 then error('damaged') end
  return r
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

-- Whether a record's head alone tells that nobody may claim it now: it is settled or under way, and its window open.
local function taken(bytes)
  if #bytes < 71 then return false end
  local version, state, flags = struct.unpack('>BBB', bytes)
  if not STATES[state] or state == CODES.released or state == CODES.cleared then return false end
  local expires
  if version == 1 then
    expires = string.sub(bytes, 52, 59)
  elseif version == 2 then
    expires = bit(flags, IS_FULL) and string.sub(bytes, 64, 71) or string.sub(bytes, 32, 39)
  end
  return expires and not over(expires)
end

local function bytes_of(r)
  if r.form == 1 then
    return struct.pack(OLD_HEAD .. OLD_TAIL, 1, r.state, r.told, r.fence, r.attempts, r.entries, r.created, r.entered,
      r.lease, r.settled, r.expires, r.last, #r.token, r.token, #r.note, r.note, #r.by, r.by, #r.id, r.id, #r.digest,
      r.digest, #r.fingerprint, r.fingerprint, #r.who, r.who, #r.rest, r.rest, #r.outcome, r.outcome)
  end
  local flags = r.told + IS_FULL + (r.spoken_of and SPOKEN_OF or 0)
  return struct.pack(FULL, 2, r.state, flags, r.last, r.created, r.page, r.fence, r.attempts, r.entries, r.entered,
    r.lease, r.settled, r.expires, #r.token, r.token, #r.body, r.body, #r.digest, r.digest, #r.by, r.by, #r.note, r.note)
    .. r.outcome
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

-- --- ids ------------------------------------------------------------------------------------------

-- An id as records of the second form have it: of the usual ones the bytes that their digits stand for.
local function packed_id(id)
  if #id ~= 36 or not string.find(id, '^rec_[0-9a-f]+$') then return '\1' .. id end
  local raw = string.gsub(string.sub(id, 5), '..', function(pair) return string.char(tonumber(pair, 16)) end)
  return '\0' .. raw
end

-- Under which field `ids` has an id: of the usual ones 14 bytes, which take no more memory than 8. Should another id
-- have that field, which by chance does not happen, it is the id itself.
local function field_of(id_packed)
  if string.byte(id_packed) == 0 then return string.sub(id_packed, 4) end
  return string.sub(id_packed, 2)
end

local function unpacked_id(id)
  if string.byte(id) == 1 then return string.sub(id, 2) end
  return 'rec_' .. string.gsub(string.sub(id, 2), '.', function(byte) return string.format('%02x', string.byte(byte)) end)
end

-- A record goes on under the id that it had.
local function take_id(fresh, r)
  if fresh.form == 1 then
    fresh.id = r.form == 1 and r.id or unpacked_id(r.id)
    return
  end
  fresh.id = r.form == 2 and r.id or packed_id(r.id)
  local _, at = text(fresh.identity, 1)
  local _, _, _, rest_at = opened(fresh.body)
  fresh.identity = behind_length(fresh.id) .. string.sub(fresh.identity, at)
  local asked = behind_length(fresh.fingerprint) .. fresh.identity
  fresh.body = struct.pack('>I3c0', #asked, asked) .. string.sub(fresh.body, rest_at)
end

local function id_field(r)
  if r.form == 1 then return r.id end
  local field = field_of(r.id)
  return redis.call('HGET', KEYS[5], field) == ARGV[5] and field or unpacked_id(r.id)
end

-- --- indexes --------------------------------------------------------------------------------------

local function tenant_in(identity)
  local _, at = text(identity, 1)
  _, at = text(identity, at)
  return (text(identity, at))
end

local function tenant_of(r)
  if r.form == 1 then return (struct.unpack('>I4c0', r.who)) end
  return tenant_in(r.identity)
end

local function list_member(r)
  local tenant = tenant_of(r)
  local place = struct.pack('>I4', #tenant) .. tenant .. r.created
  return r.form == 1 and place .. r.id .. '\0' .. ARGV[5] or place .. ARGV[5]
end

-- The head of a page: its number, of the one being filled the lowest number that there may be and the highest at which
-- the clock had gone back, when to look at it, whether nothing on it was pending, the latest time up to here.
local PAGE_HEAD, PAGE_HEAD_BYTES, PAGE_RECORDS = '>I4I4I4c8Bc8', 29, 16

local function page_name(tenant, page) return tenant .. '\255' .. struct.pack('>I4', page) end

local function page_of(bytes)
  local page, lowest, back, due, idle, high = struct.unpack(PAGE_HEAD, bytes)
  return {page = page, lowest = lowest, back = back, due = due, idle = idle, high = high,
    entries = string.sub(bytes, PAGE_HEAD_BYTES + 1)}
end

local function page_bytes(p)
  return struct.pack(PAGE_HEAD, p.page, p.lowest, p.back, p.due, p.idle, p.high) .. p.entries
end

-- The page that is being filled, and the one with this number, if there are such.
local function pages_of(book, tenant, page)
  local open = redis.call('HGET', book, tenant)
  open = open and page_of(open)
  if open and open.page == page then return open, open end
  local full = redis.call('HGET', book, page_name(tenant, page))
  return open, full and page_of(full)
end

local function keep_page(book, tenant, open, p)
  redis.call('HSET', book, open == p and tenant or page_name(tenant, p.page), page_bytes(p))
end

local function score_page(pages, tenant, p)
  local score = p.due == NONE and '-inf' or digits(p.idle == 1 and -number(p.due) or number(p.due))
  redis.call('ZADD', pages, score, page_name(tenant, p.page))
end

-- Whether the sweeper has to look at it earlier than it would have.
local function hurry(p, ends)
  if p.idle == 0 and p.due ~= NONE and number(p.due) <= number(ends) then return false end
  if p.due == NONE or number(ends) < number(p.due) then p.due = ends end
  p.idle = 0
  return true
end

local function id_in(body)
  local _, _, id = opened(body)
  return id
end

-- A new record stands on its tenant's open page, and is found by its id. The number of the page.
local function enroll(tenant, field, id, created, ends)
  if redis.call('HSETNX', KEYS[5], field, ARGV[5]) == 0 then
    redis.call('HSET', KEYS[5], unpacked_id(id or id_in(ARGV[9])), ARGV[5])
  end
  local bytes, p = redis.call('HGET', KEYS[7], tenant), nil
  if bytes and #bytes < PAGE_HEAD_BYTES + PAGE_RECORDS * #ARGV[5] then
    local due, idle, high = struct.unpack('>I8BI8', bytes, 13)
    if idle == 0 and due <= number(ends) and high <= number(created) then
      -- Nearly always: nothing of its head changes but the latest time.
      redis.call('HSET', KEYS[7], tenant,
        string.sub(bytes, 1, 21) .. created .. string.sub(bytes, PAGE_HEAD_BYTES + 1) .. ARGV[5])
      return (struct.unpack('>I4', bytes))
    end
    p = page_of(bytes)
  elseif bytes then
    p = page_of(bytes)
    redis.call('HSET', KEYS[7], page_name(tenant, p.page), bytes)
    p.page, p.due, p.idle, p.entries = p.page + 1, NONE, 1, ''
  else
    p = {page = 0, lowest = 0, back = 0, due = NONE, idle = 1, high = ZERO, entries = ''}
  end
  if number(created) < number(p.high) then p.back = p.page else p.high = created end
  local hurried = hurry(p, ends)
  p.entries = p.entries .. ARGV[5]
  redis.call('HSET', KEYS[7], tenant, page_bytes(p))
  if hurried then score_page(KEYS[8], tenant, p) end
  return p.page
end

-- A page without records goes, and the open one once it is the only one left.
local function drop_empty_pages(book, pages, tenant, open, p)
  if p ~= open then
    redis.call('HDEL', book, page_name(tenant, p.page))
    redis.call('ZREM', pages, page_name(tenant, p.page))
  end
  if not open then return end
  local lowest = open.lowest
  while lowest < open.page and redis.call('HEXISTS', book, page_name(tenant, lowest)) == 0 do lowest = lowest + 1 end
  if lowest == open.page and open.entries == '' then
    redis.call('HDEL', book, tenant)
    redis.call('ZREM', pages, page_name(tenant, open.page))
  elseif lowest ~= open.lowest or p == open then
    open.lowest = lowest
    redis.call('HSET', book, tenant, page_bytes(open))
  end
end

-- The record leaves its page.
local function unlist(r)
  local tenant, entry = tenant_of(r), ARGV[5]
  local open, p = pages_of(KEYS[7], tenant, r.page)
  if not p then return end
  for at = 1, #p.entries, #entry do
    if string.sub(p.entries, at, at + #entry - 1) == entry then
      p.entries = string.sub(p.entries, 1, at - 1) .. string.sub(p.entries, at + #entry)
      break
    end
  end
  if p.entries == '' then
    drop_empty_pages(KEYS[7], KEYS[8], tenant, open, p)
  else
    keep_page(KEYS[7], tenant, open, p)
  end
end

-- A new record stands where its form has it.
local function place(r, ends)
  if r.form == 2 then
    r.page = enroll(tenant_of(r), field_of(r.id), r.id, r.created, ends)
    return
  end
  redis.call('ZADD', KEYS[3], digits(number(ends)), ARGV[5])
  redis.call('ZADD', KEYS[4], '0', list_member(r))
  redis.call('HSET', KEYS[5], r.id, ARGV[5])
end

-- It stands there no more; of its id nothing is left.
local function unplace(r)
  if r.form == 2 then
    unlist(r)
  else
    redis.call('ZREM', KEYS[3], ARGV[5])
    redis.call('ZREM', KEYS[4], list_member(r))
  end
  redis.call('HDEL', KEYS[5], id_field(r))
end

-- --- events ---------------------------------------------------------------------------------------

local function add_event(event) redis.call('XADD', KEYS[6], '0-' .. digits(newest), 'e', event) end

local function note_old(kind, r)
  local digest = r.digest ~= '' and r.digest or r.fingerprint
  local state = STATES[r.state]
  add_event(struct.pack('>c8c8c8c8I4', r.last, now8, r.fence, r.expires, 1)
    .. struct.pack('>Bc0Bc0I4c0I4c0I4c0I4c0I4c0', #kind, kind, #state, state, #digest, digest, #r.by, r.by,
      #r.note, r.note, #r.id, r.id, #r.who, r.who))
end

-- The link, if there is one: of an event that refers only how far it is behind that.
local function event_head(kind, state, flags, last, expires)
  local link = ''
  if bit(flags, REFERS) then
    link = struct.pack('>I2', newest - number(last))
  elseif last ~= ZERO then
    flags, link = flags + LINKED, struct.pack('>I6', number(last))
  end
  if expires ~= NONE then flags, link = flags + EXPIRES, link .. expires end
  return struct.pack('>BBBBI7', 2, KINDS[kind], state, flags, now) .. link
end

local function note_new(kind, r)
  local digest = r.digest ~= '' and r.digest or r.fingerprint
  local flags, more = 0, ''
  if r.fence ~= now8 then flags, more = FENCED, r.fence end
  if r.by ~= '' or r.note ~= '' then
    flags, more = flags + SAID, more .. struct.pack('>I4c0I4c0', #r.by, r.by, #r.note, r.note)
  end
  add_event(event_head(kind, r.state, flags, r.last, r.expires) .. more .. behind_length(digest) .. r.identity)
end

-- An event, under the next number of this lane; it knows the record's event before it.
local function note(kind, r)
  newest = newest + 1
  if ARGV[4] ~= '1' then return end
  if r.form == 1 then note_old(kind, r) else note_new(kind, r) end
  r.last, r.spoken_of = packed(newest), true
end

-- How far the events of an id are told: the link to the last one, and the record that keeps the link, if it lives;
-- else `ids` does. This reads only. `digest`: of the address of `record`.
local function story_of(id, ids, record, digest)
  local field = field_of(packed_id(id))
  local known = redis.call('HGET', ids, field)
  local function ours() return known and #known ~= 8 and string.sub(digest, 1, #known) == known end
  if field ~= id and not ours() then
    local itself = redis.call('HGET', ids, id)
    -- There it is as well if the other field is of somebody else's record.
    if itself or (known and #known ~= 8) then field, known = id, itself end
  end
  if ours() then
    local bytes = redis.call('GET', record)
    if bytes then
      local r = parsed(bytes)
      return {id = field, ids = ids, record = record, last = r.last, form = r.form, flags = string.byte(bytes, 3)}
    end
  end
  return {id = field, ids = ids, last = known and #known == 8 and known or ZERO}
end

-- An event that the caller packed, but for its link, under the next number of this lane. The stream is written
-- first: should it refuse, nothing is. Of the record only the link is written, at its fixed offset: such an event
-- changes nothing else.
local function tell(story, events, event)
  newest = newest + 1
  redis.call('XADD', events, '0-' .. digits(newest), 'e', story.last .. event)
  story.last = packed(newest)
  if not story.record then
    redis.call('HSET', story.ids, story.id, story.last)
  elseif story.form == 1 then
    redis.call('SETRANGE', story.record, 59, story.last)
  else
    if not bit(story.flags, SPOKEN_OF) then story.flags = story.flags + SPOKEN_OF end
    redis.call('SETRANGE', story.record, LINK_AT, string.char(story.flags) .. story.last)
  end
end

-- --- writing --------------------------------------------------------------------------------------

-- It is filed no later than its end; what is filed too early the sweeper files anew.
local function file(r, end_before)
  local ends = end_of(r)
  if not ends or (end_before and end_before <= ends) then return end
  if r.form == 1 then
    redis.call('ZADD', KEYS[3], 'LT', digits(ends), ARGV[5])
    return
  end
  local tenant = tenant_of(r)
  local open, p = pages_of(KEYS[7], tenant, r.page)
  if p and hurry(p, packed(ends)) then
    keep_page(KEYS[7], tenant, open, p)
    score_page(KEYS[8], tenant, p)
  end
end

local function count_one(state, by)
  if state == PENDING then
    lane[3] = digits((lane[3] or 0) + by)
  elseif state == DONE then
    lane[4] = digits((lane[4] or 0) + by)
  elseif state then
    redis.call('HINCRBY', KEYS[2], digits(state), digits(by))
  end
end

-- How far the lane is, and how many of its records are in which state.
local function count(state_before, state)
  if state_before ~= state then
    count_one(state_before, -1)
    count_one(state, 1)
  end
  if state_before == DONE or state == DONE then
    redis.call('HSET', KEYS[2], 'seq', digits(newest), PENDING_COUNT, lane[3] or '0', DONE_COUNT, lane[4] or '0')
  else
    redis.call('HSET', KEYS[2], 'seq', digits(newest), PENDING_COUNT, lane[3] or '0')
  end
end

local function file_stopped(r, state_before)
  if stopped(r.state) then
    redis.call('ZADD', KEYS[4], '0', '\255' .. list_member(r))
  elseif stopped(state_before) then
    redis.call('ZREM', KEYS[4], '\255' .. list_member(r))
  end
end

-- The record as it is now, with its event; `before`: its state and its end as they were; `move`: what is done about its
-- places before it is written.
local function write(r, kind, state_before, end_before, move)
  if kind then note(kind, r) end
  if move then move() end
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
  if r.form == 1 then redis.call('ZREM', KEYS[4], list_member(r)) else unlist(r) end
  if stopped(r.state) then redis.call('ZREM', KEYS[4], '\255' .. list_member(r)) end
  if r.last == ZERO then
    redis.call('HDEL', KEYS[5], id_field(r))
  else
    redis.call('HSET', KEYS[5], id_field(r), r.last)
  end
  count(r.state, nil)
end

-- Answers: {what, now, seq, number of the request, record}. What is 0 unchanged, 1 changed, 2 changed as the
-- caller can tell by itself: then the record is not sent.
local function answer(what, bytes) return {what, now, newest, ARGV[#ARGV], bytes} end
local function unchanged(bytes) return answer(0, bytes) end
local function changed(bytes) return answer(1, bytes) end
local function unread() return answer(2) end
