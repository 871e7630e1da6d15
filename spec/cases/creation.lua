--- Cases of creation ops, which compute values from attributes alone: random values are checked by range, moments and
-- repetition. And of dropout: each element is 0 or x / (1 - p), and its gradient makes the same choice. Every call
-- seeds again, so the choice is a function of the element, and finite differences apply.
local array = require 'spec.cases.array'
local record, calls = array.record, array.calls

local function within(low, high, mean, slack)
    return function(r)
        local sum = 0
        for k = 1, array.count(r.shape) do
            if not (r[k] >= low and r[k] < high) then return false, 'out of range: ' .. tostring(r[k]) end
            sum = sum + r[k]
        end
        local have = sum / array.count(r.shape)
        return math.abs(have - mean) < slack, 'mean ' .. have
    end
end

local function whole(check)
    return function(r)
        for k = 1, array.count(r.shape) do
            if r[k] % 1 ~= 0 then return false, 'not whole: ' .. r[k] end
        end
        return check(r)
    end
end

local function constant(v)
    return function() return array.build({ 2, 3 }, function() return v end) end
end

-- ---- dropout -------------------------------------------------------------------------------------------------------

local function drop(p)
    return calls('dropout', { f = { p } })
end

local function chosen(p, rate)
    return function(r, x)
        local kept, n = 0, array.count(x.shape)
        for k = 1, n do
            local scaled = x[k] / (1 - p)
            if r[k] ~= 0 then
                kept = kept + 1
                if math.abs(r[k] - scaled) > 1e-6 * math.abs(scaled) then
                    return false, ('element %d: %.9g is neither 0 nor %.9g'):format(k, r[k], scaled)
                end
            end
        end
        return not rate or math.abs(kept / n - rate) < 0.03, 'kept ' .. kept .. ' of ' .. n
    end
end

