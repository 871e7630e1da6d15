-- Checks how the checks of a GPU time a kernel (spec/gpu/timing.lua), with programs whose seconds are made up.
local timing = require 'spec.gpu.timing'

-- Returns a function that stands for programs of n applications: `start` seconds and `each` seconds an application,
-- times the next of `factors` in turns; the first `slow` programs take a second more. calls counts the programs.
local function device(t)
    local seen = { calls = 0, most = 0 }
    return function(n)
        seen.calls, seen.most = seen.calls + 1, math.max(seen.most, n)
        local factor = t.factors and t.factors[(seen.calls - 1) % #t.factors + 1] or 1
        return (t.start + n * t.each) * factor + (seen.calls <= (t.slow or 0) and 1 or 0), 64 + n * (t.bytes or 100)
    end, seen
end

local OPTIONS = { turns = 7, least = 3e-3, room = 2 ^ 34 }

describe('the timing of a kernel', function()
    it('gives the seconds and bytes of one application, whatever a launch takes', function()
        local timed = timing.measure(device { start = 1e-3, each = 2e-3 }, 4, OPTIONS)
        assert.is_near(2e-3, timed.seconds, 1e-12)
        assert.equal(100, timed.bytes)
        assert.equal(4, timed.count)
        assert.is_nil(timed.noise)
    end)

    it('does not count the first programs, in which libraries load kernels', function()
        for slow = 1, 2 do
            local timed = timing.measure(device { start = 5e-5, each = 4e-5, slow = slow }, 16, OPTIONS)
            assert.is_near(4e-5, timed.seconds, 1e-12)
            assert.is_nil(timed.noise)
        end
    end)

    it('runs as many applications as make a difference that a clock can tell', function()
        local run, seen = device { start = 1e-4, each = 1e-6 }
        local timed = timing.measure(run, 8, OPTIONS)
        assert.is_true(timed.count * 1e-6 > 0.5e-3 and seen.most <= 1025)
        local held, held_seen = device { start = 1e-4, each = 1e-6, bytes = 2 ^ 30 }
        assert.equal(16, timing.measure(held, 8, OPTIONS).count)
        assert.equal(17, held_seen.most)
    end)

    it('says where turns differ, and takes the median', function()
        local steady = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1.02 }
        assert.is_nil(timing.measure(device { start = 1e-5, each = 1e-3, factors = steady }, 8, OPTIONS).noise)
        local timed = timing.measure(device { start = 1e-5, each = 1e-3, factors = { 1, 1, 1, 1.5, 1, 1 } }, 8, OPTIONS)
        assert.is_near(1e-3, timed.seconds, 1e-4)
        assert.matches('^noisy: quartiles of 7 turns %d+ %% apart$', timed.noise)
    end)

    it('raises where many applications take no more than one, and on a device without a clock gives a number', function()
        local fine, why = pcall(timing.measure, device { start = 1e-3, each = -1e-6 }, 8, OPTIONS)
        assert.is_false(fine)
        assert.matches('^%d+ applications took .* one took .* medians of 7 turns: nothing to measure$', why)
        local options = { turns = 1, least = 3e-3, room = 2 ^ 34, no_clock = true }
        local run, seen = device { start = 0, each = 0 }
        assert.is_true(timing.measure(run, 2, options).seconds > 0)
        assert.equal(4, seen.calls)
    end)
end)
