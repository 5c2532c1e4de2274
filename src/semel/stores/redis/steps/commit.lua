-- Writes and removes documents, with their events, if all are as expected and there is capacity; else nothing.
--
-- KEYS  1 lane   2 indexes   3 heads   4... documents, the first written one first
--       then, if there are events: ids, events as in record.lua; of each event the record at its address, if any
-- ARGV  1-3 as in document.lua   4 the tenant   5 the tag of what is written, or nothing: nothing is
--       6 how many capacities   7 how many events   8 the newest seq that the caller saw
--       9... of each capacity: from, to, and its limit: so many must not stand there already
--       then of each document: '' or '-' if it was absent or '=' and the tag that the caller saw;
--       '' or '-' to remove it or '+' to write it; what is written
--       then of each event: digest of its address; id of its record; the event after its link
-- answer           1 done, now or before; now, and with events: the seq of the last one;
--                  0 {{number of the document, the document or nothing}, ...} those that are not as expected;
--                  2 {number of the capacity, how many stand there}
-- Errors: also SEMELCORRUPT, the record of an event is damaged.

local capacities, events = tonumber(ARGV[6]), tonumber(ARGV[7])
local documents = #KEYS - 3 - (events > 0 and 2 + events or 0)
local function of_document(n, what) return ARGV[8 + 3 * capacities + 3 * (n - 1) + what] end
local function of_event(n, what) return ARGV[8 + 3 * (capacities + documents) + 3 * (n - 1) + what] end

local before = {}
for n = 1, documents do before[n] = stored(KEYS[3 + n]) end

-- It was carried out, and its reply lost.
if ARGV[5] ~= '' and before[1] and before[1].tag == ARGV[5] then return told(1) end

local found = {}
for n = 1, documents do
  local seen, is = of_document(n, 1), before[n] and '=' .. before[n].tag or '-'
  if seen ~= '' and seen ~= is then found[#found + 1] = {n, redis.call('GET', KEYS[3 + n])} end
end
if #found > 0 then return told(0, found) end

for n = 1, capacities do
  local count = redis.call('ZLEXCOUNT', KEYS[2], ARGV[6 + 3 * n], ARGV[7 + 3 * n])
  if count >= tonumber(ARGV[8 + 3 * n]) then return told(2, {n, count}) end
end

-- Where documents stood and where they will: most stay in most of their indexes.
local stood, stands, index_of, touched, more_bytes = {}, {}, {}, {}, 0
local function note_entries(members, document)
  for _, entry in ipairs(document.entries) do
    local member = entry .. document.id
    members[member], index_of[member] = true, string.sub(entry, 1, -9)
  end
end
for n = 1, documents do
  local what, bytes = of_document(n, 2), of_document(n, 3)
  if what ~= '' and before[n] then
    note_entries(stood, before[n])
    more_bytes = more_bytes - before[n].body_bytes
  end
  if what == '+' then
    local written = head(bytes, #bytes)
    note_entries(stands, written)
    more_bytes = more_bytes + written.body_bytes
  end
end

local function first_on(index)
  return redis.call('ZRANGEBYLEX', KEYS[2], '[' .. index, '(' .. index .. ABOVE, 'LIMIT', 0, 1)[1] or false
end
for member, index in pairs(index_of) do
  if stood[member] ~= stands[member] and touched[index] == nil then touched[index] = first_on(index) end
end

-- Raises if KEYS[3] is no sorted set: after the first write that would be too late.
redis.call('ZCARD', KEYS[3])

if events > 0 then
  newest = tonumber(redis.call('HGET', KEYS[1], 'seq') or 0)
  if newest < tonumber(ARGV[8]) then error({err = 'SEMELLOST'}) end
  local ids, stream, stories = KEYS[4 + documents], KEYS[5 + documents], {}
  for n = 1, events do
    local id = of_event(n, 2)
    stories[id] = stories[id] or story_of(id, ids, KEYS[5 + documents + n], of_event(n, 1))
  end
  for n = 1, events do tell(stories[of_event(n, 2)], stream, of_event(n, 3)) end
  redis.call('HSET', KEYS[1], 'seq', string.format('%.0f', newest))
end

commits = redis.call('HINCRBY', KEYS[1], 'commits', 1)
if more_bytes ~= 0 then redis.call('HINCRBY', KEYS[1], BYTES_OF .. ARGV[4], more_bytes) end
for n = 1, documents do
  local what = of_document(n, 2)
  if what == '+' then
    redis.call('SET', KEYS[3 + n], of_document(n, 3))
  elseif what == '-' then
    redis.call('DEL', KEYS[3 + n])
  end
end
for member in pairs(index_of) do
  if not stands[member] then
    redis.call('ZREM', KEYS[2], member)
  elseif not stood[member] then
    redis.call('ZADD', KEYS[2], 0, member)
  end
end

-- Sweepers find a tenant by the first member of each of its indexes.
local function head_of(index, member) return string.sub(member, 1, #index + 8) .. ARGV[4] end
for index, first in pairs(touched) do
  local now_first = first_on(index)
  if first ~= now_first then
    if first then redis.call('ZREM', KEYS[3], head_of(index, first)) end
    if now_first then redis.call('ZADD', KEYS[3], 0, head_of(index, now_first)) end
  end
end
return told(1, events > 0 and newest or nil)
