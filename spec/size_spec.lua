-- Planning at size: counts of work, not seconds. Four times the graph takes about four times the work, whatever its
-- shape; placing meets its bound where it can; what is only looked at is not kept.
local helper = require 'spec.helper'
local wane = helper.wane
local C = require('wane.ffi').C
local nn = wane.nn
local LONG = os.getenv('WANE_SPEC_LONG') == '1'

local shapes = {}

function shapes.even(n)
    local layers = {}
    for _ = 1, n do
        layers[#layers + 1] = nn.Linear(64, 64)
        layers[#layers + 1] = nn.GELU()
    end
    local m, x = nn.Sequential(layers), wane.randn(256, 64)
    return function() return m(x):sum() end
end

-- Residual blocks of widths of their own.
function shapes.uneven(n)
    local list, x = {}, wane.randn(64, 64)
    for i = 1, n do
        local width = 8 * (4 + i * 29 % 45)
        list[i] = { norm = nn.LayerNorm(64), a = nn.Linear(64, width), b = nn.Linear(width, 64) }
    end
    return function()
        local h = x
        for _, b in ipairs(list) do h = h + b.b(b.a(b.norm(h)):gelu()) end
        return h:sum()
    end
end

-- No cuts: every layer reads those 3 and 9 before it.
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

-- One value read by n branches.
function shapes.fan(n)
    local a, list, x = nn.Linear(64, 64), {}, wane.randn(64, 64)
    for i = 1, n do list[i] = nn.Linear(64, 32) end
    return function()
        local h, out = a(x):gelu(), wane.zeros()
        for i = 1, n do out = out + list[i](h):tanh():sum() end
        return out
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

-- Two towers over one trunk.
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

local function count(what) return tonumber(C.wn_debug_get(what)) end

-- Instructions of Lua's machine that fn takes, in thousands; compiled code counts none, so nothing is compiled.
local function lua_work(fn)
    local thousands, was_on = 0, jit.status()
    jit.off()
    jit.flush()
    debug.sethook(function() thousands = thousands + 1 end, '', 1000)
    local ok, why = pcall(fn)
    debug.sethook()
    if was_on then jit.on() end
    assert(ok, why)
    return thousands
end

describe('planning at size', function()
    local device
    setup(function() device = wane.set_device 'meta' end)
    teardown(function() wane.set_device(device) end)

    it('records and plans four times as many modules with no more than four times the work of Lua', function()
        for _, name in ipairs { 'uneven', 'fan', 'parameters', 'rnn' } do
            local n = LONG and 400 or 100
            local small, large = shapes[name](n), shapes[name](4 * n)
            local a, b = lua_work(function() wane.plan(small) end), lua_work(function() wane.plan(large) end)
            assert.is_true(b <= 4.6 * a + 50, ('%s: %d thousand instructions, then %d'):format(name, a, b))
        end
    end)

    it('makes the list of four times as many nodes with no more than five times as many boxes placed', function()
        local list = { 'even', 'skips', 'fan' }
        if LONG then list = { 'even', 'uneven', 'skips', 'rnn', 'fan', 'parameters', 'two' } end
        for _, name in ipairs(list) do
            local function placed(n)
                local before = count 'placed_boxes'
                wane.min_budget(shapes[name](n))
                return count 'placed_boxes' - before
            end
            local n = LONG and 120 or 40
            local a, b = placed(n), placed(4 * n)
            assert.is_true(b <= 5 * a + 1000, ('%s: %d boxes placed, then %d'):format(name, a, b))
        end
    end)

    it('places the values of long programs within 2 % of what is alive at once', function()
        for _, name in ipairs { 'even', 'skips', 'two', 'rnn' } do
            local p = wane.plan(shapes[name](100))
            assert.is_true(p.reserved <= p.peak + 0.02 * p.arena, ('%s: %d bytes reserved, %d at the peak'):format(name,
                p.reserved, p.peak))
        end
    end)

    it('keeps no plan that a frontier only compares with', function()
        C.wn_debug('forget_plans', 1)
        local fn = shapes.uneven(4)
        local points = wane.frontier(fn)
        assert.is_true(#points.heuristics >= 5)
        assert.equal(0, count 'plans')
        wane.plan(fn)
        assert.equal(1, count 'plans')
        wane.frontier(fn) -- the script's own plan was there before, so it stays
        assert.equal(1, count 'plans')
    end)
end)
