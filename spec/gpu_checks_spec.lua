-- Checks how the checks of a GPU judge what they see, on devices that are made up: seconds of a kernel
-- (spec/gpu/timing.lua) and bytes of the driver beside those of the ledger (spec/gpu/ledger.lua).
local ledger = require 'spec.gpu.ledger'
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

    it('raises where many take no more than one, and gives a number on a device without a clock', function()
        local fine, why = pcall(timing.measure, device { start = 1e-3, each = -1e-6 }, 8, OPTIONS)
        assert.is_false(fine)
        assert.matches('^%d+ applications took .* one took .* medians of 7 turns: nothing to measure$', why)
        local options = { turns = 1, least = 3e-3, room = 2 ^ 34, no_clock = true }
        local run, seen = device { start = 0, each = 0 }
        assert.is_true(timing.measure(run, 2, options).seconds > 0)
        assert.equal(4, seen.calls)
    end)
end)

describe('the ledger beside the driver of a device', function()
    -- Compares a use of 100 bytes of which the ledger counts `counted`; others(k) are the bytes of other processes at
    -- the k-th question to the driver.
    local function compare(counted, others)
        local asked, own, uses = 0, 0, 0
        local seen = ledger.compare { most = 8, rest = function() end,
            taken = function()
                asked = asked + 1
                return 2 ^ 30 + own + (others and others(asked) or 0)
            end,
            reserved = function() return own > 0 and counted or 0 end,
            use = function() own, uses = 100, uses + 1 end,
            free = function() own = 0 end }
        return seen, uses
    end

    it('is compared where nobody else uses the device', function()
        local seen, uses = compare(96)
        assert.same({ taken = 100, reserved = 96, kept = 0, is_alone = true, fits = true }, seen)
        assert.equal(1, uses)
        for _, wrong in ipairs { 91, 101 } do
            seen, uses = compare(wrong)
            assert.is_true(seen.is_alone)
            assert.is_false(seen.fits)
            assert.equal(3, uses)
        end
    end)

    it('is left out where others take and free memory', function()
        for _, others in ipairs { function(k) return 1000 * k end, function(k) return k % 2 * 2 ^ 20 end,
            function(k) return -2 ^ 22 * k end } do
            assert.is_false(compare(100, others).is_alone)
        end
    end)

    it('is compared again after somebody else freed memory once', function()
        local seen, uses = compare(100, function(k) return k < 8 and 2 ^ 25 or 0 end)
        assert.is_true(seen.is_alone and seen.fits)
        assert.equal(2, uses)
    end)
end)
