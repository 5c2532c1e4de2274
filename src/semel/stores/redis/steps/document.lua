-- What the steps on documents share: where a document's head is in its bytes, and the answers.
--
-- KEYS  1 lane     hash: `id` of the store, `commits` how many there were, `seq` of the newest event, `bytes:` and a
--                  tenant: of its documents' bodies; the tenant's keys are of this lane
--       2... the step's own; those that several steps have:
--         document   the packed document: what stands in semel.stores.redis.packed_documents
--         indexes    sorted set, all scores 0, one of a tenant: index, score, id
--         heads      sorted set, all scores 0, one of a lane: index, the lowest score that a tenant has in it, tenant
-- ARGV  1 the store's id   2 how many commits the caller has seen   3 the time, or nothing: the server's own
--       4... the step's own, and last the number of the request, which the answer repeats
--
-- An entry is an index behind its length, and 8 bytes of score in an order of bytes that is the order of numbers.
-- Every key is named by the caller: while a slot moves, one that is not would be taken for absent.
-- Errors: SEMELEMPTY, SEMELLOST the data went missing; SEMELDAMAGED a document is.

local HEAD_OF_DOCUMENT, BYTES_BEFORE_HEAD = '>BI4I4I4I4', 17

-- Nearly every head is shorter: then it takes one reading, and the body none.
local READ_BYTES = 1024

-- Above every score, and what stands behind it: no text has the byte 255.
local ABOVE = '\255\255\255\255\255\255\255\255\255'

-- Before a tenant, in the lane's hash.
local BYTES_OF = 'bytes:'

local commits

-- Before a step: the time, and the lane, which has to be there and as far on as the caller saw it.
local function enter()
  local told = redis.call('HMGET', KEYS[1], 'id', 'commits')
  if told[1] ~= ARGV[1] then error({err = 'SEMELEMPTY'}) end
  commits = tonumber(told[2] or 0)
  if commits < tonumber(ARGV[2]) then error({err = 'SEMELLOST'}) end
  read_clock()
end

local function strings(bytes, at, stop)
  local found, part = {}, nil
  while at < stop do
    part, at = struct.unpack('>I4c0', bytes, at)
    found[#found + 1] = part
  end
  if at ~= stop then error('damaged') end
  return found
end

-- Tag, id and entries. `bytes` are at least the head of a document that has `size` bytes.
local function head(bytes, size)
  local version, _, head_bytes, body_bytes = struct.unpack(HEAD_OF_DOCUMENT, bytes)
  local stop = BYTES_BEFORE_HEAD + head_bytes
  if version ~= 1 or size ~= stop + body_bytes then error('damaged') end
  local parts = strings(bytes, BYTES_BEFORE_HEAD + 1, stop + 1)
  local entries = {}
  for position = 4, #parts do entries[#entries + 1] = parts[position] end
  return {tag = parts[1], id = parts[3], entries = entries, body_bytes = body_bytes}
end

local function stored_bytes(key, size)
  local bytes = redis.call('GETRANGE', key, 0, READ_BYTES - 1)
  if #bytes < size then
    local _, _, head_bytes = struct.unpack(HEAD_OF_DOCUMENT, bytes)
    local wanted = BYTES_BEFORE_HEAD + head_bytes
    if wanted > #bytes then bytes = redis.call('GETRANGE', key, 0, wanted - 1) end
  end
  return bytes
end

-- The head of the document as it is kept; false if there is none. An empty string is damage, not absence.
local function stored(key)
  local size = redis.call('STRLEN', key)
  if size == 0 and redis.call('EXISTS', key) == 0 then return false end
  local sound, found = pcall(function() return head(stored_bytes(key, size), size) end)
  if not sound then error({err = 'SEMELDAMAGED'}) end
  return found
end

-- Answers: {what, now, commits, number of the request, found}.
local function told(what, found) return {what, now, commits, ARGV[#ARGV], found} end
