-- Prints the spec files that are about changed files, one a line: `git diff --name-only HEAD~1 | luajit
-- spec/support/touched.lua`. A spec file that changed is about itself. A C file has the specs that its mutants must
-- fail (spec/mutants/), or where it has no mutant, those of the mutants in its folder; one of CUDA has the trainings
-- that run rarely beside them.
local rows = assert(loadfile 'spec/mutants/rows.lua')('.')

local function folder_of(path) return path:match '^(.*)/' or '.' end

-- Adds the specs of the rows whose file, or what `key` makes of it, is `what`. Returns whether there is such a row.
local function add(found, what, key)
    local any = false
    for _, row in ipairs(rows) do
        if type(row.file) == 'string' and key(row.file) == what then
            any = true
            for _, spec in ipairs(type(row.spec) == 'table' and row.spec or { row.spec }) do found[spec] = true end
        end
    end
    return any
end

local TRAININGS = { 'cuda_attention', 'cuda_networks' }

local found = {}
for path in io.lines() do
    if path:find '^kernels/cuda/' or path:find '^runtime/device/cuda' or path:find '^spec/cudasim/' then
        for _, name in ipairs(TRAININGS) do found[('spec/%s_spec.lua'):format(name)] = true end
    end
    if path:find '^spec/[%w_]+_spec%.lua$' then
        found[path] = true
    elseif path:find '^runtime/.*%.[ch]$' or path:find '^kernels/.*%.[ch]$' or path:find '%.cuh?$'
        or path:find '^kernels/.*%.inc$' then
        local _ = add(found, path, function(file) return file end) or add(found, folder_of(path), folder_of)
    end
end
local list = {}
for path in pairs(found) do
    local file = io.open(path) -- one that the change took away is gone
    if file then
        file:close()
        list[#list + 1] = path
    end
end
table.sort(list)
for _, path in ipairs(list) do print(path) end
