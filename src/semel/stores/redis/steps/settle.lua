-- Records how it ended, for as long as the window.
--
-- KEYS, ARGV 1-5  as in record.lua
-- ARGV  6 token   7 state   8 '1' if there is an outcome   9 outcome   10 its digest
--       11 the fence of the record that the caller holds, or nothing   12 window, or nothing: for ever   13 by
-- answer          unread: settled, and else as the caller holds it; changed or unchanged, with the record or
--                 nothing

local bytes = redis.call('GET', KEYS[1])
if bytes and ARGV[13] == '' and #bytes > 2 and string.byte(bytes) == 2 and string.byte(bytes, 2) == PENDING
  and plain(bytes) then
  local sound, _, _, flags, last, created, page, lease, _, token, body, _, stop = pcall(struct.unpack, PLAIN, bytes)
  if not sound or stop ~= #bytes + 1 then error({err = 'SEMELCORRUPT'}) end
  if token == ARGV[6] then
    -- Nearly every settlement.
    local closes, settled, digest = later(ARGV[12]), tonumber(ARGV[7]), ARGV[10]
    newest = newest + 1
    if ARGV[4] == '1' then
      if digest ~= '' and not bit(flags, SPOKEN_OF) and last ~= ZERO and newest - number(last) <= NEAR
        and now - number(created) <= RECENT then
        -- All else of it is as its claim, which is the event before it, says.
        add_event(event_head('settled', settled, REFERS, last, closes) .. digest)
      else
        local fingerprint, identity = opened(body)
        add_event(event_head('settled', settled, FENCED, last, closes) .. created
          .. behind_length(digest ~= '' and digest or fingerprint) .. identity)
      end
      last = packed(newest)
    end
    local after = struct.pack(PLAIN, 2, settled, flags + tonumber(ARGV[8]), last, created, page, now8, closes, #token,
      token, #body, body, #digest, digest) .. ARGV[9]
    redis.call('SET', KEYS[1], after)
    count(PENDING, settled)
    if closes ~= NONE and number(closes) < number(lease) then file(parsed(after)) end
    redis.call('PUBLISH', KEYS[1], '')
    if ARGV[11] == created then return unread() end
    return changed(after)
  end
end

local r = bytes and parsed(bytes)
if not r or r.token ~= ARGV[6] or not unsettled(r) then return unchanged(bytes) end

local state_before, end_before = r.state, end_of(r)
r.state, r.lease, r.settled, r.expires = tonumber(ARGV[7]), NONE, now8, later(ARGV[12])
r.told, r.outcome, r.digest, r.note, r.by = tonumber(ARGV[8]), ARGV[9], ARGV[10], '', ARGV[13]
local after = write(r, 'settled', state_before, end_before)
-- What the claim was answered changes only together with the fence.
if ARGV[11] == r.fence and state_before == PENDING then return unread() end
return changed(after)
