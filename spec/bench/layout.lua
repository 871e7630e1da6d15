-- Measures what panels gain: whole steps of networks whose weights are in panels, as nn.Linear's are on the CPU, and of
-- the same networks with { layout = 'plain' }, in turns in one process. A ratio below 1: panels are faster. The
-- gradients have the same bits (spec/layout_spec.lua). Each network's weights are larger than the caches, unless said.
--
--   luajit spec/bench/layout.lua [--seconds a_row]
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local binding = require 'wane.ffi'
local C = binding.C
local optim = wane.optim
local stacks = require 'spec.support.stacks'

local chosen = common.options({ seconds = 6 }, '--seconds N')

local function network(width, depth, layout)
    return stacks.linear(stacks.equal(depth, width), function() return wane.nn.ReLU() end, { layout = layout })
end

local STEPS = {
    ['forward'] = function(m, x) return function() return wane.eval(m(x):sum()) end end,
    ['backward'] = function(m, x)
        return function()
            m:zero_grad()
            m(x):sum():backward()
        end
    end,
    ['SGD, opt:step(loss)'] = function(m, x)
        local opt = optim.SGD(m:parameters(), { lr = 1e-6 })
        return function() opt:step(m(x):sum()) end
    end,
    ['Adam, opt:step(loss)'] = function(m, x)
        local opt = optim.Adam(m:parameters(), { lr = 1e-6 })
        return function() opt:step(m(x):sum()) end
    end,
    ['Adam under autocast'] = function(m, x)
        local opt = optim.Adam(m:parameters(), { lr = 1e-6 })
        return function() opt:step(wane.autocast('bf16', function() return m(x):sum() end)) end
    end,
}

local function step_of(kind, rows, width, depth, layout)
    wane.manual_seed(1)
    local step = STEPS[kind](network(width, depth, layout), wane.eval(wane.randn(rows, width):retain()))
    step()
    step()
    return step
end

local function seconds_of(step)
    local from = C.wn_now()
    step()
    return C.wn_now() - from
end

local function row_of(kind, rows, width, depth)
    local panels, plain = step_of(kind, rows, width, depth), step_of(kind, rows, width, depth, 'plain')
    local a, b, ratio, from = {}, {}, {}, C.wn_now()
    while #a < 5 or C.wn_now() - from < chosen.seconds do
        local i = #a + 1
        if i % 2 == 0 then b[i], a[i] = seconds_of(plain), seconds_of(panels)
        else a[i], b[i] = seconds_of(panels), seconds_of(plain) end
        ratio[i] = a[i] / b[i]
    end
    table.sort(ratio)
    local function quarter(k) return ratio[math.max(1, math.floor(#ratio * k / 4 + 0.5))] end
    return { ('%d x Linear %d, %d rows: %s'):format(depth, width, rows, kind), ('%.2f'):format(common.median(b) * 1e3),
        ('%.2f'):format(common.median(a) * 1e3), ('%.2f'):format(common.median(ratio)),
        ('%.2f to %.2f'):format(quarter(1), quarter(3)) }
end

local ROWS = {
    { 'SGD, opt:step(loss)', 32, 4096, 10 }, { 'backward', 32, 4096, 10 }, { 'forward', 32, 4096, 10 },
    { 'Adam, opt:step(loss)', 32, 1024, 20 }, { 'backward', 32, 1024, 20 }, { 'Adam under autocast', 32, 1024, 20 },
    { 'backward', 1, 2048, 10 }, { 'backward', 8, 2048, 10 }, { 'backward', 16, 2048, 10 },
    { 'backward', 64, 2048, 10 }, { 'backward', 2048, 384, 6 }, { 'Adam under autocast', 2048, 384, 6 },
}

local lines = {}
for i, r in ipairs(ROWS) do
    common.progress(('layout: %d of %d'):format(i, #ROWS))
    lines[i] = row_of(unpack(r))
    collectgarbage()
    collectgarbage()
    wane.memory.trim()
end
common.progress()
common.table({ 'a step, ' .. C.wn_threads() .. ' threads', 'plain, ms', 'panels, ms', 'panels / plain',
    'middle half of the ratios' }, lines)
