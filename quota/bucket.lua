-- Token buckets in integers on Redis's clock. Put in front of admit.lua and settle.lua.
--
-- A bucket for `limit` tokens a minute holds at most `limit` tokens and gains limit/60,000,000 of a
-- token each microsecond. It is counted in units of that fraction: a token is UNIT units and a
-- microsecond brings `limit` units, so nothing is ever rounded. Lua's numbers are doubles, which
-- are exact up to 2^53: limits are at most 100,000,000 (quota/keys.h), a full bucket is at most
-- 6 * 10^15 units, and debt is cut where capacity + debt would pass 2^53 (for the highest limit
-- 50 million tokens, for lower ones more). floor(a / b) and a % b are exact for such a and b.
--
-- A bucket that is full is the same as one that is absent: keys expire when idle time has filled it.
local UNIT = 60000000
local EXACT_MAX = 9007199254740991

-- Lua's own conversion keeps only 14 digits.
local function int(n)
    return string.format('%.0f', n)
end

local function now_us()
    local t = redis.call('TIME')
    return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

local function ceil_div(a, b)
    local rest = a % b
    if rest == 0 then
        return a / b
    end
    return (a - rest) / b + 1
end

-- Microseconds until a bucket at `level` holds `wanted` units.
local function time_until(level, wanted, limit)
    if level >= wanted then
        return 0
    end
    return ceil_div(wanted - level, limit)
end

-- Units in the bucket now. A clock that went back brings nothing, and is counted from: a bucket that
-- only refuses would else gain nothing until the clock is where it was.
local function level_now(key, limit, now)
    local capacity = limit * UNIT
    local state = redis.call('HMGET', key, 'level', 'at')
    if not state[1] then
        return capacity
    end
    local level = math.max(tonumber(state[1]), capacity - EXACT_MAX)
    local elapsed = now - tonumber(state[2])
    if elapsed < 0 then
        redis.call('HSET', key, 'at', int(now))
        elapsed = 0
    end
    if elapsed >= time_until(level, capacity, limit) then
        return capacity
    end
    return level + elapsed * limit
end

local function store_level(key, limit, level, now)
    local capacity = limit * UNIT
    if level >= capacity then
        redis.call('DEL', key)
        return
    end
    level = math.max(level, capacity - EXACT_MAX)
    redis.call('HSET', key, 'level', int(level), 'at', int(now))
    redis.call('PEXPIRE', key, int(ceil_div(time_until(level, capacity, limit), 1000) + 1000))
end
