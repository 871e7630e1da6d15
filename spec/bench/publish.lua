-- Puts results into the documents: after `luajit spec/bench/rival.lua`, `budget.lua` or `seconds.lua`, the tables in
-- README.md and in spec/bench/RESULTS.md (each between two marker comments) and spec/bench/results.svg are made from
-- build/bench/NAME.lua, and those files are kept beside them as spec/bench/results.lua, results_budget.lua and
-- results_seconds.lua, which spec/bench_spec.lua holds the pages to. Results that lack what the published
-- ones have (PyTorch, rows, size) are not published, which is said.
--
--   luajit spec/bench/publish.lua [--root FOLDER] [--from FILE] [bench ...]
--
-- With names of benches it does nothing for others: only what ran is published. --from FILE publishes that file alone.
local here = arg[0]:match '^(.*)/[^/]*$' or '.'
local checkout = here:match '^(.*)/spec/bench$' or here .. '/../..'
package.path = checkout .. '/lua/?.lua;' .. checkout .. '/lua/?/init.lua;' .. checkout .. '/?.lua;' .. package.path
local report = require 'spec.bench.report'
local budgetreport = require 'spec.bench.budgetreport'
local secondsreport = require 'spec.bench.secondsreport'

-- kept: where the data are kept; readme, results: what the pages say; picture: one more file, or nil.
local benches = {
    rival = { kept = 'spec/bench/results.lua', readme = report.readme, results = report.rival,
        refusal = report.refusal, picture = report.picture },
    budget = { kept = 'spec/bench/results_budget.lua', readme = budgetreport.readme, results = budgetreport.results,
        refusal = budgetreport.refusal },
    seconds = { kept = 'spec/bench/results_seconds.lua', readme = secondsreport.readme,
        results = secondsreport.results, refusal = secondsreport.refusal },
}

local root, from, ran = checkout, nil, nil
do
    local i = 1
    while arg[i] do
        if arg[i] == '--root' then
            root, i = arg[i + 1], i + 1
        elseif arg[i] == '--from' then
            from, i = arg[i + 1], i + 1
        else
            ran = ran or {}
            ran[arg[i]] = true
        end
        i = i + 1
    end
end

local function read(path)
    local file, why = io.open(path, 'rb')
    if not file then error(('%s: cannot be read (%s)'):format(path, why), 0) end
    local text = file:read '*a'
    file:close()
    return text
end

local function write(name, text)
    local file = assert(io.open(root .. '/' .. name, 'wb'))
    assert(file:write(text))
    file:close()
    print('published: ' .. name)
end

local function publish(name, path)
    local bench = benches[name]
    local kept = loadfile(root .. '/' .. bench.kept)
    local text = read(path)
    local data = assert(loadstring(text, '@' .. path))()
    local refusal = bench.refusal(data, kept and kept())
    if refusal then
        print(('not published: %s (%s); the tables stay as they are'):format(path, refusal))
        return
    end
    -- All is made before anything is written: a page without markers leaves every file as it was.
    local readme = report.replace(read(root .. '/README.md'), name, bench.readme(data))
    local results = report.replace(read(root .. '/spec/bench/RESULTS.md'), name, bench.results(data))
    local picture = data.torch and bench.picture and bench.picture(data)
    write('README.md', readme)
    write('spec/bench/RESULTS.md', results)
    if picture then write('spec/bench/results.svg', picture) end
    write(bench.kept, text)
end

local function main()
    if from then
        local data = assert(loadfile(from))()
        if not benches[data.bench] then error(("%s: no pages show the bench '%s'"):format(from, data.bench), 0) end
        return publish(data.bench, from)
    end
    for _, name in ipairs { 'rival', 'budget', 'seconds' } do
        local path = root .. '/build/bench/' .. name .. '.lua'
        local there = io.open(path)
        if there then there:close() end
        if ran and ran[name] or not ran and there then publish(name, path) end
    end
end

main()
