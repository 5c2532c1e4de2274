-- Records how it ended, for as long as the window.
--
-- KEYS, ARGV 1-5  as in record.lua
-- ARGV  6 token   7 state   8 '1' if there is an outcome   9 outcome   10 its digest
--       11 window, or nothing: for ever   12 by
--       13 the fence of the record that the caller holds, or nothing   14 then: the settled record behind its head
--       15 and its event behind its times
-- answer          unread: settled, and else as the caller holds it; changed or unchanged, with the record or
--                 nothing

if ARGV[13] ~= '' then
  -- Nearly every settlement: what the claim was answered changes only together with the fence, so the caller
  -- has packed all of it but the times.
  local head = redis.call('GETRANGE', KEYS[1], 0, 66)
  if #head == 67 then
    local version, state, _, fence, attempts, entries, created, entered, lease, _, expires, last =
      struct.unpack(HEAD, head)
    if version == 1 and fence == ARGV[13] and state == PENDING then
      local closes, settled = later(ARGV[11]), tonumber(ARGV[7])
      last = note_packed(last, fence, closes, ARGV[15])
      redis.call('SET', KEYS[1], struct.pack(HEAD, 1, settled, tonumber(ARGV[8]), fence, attempts, entries, created,
        entered, NONE, now8, closes, last) .. ARGV[14])
      count(PENDING, settled)
      if closes ~= NONE and number(closes) < number(lease) then
        redis.call('ZADD', KEYS[3], 'LT', string.format('%.0f', number(closes)), ARGV[5])
      end
      redis.call('PUBLISH', KEYS[1], '')
      return unread()
    end
  end
end

local r, bytes = read()
if not r or r.token ~= ARGV[6] or not unsettled(r) then return unchanged(bytes) end

local state_before, end_before = r.state, end_of(r)
r.state, r.lease, r.settled, r.expires = tonumber(ARGV[7]), NONE, now8, later(ARGV[11])
r.told, r.outcome, r.digest, r.note, r.by = tonumber(ARGV[8]), ARGV[9], ARGV[10], '', ARGV[12]
return changed(write(r, 'settled', state_before, end_before))
