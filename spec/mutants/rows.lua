--- Collects what `make mutants` breaks: all rows of the files beside this one, { name, file, old, new, spec, filter },
-- and count(text, part), how often a part stands in a text. A row's `old` stands once in its file.
-- @param root of the tree
-- @return rows, count
local root = ...
local rows = {}
for _, name in ipairs { 'mutants', 'kernels', 'products', 'files', 'planner', 'plans', 'parts', 'backend',
    'image_kernels', 'conv', 'ops', 'cuda' } do
    for _, row in ipairs(dofile(('%s/spec/mutants/%s.lua'):format(root, name))) do rows[#rows + 1] = row end
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
