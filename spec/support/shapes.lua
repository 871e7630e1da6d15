--- Makes graphs of any size for the specs of planning at size: shapes.NAME(n) returns a function that records a loss.
local wane = require 'wane'
local chains = require 'spec.support.chains'
local stacks = require 'spec.support.stacks'
local nn = wane.nn

local shapes = {}

function shapes.even(n)
    local m = stacks.linear(stacks.equal(n, 64), function() return nn.GELU() end)
    local x = wane.randn(256, 64)
    return function() return m(x):sum() end
end

-- Returns a function that records residual blocks, each of a width and with an activation of its own.
function shapes.uneven(blocks)
    local random, list = chains.random(12345), {}
    local acts = { 'gelu', 'relu', 'tanh', 'silu', 'sigmoid' }
    for i = 1, blocks do
        local width = 8 * random(4, 48)
        list[i] = { norm = nn.LayerNorm(64), a = nn.Linear(64, width), b = nn.Linear(width, 64),
            act = acts[random(1, 5)], gate = random(0, 1) == 1 and acts[random(1, 5)] }
    end
    local x = wane.randn(64, 64)
    return function()
        local h = x
        for _, b in ipairs(list) do
            local t = b.a(b.norm(h))
            t = t[b.act](t)
            if b.gate then t = t * t[b.gate](t) end
            h = h + b.b(t)
        end
        return h:sum()
    end
end

-- Returns a function that records a graph without cuts: every layer reads those 3 and 9 before it.
function shapes.skips(n)
    local list, x = {}, wane.randn(64, 64)
    for i = 1, n do list[i] = nn.Linear(64, 64) end
    return function()
        local h, was = x, {}
        for i = 1, n do
            h = list[i](h):gelu()
            if was[i - 3] then h = h + was[i - 3] end
            if was[i - 9] then h = h + was[i - 9] end
            was[i] = h
        end
        return h:sum()
    end
end

function shapes.rnn(n)
    local a, b, x = nn.Linear(64, 64), nn.Linear(64, 64), wane.randn(32, 64)
    return function()
        local h = wane.zeros(32, 64)
        for _ = 1, n do h = (a(x) + b(h)):tanh() end
        return h:sum()
    end
end

-- Returns a function that records one value read by n branches.
function shapes.fan(n)
    local a, list, x = nn.Linear(64, 64), {}, wane.randn(64, 64)
    for i = 1, n do list[i] = nn.Linear(64, 32) end
    return function()
        local h, out = a(x):gelu(), wane.zeros()
        for i = 1, n do out = out + list[i](h):tanh():sum() end
        return out
    end
end

-- Returns a function that records one value that n nodes read.
function shapes.readers(n)
    local a, x = nn.Linear(64, 64), wane.randn(64, 64)
    return function()
        local h, out = a(x):gelu(), nil
        for i = 1, n do
            local t = h * (i / n)
            out = out and out + t or t
        end
        return out:sum()
    end
end

function shapes.parameters(n)
    local list, x = {}, wane.randn(64)
    for i = 1, n do list[i] = nn.Parameter(wane.randn(64)) end
    return function()
        local h = x
        for i = 1, n do h = (h * list[i]):tanh() end
        return h:sum()
    end
end

-- Returns a function that records two towers over one trunk.
function shapes.two(n)
    local trunk, a, b, x = {}, {}, {}, wane.randn(64, 64)
    for i = 1, n do trunk[i], a[i], b[i] = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64) end
    return function()
        local h = x
        for i = 1, n do h = trunk[i](h):gelu() end
        local p, q = h, h
        for i = 1, n do p, q = a[i](p):gelu(), b[i](q):tanh() end
        return (p + q):sum()
    end
end

return shapes
