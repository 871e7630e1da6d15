-- Checks planning at size by counts of work, not by seconds: four times the graph must take about four times the work,
-- whatever its shape; placing must meet its bound where it can; what is only looked at must not be kept.
local helper = require 'spec.helper'
local wane = helper.wane
local C = require('wane.ffi').C
local shapes = require 'spec.support.shapes'
local LONG = os.getenv('WANE_SPEC_LONG') == '1'

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
