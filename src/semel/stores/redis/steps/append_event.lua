-- Writes one counted event, linked with the record's earlier ones.
--
-- KEYS, ARGV 1-5  as in record.lua
-- ARGV  6 id of the record   7 the event after its link
-- answer          changed, without the record

tell(story_of(ARGV[6], KEYS[5], KEYS[1], ARGV[5]), KEYS[6], ARGV[7])
redis.call('HSET', KEYS[2], 'seq', digits(newest))
return changed()
