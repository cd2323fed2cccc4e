-- One decision over all limits, all or nothing: a refusal changes no bucket and takes no slot.
--
-- KEYS  1: the reservation; then for each of tenant, project, key: bucket of requests, bucket of
--       tokens, slots
-- ARGV  1: request id, 2: tokens to reserve, 3: slot's life in ms, 4: reservation's life in ms,
--       5..13: the limits in the order of the keys (0: none)
-- Answer: code (0 granted, 1 limited, 2 could never pass, 3 the id is known already), index of the
--       limit that refused (0: none), microseconds until it would pass, then for requests and for
--       tokens: limit, remaining, microseconds until full, of the limit that leaves least.
local REQUESTS, TOKENS, SLOTS = 0, 1, 2
-- A slot may come free at any moment; its deadline is only the latest.
local SLOT_RETRY_US = 1000000

local now = now_us()
local id, tokens = ARGV[1], tonumber(ARGV[2])
local slot_ms, reservation_ms = tonumber(ARGV[3]), tonumber(ARGV[4])
local levels = {}
local least = {[REQUESTS] = {0, 0, 0}, [TOKENS] = {0, 0, 0}}
local code, refused, wait = 0, 0, 0

if redis.call('EXISTS', KEYS[1]) == 1 then
    return {3, 0, 0, 0, 0, 0, 0, 0, 0}
end

local function kind_of(i)
    return (i - 1) % 3
end

local function limit_of(i)
    return tonumber(ARGV[4 + i])
end

local function cost_of(i)
    return kind_of(i) == REQUESTS and 1 or tokens
end

-- The refusal that takes longest to pass is the one to tell: waiting less is in vain.
local function refuse(i, new_code, new_wait)
    if new_code > code or (new_code == code and new_wait > wait) then
        code, refused, wait = new_code, i, new_wait
    end
end

local function check_bucket(i, key, limit)
    local cost = cost_of(i)
    levels[i] = level_now(key, limit, now)
    if cost > limit then
        refuse(i, 2, 0)
    elseif levels[i] < cost * UNIT then
        refuse(i, 1, time_until(levels[i], cost * UNIT, limit))
    end
end

local function check_slots(i, key, limit)
    redis.call('ZREMRANGEBYSCORE', key, '-inf', int(now))
    if redis.call('ZCARD', key) >= limit then
        local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
        refuse(i, 1, math.min(tonumber(first[2]) - now, SLOT_RETRY_US))
    end
end

local function take_slot(key)
    redis.call('ZADD', key, int(now + slot_ms * 1000), id)
    if redis.call('PTTL', key) < slot_ms + 1000 then
        redis.call('PEXPIRE', key, int(slot_ms + 1000))
    end
end

local function note_least(i, limit)
    local best = least[kind_of(i)]
    local level = math.max(levels[i], 0)
    local remaining = (level - level % UNIT) / UNIT
    if best[1] == 0 or remaining < best[2] then
        least[kind_of(i)] = {limit, remaining, time_until(levels[i], limit * UNIT, limit)}
    end
end

for i = 1, 9 do
    local limit = limit_of(i)
    if limit > 0 and kind_of(i) == SLOTS then
        check_slots(i, KEYS[1 + i], limit)
    elseif limit > 0 then
        check_bucket(i, KEYS[1 + i], limit)
    end
end

local charged = ''
for i = 1, 9 do
    local limit = limit_of(i)
    charged = charged .. (limit > 0 and '1' or '0')
    if code == 0 and limit > 0 and kind_of(i) == SLOTS then
        take_slot(KEYS[1 + i])
    elseif code == 0 and limit > 0 then
        levels[i] = levels[i] - cost_of(i) * UNIT
        store_level(KEYS[1 + i], limit, levels[i], now)
    end
    if limit > 0 and kind_of(i) ~= SLOTS then
        note_least(i, limit)
    end
end
if code == 0 then
    redis.call('HSET', KEYS[1], 'tokens', int(tokens), 'charged', charged)
    redis.call('PEXPIRE', KEYS[1], int(reservation_ms))
end

local r, t = least[REQUESTS], least[TOKENS]
return {code, refused, wait, r[1], r[2], r[3], t[1], t[2], t[3]}
