-- The end of a request: its slots come free, and the difference between what its reservation took
-- and what it used goes back to the buckets (or is owed). The reservation is the proof that this
-- was not done before, and is removed: a second settle changes nothing.
--
-- KEYS  as admit.lua
-- ARGV  1: request id, 2: tokens used (-1: it never ran, all goes back, the request count too),
--       3: tombstone's life in ms, 4..12: the limits in the order of the keys (0: none)
-- Answer: 1 settled, 0 there was no reservation
local now = now_us()
local used = tonumber(ARGV[2])

for i = 3, 9, 3 do
    redis.call('ZREM', KEYS[1 + i], ARGV[1])
end

local reservation = redis.call('HMGET', KEYS[1], 'tokens', 'charged')
if not reservation[1] then
    -- Its admission may still be on the way, on a connection that was given up: the tombstone
    -- makes that one come to nothing.
    if used < 0 then
        redis.call('HSET', KEYS[1], 'released', '1')
        redis.call('PEXPIRE', KEYS[1], ARGV[3])
    end
    return {0}
end

local function back_of(is_requests)
    if is_requests then
        return used < 0 and 1 or 0
    end
    return tonumber(reservation[1]) - math.max(used, 0)
end

for i = 1, 9 do
    local limit = tonumber(ARGV[3 + i])
    local back = back_of(i % 3 == 1)
    if i % 3 ~= 0 and limit > 0 and back ~= 0 and string.sub(reservation[2], i, i) == '1' then
        local key = KEYS[1 + i]
        store_level(key, limit, level_now(key, limit, now) + back * UNIT, now)
    end
end
redis.call('DEL', KEYS[1])
return {1}
