-- Makes data of the reports of make gpu-check and publishes them (publish.lua): one command after a run on a GPU.
--
--   luajit spec/bench/gpu.lua REPORT.json... [--date YYYY-MM-DD] [--note TEXT] [--out FILE]
--
-- Several reports are one run in parts; of a check that is in several the last one counts. --date is for reports that
-- hold none, --note says on the page how the reports differ from one run. Data go to build/bench/gpu.lua, or to FILE
-- alone. Numbers of a check that did not end by itself are left out, and its name is kept. Paths, words of the machine
-- and rows that no table shows are not kept.
local here = arg[0]:match '^(.*)/[^/]*$' or '.'
local root = here:match '^(.*)/spec/bench$' or here .. '/../..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local as_text = require('spec.bench.report').as_text
local gpureport = require 'spec.bench.gpureport'
local json = require 'wane.report.json'

-- Checks whose numbers are published; of the others only facts are counted.
local PUBLISHED = { 'bandwidth', 'products', 'own products', 'convolutions', 'convolutions by cuDNN', 'attention',
    'heavy', 'gpt', 'profile', 'recurrent' }

local function read(path)
    local file = io.open(path, 'rb') or error(path .. ': cannot be read', 0)
    local report = json.decode(file:read '*a')
    file:close()
    if report.simulated or report.small then error(path .. ': is of the simulated device or of small sizes', 0) end
    return report
end

-- Returns a number as it is kept: whole numbers as they are, others with five digits.
local function rounded(x) return x == math.floor(x) and x or tonumber(('%.5g'):format(x)) end

-- Returns the row as it is kept, or nil: numbers alone, by their own names.
local function kept(row)
    if not row.value then return nil end
    if row.what:find '^ ' then return nil end -- another form of the row above
    local name = row.what:match '^(.*): %d+ GB/s$' -- reports before rates stood apart
    return { name = name or row.what, value = rounded(row.value), unit = row.unit, detail = gpureport.detail(row),
        predicted = row.predicted and rounded(row.predicted) }
end

-- Returns whether a check ended by itself.
local function is_whole(entry)
    for _, row in ipairs(entry.rows) do
        if row.what:find(entry.name .. ': ended with ', 1, true) then return false end
    end
    return true
end

-- Adds the facts of a check to the counts: those of a spec file are its tests.
local function count(facts, entry)
    for _, row in ipairs(entry.rows) do
        local passed, failed = row.what:match '^specs: (%d+) passed, (%d+) failed'
        if passed then
            facts.tests, facts.tests_failed = facts.tests + passed, facts.tests_failed + failed
        elseif row.verdict == 'pass' then
            facts.passed = facts.passed + 1
        elseif row.verdict == 'FAIL' and not row.what:find ': ended with ' and not entry.name:find '^spec ' then
            facts.failed[#facts.failed + 1] = ('%s: %s'):format(entry.name, row.what)
        elseif row.verdict == 'FAIL' and entry.name:find '^spec ' and not row.what:find ': ended with ' then
            facts.failed[#facts.failed + 1] = ('%s_spec: %s'):format(entry.name:sub(6), row.what)
        end
    end
end

-- Reads what the runtime said of the card and its libraries, without where they lie.
local function describe(data, text)
    data.card, data.driver = text:match '^([^,]+),.*driver for (CUDA [%d.]+)'
    for _, name in ipairs { 'cuBLASLt', 'cuDNN' } do
        local version = text:match('; ' .. name .. ' ([%d.]+)')
        data[name] = version or data[name]
    end
end

local function collect(reports, date)
    local data = { bench = 'gpu', date = date, checks = {}, left_out = {},
        facts = { passed = 0, tests = 0, tests_failed = 0, failed = {} } }
    local last, order = {}, {}
    for _, report in ipairs(reports) do
        data.date = report.date or data.date
        for _, entry in ipairs(report.checks) do
            if not last[entry.name] then order[#order + 1] = entry.name end
            last[entry.name] = entry
        end
    end
    for _, name in ipairs(order) do
        count(data.facts, last[name])
        for _, row in ipairs(last[name].rows) do
            if row.what == 'CUDA' or row.what == 'the libraries' then describe(data, row.detail) end
        end
    end
    for _, name in ipairs(PUBLISHED) do
        if last[name] and is_whole(last[name]) then
            local rows = {}
            for _, row in ipairs(last[name].rows) do rows[#rows + 1] = kept(row) end
            data.checks[name] = gpureport.shown(name, rows)
        else
            data.left_out[#data.left_out + 1] = name
        end
    end
    return data
end

local function main()
    local given, paths = require 'spec.support.options'({ date = 'text', note = 'text', out = 'text' },
        '--date YYYY-MM-DD, --note TEXT, --out FILE', true)
    local reports = {}
    for k, path in ipairs(paths) do reports[k] = read(path) end
    if #reports == 0 then error('gpu.lua: give reports of make gpu-check (report.json)', 0) end
    local data, path = collect(reports, given.date), given.out or root .. '/build/bench/gpu.lua'
    data.note = given.note
    if not given.out then os.execute(('mkdir -p %q'):format(root .. '/build/bench')) end
    local file = assert(io.open(path, 'wb'))
    file:write('-- Results of make gpu-check, as data; written by spec/bench/gpu.lua.\n')
    file:write('return ', as_text(data), '\n')
    file:close()
    print('wrote ' .. path)
    if given.out then return end
    rawset(_G, 'arg', { [0] = root .. '/spec/bench/publish.lua', 'gpu' })
    dofile(arg[0])
end

main()
