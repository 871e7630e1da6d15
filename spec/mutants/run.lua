-- Breaks Wane on purpose, one line at a time, and sees whether the specs notice: `make mutants`.
-- usage: luajit spec/mutants/run.lua [-k] [names or parts of names]     (-k keeps the copy and says where it is)
--
-- Works in one copy of the tree in a temporary folder, built incrementally; the checkout is never touched. First
-- the unbroken copy must pass the specs named by the rows. Then, for each row of the files beside it: the
-- old text must be there exactly once, the broken copy must build, and the named specs must fail (or not come to
-- their end). Rows of kernels/cuda are built for the simulated GPU, and their specs run on it.
-- A row that fails in any other way is an error of the row, never a catch. Ends with a table; fails when a row
-- survives or is in error.
local root = arg[0]:match('^(.*)/spec/mutants/[^/]*$') or '.'
local rows, count = assert(loadfile(root .. '/spec/mutants/rows.lua'))(root)
local SECONDS = 300 -- longest run of the specs of a row; a broken program may loop

local copy

local function quote(text)
    return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- Returns the output (both streams) and the exit code of a shell command.
local function shell(command)
    local pipe = assert(io.popen('{ ' .. command .. '\n} 2>&1 </dev/null; printf "\\nrc %d" $?'))
    local text = pipe:read('*a')
    pipe:close()
    local body, code = text:match('^(.*)\nrc (%d+)$')
    return body or text, tonumber(code)
end

local function now()
    return tonumber((shell('date +%s.%N')))
end

local function read(path)
    local file = io.open(path, 'rb')
    if not file then return nil end
    local text = file:read('*a')
    file:close()
    return text
end

local function write(path, text)
    local file = assert(io.open(path, 'wb'))
    file:write(text)
    file:close()
end

local function replace(text, old, new)
    local first, last = text:find(old, 1, true)
    return text:sub(1, first - 1) .. new .. text:sub(last + 1)
end

local function specs_of(row)
    return type(row.spec) == 'table' and row.spec or { row.spec }
end

local function is_cuda(row)
    return tostring(row.file):find '^kernels/cuda/' ~= nil
end

-- Builds the copy, and the simulated GPU where `has_gpu` asks for it.
local function build(has_gpu)
    return shell('cd ' .. quote(copy) .. ' && make ' .. (has_gpu and 'cudasim' or 'all'))
end

local function needs_cudnn(spec)
    return spec == 'spec/cuda_dnn_spec.lua'
end

-- Returns the environment of specs. has_gpu: they run on the simulated GPU.
local function environment(specs, has_gpu)
    if not has_gpu then return '' end
    return 'WANE_CUDA_LIB=build/cudasim' .. (needs_cudnn(specs[1]) and ' WANE_CUDA_DNN=simulated' or '')
end

