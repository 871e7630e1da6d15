-- Puts results into the documents: after `luajit spec/bench/rival.lua`, the table in README.md, the tables in
-- spec/bench/RESULTS.md (each between two marker comments) and spec/bench/results.svg are made from
-- build/bench/rival.lua, and that file is kept beside them as spec/bench/results.lua, which spec/bench_spec.lua holds
-- them to. Results that lack what the published ones have (PyTorch, rows, size) are not published, which is said.
--
--   luajit spec/bench/publish.lua [--root FOLDER] [--from FILE] [bench ...]
--
-- With names of benches it does nothing unless rival is one of them: only what ran is published.
local here = arg[0]:match '^(.*)/[^/]*$' or '.'
local checkout = here:match '^(.*)/spec/bench$' or here .. '/../..'
package.path = checkout .. '/lua/?.lua;' .. checkout .. '/lua/?/init.lua;' .. checkout .. '/?.lua;' .. package.path
local report = require 'spec.bench.report'

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
from = from or root .. '/build/bench/rival.lua'

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

local function main()
    if ran and not ran.rival then return end
    local kept = loadfile(root .. '/spec/bench/results.lua')
    local text = read(from)
    local data = assert(loadstring(text, '@' .. from))()
    local refusal = report.refusal(data, kept and kept())
    if refusal then
        print(('not published: %s (%s); the tables stay as they are'):format(from, refusal))
        return
    end
    -- All is made before anything is written: a page without markers leaves every file as it was.
    local readme = report.replace(read(root .. '/README.md'), 'rival', report.readme(data))
    local results = report.replace(read(root .. '/spec/bench/RESULTS.md'), 'rival', report.rival(data))
    local picture = data.torch and report.picture(data)
    write('README.md', readme)
    write('spec/bench/RESULTS.md', results)
    if picture then write('spec/bench/results.svg', picture) end
    write('spec/bench/results.lua', text)
end

main()
