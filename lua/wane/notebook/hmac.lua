--- HMAC-SHA256 (RFC 2104, FIPS 180-4), which signs the messages of a notebook.
--
-- A word of 32 bits is a number of LuaJIT's `bit`, signed.
-- @internal wane.notebook.hmac

local band, bnot, bxor, ror, rshift, tobit = bit.band, bit.bnot, bit.bxor, bit.ror, bit.rshift, bit.tobit

local hmac = {}

local BLOCK = 64 -- bytes

-- Returns the first n prime numbers.
local function primes(n)
    local list, candidate = {}, 2
    while #list < n do
        local is_prime = true
        for _, p in ipairs(list) do is_prime = is_prime and candidate % p ~= 0 end
        if is_prime then list[#list + 1] = candidate end
        candidate = candidate + 1
    end
    return list
end

-- Returns floor(2^32 * fraction of the root of p), exactly: a double's own root has 53 bits, of which a root below 8
-- leaves 50 to its fraction.
local function fraction_bits(p, exponent)
    local root = p ^ exponent
    return tobit(math.floor((root - math.floor(root)) * 2 ^ 32))
end

local START, ROUND = {}, {} -- the first state; one constant a round
for i, p in ipairs(primes(64)) do
    ROUND[i] = fraction_bits(p, 1 / 3)
    if i <= 8 then START[i] = fraction_bits(p, 1 / 2) end
end

-- Returns a text with SHA-256's padding: 0x80, zeros, the number of bits in 8 bytes.
local function padded(text)
    local bits = #text * 8
    local high, low = math.floor(bits / 2 ^ 32), bits % 2 ^ 32
    local function bytes(x)
        return string.char(math.floor(x / 2 ^ 24), math.floor(x / 2 ^ 16) % 256, math.floor(x / 256) % 256, x % 256)
    end
    return text .. '\128' .. ('\0'):rep((55 - #text) % BLOCK) .. bytes(high) .. bytes(low)
end

-- Fills the 64 words of the block that begins at byte `at`.
local function schedule(w, text, at)
    for i = 1, 16 do
        local a, b, c, d = text:byte(at + 4 * i - 4, at + 4 * i - 1)
        w[i] = tobit(a * 2 ^ 24 + b * 2 ^ 16 + c * 2 ^ 8 + d)
    end
    for i = 17, 64 do
        local x, y = w[i - 15], w[i - 2]
        local s0 = bxor(ror(x, 7), ror(x, 18), rshift(x, 3))
        local s1 = bxor(ror(y, 17), ror(y, 19), rshift(y, 10))
        w[i] = tobit(w[i - 16] + s0 + w[i - 7] + s1)
    end
end

-- Updates the state by one block.
local function compress(state, w)
    local a, b, c, d, e, f, g, h = unpack(state)
    for i = 1, 64 do
        local s1 = bxor(ror(e, 6), ror(e, 11), ror(e, 25))
        local t1 = tobit(h + s1 + bxor(band(e, f), band(bnot(e), g)) + ROUND[i] + w[i])
        local s0 = bxor(ror(a, 2), ror(a, 13), ror(a, 22))
        local t2 = tobit(s0 + bxor(band(a, b), band(a, c), band(b, c)))
        h, g, f, e, d, c, b, a = g, f, e, tobit(d + t1), c, b, a, tobit(t1 + t2)
    end
    local added = { a, b, c, d, e, f, g, h }
    for i = 1, 8 do state[i] = tobit(state[i] + added[i]) end
end

--- Returns the SHA-256 of a text.
-- @param text bytes
-- @return 32 bytes
function hmac.sha256(text)
    local state, w = { unpack(START) }, {}
    local whole = padded(text)
    for at = 1, #whole, BLOCK do
        schedule(w, whole, at)
        compress(state, w)
    end
    local out = {}
    for i, word in ipairs(state) do
        out[i] = string.char(rshift(word, 24), band(rshift(word, 16), 255), band(rshift(word, 8), 255), band(word, 255))
    end
    return table.concat(out)
end

--- Returns bytes as lower-case hexadecimal digits.
-- @param text bytes
function hmac.hex(text)
    return (text:gsub('[%z\1-\255]', function(c) return ('%02x'):format(c:byte()) end))
end

-- Returns the key, one block long, with every byte combined with a constant.
local function pad(key, constant)
    return (key:gsub('[%z\1-\255]', function(c) return string.char(bxor(c:byte(), constant)) end))
end

--- Returns the HMAC-SHA256 of a text.
-- @param key bytes, of any length
-- @param text bytes
-- @return 64 hexadecimal digits
function hmac.sign(key, text)
    if #key > BLOCK then key = hmac.sha256(key) end
    key = key .. ('\0'):rep(BLOCK - #key)
    return hmac.hex(hmac.sha256(pad(key, 0x5c) .. hmac.sha256(pad(key, 0x36) .. text)))
end

return hmac
