-- A page of the book by the time at which something on it is due next.
--
-- KEYS  1 lane   2 book   3 pages   4... the records that stand on the page
-- ARGV  1 the store's id   2 the tenant   3 number of the page   4 what stands on it, as the caller saw it
--       5 how many bytes a digest has
-- answer           1 filed; 0 something else stands there by now: it stays due

if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then error({err = 'SEMELEMPTY'}) end
local tenant, size = ARGV[2], tonumber(ARGV[5])
local open, p = pages_of(KEYS[2], tenant, tonumber(ARGV[3]))
if not p then
  redis.call('ZREM', KEYS[3], page_name(tenant, tonumber(ARGV[3])))
  return 1
end
if p.entries ~= ARGV[4] then return 0 end

local entries, due, idle = '', nil, 1
for n = 1, #p.entries / size do
  local entry = string.sub(p.entries, (n - 1) * size + 1, n * size)
  local bytes = redis.call('GET', KEYS[3 + n])
  local sound, r = pcall(fields, bytes or '')
  -- A damaged record is reported where it is read. Whose place this was may be gone, and its key have another record.
  if bytes and not (sound and r.page ~= p.page) then
    entries = entries .. entry
    local ends = sound and end_of(r)
    if ends and (not due or ends < due) then due = ends end
    if sound and r.state == PENDING then idle = 0 end
  end
end
p.entries, p.due, p.idle = entries, due and packed(due) or NONE, idle
if entries == '' then
  drop_empty_pages(KEYS[2], KEYS[3], tenant, open, p)
  if open == p and redis.call('HEXISTS', KEYS[2], tenant) == 1 then score_page(KEYS[3], tenant, p) end
else
  keep_page(KEYS[2], tenant, open, p)
  score_page(KEYS[3], tenant, p)
end
return 1