-- Runs spec files in the copy. Returns true and the closing line when all passed, nil when no spec ran, else false and
-- what caught the mutant; then the whole output. has_gpu: they run on the simulated GPU.
local function run_specs(specs, filter, has_gpu)
    local words = {}
    for _, spec in ipairs(specs) do words[#words + 1] = quote(spec) end
    if filter then words[#words + 1] = '--filter ' .. quote(filter) end
    local text, code = shell(('cd %s && %s timeout %d luajit spec/run.lua %s'):format(quote(copy),
        environment(specs, has_gpu), SECONDS, table.concat(words, ' ')))
    local closing = text:match('([^\n]*)\n*$')
    local passed, failed = closing:match('^(%d+) passed, (%d+) failed')
    if passed == nil then
        return false, code == 124 and 'did not end in time' or 'no closing line, exit code ' .. code, text
    end
    if failed == '0' and code == 0 then
        if passed == '0' then return nil, 'no spec ran', text end
        return true, closing, text
    end
    local names = {}
    for name in ('\n' .. text):gmatch('\nfailed %S+  ([^\n]*)') do names[#names + 1] = name end
    for name in ('\n' .. text):gmatch('\nerror %S+  ([^\n]*)') do names[#names + 1] = 'error in ' .. name end
    local more = #names > 1 and (' (and %d more)'):format(#names - 1) or ''
    return false, (names[1] or closing) .. more, text
end

local function check_row(row)
    for _, field in ipairs { 'name', 'file', 'old', 'new', 'spec' } do
        if row[field] == nil then return "the field '" .. field .. "' is missing" end
    end
    local text = read(copy .. '/' .. row.file)
    if not text then return row.file .. ' is not there' end
    local n = count(text, row.old)
    if n ~= 1 then return ('the old text is there %d times, expected once'):format(n) end
    for _, spec in ipairs(specs_of(row)) do
        if not read(copy .. '/' .. spec) then return spec .. ' is not there' end
    end
end

-- Returns 'caught', 'survived' or 'error', and by what.
local function try(row)
    local wrong = check_row(row)
    if wrong then return 'error', wrong end
    local path = copy .. '/' .. row.file
    local text = read(path)
    write(path, replace(text, row.old, row.new))
    local output, code = build(is_cuda(row))
    local verdict, by
    if code ~= 0 then
        verdict, by = 'error', 'does not build: ' .. (output:match('[^\n]*error:[^\n]*') or output:match('[^\n]*$'))
    else
        local ok, what = run_specs(specs_of(row), row.filter, is_cuda(row))
        verdict = ok == nil and 'error' or ok and 'survived' or 'caught'
        by = what
    end
    write(path, text)
    return verdict, by
end

local function selected(words)
    local out = {}
    for _, row in ipairs(rows) do
        local wanted = #words == 0
        for _, word in ipairs(words) do wanted = wanted or tostring(row.name):find(word, 1, true) ~= nil end
        if wanted then out[#out + 1] = row end
    end
    return out
end

local function make_copy()
    copy = shell('mktemp -d'):gsub('%s+$', '')
    -- Times are kept, so that what is built already is not built again.
    local output, code = shell(('cd %s && tar -c --format=posix --exclude=./.git --exclude=./build/asan . | tar -xC %s')
        :format(quote(root), quote(copy)))
    if code ~= 0 then error('the tree could not be copied: ' .. output, 0) end
end

-- Checks that the unbroken copy passes, or a catch would mean nothing.
local function check_unbroken(list)
    local has_gpu = false
    for _, row in ipairs(list) do has_gpu = has_gpu or is_cuda(row) end
    local output, code = build(has_gpu)
    if code ~= 0 then error('the unbroken copy does not build:\n' .. output, 0) end
    local seen = {}
    for _, row in ipairs(list) do
        for _, spec in ipairs(row.spec and specs_of(row) or {}) do
            if not seen[spec] and read(copy .. '/' .. spec) then
                local ok, what, text = run_specs({ spec }, nil, has_gpu)
                if not ok then error(('the unbroken copy fails %s: %s\n%s'):format(spec, what, text), 0) end
                print(('unbroken: %s  (%s)'):format(what, spec))
            end
            seen[spec] = true
        end
    end
end

local function main(words)
    local list = selected(words)
    if #list == 0 then error('no row has a name like ' .. table.concat(words, ', '), 0) end
    make_copy()
    check_unbroken(list)
    local tally = { caught = 0, survived = 0, error = 0 }
    print(('%-28s %-30s %-26s %-8s %6s  %s'):format('name', 'file', 'spec', 'verdict', 's', 'by'))
    for _, row in ipairs(list) do
        local start = now()
        local verdict, by = try(row)
        tally[verdict] = tally[verdict] + 1
        print(('%-28s %-30s %-26s %-8s %6.1f  %s'):format(tostring(row.name), tostring(row.file),
            table.concat(row.spec and specs_of(row) or {}, ' '), verdict, now() - start, by))
        io.stdout:flush()
    end
    print(('\n%d caught, %d survived, %d in error'):format(tally.caught, tally.survived, tally.error))
    return tally.survived + tally.error == 0 and 0 or 1
end

local words, keep = {}, false
for _, word in ipairs(arg) do
    if word == '-k' then keep = true else words[#words + 1] = word end
end
local ok, result = pcall(main, words)
if copy and copy ~= '' then
    if keep then print('kept: ' .. copy) else shell('rm -rf ' .. quote(copy)) end
end
if not ok then
    io.stderr:write('mutants: ' .. tostring(result) .. '\n')
    result = 1
end
os.exit(result)
