-- Checks the path from a bench's results to the pages. What publish.lua writes must be all of the data and nothing
-- else; results that lack columns must never replace ones that have them; the pages of this checkout must show the data
-- beside them (spec/bench/results.lua).
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local report = require 'spec.bench.report'

local LUAJIT = os.getenv 'LUAJIT' or 'luajit'
local kept = dofile(helper.root .. '/spec/bench/results.lua')

local function row(name, more)
    local r = { name = name, short = name:sub(1, 8), aims = { bytes = 1 }, wane = 0.25, least = 0.22, floor = 0.2,
        gflops = 500, bandwidth = 48.5, peak = 3 * 2 ^ 20 }
    for key, value in pairs(more or {}) do r[key] = value end
    return r
end

-- Returns a result of the bench whose numbers can be divided in the head; with_torch: it has the columns of PyTorch.
local function fixture(with_torch)
    local more = with_torch and { tuned = 0.5, shipped = 1, live = 4 * 2 ^ 20 } or {}
    local data = { bench = 'rival', turns = 7, threads = 2, partial = false, starts = { wane = 0.004 },
        machine = { cpu = 'Some CPU', cores = '0-1', GiB = 24 }, load = { start = '0.1 0.2 0.3', finish = '1 2 3' },
        rows = { row('first step', more), row('second step', more) } }
    data.rows[1].aims = { time = 0.6, floor = 0.75, bytes = 0.8 }
    if with_torch then
        data.torch = { version = '9.9', threads = 2, libraries = 'MKL 1' }
        data.starts.tuned, data.starts.shipped = 1.5, 1.25
    end
    return data
end

