-- Checks the checks of a GPU without one: how they judge what they see, on devices that are made up - seconds of a
-- kernel (spec/gpu/timing.lua) and bytes of the driver beside those of the ledger (spec/gpu/driver.lua). Then the way
-- of their numbers from the reports of make gpu-check to the pages: what spec/bench/gpu.lua keeps of them, what
-- spec/bench/gpureport.lua says of it, and that the page shows the data beside it.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local driver = require 'spec.gpu.driver'
local gpureport = require 'spec.bench.gpureport'
local json = require 'wane.report.json'
local report = require 'spec.bench.report'
local timing = require 'spec.gpu.timing'

local LUAJIT = os.getenv 'LUAJIT' or 'luajit'

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
        local falling = device { start = 1e-3, each = -1e-6 }
        local why = helper.refused(nil, function() timing.measure(falling, 8, OPTIONS) end)
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
        local seen = driver.compare { most = 8, rest = function() end,
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

local function number(what, value, unit, more)
    local row = { what = what, value = value, unit = unit, verdict = '' }
    for key, item in pairs(more or {}) do row[key] = item end
    return row
end

-- Returns two reports of one run: products failed in the first and not in the second.
local function fixture()
    local ended = { what = 'products: ended with 1', verdict = 'FAIL' }
    local first = { simulated = false, small = false, date = '2026-01-02', checks = {
        { name = 'versions', rows = { { what = 'CUDA', verdict = '', detail = 'Some GPU 9, sm_90, 8 MiB, driver for '
            .. 'CUDA 13.0; cuBLASLt 13.1.0; no cuDNN (WANE_CUDA_DNN=auto asks for it) (/secret/place.so)' } } },
        { name = 'policies', rows = { { what = 'bits', verdict = 'pass' }, { what = 'more bits', verdict = 'FAIL' } } },
        { name = 'spec exact', rows = { { what = 'specs: 12 passed, 0 failed, 1 pending', verdict = 'pass' } } },
        { name = 'products', rows = { number('f32 32 x 4096 x 4096', 1, 'TF/s'), ended } },
        { name = 'own products', rows = { number('f32 32 x 4096 x 4096', 1.5, 'TF/s') } },
        { name = 'bandwidth', rows = { number("copies, the driver's", 2000, 'GB/s'),
            number("copies, Wane's cat", 1500, 'GB/s'), number('gelu, f32: 1600 GB/s', 80, '% copy'),
            number('gelu, bf16', 40, '% copy', { detail = '800 GB/s, noisy: 30 %' }) } },
        { name = 'attention', rows = { number('attention, B 4, 16 heads of 128, T = 2048, causal', 98.9, 'TF/s'),
            number('    of the tensor rate', 10, '%'),
            number('attention, B 4, 16 heads of 128, T = 2048, causal, PyTorch', 400, 'TF/s') } },
        { name = 'gpt', rows = { number('GPT-2 124M, PyTorch: peak', 7e9, 'B'), number('GPT-2 124M, PyTorch', 40, 'ms'),
            number('GPT-2 124M, save_all: peak', 6e9, 'B'), number('GPT-2 124M, save_all', 50.123456, 'ms') } },
        { name = 'profile', rows = { number('GPT: all', 9, 'ms', { detail = '7 calls, 100.0 %, 5 GB/s' }),
            number('GPT: matmul', 6, 'ms', { detail = '3 calls, 66.7 %, 5.0 TF/s',
                predicted = 5.5 }),
            number('GPT: matmul of blocks.*, forward', 6, 'ms', { detail = '3 calls, 66.7 %, 5.0 TF/s' }) } },
    } }
    local second = { simulated = false, small = false, date = '2026-01-03', checks = {
        { name = 'products', rows = { number('f32 32 x 4096 x 4096, PyTorch', 21, 'TF/s'),
            number('f32 32 x 4096 x 4096', 15, 'TF/s') } } } }
    return first, second
end

describe('what a GPU measured', function()
    local folder
    before_each(function() folder = helper.lines('mktemp -d')[1] end)
    after_each(function() helper.lines('rm -r ' .. folder) end)

    -- Runs gpu.lua over reports; returns its data, or nil and what it printed.
    local function collect(...)
        local names = {}
        for i, one in ipairs { ... } do
            names[i] = ('%s/%d.json'):format(folder, i)
            files.write(names[i], json.encode(one), '\n')
        end
        local text, code = helper.shell(('%s spec/bench/gpu.lua --out %s/gpu.lua %s'):format(LUAJIT, folder,
            table.concat(names, ' ')))
        if code ~= 0 then return nil, text end
        return dofile(folder .. '/gpu.lua')
    end

    it('is kept as data: the last of a check, numbers of whole checks, no places', function()
        local data = collect((fixture()))
        assert.same({ 'Some GPU 9', 'CUDA 13.0', '13.1.0', '2026-01-02' }, { data.card, data.driver, data.cuBLASLt,
            data.date })
        assert.is_nil(data.cuDNN)
        assert.is_nil(io.open(folder .. '/gpu.lua'):read '*a':find 'secret')
        assert.same({ passed = 1, failed = { 'policies: more bits' }, tests = 12, tests_failed = 0 }, data.facts)
        assert.same({ 'products', 'convolutions', 'convolutions by cuDNN', 'heavy', 'recurrent' }, data.left_out)
        assert.same({ { name = 'gelu, f32', value = 80, unit = '% copy' },
            { name = 'gelu, bf16', value = 40, unit = '% copy', detail = '800 GB/s, noisy: 30 %' } },
            { data.checks.bandwidth[3], data.checks.bandwidth[4] })
        assert.equal(2, #data.checks.attention)
        assert.equal(2, #data.checks.profile)
        assert.equal(50.123, data.checks.gpt[4].value)
        data = collect(fixture())
        assert.equal('2026-01-03', data.date)
        assert.equal(15, data.checks.products[2].value)
    end)

    it('is refused where it is of the simulated device, or no report', function()
        local simulated = fixture()
        simulated.simulated = true
        local data, text = collect(simulated)
        assert.is_nil(data)
        assert.matches('1.json: is of the simulated device', text)
        assert.matches('give reports', select(2, collect()))
    end)

    it('has tables, and what is behind in words', function()
        local text = gpureport.results(collect(fixture()))
        for _, line in ipairs { '| f32 32 x 4096 x 4096 | 1.50 | 15.0 | 21.0 | 7 % |', '| gelu | 80 % | 40 % (noisy) |',
            '| B 4, 16 heads of 128, T = 2048, causal | 98.9 | 10 % | 400 |  |  |  |',
            '| GPT-2 124M, PyTorch | 40.0 | 7.00 |', '| GPT-2 124M, save_all | 50.1 | 6.00 |',
            '| GPT | all | 7 | 9.00 | 100.0 % | 5 GB/s |  |', '| GPT | matmul | 3 | 6.00 | 66.7 % | 5.0 TF/s | 5.50 |',
            'own products of f32 with 32 rows reach 1.5 TF/s where cuBLAS gives 21.0;',
            'GPT-2 124M, save_all takes 50.1 ms where PyTorch takes 40.0;',
            'attention at 10 to 10 % of the tensor rate.', 'policies: more bits.' } do
            assert.truthy(text:find('\n' .. line .. '\n', 1, true), line .. '\n' .. text)
        end
    end)

    it('is refused where it lacks a check that is published', function()
        local data = collect(fixture())
        assert.is_nil(gpureport.refusal(data, collect((fixture()))))
        assert.matches("lack the check 'products'", gpureport.refusal(collect((fixture())), data))
        data.date = nil
        assert.matches('no date', gpureport.refusal(data))
    end)

    it('is published, and again the same', function()
        helper.lines(('mkdir -p %s/spec/bench %s/build/bench'):format(folder, folder))
        helper.lines(('cp spec/bench/RESULTS.md %s/spec/bench'):format(folder))
        local data = collect(fixture())
        local page
        for _ = 1, 2 do
            local text, code = helper.shell(('%s spec/bench/publish.lua --root %s --from %s/gpu.lua'):format(LUAJIT,
                folder, folder))
            assert.equal(0, code, text)
            local now = assert(files.read(folder .. '/spec/bench/RESULTS.md'))
            assert.equal('\n' .. gpureport.results(data) .. '\n', (report.marked(now, 'gpu')))
            assert.equal(page or now, now)
            page = now
        end
    end)

    it('stands on its page as it was measured', function()
        local data = dofile(helper.root .. '/spec/bench/results_gpu.lua').gpu
        assert.is_nil(gpureport.refusal(data))
        assert.equal('\n' .. gpureport.results(data) .. '\n',
            (report.marked(helper.read 'spec/bench/RESULTS.md', 'gpu')))
        assert.is_true(data.facts.passed > 200 and data.facts.tests > 1000)
        for check, rows in pairs(data.checks) do
            for _, row in ipairs(rows) do assert.is_true(row.value >= 0, check .. ': ' .. row.name) end
        end
    end)
end)
