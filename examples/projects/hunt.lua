-- A hunt for where the bytes of a step go, written from the guide alone: a network whose step takes nearly twice what
-- it should, for reasons that the reports find one after the other.
--
--   luajit examples/projects/hunt.lua
--
-- It printed (2 cores, about a second; long lines are cut):
--
--   1. How much, and of which kind?
--      activation   5575424
--      parameter     595968
--      gradient           0
--      input          65536
--   2. Which ops keep it? exp 2.00 MiB, cast 1.00 MiB, div 1.00 MiB, mul 1.00 MiB, add 256.00 KiB, sum 4.00 KiB
--   3. What holds the peak, and what is a mistake?
--      6237440 bytes, in eq; the largest: 1 cast
--      2 mistakes
--      - reshape of '1', reshape of '2', reshape of '3', reshape of '4': computed from parameters, and detach ...
--   4. Mended: dropout 1.00 MiB, softmax 1.00 MiB, add 256.00 KiB
--      the peak goes from 6237440 to 3430912, with no mistakes: true
--      measured: 3430912, predicted: 3430912
--   5. What would still be there to get? At least 2044160 bytes are needed
local root = (arg[0]:match('^(.*)/') or '.') .. '/../..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
dofile(root .. '/examples/options.lua') {}
local wane = require 'wane'
local nn = wane.nn

local BATCH, D = 256, 64

-- The suspect: it normalizes by hand, drops out with a mask of its own, and detaches its side path by mistake.
local Suspect = nn.module('Suspect', function(self, d)
    self.up, self.down, self.side = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.Linear(d, d)
end)
function Suspect:forward(x)
    local h = self.up(x)
    h = h:exp() / h:exp():sum(-1, { keepdim = true })            -- softmax, in four values where one would do
    h = h * wane.rand(BATCH, 4 * D):gt(0.1):to 'f32'             -- a mask that the backward keeps as f32
    return x + self.down(h) + self.side(x):detach()
end

-- The network of the suspect, by the ops that Wane has for it.
local Mended = nn.module('Mended', function(self, d)
    self.up, self.down, self.side = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.Linear(d, d)
    self.drop = nn.Dropout(0.1)
end)
function Mended:forward(x) return x + self.down(self.drop(self.up(x):softmax(-1))) + self.side(x) end

local function step_of(Block)
    wane.manual_seed(1)
    local blocks = {}
    for i = 1, 4 do blocks[i] = Block(D) end
    local model, x = nn.Sequential(blocks), wane.eval(wane.randn(BATCH, D))
    return function() return (model(x) ^ 2):mean() end
end

-- Returns the bytes that a plan keeps for the backward, by op, the most first.
local function kept_by_op(fn)
    local bytes, order = {}, {}
    wane.plan(fn, { policy = function(r)
        if not bytes[r.op] then bytes[r.op], order[#order + 1] = 0, r.op end
        bytes[r.op] = bytes[r.op] + r.bytes
        return 'save'
    end })
    table.sort(order, function(a, b) return bytes[a] > bytes[b] or bytes[a] == bytes[b] and a < b end)
    for k, op in ipairs(order) do order[k] = ('%s %s'):format(op, wane.bytes.text(bytes[op])) end
    return table.concat(order, ', ')
end

local function main()
    local suspect, mended = step_of(Suspect), step_of(Mended)
    local plan = wane.plan(suspect)
    print('1. How much, and of which kind?')
    for _, kind in ipairs { 'activation', 'parameter', 'gradient', 'input' } do
        print(('   %-10s %9d'):format(kind, plan.kinds[kind]))
    end
    print('2. Which ops keep it? ' .. kept_by_op(suspect))
    print('3. What holds the peak, and what is a mistake?')
    local report = plan:explain()
    print(('   %d bytes, in %s; the largest: %s'):format(report.peak.bytes, report.peak.op, report.peak.values[1].what))
    print(('   %d mistakes'):format(#report))
    print(('   ' .. tostring(report):match('%- [^\n]*detached[^\n]*')))
    print('4. Mended: ' .. kept_by_op(mended))
    print(('   the peak goes from %d to %d, with no mistakes: %s'):format(plan.peak, wane.plan(mended).peak,
        tostring(#wane.plan(mended):explain() == 0)))
    local m = wane.measure(mended, { steps = 1 })
    print(('   measured: %d, predicted: %d'):format(m.peak, m.predicted_peak))
    print('5. What would still be there to get? At least ' .. wane.min_budget(mended) .. ' bytes are needed')
end

main()
