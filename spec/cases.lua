--- One record an op: what op_spec drives every op of runtime/op.def through. An op without a record fails it.
--
-- A record is { cases = {...}, bad = {...} }, with is_flat = true where the slope is 0 wherever there is one, so that
-- there is no second derivative. A case says everything four checks need - forward against a plain
-- f64 reference, gradient against finite differences, the same bits twice, and shape and dtype of the result:
--
--   name    what is special about it
--   inputs  a list of { dim, dim, ..., dtype =, gen =, values = }; {} is 0-d. No dtype: the float type under test.
--           gen: 'normal' (the default), 'positive' (0.5 to 2), 'away' (no closer to 0 than 0.2), 'distinct' (no
--           two closer than 0.1), 'between' (0.06 from every 'distinct' one), 'mask' (0 or 1), 'int:<n>' (0
--           to n - 1); values: the flat list itself
--   call    function(wane, x...) -> tensor, recording the op under test
--   ref     function(x...) -> array, from arrays (spec/cases/array.lua): { shape = {...}, v1, v2, ... }
--   check   instead of ref, where only a property is known: function(result, x...) -> true, or false and why
--   grad    true: all float inputs are differentiable; a list of booleans: those; none: no gradient check
--   kink    true: the point is one at which the second derivative does not exist, so it is not compared there
--   composed  true: of several nodes, so in bf16 it is not the f32 value rounded once
--   dtype   of the result, when it is not the float type under test
--   only    'f32' or 'f64', when the case makes sense for one type; else it runs for both
--   orders  false: a size for the CPU's kernels alone, which the simulated GPU runs in one order of threads
--   tol     { f32 =, f64 = } relative to 1 + |reference|; defaults below
--   exact   true: the bits must equal the reference rounded to the type
--   seeded  true: wane.manual_seed(1) goes before every call
-- and a bad application:
--   inputs, call (the first case's when there is none), error: a pattern the message must match
local cases = {
    tol = { f32 = 2e-5, f64 = 1e-12 },
    grad_tol = 1e-6, -- of central differences in f64
    records = {},
}

for _, family in ipairs { 'creation', 'binary', 'unary', 'derivative', 'matmul', 'reduce', 'shape', 'table', 'scan',
    'loss', 'norm', 'attention', 'recurrent', 'update', 'fused', 'pack', 'conv', 'pool', 'channel', 'resize',
    'image_map' } do
    for op, record in pairs(require('spec.cases.' .. family)) do
        assert(not cases.records[op], op .. ' has two records')
        cases.records[op] = record
    end
end

return cases
