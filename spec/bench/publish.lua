-- Publishes the results of benches in the pages. After `luajit spec/bench/rival.lua`, `budget.lua` or `seconds.lua` it
-- writes, from build/bench/NAME.lua: the table of the bench in README.md (rival) or spec/README.md (budget, seconds),
-- the table in spec/bench/RESULTS.md, each between two marker comments, and the picture of the bench. It keeps the data
-- by the names of benches in spec/bench/results.lua, those of GPUs in results_gpu.lua, and spec/bench_spec.lua compares
-- the pages with them. It refuses results that lack what the published ones have (PyTorch, rows, size), and says so.
--
--   luajit spec/bench/publish.lua [--root FOLDER] [--from FILE] [bench ...]
--
-- With names of benches it does nothing for others: only what ran is published. --from FILE publishes that file alone.
local here = arg[0]:match '^(.*)/[^/]*$' or '.'
local checkout = here:match '^(.*)/spec/bench$' or here .. '/../..'
package.path = checkout .. '/lua/?.lua;' .. checkout .. '/lua/?/init.lua;' .. checkout .. '/?.lua;' .. package.path
local report = require 'spec.bench.report'
local gpureport = require 'spec.bench.gpureport'

-- kept: the file of the data, KEPT where it is nil; page: the file that shows readme(data), or nil; results(data) goes
-- to RESULTS.md; picture_file: the file of picture(data), or nil.
local KEPT = 'spec/bench/results.lua'
local benches = {
    rival = { page = 'README.md', readme = report.readme, results = report.rival, refusal = report.refusal,
        picture = report.picture, picture_file = 'spec/bench/results.svg' },
    rival_avx2 = { results = report.rival, refusal = report.refusal },
    rival_images = { results = report.rival, refusal = report.refusal },
    budget = { page = 'spec/README.md', readme = report.budget.readme, results = report.budget.results,
        refusal = report.budget.refusal, picture = report.budget.picture,
        picture_file = 'spec/bench/results_budget.svg' },
    seconds = { page = 'spec/README.md', readme = report.seconds.readme, results = report.seconds.results,
        refusal = report.seconds.refusal },
    -- Measurements of make gpu-check, of which spec/bench/gpu.lua makes data.
    gpu = { kept = 'spec/bench/results_gpu.lua', results = gpureport.results, refusal = gpureport.refusal },
}

local given, names = require 'spec.support.options'({ root = 'text', from = 'text' },
    '--root FOLDER, --from FILE', true)
local root, from, ran = given.root or checkout, given.from, nil
for _, name in ipairs(names) do
    ran = ran or {}
    ran[name] = true
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

-- Returns the published data by the names of benches, of those whose data a file keeps.
local function published(file)
    local kept = loadfile(root .. '/' .. file)
    return kept and kept() or {}
end

local function publish(name, path)
    local bench, data = benches[name], assert(loadfile(path))()
    local file = bench.kept or KEPT
    local all = published(file)
    local refusal = bench.refusal(data, all[name])
    if refusal then
        print(('not published: %s (%s); the tables stay as they are'):format(path, refusal))
        return
    end
    -- All is made before anything is written: a page without markers leaves every file as it was.
    local readme = bench.page and report.replace(read(root .. '/' .. bench.page), name, bench.readme(data))
    local results = report.replace(read(root .. '/spec/bench/RESULTS.md'), name, bench.results(data))
    local picture = data.torch and bench.picture and bench.picture(data)
    if readme then write(bench.page, readme) end
    write('spec/bench/RESULTS.md', results)
    if picture then write(bench.picture_file, picture) end
    all[name] = data
    write(file, '-- Published results of benches, by name; written by spec/bench/publish.lua.\nreturn '
        .. report.as_text(all) .. '\n')
end

local function main()
    if from then
        local data = assert(loadfile(from))()
        if not benches[data.bench] then error(("%s: no pages show the bench '%s'"):format(from, data.bench), 0) end
        return publish(data.bench, from)
    end
    for _, name in ipairs { 'rival', 'rival_avx2', 'rival_images', 'budget', 'seconds', 'gpu' } do
        local path = root .. '/build/bench/' .. name .. '.lua'
        local there = io.open(path)
        if there then there:close() end
        if ran and ran[name] or not ran and there then publish(name, path) end
    end
end

main()
