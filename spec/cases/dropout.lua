--- Cases of dropout: each element is 0 or x / (1 - p), and its gradient makes the same choice. Every call seeds again,
-- so the choice is a function of the element, and finite differences apply.
local array = require 'spec.cases.array'
local record = array.record

local function drop(p)
    return function(_, x) return record('dropout', { x }, { f = { p } }) end
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
