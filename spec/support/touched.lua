-- Prints the spec files that are about changed files, one a line: `git diff --name-only HEAD~1 | luajit
-- spec/support/touched.lua`. A spec file that changed is about itself. A C file has the specs that its mutants must
-- fail (spec/mutants/), or where it has no mutant, those of the mutants in its folder.
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

local found = {}
for path in io.lines() do
    if path:find '^spec/[%w_]+_spec%.lua$' then
        found[path] = true
    elseif path:find '^runtime/.*%.[ch]$' or path:find '^kernels/.*%.[ch]$' then
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