describe('spec/bench/publish.lua', function()
    local folder

    local function write(name, text)
        files.write(folder .. '/' .. name, text)
    end

    local function read(name)
        return assert(files.read(folder .. '/' .. name))
    end

    local function publish(data, names)
        write('build/bench/rival.lua', 'return ' .. report.as_text(data) .. '\n')
        return helper.shell(('%s spec/bench/publish.lua --root %s %s'):format(LUAJIT, folder, names or ''))
    end

    -- Returns the data that were kept.
    local function published() return dofile(folder .. '/spec/bench/results.lua') end

    local PAGE = 'before\n<!-- rival: from here on written by spec/bench/publish.lua -->\nold\n'
        .. '<!-- rival: up to here -->\nafter\n'

    before_each(function()
        folder = helper.lines('mktemp -d')[1]
        helper.lines(('mkdir -p %s/build/bench %s/spec/bench'):format(folder, folder))
        write('README.md', PAGE)
        write('spec/README.md', PAGE)
        write('spec/bench/RESULTS.md', PAGE)
    end)
    after_each(function() helper.lines('rm -r ' .. folder) end)

    it('writes both pages, the picture and the data', function()
        local data = fixture(true)
        local out, code = publish(data)
        assert.equal(0, code, out)
        local page = read 'README.md'
        assert.equal(report.replace(PAGE, 'rival', report.readme(data)), page)
        assert.truthy(page:match '^before\n<!%-%-' and page:match '%-%->\nafter\n$' and not page:match 'old')
        local function has(text, line) assert.truthy(text:find('\n' .. line .. '\n', 1, true), line) end
        has(page, '| first step | 0.2500 | 0.5000 | 0.50 | 1.0000 | 80 % | 3.0 | 4.0 | 0.750 |')
        has(read 'spec/bench/RESULTS.md', '| first step | 0.2500 | 0.5000 | 0.50 | <= 0.60 | 1.0000 | 0.2000 | 80 % '
            .. '| 91 % | >= 75 % | 3.0 | 4.0 | 0.750 | <= 0.80 | 500 | 48.5 |')
        assert.equal(report.picture(data), read 'spec/bench/results.svg')
        assert.same(data, published().rival)
        publish(data)
        assert.equal(page, read 'README.md') -- again: the same
    end)

    it('leaves out the columns of PyTorch where there was none', function()
        local out, code = publish(fixture(false))
        assert.equal(0, code, out)
        assert.truthy(read('README.md'):find('\n| a step | Wane, s | floor / Wane | Wane\'s peak, MiB |\n', 1, true))
        assert.truthy(read('README.md'):find('there was no PyTorch', 1, true))
    end)

    it('refuses results that lack what the published ones have, and says so', function()
        publish(fixture(true))
        local page, results = read 'README.md', read 'spec/bench/RESULTS.md'
        local small, partial = fixture(true), fixture(true)
        small.small, partial.partial = true, true
        for word, data in pairs { PyTorch = fixture(false), small = small, rows = partial } do
            local out, code = publish(data)
            assert.equal(0, code, out)
            assert.truthy(out:match '^not published' and out:find(word, 1, true), out)
            assert.equal(page, read 'README.md')
            assert.equal(results, read 'spec/bench/RESULTS.md')
        end
    end)

    it('publishes only what ran', function()
        assert.equal('', (publish(fixture(true), 'products kernels')))
        assert.equal(PAGE, read 'README.md')
        publish(fixture(true), 'products rival')
        assert.not_equal(PAGE, read 'README.md')
    end)

    it('writes the tables of each bench between its own markers', function()
        local both = PAGE .. PAGE:gsub('rival', 'budget')
        write('spec/README.md', both)
        write('spec/bench/RESULTS.md', both)
        local data = fixture(true)
        data.bench, data.network, data.turns, data.costs = 'budget', 'a stack', 9, 'measured'
        data.budgets = { { part = 0.5, bytes = 2000, kept = true } }
        data.rows = { { name = 'save_all', kind = 'all', bytes = 4000, predicted = 2, seconds = 1, is_equal = true },
            { name = 'budget', kind = 'budget', part = 0.5, bytes = 1, predicted = 2, seconds = 1, is_equal = true },
            { name = 'everything saved', kind = 'torch', bytes = 2000, seconds = 2 } }
        write('budget.lua', 'return ' .. report.as_text(data))
        local out, code = helper.shell(('%s spec/bench/publish.lua --root %s --from %s/budget.lua'):format(LUAJIT,
            folder, folder))
        assert.equal(0, code, out)
        local page = report.replace(both, 'budget', report.budget.readme(data))
        assert.equal(page, read 'spec/README.md')
        assert.equal(PAGE, read 'README.md')
        local results = report.replace(both, 'budget', report.budget.results(data))
        publish(fixture(true))
        assert.same({ budget = data, rival = fixture(true) }, published())
        assert.equal(page, read 'spec/README.md')
        assert.equal(report.replace(PAGE, 'rival', report.readme(fixture(true))), read 'README.md')
        assert.equal(report.replace(results, 'rival', report.rival(fixture(true))), read 'spec/bench/RESULTS.md')
    end)

    it('touches nothing when a page has no markers', function()
        write('spec/bench/RESULTS.md', 'bare\n')
        local out, code = publish(fixture(true))
        assert.not_equal(0, code)
        assert.truthy(out:match "no markers for 'rival'", out)
        assert.equal(PAGE, read 'README.md')
    end)
end)