return {
    full = {
        cases = {
            { name = 'floats', inputs = {}, exact = true, only = 'f32', ref = constant(0.5),
                call = function(wane) return wane.full({ 2, 3 }, 0.5) end },
            { name = 'i32', inputs = {}, exact = true, only = 'f32', dtype = 'i32', ref = constant(-7),
                call = function(wane) return wane.full({ 2, 3 }, -7, { dtype = 'i32' }) end },
            { name = 'no elements', inputs = {}, only = 'f64', ref = function() return { shape = { 0, 3 } } end,
                call = function(wane) return wane.zeros(0, 3, { dtype = 'f64' }) end },
        },
        bad = {
            { inputs = {}, error = 'full: .*i32', call = function()
                return record('full', {}, { i = { 2 }, f = { 0.5 }, dtype = 'i32' })
            end },
            { inputs = {}, error = 'full: .*64 bits', call = function()
                return record('full', {}, { i = { 2 ^ 40, 2 ^ 40 }, f = { 0 }, dtype = 'f32' })
            end },
            { inputs = {}, error = 'full: .*not in this version', call = function()
                return record('full', {}, { i = { 2 }, f = { 0 }, dtype = 'f16' })
            end },
        },
    },
    arange = {
        cases = {
            { name = 'from 0', inputs = {}, exact = true, only = 'f32',
                ref = function() return array.build({ 10 }, function(i) return i[1] end) end,
                call = function() return record('arange', {}, { i = { 10 }, f = { 0, 1 }, dtype = 'f32' }) end },
            { name = 'by a step', inputs = {}, exact = true, only = 'f64',
                ref = function() return array.build({ 5 }, function(i) return 2 - 0.5 * i[1] end) end,
                call = function() return record('arange', {}, { i = { 5 }, f = { 2, -0.5 }, dtype = 'f64' }) end },
        },
        bad = {
            { inputs = {}, error = 'arange: shape %(2, 2%) given', call = function()
                return record('arange', {}, { i = { 2, 2 }, f = { 0, 1 }, dtype = 'f32' })
            end },
        },
    },
    eye = {
        cases = {
            { name = 'square', inputs = {}, exact = true, only = 'f32', call = function(wane) return wane.eye(3) end,
                ref = function() return array.build({ 3, 3 }, function(i) return i[1] == i[2] and 1 or 0 end) end },
            { name = 'wide', inputs = {}, exact = true, only = 'f64',
                ref = function() return array.build({ 2, 4 }, function(i) return i[1] == i[2] and 1 or 0 end) end,
                call = function() return record('eye', {}, { i = { 2, 4 }, dtype = 'f64' }) end },
        },
        bad = {
            { inputs = {}, error = 'eye: shape %(4%) given', call = function()
                return record('eye', {}, { i = { 4 }, dtype = 'f32' })
            end },
        },
    },
    uniform = {
        cases = {
            { name = 'unit', inputs = {}, seeded = true, only = 'f32', check = within(0, 1, 0.5, 0.03),
                call = function(wane) return wane.rand(40, 50) end },
            { name = 'from -2 to 3', inputs = {}, seeded = true, only = 'f64', check = within(-2, 3, 0.5, 0.15),
                call = function() return record('uniform', {}, { i = { 2001 }, f = { -2, 3 }, dtype = 'f64' }) end },
        },
        bad = {
            { inputs = {}, error = 'uniform: from 3 to %-2', call = function()
                return record('uniform', {}, { i = { 4 }, f = { 3, -2 }, dtype = 'f32' })
            end },
            { inputs = {}, error = 'uniform: dtype i32', call = function()
                return record('uniform', {}, { i = { 4 }, f = { 0, 1 }, dtype = 'i32' })
            end },
        },
    },
    normal = {
        cases = {
            { name = 'standard', inputs = {}, seeded = true, only = 'f32', check = within(-8, 8, 0, 0.1),
                call = function(wane) return wane.randn(40, 50) end },
            { name = 'mean 5, std 0.1', inputs = {}, seeded = true, only = 'f64', check = within(4, 6, 5, 0.01),
                call = function() return record('normal', {}, { i = { 2003 }, f = { 5, 0.1 }, dtype = 'f64' }) end },
        },
        bad = {
            { inputs = {}, error = 'normal: mean 0 and std %-1', call = function()
                return record('normal', {}, { i = { 4 }, f = { 0, -1 }, dtype = 'f32' })
            end },
        },
    },
    randint = {
        cases = {
            { name = 'a die', inputs = {}, seeded = true, only = 'f32', dtype = 'i32',
                check = whole(within(0, 6, 2.5, 0.15)), call = function(wane) return wane.randint(6, { 2000 }) end },
            { name = 'one value', inputs = {}, seeded = true, only = 'f32', dtype = 'i32', exact = true,
                ref = function() return array.build({ 9 }, function() return -3 end) end,
                call = function() return record('randint', {}, { i = { 9 }, f = { -3, -2 }, dtype = 'i32' }) end },
        },
        bad = {
            { inputs = {}, error = 'randint: from 5 to 5', call = function()
                return record('randint', {}, { i = { 4 }, f = { 5, 5 }, dtype = 'i32' })
            end },
        },
    },
    dropout = {
        cases = {
            { name = 'a tenth', inputs = { { 40, 100, gen = 'away' } }, seeded = true, call = drop(0.1),
                check = chosen(0.1, 0.9) },
            { name = 'half, differentiated', inputs = { { 5, 7, gen = 'away' } }, seeded = true, call = drop(0.5),
                check = chosen(0.5), grad = true },
            { name = 'nothing', inputs = { { 3, 4 } }, seeded = true, call = drop(0), grad = true, exact = true,
                ref = function(x) return array.map(function(v) return v end, x) end },
            { name = 'everything', inputs = { { 3, 4 } }, seeded = true, call = drop(1), grad = true, exact = true,
                ref = function(x) return array.map(function() return 0 end, x) end },
            { name = 'no elements', inputs = { { 0, 4 } }, seeded = true, call = drop(0.5),
                ref = function() return { shape = { 0, 4 } } end },
        },
        bad = {
            { inputs = { { 3 } }, error = 'dropout: p is 1.5', call = drop(1.5) },
            { inputs = { { 3, dtype = 'i32', gen = 'int:4' } }, error = 'dropout: .*f32' },
        },
    },
}
