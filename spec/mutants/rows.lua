--- Collects what `make mutants` breaks: all rows of the files beside this one, { name, file, old, new, spec, filter,
-- needs }, and count(text, part), how often a part stands in a text.
--
-- A file is a list of groups, each of one file that is broken and what its rows have in common:
--     { file =, spec =, filter =, needs =, { 'the name of a row', old =, new = }, ... }
-- `old` is the exact old text, which must occur once in the file (a whole line, or two, rather than a word), `new` the
-- new text, which must build. `spec` is the spec file, or a list of them, that must fail, and `filter`, where the spec
-- is slow, a busted filter (a Lua pattern on the full name of a spec); a row may have its own. `needs` is a command
-- that fails on machines where the spec is pending, which leave the group or the row out. Rows in the room of a class
-- of kernels, and those that name a `class`, need a processor that runs it. A row that no spec catches shows a missing
-- spec: add the spec, keep the row.
-- @param root of the tree
-- @return rows, count
local root = ...
local rows = {}

-- A command that fails where the processor does not run a class of kernels.
local RUNS = "WANE_KERNELS=none build/wane version | grep -q 'auto, .*%s'"

for _, name in ipairs { 'lua', 'runtime', 'plan', 'kernels', 'products', 'images', 'cuda', 'ranks', 'links' } do
    for _, group in ipairs(dofile(('%s/spec/mutants/%s.lua'):format(root, name))) do
        for _, row in ipairs(group) do
            local class = row.class or group.file:match '^kernels/cpu/(avx%d+)/'
            rows[#rows + 1] = { name = row[1], file = group.file, old = row.old, new = row.new,
                spec = row.spec or group.spec, filter = row.filter or group.filter,
                needs = row.needs or group.needs or class and RUNS:format(class) }
        end
    end
end

local function count(text, part)
    local n, at = 0, 1
    while true do
        local _, last = text:find(part, at, true)
        if not last then return n end
        n, at = n + 1, last + 1
    end
end

return rows, count
