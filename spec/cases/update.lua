--- Cases of effects, through what records them: assign, a second backward, and three steps of each optimizer under a
-- gradient that is an input. Every call makes its own parameter from the first input.
local array = require 'spec.cases.array'
local calls = array.calls
local binding = require 'wane.ffi'
local op = require 'wane.tensor.op'

local STEPS = 3

-- Returns the sums of squares of 4,096 elements each.
local function squares(x)
    local out = array.build({ math.ceil(#x / 4096) }, function() return 0 end)
    for k, v in ipairs(x) do
        local at = math.ceil(k / 4096)
        out[at] = out[at] + v * v
    end
    return out
end
local tol = { f32 = 1e-5, f64 = 1e-12 }

-- Trains p under loss = sum(p * g), so that p's gradient is g, and returns p.
local function train(make, fused)
    return function(wane, start, g)
        local p = wane.nn.Parameter(start)
        local opt = make(wane.optim, { p })
        for _ = 1, STEPS do
            local loss = (p * g):sum()
            if fused then
                opt:step(loss)
            else
                opt:zero_grad()
                loss:backward()
                opt:step()
            end
        end
        return p
    end
end

-- Returns the reference of STEPS steps of every element: rule(p, g, state, t) returns the new p.
local function steps(rule)
    return function(start, g)
        return array.map(function(p, slope)
            local state = { 0, 0 }
            for t = 1, STEPS do p = rule(p, slope, state, t) end
            return p
        end, start, g)
    end
end

-- Returns the cases of an optimizer; what: words before their names, or nil.
local function trained(make, rule, what)
    local list = {}
    for _, s in ipairs { { 'a matrix', { 3, 5 } }, { 'past a vector', { 7, 67 } }, { '0-d', {} } } do
        for _, fused in ipairs { false, true } do
            list[#list + 1] = { name = (what or '') .. s[1] .. (fused and ', in one program' or ''), tol = tol,
                inputs = { s[2], s[2] }, call = train(make, fused), ref = steps(rule) }
        end
    end
    return list
end

local function sgd(p, g) return p - 0.1 * (g + 0.01 * p) end

local function momentum(p, g, state, t)
    local d = g + 0.01 * p
    state[1] = t == 1 and d or 0.9 * state[1] + d
    return p - 0.1 * state[1]
end

local function adam(p, g, state, t)
    state[1] = 0.9 * state[1] + 0.1 * g
    state[2] = 0.999 * state[2] + 0.001 * g * g
    return p - 0.1 * (state[1] / (1 - 0.9 ^ t)) / (math.sqrt(state[2] / (1 - 0.999 ^ t)) + 1e-8)
end

local function adamw(p, g, state, t) return adam(p * (1 - 0.1 * 0.05), g, state, t) end

local function rmsprop(p, g, state)
    state[1] = 0.9 * state[1] + 0.1 * g * g
    return p - 0.1 * g / (math.sqrt(state[1]) + 1e-8)
end

local function rmsprop_momentum(p, g, state)
    state[1] = 0.9 * state[1] + 0.1 * g * g
    state[2] = 0.8 * state[2] + g / (math.sqrt(state[1]) + 1e-8)
    return p - 0.1 * state[2]
end

local function rmsprop_centered(p, g, state)
    state[1] = 0.9 * state[1] + 0.1 * g * g
    state[2] = 0.9 * state[2] + 0.1 * g
    return p - 0.1 * g / (math.sqrt(state[1] - state[2] ^ 2) + 1e-8)
end

local function lion(p, g, state)
    local mix = 0.9 * state[1] + 0.1 * g
    state[1] = 0.99 * state[1] + 0.01 * g
    return p * (1 - 0.1 * 0.05) - 0.1 * (mix > 0 and 1 or mix < 0 and -1 or 0)
end

-- Returns a function that makes a buffer follow a value, in two forwards, and returns the buffer.
local function following(name, f, n)
    return function(wane, start, v)
        local buffer = wane.nn.Buffer(start)
        for _ = 1, 2 do
            local value, at = v * 1, op.attrs()
            at.f[0], at.f[1], at.i[0] = f[1], f[2] or 0, n or 0
            binding.check(binding.C.wn_effect(value.id, op.id[name], buffer.id, at))
            wane.eval(value)
        end
        return buffer
    end
end

-- Returns a bad case of an effect of a forward value.
local function misfit(name, f, n, message)
    return { inputs = { { 3 }, { 3 } }, error = message, call = following(name, f, n) }
end

-- Returns a bad case in which an optimizer's op gets no eight numbers.
local function without_numbers(name)
    return { { inputs = { { 3 }, { 3 } }, error = name .. ': the hyperparameters are %(3%) %w+, expected %(8%) f64',
        call = calls(name) } }
end

return {
    running_mean = {
        cases = {
            { name = 'twice', inputs = { { 5 }, { 5 } }, tol = tol, call = following('running_mean', { 0.25 }),
                ref = function(start, v)
                    return array.map(function(c, m) return 0.75 * (0.75 * c + 0.25 * m) + 0.25 * m end, start, v)
                end },
            { name = 'past a vector', inputs = { { 67 }, { 67 } }, tol = tol, call = following('running_mean', { 0.1 }),
                ref = function(start, v)
                    return array.map(function(c, m) return 0.9 * (0.9 * c + 0.1 * m) + 0.1 * m end, start, v)
                end },
        },
        bad = {
            misfit('running_mean', { 1.5 }, 0, 'running_mean: momentum 1%.5 given, expected 0 to 1'),
            { inputs = { { 3 }, { 4 } }, error = 'running_mean: the buffer is %(3%) %w+, expected %(4%)',
                call = following('running_mean', { 0.1 }) },
            { inputs = { { 3 } }, error = 'running_mean: the value is there already', call = function(wane, x)
                local at = op.attrs()
                binding.check(binding.C.wn_effect(wane.eval(x * 2).id, op.id.running_mean, wane.nn.Buffer(x).id, at))
            end },
        },
    },
    running_var = {
        cases = {
            { name = 'unbiased', inputs = { { 5 }, { 5, gen = 'positive' } }, tol = tol,
                call = following('running_var', { 0.25, 0.01 }, 8),
                ref = function(start, r)
                    return array.map(function(c, rstd)
                        local v = math.max(0, 1 / (rstd * rstd) - 0.01) * 8 / 7
                        return 0.75 * (0.75 * c + 0.25 * v) + 0.25 * v
                    end, start, r)
                end },
        },
        bad = {
            misfit('running_var', { 0.1 }, 1, 'running_var: a batch of 1 elements a channel has no variance'),
            { inputs = { { 3 } }, error = "effect: relu is no effect of a forward value", call = function(wane, x)
                local at = op.attrs()
                binding.check(binding.C.wn_effect((x * 2).id, op.id.relu, wane.nn.Buffer(x).id, at))
            end },
        },
    },
    assign = {
        cases = {
            { name = 'a value', inputs = { { 3, 5 }, { 3, 5 } }, exact = true,
                call = function(wane, a, b)
                    local p = wane.nn.Parameter(a)
                    p:assign(b)
                    return p
                end,
                ref = function(_, b) return array.map(function(v) return v end, b) end },
            { name = 'what was read before', inputs = { { 4 } }, exact = true,
                call = function(wane, a)
                    local p = wane.nn.Parameter(a)
                    p:assign((p + p):detach())
                    return p
                end,
                ref = function(a) return array.map(function(v) return v + v end, a) end },
        },
        bad = {
            { inputs = { { 3, 5 }, { 5, 3 } }, error = '%(5, 3%)', call = function(wane, a, b)
                wane.nn.Parameter(a):assign(b)
            end },
        },
    },
    accumulate = {
        cases = {
            { name = 'two backward passes', inputs = { { 3, 5 }, { 3, 5 }, { 3, 5 } }, exact = true,
                call = function(wane, a, g, h)
                    local p = wane.nn.Parameter(a)
                    local first = (p * g):sum()
                    first:backward()
                    local second = (p * h):sum()
                    second:backward()
                    return p.grad
                end,
                ref = function(_, g, h) return array.map(function(v, w) return v + w end, g, h) end },
        },
        bad = {
            { inputs = { { 3, dtype = 'u8', gen = 'mask' } }, error = 'accumulate: .*u8', call = calls('accumulate') },
        },
    },
    -- Runs as one rank of one; spec/ranks_spec.lua compares the sums of many with those of one process.
    ordered_sum = { cases = { { name = 'twice', tol = tol, inputs = { { 3, 5 }, { 3, 5 } },
        call = function(wane, start, g)
            local p = wane.nn.Parameter(start)
            for _ = 1, 2 do
                require('wane.program').run { mode = 'backward', roots = { (p * g):sum() }, given = 1, is_last = true }
            end
            return p.grad
        end,
        ref = function(start, g) return array.map(function(_, slope) return 2 * slope end, start, g) end,
    } }, bad = {
        { inputs = { { 3 } }, error = 'ordered_sum: rank 0 of 0, of which 0 give, is none',
            call = calls('ordered_sum') },
    } },
    squares = { cases = {
        { name = 'of one stripe', dtype = 'f64', tol = { f32 = 1e-12, f64 = 1e-12 }, inputs = { { 3, 5 } },
            grad = false, call = calls('squares'), ref = squares },
        { name = 'of stripes', dtype = 'f64', tol = { f32 = 1e-12, f64 = 1e-12 }, inputs = { { 9, 1001 } },
            grad = false, call = calls('squares'), ref = squares },
    }, bad = {
        { inputs = { { 3, dtype = 'i32', gen = 'int:2' } }, error = 'squares: .*i32.*expected floats',
            call = calls('squares') },
    } },
    partial_sum = { cases = {
        { name = 'of pieces', tol = tol, inputs = { { 3, 5 } }, grad = false,
            call = function(_, p) return op.record('partial_sum', { p }, { dtype = p.dtype }) end,
            ref = function(p) return array.fold(p, { 0 }, false, array.sum) end },
        { name = 'that goes on', tol = tol, inputs = { { 3, 700 }, { 700 } }, grad = false,
            call = function(_, p, so_far) return op.record('partial_sum', { p, so_far }, { dtype = p.dtype }) end,
            ref = function(p, so_far)
                return array.map(function(a, b) return a + b end, array.fold(p, { 0 }, false, array.sum), so_far)
            end },
    }, bad = {
        { inputs = { { 3 } }, error = 'partial_sum: pieces of .*expected 2 dims', call = calls('partial_sum') },
        { inputs = { { 3, 5 }, { 4 } }, error = 'partial_sum: pieces of .* are added to', call = calls('partial_sum') },
    } },
    sgd = {
        cases = trained(function(optim, list) return optim.SGD(list, { lr = 0.1, weight_decay = 0.01 }) end, sgd),
        bad = without_numbers 'sgd',
    },
    momentum = {
        cases = trained(function(optim, list)
            return optim.SGD(list, { lr = 0.1, momentum = 0.9, weight_decay = 0.01 })
        end, momentum),
        bad = without_numbers 'momentum',
    },
    adam = {
        cases = array.joined(trained(function(optim, list) return optim.Adam(list, { lr = 0.1 }) end, adam),
            trained(function(optim, list) return optim.AdamW(list, { lr = 0.1, weight_decay = 0.05 }) end, adamw,
                'decoupled decay: ')),
        bad = without_numbers 'adam',
    },
    rmsprop = {
        cases = trained(function(optim, list) return optim.RMSprop(list, { lr = 0.1, alpha = 0.9 }) end, rmsprop),
        bad = without_numbers 'rmsprop',
    },
    rmsprop_momentum = {
        cases = trained(function(optim, list)
            return optim.RMSprop(list, { lr = 0.1, alpha = 0.9, momentum = 0.8 })
        end, rmsprop_momentum),
        bad = without_numbers 'rmsprop_momentum',
    },
    rmsprop_centered = {
        cases = trained(function(optim, list)
            return optim.RMSprop(list, { lr = 0.1, alpha = 0.9, centered = true })
        end, rmsprop_centered),
        bad = without_numbers 'rmsprop_centered',
    },
    lion = {
        cases = trained(function(optim, list) return optim.Lion(list, { lr = 0.1, weight_decay = 0.05 }) end, lion),
        bad = without_numbers 'lion',
    },
}
