-- Counts what spec files gave that ran in processes of their own (spec/support/suite.sh).
--
--   tally.lua order WAY FILES...   prints the files: those without a last run as they are given, then the slowest first
--   tally.lua line WAY FILE        prints one line about a file that has ended
--   tally.lua report WAY FILES...  prints the slowest 20 specs, failures, `N passed, N failed`; status 1 on a failure
--
-- All lies in the folder that WANE_SPEC_FOLDER names: WAY/NAME.result is a Lua table from spec/support/output.lua,
-- WAY/NAME.code the exit status, WAY.times the seconds of each file for the order of the next run.
local what, way = arg[1], arg[2]
local folder = assert(os.getenv 'WANE_SPEC_FOLDER', 'WANE_SPEC_FOLDER is not set: start spec/support/suite.sh')
local SLOWEST = 20
local function path(file, ending)
    return ('%s/%s/%s.%s'):format(folder, way, file:match('([^/]+)%.lua$'), ending)
end

local function text_of(name)
    local file = io.open(name, 'rb')
    if not file then return nil end
    local text = file:read('*a')
    file:close()
    return text
end

-- Loads the table that a file holds; nil when there is none, or it was cut off.
local function table_of(name)
    local chunk = loadfile(name)
    local ok, value = pcall(chunk or error)
    return ok and type(value) == 'table' and value or nil
end

local function times() return table_of(('%s/%s.times'):format(folder, way)) or {} end

-- Returns the result of a file: its own table, or one failure that says how its process ended.
local function result_of(file)
    local result = table_of(path(file, 'result'))
    local code = tonumber(text_of(path(file, 'code')) or '')
    local wrong
    if not result then
        result = { passed = 0, failed = 0, skipped = 0, seconds = 0, specs = {}, text = '' }
        wrong = 'did not come to its end: no count'
    elseif code ~= 0 and result.failed == 0 then
        wrong = 'counted no failure, but ended badly'
    end
    if wrong then
        result.failed = result.failed + 1
        local log = text_of(path(file, 'log')) or ''
        result.text = ('\nfailed %s  %s, exit code %s\n%s\n'):format(file, wrong, tostring(code), log:sub(-4000))
    end
    return result
end

local function order()
    local known, files, place = times(), {}, {}
    for k = 3, #arg do files[#files + 1], place[arg[k]] = arg[k], k end
    table.sort(files, function(a, b)
        local x, y = known[a] or math.huge, known[b] or math.huge -- one that was not run yet first
        if x ~= y then return x > y end
        return place[a] < place[b]
    end)
    for _, file in ipairs(files) do print(file) end
end

local function line()
    local file = arg[3]
    local result = result_of(file)
    print(('  %-5s %4d %7.1f s  %s'):format(result.failed == 0 and 'ok' or 'FAIL', result.passed, result.seconds, file))
end

local function report()
    local passed, failed, skipped, all, seconds, texts = 0, 0, 0, {}, times(), {}
    for k = 3, #arg do
        local result = result_of(arg[k])
        passed, failed, skipped = passed + result.passed, failed + result.failed, skipped + result.skipped
        seconds[arg[k]] = result.seconds
        for _, spec in ipairs(result.specs) do all[#all + 1] = { seconds = spec[1], name = spec[2], file = arg[k] } end
        table.insert(texts, result.failed > 0 and #texts + 1 or 1, result.text)
    end
    table.sort(all, function(a, b) return a.seconds > b.seconds end)
    print(('\nslowest %d of %d specs'):format(math.min(SLOWEST, #all), #all))
    for k = 1, math.min(SLOWEST, #all) do
        print(('%7.2f s  %s  %s'):format(all[k].seconds, all[k].file:match('([^/]+)_spec%.lua$'), all[k].name))
    end
    io.write(table.concat(texts)) -- failures last: of a long log often only the end is kept
    local file = io.open(('%s/%s.times'):format(folder, way), 'wb')
    if file then
        file:write('return {\n')
        for name, value in pairs(seconds) do file:write(('[%q] = %.3f,\n'):format(name, value)) end
        file:write('}\n')
        file:close()
    end
    io.write(('\n%d passed, %d failed'):format(passed, failed))
    print(skipped > 0 and (', %d skipped'):format(skipped) or '')
    os.exit(failed == 0 and passed > 0)
end

({ order = order, line = line, report = report })[what]()
