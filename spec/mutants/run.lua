-- Breaks Wane on purpose, one line at a time, and sees whether the specs notice: `make mutants`.
-- usage: luajit spec/mutants/run.lua [names or parts of names]
--
-- Works in copies of the tree in a temporary folder; the checkout is never touched. One copy stays as it was built; the
-- others, one a core (JOBS), are broken in turns by a process each:
--     FOLDER/good          built once, never broken
--     FOLDER/1, FOLDER/2   broken by one row after another, and made good again from the first, objects too
--     FOLDER/spec          what specs build by themselves, named by a digest of its sources, for all copies
--     FOLDER/todo/1, ...   what is left to do; a process takes a number by moving the file into its own folder
-- First the unbroken copies run what the rows will run, each spec file once; rows of a file that fails there are in
-- error. Then, for each row of the files beside this one: the old text must be there exactly once, the broken copy must
-- build, and the named specs must fail (or not come to their end), which stop at their first failure. Kernels of CUDA
-- are built for the simulated GPU, where specs of CUDA run. A row that fails in any other way is an error of the row,
-- never a catch. Ends with a table; fails when a row survives or is in error.
local root = arg[0]:match('^(.*)/spec/mutants/[^/]*$') or '.'
local rows, count = assert(loadfile(root .. '/spec/mutants/rows.lua'))(root)
local ffi = require 'ffi'
local files = require 'spec.support.files'
local read, write = files.read, files.write
ffi.cdef 'int isatty(int fd);'

-- Seconds that the specs of a row may take, over those that they took unbroken: a broken program may loop.
local MORE, TIMES = 30, 10

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

local function replace(text, old, new)
    local first, last = text:find(old, 1, true)
    return text:sub(1, first - 1) .. new .. text:sub(last + 1)
end

local function specs_of(row)
    return type(row.spec) == 'table' and row.spec or { row.spec }
end

-- Returns what specs need built beside the library: the simulated GPU, the one that watches memory, the doors to MPI.
local function beside(specs)
    local targets = ''
    for _, spec in ipairs(specs) do
        if spec:find '^spec/cuda' then targets = targets .. ' build/cudasim/libwane_cuda.so build/cudasim/selftest' end
        if spec:find '/dist_' or spec:find '/[a-z_]*ranks_' then targets = targets .. ' mpi' end
        if spec:find '/cudasim_' then targets = targets .. ' build/cudasim-hooks/libwane_cuda.so' end
    end
    return targets
end

-- Rooms of kernels/cpu that a class of processors has alone, or no class has.
local APART = { plain = true, avx2 = true, avx512 = true, neon = true, backend = true }

-- Builds a copy with so many jobs, and what the specs need beside it.
-- @param broken file, or nil. What all classes of processors are compiled of is compiled for the one that specs run
-- under here, unless they ask for others.
local function build(copy, specs, jobs, broken)
    local is_one = broken and broken:find '^kernels/' and not APART[broken:match '^kernels/cpu/([^/]+)/']
    for _, spec in ipairs(specs) do
        local text = read(copy .. '/' .. spec)
        is_one = is_one and not (text:find 'WANE_KERNELS' or text:find 'build/release')
    end
    local class = is_one and [[CLASSES="$(build/wane version | sed -n 's/^kernels *\([a-z0-9]*\).*/\1/p')"]] or ''
    return shell(('cd %s && make -j%d %s library %s'):format(quote(copy), jobs, class, beside(specs)))
end

