-- The mechanism of checkpointing: Linear 1024 x 1024, then (1024 x 1024, 1024 x 1) without bias, input 1024 x 1024,
-- Python's sum, and three iterations: checkpointed twice, then not. The script comes with a walk through PyTorch 1.10's
-- source and prints 16 byte counts. Here they are computed by acting the script out (wane.pytorch), and Wane runs it
-- beside.
--
--   luajit examples/mechanism.lua
--
-- It printed (2 cores of a shared machine, the CPU device):
--
--   Linear 1024 x 1024, checkpointed twice, then not; bytes
--   point                                text  accounting       total             Wane allocates
--   -----------------------------  ----------  ----------  ----------  ---------  --------------
--   start                                   0           0           0  equal                   0
--   layer 1                        +4,194,304  +4,194,304   4,194,304  equal                   0
--   layers 2                       +4,198,400  +4,198,400   8,392,704  equal                   0
--   input                          +4,194,304  +4,194,304  12,587,008  equal           4,194,304
--   0: o = layer1(x)               +4,194,304  +4,194,304  16,781,312  equal           4,194,304
--   0: o = checkpoint(layers2, o)      +4,096      +4,096  16,785,408  equal           4,194,304
--   0: loss = sum(o)               16,785,920  16,785,920  16,785,920  equal           4,194,304
--   0: backward                    20,984,320  20,984,320  20,984,320  equal          20,979,968
--   1: o = layer1(x)               +4,190,208  +4,190,208  25,174,528  equal          20,979,968
--   1: o = checkpoint(layers2, o)      +4,096      +4,096  25,178,624  equal          20,979,968
--   1: loss = sum(o)               25,178,624  25,178,624  25,178,624  equal          20,979,968
--   1: backward                    20,984,320  20,984,320  20,984,320  equal          20,979,968
--   2: o = layer1(x)               +4,190,208  +4,189,696  25,174,016  equal (*)      20,979,968
--   2: o = layers2(o)              +4,198,400  +4,198,400  29,372,416  equal          20,979,968
--   2: loss = sum(o)               29,372,928  29,372,928  29,372,928  equal          20,979,968
--   2: backward                    20,984,320  20,984,320  20,984,320  equal          20,979,968
--   16 of 16 points equal, one of them (*) to the text's own totals: it prints +4,190,208 there, but its next
--   totals need +4,189,696, because the loss of the iteration before is deleted first.
--
--   Wane computes nothing before backward, so its allocated bytes move there only. Peaks of the three backward runs:
--   iteration  layers 2        peak  parameter   gradient  optimizer  activation
--   ---------  --------  ----------  ---------  ---------  ---------  ----------
--           0  region    29,368,832  8,392,704  4,198,400          0  12,582,912
--           1  region    37,757,440  8,392,704  8,392,704          0  16,777,216
--           2  saved     37,757,440  8,392,704  8,392,704          0  16,777,216
--
--   The text's open question - why does a function of one's own use less memory? - is answered by what the backward
--   reads of the forward (plan:residuals); everything else is freed as soon as the forward is past it:
--   #  op       path  shape             bytes  block  what
--   -  -------  ----  ------------  ---------  -----  ----
--   1  uniform        (1024, 1024)  4,194,304      1  save
--   2  matmul         (1024, 1024)  4,194,304      1  save
--   3  matmul      1  (1024, 1024)  4,194,304      2  save
local root = arg[0]:match('^(.*)/examples/[^/]*$') or (arg[0]:match('^examples/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
dofile(root .. '/examples/options.lua') {}
local wane = require 'wane'

local nn, text, exact = wane.nn, require 'wane.report.table', wane.bytes.exact

local WIDTH = 1024

local function layers()
    local one = nn.Linear(WIDTH, WIDTH, { bias = false })
    local two = nn.Sequential { nn.Linear(WIDTH, WIDTH, { bias = false }), nn.Linear(WIDTH, 1, { bias = false }) }
    return one, two
end

-- Records Python's sum(o), ((0 + o[0]) + o[1]) and so on: an addition for each row.
local function python_sum(o)
    local total = 0 + o[1]
    for i = 2, o:size(1) do total = total + o[i] end
    return total
end

-- The 16 numbers of the walk. of: 'bytes' for a total, 'difference' to the point before.
local printed = {
    { 'start', 'bytes', 0 }, { 'layer 1', 'difference', 4194304 }, { 'layers 2', 'difference', 4198400 },
    { 'input', 'difference', 4194304 },
    { '0: o = layer1(x)', 'difference', 4194304 }, { '0: o = checkpoint(layers2, o)', 'difference', 4096 },
    { '0: loss = sum(o)', 'bytes', 16785920 }, { '0: backward', 'bytes', 20984320 },
    { '1: o = layer1(x)', 'difference', 4190208 }, { '1: o = checkpoint(layers2, o)', 'difference', 4096 },
    { '1: loss = sum(o)', 'bytes', 25178624 }, { '1: backward', 'bytes', 20984320 },
    { '2: o = layer1(x)', 'difference', 4190208, own_total = 4189696 }, { '2: o = layers2(o)', 'difference', 4198400 },
    { '2: loss = sum(o)', 'bytes', 29372928 }, { '2: backward', 'bytes', 20984320 },
}

-- Acts out the script with its names: o and loss are bound again, loss is deleted before the last iteration.
local function script(py)
    py:at 'start'
    local one, two = layers()
    py.let.layer1 = one
    py:at 'layer 1'
    py.let.layers2 = two
    py:at 'layers 2'
    local x = wane.rand(WIDTH, WIDTH)
    py.let.x = x
    py:at 'input'
    for i = 0, 2 do
        if i == 2 then py.let.loss = nil end
        py.let.o = one(x)
        py:at(i .. ': o = layer1(x)')
        local inner = py.let.o
        py.let.o = i < 2 and wane.checkpoint(two, inner) or two(inner)
        py:at(i < 2 and i .. ': o = checkpoint(layers2, o)' or i .. ': o = layers2(o)')
        py.let.loss = python_sum(py.let.o)
        py:at(i .. ': loss = sum(o)')
        py:backward 'loss'
        py:at(i .. ': backward')
    end
end

-- Runs the three iterations in Wane. Returns allocated bytes at the points of the script, and the peak of each run.
local function measure()
    local at, peaks = {}, {}
    local function note(label) at[label] = wane.memory().allocated end
    note 'start'
    local one, two = layers()
    note 'layer 1'
    note 'layers 2'
    local x = wane.eval(wane.rand(WIDTH, WIDTH))
    note 'input'
    for i = 0, 2 do
        local o = one(x)
        note(i .. ': o = layer1(x)')
        o = i < 2 and wane.checkpoint(two, o) or two(o)
        note(i < 2 and i .. ': o = checkpoint(layers2, o)' or i .. ': o = layers2(o)')
        local loss = python_sum(o)
        note(i .. ': loss = sum(o)')
        wane.memory.trim()
        wane.memory.reset_peak()
        loss:backward()
        wane.memory.trim()
        note(i .. ': backward')
        peaks[i] = wane.memory()
    end
    return at, peaks
end

wane.manual_seed(1)
local points = wane.pytorch(script, { torch = '1.10' })
local ours, peaks = measure()
local rows, equal = {}, 0
for i, row in ipairs(printed) do
    local point = points[i]
    local value = point[row[2]]
    local want = row.own_total or row[3]
    local same = value == want and point.label == row[1]
    equal = equal + (same and 1 or 0)
    local form = row[2] == 'difference' and '+%s' or '%s'
    rows[i] = { row[1], form:format(exact(row[3])), form:format(exact(value)), exact(point.bytes),
        not same and 'NOT EQUAL' or row.own_total and 'equal (*)' or 'equal', exact(ours[row[1]]) }
end
print(('Linear %d x %d, checkpointed twice, then not; bytes'):format(WIDTH, WIDTH))
print(text.text({ 'point', 'text', 'accounting', 'total', '', 'Wane allocates' }, rows))
print(('%d of 16 points equal, one of them (*) to the text\'s own totals: it prints +4,190,208 there, but its next\n'
    .. 'totals need +4,189,696, because the loss of the iteration before is deleted first.'):format(equal))
print('\nWane computes nothing before backward, so its allocated bytes move there only. Peaks of the three '
    .. 'backward runs:')
rows = {}
for i = 0, 2 do
    local kinds = peaks[i].peak_kinds
    rows[i + 1] = { i, i < 2 and 'region' or 'saved', exact(peaks[i].peak), exact(kinds.parameter),
        exact(kinds.gradient),
        exact(kinds.optimizer), exact(kinds.activation) }
end
print(text.text({ 'iteration', 'layers 2', 'peak', 'parameter', 'gradient', 'optimizer', 'activation' }, rows))

local function loss_of()
    local one, two = layers()
    return python_sum(two(one(wane.rand(WIDTH, WIDTH))))
end
local residuals = wane.plan(loss_of):residuals()
print("\nThe text's open question - why does a function of one's own use less memory? - is answered by what the "
    .. "backward"
    .. '\nreads of the forward (plan:residuals); everything else is freed as soon as the forward is past it:')
print(residuals)
if equal ~= 16 then os.exit(1, true) end
