-- Checks that the list of plans can be made in slices (base/slices.c, wn_frontier), so that a long wait is shown and ^C
-- is heard. The list must not depend on where it was cut, nothing may be lost when it is stopped, and the number of
-- plans looked at must shrink as graphs grow, or planning time would grow with the square of their size.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local binding = require 'wane.ffi'
local program = require 'wane.program'
local C, nn = binding.C, wane.nn
local LONG = os.getenv('WANE_SPEC_LONG') == '1'

local function stack(blocks, width)
    local layers = {}
    for i = 1, blocks do
        layers[#layers + 1] = nn.Linear(width, width)
        layers[#layers + 1] = i % 3 == 0 and nn.ReLU() or nn.GELU()
    end
    local m, x = nn.Sequential(layers), wane.randn(64, width)
    return function() return m(x):sum() end
end

-- Makes the list of plans of fn in slices of so many seconds; returns its points as text, how many slices it took, and
-- how many plans were looked at.
local function list_of(fn, seconds)
    local p, point = program.open(require('wane.program.sequence').only(fn, 'spec')), binding.new('struct wn_point')
    local at, n, slices, rows = binding.new('int32_t[2]'), 0, 0, {}
    while n == 0 do
        n, slices = binding.id(C.wn_frontier(p.handle, seconds, at)), slices + 1
        assert(n > 0 or at[0] < at[1])
    end
    for i = 0, n - 1 do
        binding.check(C.wn_point(p.handle, i, point))
        rows[#rows + 1] = ('%.0f %.17g %s'):format(tonumber(point.reserved), point.seconds, binding.text(point.name))
    end
    local tried = point.tried
    p:close()
    return table.concat(rows, '\n'), slices, tried
end

describe('planning in slices', function()
    local before
    setup(function() before = wane.set_device 'meta' end)
    teardown(function()
        wane.set_device(before)
        C.wn_interrupt(0)
    end)

    it('gives one list however it is cut', function()
        local fn = stack(40, 24)
        local want, whole = list_of(fn, 1e9)
        assert.equal(1, whole)
        C.wn_debug('forget_plans', 1)
        local got, slices = list_of(fn, 0)
        assert(slices > 50, slices)
        assert.equal(want, got)
    end)

    it('is stopped between slices, by ^C or by another request, and loses nothing', function()
        local fn, other = stack(40, 32), stack(36, 32)
        local want = list_of(fn, 1e9)
        C.wn_debug('forget_plans', 1)
        local p = program.open(require('wane.program.sequence').only(fn, 'spec'))
        assert.equal(0, C.wn_frontier(p.handle, 0, binding.new('int32_t[2]')))
        p:close()
        list_of(other, 1e9)
        C.wn_interrupt(1)
        local ok, e = pcall(wane.min_budget, fn)
        C.wn_interrupt(0)
        assert.is_false(ok)
        assert.equal('interrupt', e.code)
        assert.equal(want, (list_of(fn, 0)))
    end)

    it('looks at fewer plans of larger graphs', function()
        local _, _, few = list_of(stack(20, 16), 1e9)
        local _, _, many = list_of(stack(LONG and 1000 or 160, 16), 1e9)
        assert(many < 0.6 * few, ('%d, then %d'):format(few, many))
    end)

    it('plans a list of more units than binomial splits reach to', function()
        local layers, x = {}, wane.randn(4, 8)
        for i = 1, 1100 do layers[i] = i == 1 and nn.Linear(8, 8) or nn.Tanh() end
        local m = nn.Sequential(layers)
        assert(wane.min_budget(function() return m(x):sum() end) > 0)
    end)

    it('makes the plans of 10,000 nodes in seconds', function()
        if not LONG then return end
        local from = C.wn_now()
        wane.min_budget(stack(1000, 20))
        assert(C.wn_now() - from < 20, C.wn_now() - from)
    end)
end)