describe('what budget.lua found', function()
    local function arm(name, kind, bytes, seconds, more)
        local r = { name = name, kind = kind, bytes = bytes, seconds = seconds }
        if kind ~= 'torch' then r.is_equal = true end
        for key, value in pairs(more or {}) do r[key] = value end
        return r
    end

    -- Returns a result of budgets. At 3000 bytes PyTorch has an arm that fits, at 2000 none; an arm that is faster but
    -- larger than the budget must not be chosen.
    local function found(with_torch)
        local data = { bench = 'budget', turns = 9, threads = 2, costs = 'measured', network = 'a stack',
            machine = { cpu = 'Some CPU', cores = '0-1', GiB = 24 },
            load = { start = '0.1 0.2 0.3', finish = '1 2 3' },
            budgets = { { part = 0.75, bytes = 3000, kept = true }, { part = 0.5, bytes = 2000, kept = true },
                { part = 0.25, bytes = 1000, kept = false } },
            rows = { arm('save_all', 'all', 4000, 1, { predicted = 2, nodes = 0 }),
                arm('budget: 75 %', 'budget', 2990, 1.05, { part = 0.75, predicted = 2.02, nodes = 3 }),
                arm('budget: 50 %', 'budget', 2000, 1.1, { part = 0.5, predicted = 2.15, nodes = 5 }),
                arm('by hand: sqrt', 'hand', 2500, 1.2, { predicted = 2.4, nodes = 9, is_equal = false }) } }
        if with_torch then
            data.torch = { version = '9.9', threads = 2, libraries = 'MKL 1' }
            for _, r in ipairs { arm('everything saved', 'torch', 5000, 2),
                arm('checkpoint_sequential, 2 segments', 'torch', 2800, 4.2),
                arm('checkpoint_sequential, 3 segments', 'torch', 3001, 3),
                arm('checkpoint of each block', 'torch', 2900, 3.15),
                { name = 'compiled, memory budget 0.5', kind = 'torch', why = 'no: no compiler' } } do
                table.insert(data.rows, r)
            end
        end
        return data
    end

    it('chooses by seconds among what keeps the bytes, and says when nothing does', function()
        local rows = {}
        for line in report.budget.summary(found(true)):gmatch '[^\n]+' do rows[#rows + 1] = line end
        assert.equal('| 3,000 | 75 % | 1.0500 | +1.0 % | +5.0 % |  | sqrt: 1.2000 s, 1.14 x | '
            .. 'checkpoint of each block: 3.1500 s, 3.00 x | 2 segments: 4.2000 s, 4.00 x | none runs here |', rows[3])
        assert.equal('| 2,000 | 50 % | 1.1000 | +7.5 % | +10.0 % | <= 8 % | none fits, the least is 2,500 | '
            .. 'none fits, the least is 2,800 | none fits, the least is 2,800 | none runs here |', rows[4])
        assert.equal('| 1,000 | 25 % | cannot be kept |  |  |  |  |  |  |  |', rows[5])
    end)

    it('shows every arm, and says what did not run and what differs', function()
        local text = report.budget.results(found(true))
        for _, line in ipairs { '| by hand: sqrt | 2,500 | 2.4000 | 1.2000 | +20.0 % | +20.0 % | 9 | DIFFER |',
            '| PyTorch, checkpoint of each block | 2,900 |  | 3.1500 |  | +57.5 % |  |  |',
            '| PyTorch, compiled, memory budget 0.5 |  |  | no: no compiler |  |  |  |  |' } do
            assert.truthy(text:find('\n' .. line .. '\n', 1, true), line .. '\n' .. text)
        end
    end)

    it('has no column of PyTorch where there was none, and says so', function()
        local text = report.budget.results(found(false))
        assert.truthy(text:find('measured | aim | by hand |\n', 1, true))
        assert.truthy(text:find('There was no PyTorch', 1, true))
    end)

    it('is published when it is whole', function()
        local new, old = found(true), found(true)
        assert.is_nil(report.budget.refusal(new, old))
        assert.truthy(report.budget.refusal(found(false), old):match 'PyTorch')
        new.turns = 2
        assert.truthy(report.budget.refusal(new):match 'turns')
        new.turns, new.small = 9, true
        assert.truthy(report.budget.refusal(new):match 'small')
    end)

    it('stands in both pages as it was measured', function()
        local data = kept.budget
        assert.is_nil(report.budget.refusal(data))
        assert.truthy(data.torch)
        for _, r in ipairs(data.rows) do
            assert.truthy(r.why or r.seconds > 0 and r.bytes > 0, r.name)
            assert.is_true(r.kind == 'torch' or r.is_equal, r.name)
        end
        local pages = { ['spec/README.md'] = report.budget.readme,
            ['spec/bench/RESULTS.md'] = report.budget.results }
        for page, show in pairs(pages) do
            assert.equal('\n' .. show(data) .. '\n', (report.marked(helper.read(page), 'budget')))
        end
        assert.equal(report.budget.picture(data), helper.read 'spec/bench/results_budget.svg')
    end)
end)

describe('what seconds.lua found', function()

    local function plan(name, predicted, seconds, is_known)
        return { name = name, predicted = predicted, seconds = seconds, is_known = is_known or false }
    end

    -- Returns a result of predictions. The machine is half as fast in the turns as in the profile, and one prediction
    -- is wrong by a fifth beside that.
    local function found()
        return { bench = 'seconds', threads = 2, machine = { cpu = 'Some CPU', cores = '0-1', GiB = 24 },
            load = { start = '0.1 0.2 0.3', finish = '1 2 3' },
            rows = { { name = 'GPT', what = 'small', turns = 9, unrest = 1.04, profiled = 1, plans = {
                plan('as marked', 1, 2, true), plan('sqrt', 1.5, 3, true), plan('every(2)', 1.2, 2) } } } }
    end

    it('is told with the machine\'s drift and without', function()
        local data = found()
        local r = data.rows[1]
        assert.equal(2, report.seconds.drift(r))
        assert.same({ 0.5, 0.5 }, { report.seconds.errors(r, 1) })
        local middle, worst = report.seconds.errors(r, 2)
        assert.is_true(middle == 0 and math.abs(worst - 0.2) < 1e-12)
        assert.is_true(math.abs(report.seconds.errors(r, 2, true) - 0.2) < 1e-12)
        assert.same({ 2, 2 }, { report.seconds.order(r) })
        r.plans[2].predicted = 1.1 -- below that of every(2), which is faster
        assert.same({ 1, 2 }, { report.seconds.order(r) })
        assert.truthy(report.seconds.results(data):find('| GPT: small | 3 | 9 | 2e+03 ms | 50.0 % | 40.0 % | 63.3 % '
            .. '| 2.000 | 20.0 % | 26.7 % | 1 of 2 | 1.04 | no |', 1, true))
        assert.truthy(report.seconds.sentence(data):find('of 2 pairs 3 % apart or more, 50.0 % are', 1, true))
    end)

    it('is published when every model has its turns and a profile that was not disturbed', function()
        local old, new = found(), found()
        assert.is_nil(report.seconds.refusal(new, old))
        new.rows[1].turns = 3
        assert.matches('turns', report.seconds.refusal(new))
        new.rows[1].turns, new.rows[1].disturbed = 9, 'a burst'
        assert.matches('a burst', report.seconds.refusal(new))
        new.rows[1].disturbed = nil
        old.rows[2] = { name = 'wide' }
        assert.matches("lack the model 'wide'", report.seconds.refusal(new, old))
    end)

    it('stands in both pages as it was measured', function()
        assert.is_nil(report.seconds.refusal(kept.seconds))
        for page, show in pairs { ['spec/README.md'] = report.seconds.readme,
            ['spec/bench/RESULTS.md'] = report.seconds.results } do
            assert.equal('\n' .. show(kept.seconds) .. '\n', (report.marked(helper.read(page), 'seconds')))
        end
    end)
end)

describe('the picture', function()
    it('has a bar for each number, as high as it is, and the aims as lines at their height', function()
        local svg, heights, aims = report.picture(fixture(true)), {}, {}
        local bottom
        for y, height in svg:gmatch '<rect x="[%d.]+" y="([%d.]+)" width="[%d.]+" height="([%d.]+)" [cf]' do
            if tonumber(y) > 55 then -- below the legend
                heights[#heights + 1], bottom = tonumber(height), y + height
            end
        end
        for y in svg:gmatch 'y2="([%d.]+)" class="mark" stroke="[^"]+" stroke%-width="3"/>\n' do
            if tonumber(y) > 60 then aims[#aims + 1] = bottom - tonumber(y) end
        end
        local full = 260 / 1.1 -- of a value of 1, the greatest aim
        local function near(expected, list)
            assert.equal(#expected, #list)
            for i, value in ipairs(expected) do assert.truthy(math.abs(value * full - list[i]) < 0.11, i) end
        end
        near({ 0.5, 0.5, 0.75, 0.75 }, heights)
        near({ 0.6, 0.8, 1 }, aims)
    end)
end)

describe('the published results', function()
    local data = kept.rival

    it('are whole', function()
        assert.is_nil(report.refusal(data))
        assert.truthy(data.torch)
        for _, r in ipairs(data.rows) do
            assert.truthy(r.wane > 0 and r.tuned > 0 and r.shipped > 0 and r.peak > 0 and r.live > 0, r.name)
        end
    end)

    it('stand in README.md, row for row', function()
        local shown, found = report.marked(helper.read 'README.md', 'rival'), {}
        for name in shown:gmatch '\n| ([^|]-) | [%d.]+ ' do found[#found + 1] = name end
        local expected = {}
        for i, r in ipairs(data.rows) do expected[i] = r.name end
        assert.same(expected, found)
        assert.equal('\n' .. report.readme(data) .. '\n', shown)
    end)

    it('stand in RESULTS.md and in the picture', function()
        assert.equal('\n' .. report.rival(data) .. '\n', (report.marked(helper.read 'spec/bench/RESULTS.md', 'rival')))
        assert.equal(report.picture(data), helper.read 'spec/bench/results.svg')
    end)

    it('stand in RESULTS.md where they are of a class of kernels or of models over images', function()
        for _, name in ipairs { 'rival_avx2', 'rival_images' } do
            assert.equal('\n' .. report.rival(kept[name]) .. '\n',
                (report.marked(helper.read 'spec/bench/RESULTS.md', name)))
        end
    end)
end)

describe('the data of a bench', function()
    it('are a file that gives back its rows, with a name of its own for a class of kernels', function()
        local path = os.tmpname()
        local out, code = helper.shell(('PYTHON=/nonexistent %s spec/bench/rival.lua --small --turns 1 --rows 1,6 '
            .. '--class plain --out %s'):format(LUAJIT, path))
        assert.equal(0, code, out)
        local data = dofile(path)
        os.remove(path)
        assert.equal(2, #data.rows)
        assert.equal('rival_plain', data.bench)
        assert.equal('plain (plain C), as WANE_KERNELS says', data.kernels)
        assert.truthy(data.rows[1].wane > 0 and data.rows[1].peak > 0 and data.rows[2].gflops > 0)
        assert.truthy(data.machine.GiB > 0 and data.load.start:match '^[%d.]+ ')
        assert.truthy(data.partial and data.small)
        assert.equal(2, select(2, report.readme(data):gsub('batch', '')))
    end)

    it('of budgets are one too', function()
        local path = os.tmpname()
        local out, code = helper.shell(('PYTHON=/nonexistent %s spec/bench/budget.lua --small --turns 1 --out %s')
            :format(LUAJIT, path))
        assert.equal(0, code, out)
        local data = dofile(path)
        os.remove(path)
        assert.truthy(out:find(report.budget.results(data), 1, true) and out:find('has no PyTorch', 1, true))
        assert.equal('save_all', data.rows[1].name)
        assert.truthy(#data.rows > 4 and data.rows[2].bytes <= data.budgets[1].bytes)
        for _, r in ipairs(data.rows) do assert.is_true(r.is_equal and r.seconds > 0, r.name) end
    end)
end)
