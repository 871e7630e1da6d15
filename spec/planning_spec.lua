-- Checks the making of the list of plans (wn_frontier) as its caller sees it: how far it is can be shown, it hears ^C
-- at any moment, nothing is lost when it stops, and the number of plans looked at shrinks as graphs grow, or planning
-- time would grow with the square of their size.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local binding = require 'wane.ffi'
local ffi = require 'ffi'
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

ffi.cdef 'int kill(int, int); int getpid(void);'

local function open(fn) return program.open(require('wane.program.sequence').request(fn, 'spec')) end

-- The library calls `told`, which calls what `look` is at the time.
local look
local told = binding.cast('wn_look', function(done, expected) return look(done, expected) or 0 end)
jit.off(true, true)

-- Makes the list of plans of fn, and returns its points as text and how many plans were looked at.
local function list_of(fn)
    local p, point, rows = open(fn), binding.new('struct wn_point'), {}
    for i = 0, binding.id(C.wn_frontier(p.handle, nil)) - 1 do
        binding.check(C.wn_point(p.handle, i, point))
        rows[#rows + 1] = ('%.0f %.17g %s'):format(tonumber(point.reserved), point.seconds, binding.text(point.name))
    end
    local tried = point.tried
    p:close()
    return table.concat(rows, '\n'), tried
end

-- Plans fn while `look` is fn_look; returns the error, or nil.
local function fails(fn, fn_look)
    local p = open(fn)
    look = fn_look
    local n = C.wn_frontier(p.handle, told)
    local e = n < 0 and binding.failure(-n) or nil
    p:close()
    return e
end

describe('planning', function()
    local before
    setup(function() before = wane.set_device 'meta' end)
    teardown(function() wane.set_device(before) end)
    after_each(function() C.wn_interrupt(0) end)

    it('tells how many plans it looked at, and about how many there will be', function()
        local at, last = 0, 0
        assert.is_nil(fails(stack(40, 24), function(done, expected)
            assert(done >= last and done < expected, done .. ' of ' .. expected)
            at, last = at + 1, done
        end))
        assert(at > 50 and last > 50, at .. ' ' .. last)
    end)

    it('is stopped before any plan, by its caller or ^C, and loses nothing', function()
        local fn = stack(40, 32)
        local want = list_of(fn)
        C.wn_debug('forget_plans', 1)
        local live -- once the first try has left what is remembered of the graph
        for k = 1, 200, LONG and 1 or 23 do
            local at = 0
            local e = fails(fn, function()
                at = at + 1
                if at == k and k % 2 == 0 then C.wn_interrupt(1) end
                return at == k and k % 2 == 1 and 1 or 0
            end)
            C.wn_interrupt(0)
            assert.equal('interrupt', e and e.code, k)
            collectgarbage()
            C.wn_memory_trim(0)
            live = live or wane.memory().host
            assert.equal(live, wane.memory().host, k)
        end
        assert.equal(want, (list_of(fn)))
    end)

    it('hears a signal within tenths of a second, in a coroutine too, and the next ask works', function()
        local fn = stack(LONG and 1000 or 300, 32)
        binding.check(C.wn_signal_on(1))
        local at, sent = 0, nil
        local e = coroutine.wrap(function()
            return fails(fn, function()
                at = at + 1
                if at == 40 then
                    sent = C.wn_now()
                    ffi.C.kill(ffi.C.getpid(), 2)
                end
            end)
        end)()
        local seconds = C.wn_now() - sent
        binding.check(C.wn_signal_on(0))
        assert.equal('interrupt', e and e.code)
        assert(seconds < 0.5, seconds)
        local ok, why = pcall(wane.min_budget, fn)
        assert.equal('interrupt', not ok and why.code) -- until the flag is cleared
        C.wn_interrupt(0)
        assert(wane.min_budget(fn) > 0)
    end)

    it('raises what drawing its progress raised, and the next ask works', function()
        local fn, progress = stack(60, 32), require 'wane.report.progress'
        local late = progress.late
        finally(function() progress.late = late end)
        progress.late = function() return { look = function() error('mine', 0) end, finish = function() end } end
        local ok, e = pcall(wane.min_budget, fn)
        assert.is_false(ok)
        assert.equal('mine', e)
        progress.late = late
        assert(wane.min_budget(fn) > 0)
    end)

    it('looks at fewer plans of larger graphs', function()
        local _, few = list_of(stack(20, 16))
        local _, many = list_of(stack(LONG and 1000 or 320, 16))
        assert(many < 0.6 * few, ('%d, then %d'):format(few, many))
    end)

    it('finds the one plan of a step that computes nothing, or a number', function()
        for _, value in ipairs { wane.eval(wane.randn(3)), wane.nn.Parameter(wane.ones {}), wane.full({}, 2) } do
            assert.equal(1, #wane.frontier(function() return value end).all)
        end
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
