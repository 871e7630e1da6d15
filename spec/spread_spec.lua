-- Checks what is said of measured seconds: median and quartiles against plain definitions, the word for noise, and that
-- no star of a sweep rests on a difference within the noise.
local helper = require 'spec.helper'
local wane = helper.wane
local noise = require 'wane.sweep.noise'
local spread = require 'wane.report.spread'
local system = require 'wane.system'

local quiet = { load = 0.5, cores = 2 }

describe('a spread', function()
    it('has values that were measured as quartiles, with as many below as above', function()
        for n = 1, 40 do
            local values = {}
            for i = 1, n do values[i] = (i * 7919) % 101 + i / 100 end
            local before = table.concat(values, ' ')
            local s = spread.of(values)
            assert.equal(before, table.concat(values, ' '))
            local below, above, inside, is_low, is_high = 0, 0, 0, false, false
            for _, v in ipairs(values) do
                below, above = below + (v < s.low and 1 or 0), above + (v > s.high and 1 or 0)
                inside = inside + (v >= s.low and v <= s.high and 1 or 0)
                is_low, is_high = is_low or v == s.low, is_high or v == s.high
            end
            assert.is_true(is_low and is_high)
            assert.equal(below, above)
            assert.is_true(inside >= n / 2 and below <= n / 4, n)
            assert.is_true(s.least <= s.low and s.low <= s.median and s.median <= s.high and s.high <= s.most)
            assert.equal(n, s.count)
        end
        assert.same({ 1, 3 }, { spread.of({ 3, 1, 2 }).low, spread.of({ 3, 1, 2 }).high })
        assert.equal(2.5, spread.of({ 4, 1, 2, 3 }).median)
        assert.equal(0, spread.of({ 0, 0 }).spread)
    end)

    it('is noisy above 10 %, or where the load is above 1.25 a core', function()
        local calm, wild = spread.of { 1, 1.01, 1.02, 1.03 }, spread.of { 1, 1.3, 1, 1.31 }
        assert.is_nil(spread.noise(calm, quiet))
        assert.equal('noisy: spread 27 %, load 2.1 on 2 cores', spread.noise(wild, { load = 2.1, cores = 2 }))
        assert.equal('noisy: spread 3 %, load 2.6 on 2 cores', spread.noise(calm, { load = 2.6, cores = 2 }))
        assert.is_nil(spread.noise(calm, { load = 2.5, cores = 2 }))
        assert.equal('noisy: spread 27 %', spread.noise(wild, { cores = 1 }))
        assert.equal('quartiles 1 to 1.03 s, spread 3 %, load 1.0 on 1 core',
            spread.text(calm, { load = 1, cores = 1 }))
        assert.equal('noisy: quartiles 1 to 1.31 s, spread 27 %, load 0.5 on 2 cores', spread.text(wild, quiet))
    end)

    it('is what a measurement has', function()
        local model, x = wane.nn.Linear(8, 8), wane.eval(wane.randn(4, 8))
        local m = wane.measure(function() return model(x):sum() end, { steps = 9 })
        local s = spread.of(m.walls)
        assert.same({ s.median, s.low, s.high, s.spread }, { m.wall, m.low, m.high, m.spread })
        assert.equal(spread.of(m.times).median, m.seconds)
        assert.equal(spread.noise(s, m), m.noisy)
        assert.equal(system.cores(), m.cores)
        assert.is_true(m.load == nil or m.load >= 0)
        assert.matches('\n' .. (m.noisy and 'noisy: ' or '') .. 'quartiles [%d.e-]+ to [%d.e-]+ s, spread %d+ %%',
            tostring(m))
    end)
end)

describe('the machine', function()
    it('has the cores that nproc counts, and a load', function()
        local count = helper.shell 'nproc --all 2>/dev/null':match '%d+'
        if count then assert.is_true(system.cores() <= tonumber(count) and system.cores() >= 1) end
        if io.open '/proc/loadavg' then assert.is_true(system.load() >= 0) end
    end)
end)

-- Returns a row of a sweep.
local function row(peak, low, seconds, high)
    return { peak = peak, low = low, seconds = seconds, high = high }
end

describe('a star', function()
    local function starred(front)
        local set, out = {}, {}
        for i, r in ipairs(front) do set[r] = i end
        for i, r in ipairs(noise.distinct(front)) do out[i] = set[r] end
        return out
    end

    it('rests on no difference within the noise', function()
        assert.same({ 1, 3 }, starred { row(1, 9, 10, 11), row(2, 8.9, 9.5, 10), row(3, 4, 5, 6) })
        assert.same({ 1, 2, 3 }, starred { row(1, 9, 10, 11), row(2, 8, 8.5, 8.9), row(3, 4, 5, 6) })
    end)

    it('is given to a row that is faster than the last one with a star, not the last one', function()
        assert.same({ 1, 3 }, starred { row(1, 9.5, 10, 10.5), row(2, 9.2, 9.6, 10), row(3, 8.8, 9.2, 9.4) })
    end)

    it('needs 2 % where quartiles are equal or missing, as in rows of one repeat', function()
        assert.same({ 1 }, starred { row(1, 10, 10, 10), row(2, 9.9, 9.9, 9.9) })
        assert.same({ 1, 2 }, starred { { peak = 1, seconds = 10 }, { peak = 2, seconds = 9 } })
        assert.same({ 1 }, starred { { peak = 1, seconds = 10 }, { peak = 2, seconds = 9.9 } })
    end)

    it('is in the table, which says what is noisy', function()
        local slow = 1
        local sweep = wane.sweep { build = function() error 'not run' end, isolate = false,
            grid = { policy = { 'save_all', 'sqrt', 'every(1)' } } }
        for i, q in ipairs(sweep.points) do
            local r = row(100 - 10 * i, slow - 0.05, slow, slow + 0.05)
            slow = slow + (i == 1 and 0.01 or 1)
            for name, value in pairs { n = q.number, point = q.description, status = 'ok', predicted_peak = r.peak,
                reserved = 1, predicted_reserved = 1, recomputed = 0, lossless = true, exact = true, kinds = {} } do
                r[name] = value
            end
            r.noisy, r.spread = i == 2 and 'noisy: spread 31 %, load 2.1 on 2 cores' or nil, 0.31
            sweep.found[q.key] = r
        end
        local text = tostring(sweep)
        assert.is_nil(text:match '\nsave_all[^\n]*%*')
        assert.matches('\nsqrt [^\n]*%* noisy\n', text)
        assert.matches('\nevery%(1%) [^\n]*%*\n', text)
        assert.matches('; 1 of 3 noisy %(spread 31 %%, load 2.1 on 2 cores%): measure again', text)
    end)
end)
