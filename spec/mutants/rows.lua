--- All rows of the files beside this one: { name, file, old, new, spec, filter }. `old` stands once in `file`.
local root = ...
local rows = {}
for _, name in ipairs { 'mutants', 'kernels', 'files', 'planner', 'offload', 'recipe' } do
    for _, row in ipairs(dofile(('%s/spec/mutants/%s.lua'):format(root, name))) do rows[#rows + 1] = row end
end
return rows