-- Runs spec files in a copy until one fails. Returns true and the closing line when all passed, nil when no spec ran,
-- else false and what failed; then the whole output.
-- @param filters patterns, of which the names of specs match one; none: all specs
-- @param limit seconds
local function run_specs(copy, specs, filters, limit)
    local words = { '--no-keep-going' }
    for _, filter in ipairs(filters) do words[#words + 1] = '--filter=' .. filter:gsub(' ', '.') end
    for _, spec in ipairs(specs) do words[#words + 1] = spec end
    for k, word in ipairs(words) do words[k] = quote(word) end
    local command = 'cd %s && JOBS=1 LUAJIT=%s timeout %d sh spec/support/suite.sh plain %s'
    local text, code = shell(command:format(quote(copy), quote(arg[-1]), limit, table.concat(words, ' ')))
    local closing = text:match('([^\n]*)\n*$')
    local passed, failed = closing:match('^(%d+) passed, (%d+) failed')
    if passed == nil then
        return false, code == 124 and 'did not end in time' or 'no closing line, exit code ' .. code, text
    end
    if failed == '0' and passed == '0' then return nil, 'no spec ran', text end
    if failed == '0' then return true, closing, text end
    local name = ('\n' .. text):match('\nfailed %S+  ([^\n]*)')
    local wrong = ('\n' .. text):match('\nerror %S+  ([^\n]*)')
    return false, name or wrong and 'error in ' .. wrong or closing, text
end

-- ---- what a process does to its copy --------------------------------------------------------------------------

-- Returns what is wrong with a row, nil for a row that can be tried.
local function check_row(copy, row)
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

-- Makes a copy what it was when its file `began` was written: files that are newer come from the good copy.
local function restore(copy)
    local output, code = shell('cd ' .. quote(copy) .. ' && find . -type f -newer began | while read -r file; do '
        .. 'if [ -e ../good/"$file" ]; then cp -p ../good/"$file" "$file"; else rm -f "$file"; fi || exit 1; done')
    if code ~= 0 then error('the copy could not be restored: ' .. output, 0) end
end

-- Breaks a copy, runs the specs of the row there, and restores it. Returns 'caught', 'survived' or 'error', and by
-- what.
-- @param seconds that each spec took unbroken
local function try(copy, row, seconds)
    local wrong = check_row(copy, row)
    if wrong then return 'error', wrong end
    local path, limit = copy .. '/' .. row.file, MORE
    for _, spec in ipairs(specs_of(row)) do
        if not seconds[spec] then return 'error', spec .. ' fails in the unbroken copy' end
        limit = limit + TIMES * seconds[spec]
    end
    shell('touch ' .. quote(copy .. '/began'))
    write(path, replace(read(path), row.old, row.new))
    local is_built = row.file ~= 'Makefile' and not row.file:find '%.lua$'
    local output, code = '', 0
    if is_built then output, code = build(copy, specs_of(row), 1, row.file) end
    local verdict, by
    if code ~= 0 then
        verdict, by = 'error', 'does not build: ' .. (output:match('[^\n]*error:[^\n]*') or output:match('[^\n]*$'))
    else
        local ok, what = run_specs(copy, specs_of(row), { row.filter }, limit)
        verdict = ok == nil and 'error' or ok and 'survived' or 'caught'
        by = what
    end
    restore(copy)
    return verdict, by
end

-- Does what is left to do, one number after another, and prints a line about each: number, seconds, verdict, by what.
-- @param folder of all copies
-- @param own name of this process' copy
-- @param list of which the numbers are
-- @param act function(copy, entry of the list) -> verdict, by what
local function work(folder, own, list, act)
    for k, entry in ipairs(list) do
        if os.rename(('%s/todo/%d'):format(folder, k), ('%s/taken/%d'):format(folder, k)) then
            local start = now()
            local verdict, by = act(folder .. '/' .. own, entry)
            io.write(('%d\t%.1f\t%s\t%s\n'):format(k, now() - start, verdict, (by:gsub('%c', ' '))))
            io.flush()
        end
    end
end

-- ---- what the first process does --------------------------------------------------------------------------------

-- Returns the rows with these parts of names, all without words, and the names of those whose specs need what this
-- machine has not.
local function selected(words)
    local out, left, is_met = {}, {}, {}
    for _, row in ipairs(rows) do
        local wanted, needs = #words == 0, row.needs or 'true'
        for _, word in ipairs(words) do wanted = wanted or tostring(row.name):find(word, 1, true) ~= nil end
        if wanted and is_met[needs] == nil then
            is_met[needs] = select(2, shell(('cd %s && %s'):format(quote(root), needs))) == 0
        end
        if wanted then table.insert(is_met[needs] and out or left, is_met[needs] and row or row.name) end
    end
    return out, left
end

-- Returns what the unbroken copies must pass: { spec =, filters = those of its rows; none when a row runs all of it }.
local function unbroken(list)
    local out, of = {}, {}
    for _, row in ipairs(list) do
        for _, spec in ipairs(specs_of(row)) do
            local entry = of[spec] or { spec = spec, filters = {} }
            if not of[spec] then out[#out + 1] = entry end
            of[spec], entry.is_whole = entry, entry.is_whole or not row.filter
            table.insert(entry.filters, row.filter)
        end
    end
    for _, entry in ipairs(out) do
        if entry.is_whole then entry.filters = {} end
    end
    return out
end

-- Copies the tree and builds it: once as it stays, and once for each process.
local function make_copies(folder, n, list)
    -- Times are kept, so that what is built already is not built again.
    local output, code = shell(('cd %s && mkdir -p %s/good && tar -c --format=posix --exclude=./.git '
        .. '--exclude=./build/asan --exclude=./build/suite . | tar -xC %s/good'):format(quote(root), folder, folder))
    if code ~= 0 then error('the tree could not be copied: ' .. output, 0) end
    local specs = {}
    for _, entry in ipairs(unbroken(list)) do specs[#specs + 1] = entry.spec end
    output, code = build(folder .. '/good', specs, n)
    if code ~= 0 then error('the unbroken copy does not build:\n' .. output, 0) end
    shell('cd ' .. folder .. ' && mkdir -p good/build/spec && mv good/build/spec . && ln -s ../../spec good/build/spec')
    for k = 1, n do shell(('cp -a %s/good %s/%d'):format(folder, folder, k)) end
end

-- Says how far it is, where somebody looks on.
local function say_progress(done, all, start)
    if ffi.C.isatty(2) == 0 then return end
    local seconds = now() - start
    io.stderr:write(('\r%d of %d, %.0f s of about %.0f\27[K\r'):format(done, all, seconds, seconds / done * all))
end

-- Has all entries of a list done by n processes; calls tell(entry, seconds, verdict, by what) as each ends.
local function spread(folder, n, what, list, tell)
    shell(('cd %s && rm -rf todo taken && mkdir todo taken && cd todo && touch $(seq %d)'):format(folder, #list))
    -- xargs leaves signals to the processes as they are; a shell would have those behind it ignore ^C, and their specs.
    local command = ('seq %d | xargs -P %d -I COPY %s %s --work %s COPY %s'):format(n, n, quote(arg[-1]), quote(arg[0]),
        folder, what)
    local pipe, start, done = assert(io.popen(command)), now(), 0
    for line in pipe:lines() do
        local k, seconds, verdict, by = line:match '^(%d+)\t(%S+)\t(%S+)\t(.*)$'
        if not k then error('a process ended: ' .. line, 0) end
        tell(list[tonumber(k)], tonumber(seconds), verdict, by)
        done = done + 1
        say_progress(done, #list, start)
    end
    pipe:close()
    if done ~= #list then error(('%d of %d were done'):format(done, #list), 0) end
    return now() - start
end

local function main(folder, words)
    local list, left = selected(words)
    for _, name in ipairs(left) do print(name .. ': left out, this machine lacks what its spec needs') end
    if #list == 0 then error('no row to try has a name like ' .. table.concat(words, ', '), 0) end
    local n = tonumber(os.getenv 'JOBS' or (shell 'nproc')) or 2
    n = math.min(n, #list)
    make_copies(folder, n, list)
    local took, names = { 'return {\n' }, {}
    for k, row in ipairs(list) do names[k] = ('%q,\n'):format(row.name) end
    write(folder .. '/rows.lua', 'return {\n' .. table.concat(names) .. '}\n')
    local seconds = spread(folder, n, 'unbroken', unbroken(list), function(entry, seconds, verdict, by)
        if verdict == 'passed' then took[#took + 1] = ('[%q] = %.1f,\n'):format(entry.spec, seconds)
        else print(('the unbroken copy fails %s: %s'):format(entry.spec, by)) end
    end)
    write(folder .. '/seconds.lua', table.concat(took) .. '}\n')
    print(('unbroken: %d spec files pass, %.0f s'):format(#took - 1, seconds))
    local tally = { caught = 0, survived = 0, error = 0 }
    local line = '%-28s %-30s %-26s %-8s %6s  %s'
    print(line:format('name', 'file', 'spec', 'verdict', 's', 'by'))
    seconds = spread(folder, n, 'broken', list, function(row, s, verdict, by)
        tally[verdict] = tally[verdict] + 1
        print(line:format(row.name, row.file, table.concat(specs_of(row), ' '), verdict, ('%6.1f'):format(s), by))
        io.stdout:flush()
    end)
    print(('\n%d caught, %d survived, %d in error, %.0f s'):format(tally.caught, tally.survived, tally.error, seconds))
    return tally.survived + tally.error == 0 and 0 or 1
end

-- Does the part of one of the processes: --work FOLDER COPY unbroken|broken. Which rows there are, and in which order,
-- the first process has decided.
local function help(folder, own, what)
    local list, named = {}, {}
    for _, row in ipairs(rows) do named[row.name] = row end
    for k, name in ipairs(dofile(folder .. '/rows.lua')) do list[k] = named[name] end
    if what == 'unbroken' then
        return work(folder, own, unbroken(list), function(copy, entry)
            local ok, by, text = run_specs(copy, { entry.spec }, entry.filters, 3600)
            return ok and 'passed' or 'failed', ok and by or by .. '\n' .. text
        end)
    end
    local seconds = dofile(folder .. '/seconds.lua')
    work(folder, own, list, function(copy, row) return try(copy, row, seconds) end)
end

if arg[1] == '--work' then return help(arg[2], arg[3], arg[4]) end
local folder = shell('mktemp -d'):gsub('%s+$', '')
local ok, result = pcall(main, folder, arg)
shell('rm -rf ' .. folder)
if not ok then
    io.stderr:write('mutants: ' .. tostring(result) .. '\n')
    result = 1
end
os.exit(result)
