--- The text of the script that `wane new` writes; FILE stands for its name.
-- @internal wane.cli.template
return [[
-- A training step, described: what to build, with which numbers, and which of them to vary.
--
--   wane run FILE                                   one step with the defaults
--   wane plan FILE --policy sqrt --depth 16         bytes and seconds of a step; nothing is computed
--   wane measure FILE --policy sqrt                 the same, measured
--   wane sweep FILE --report out.html               every point of the grid, and a page about it
local wane = require 'wane'
local nn, optim = wane.nn, wane.optim

local function build(p)
    local blocks = {}
    for i = 1, p.depth do blocks[i] = nn.Residual(nn.MLP(p.width, 4 * p.width)) end
    local model = nn.Sequential(blocks):add(nn.Linear(p.width, 10))
    local opt = optim.SGD(model:parameters(), { lr = 0.01 })
    local x = wane.randn(p.batch, p.width):retain()
    local labels = wane.randint(10, { p.batch }):retain()
    return function() return nn.cross_entropy(model(x), labels) end, model, opt
end

local result = wane.main {
    build = build,
    defaults = { depth = 8, width = 64, batch = 256 },
    grid = { depth = { 8, 16 }, policy = { 'save_all', 'sqrt', 'recompute_all' } },
}
if wane.is_tensor(result) then print(('loss %.4f'):format(result:item())) end
return result
]]
