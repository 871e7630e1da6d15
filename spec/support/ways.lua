--- Trains one model in many ways, for specs whose claim is that no way changes a bit, and that each takes the bytes
-- that were predicted. A way is a table of what differs from saving everything, in one program a step:
--
--     lines = true            the three lines zero_grad, backward, step
--     policy =, budget =      as opt:step takes them; budget may be 'least' or 'middle': half the way to all bytes
--     split = true            no rewrites
--     checked = true          every byte that a kernel writes is checked, over poisoned memory
--     device = number         of the device that is the default one meanwhile
local luassert = require 'luassert'
local wane = require 'wane'
local gradcheck = require 'spec.support.gradcheck'
local helper = require 'spec.helper'
local programs = require 'spec.support.programs'
local rewrites = require 'spec.support.rewrites'
local scoped, op = require 'wane.scoped', require 'wane.tensor.op'

-- The mirror computes by the CPU's kernels. Where specs run on a GPU, whose bits may differ, its ways are tried there.
local MIRROR = helper.device == 'cpu' and op.device('mirror', 'spec') or nil
local ways = {}

--- Ways that suit every model.
ways.all = {
    { lines = true }, { lines = true, split = true }, { lines = true, policy = 'every(1)' }, { policy = 'sqrt' },
    { policy = 'recompute_all' }, { policy = 'least', lines = true }, { budget = 'least' },
    { budget = 'middle', lines = true }, { policy = 'recompute_all', checked = true },
    { policy = 'recompute_all', device = MIRROR }, { checked = true, device = MIRROR, lines = true },
}

--- Returns what a way is, in words.
function ways.text(way)
    local words = {}
    for _, key in ipairs { 'lines', 'policy', 'budget', 'split', 'checked', 'device', 'marks' } do
        if way[key] then words[#words + 1] = ('%s %s'):format(key, tostring(way[key])) end
    end
    return #words > 0 and table.concat(words, ', ') or 'one program'
end

--- Runs one step of each optimizer of a list, by one program or by three lines; returns the last loss.
-- @param optimizers list
-- @param loss function() that records a loss
-- @param way its lines, policy and budget
function ways.step(optimizers, loss, way)
    local last
    for _, opt in ipairs(optimizers) do
        local how = { policy = way.policy, budget = way.budget }
        if way.lines then
            for _, each in ipairs(optimizers) do each:zero_grad() end
            last = loss()
            last:backward(how)
            opt:step()
        else
            last = loss()
            opt:step(last, how)
        end
    end
    return last
end

-- Returns the bytes that 'least' and 'middle' stand for. A model of its own is planned, so that the one that is trained
-- has run nothing.
local function budget_of(make, way)
    if way.budget ~= 'least' and way.budget ~= 'middle' then return way.budget end
    local world = make(way)
    local function loss() return world.loss(1) end
    local function step() return ways.step(world.optimizers, loss, { lines = way.lines }) end
    local least = wane.min_budget(step)
    return way.budget == 'least' and least or math.ceil((least + wane.plan(step).reserved) / 2)
end

-- Trains a model; see ways.train.
local function train(make, way, steps)
    local budget = budget_of(make, way)
    local world, out = make(way), { losses = {}, numbers = {}, states = {}, recomputed = 0, peak = 0, programs = {} }
    scoped('listen', function(p)
        programs.same(programs.read(p), ways.text(way) .. ', ' .. p.request.mode)
        out.recomputed, out.peak = math.max(out.recomputed, p.predicted.recomputed), math.max(out.peak, p.measured.peak)
        out.programs[#out.programs + 1] = p.measured
    end, function()
        for k = 1, steps or 3 do
            local how = { lines = way.lines, policy = way.policy, budget = budget }
            local loss = ways.step(world.optimizers, function() return world.loss(k) end, how)
            out.losses[k], out.numbers[k] = gradcheck.bytes(loss), loss:item()
        end
    end)
    for k, t in ipairs(world.states) do out.states[k] = gradcheck.bytes(t) end
    out.bits = table.concat(out.losses, '|') .. '/' .. table.concat(out.states, '|')
    return out
end

--- Trains a model for some steps; fails where a program took other bytes than were predicted.
-- @param make function(way) -> { loss = function(step), optimizers = list, states = tensors that must have equal bits }
-- @param way table, see the head
-- @param steps 3 by default
-- @return { bits =, losses = bytes each, numbers = losses, states = bytes each, recomputed = most nodes of a program,
-- peak =, programs = what was measured of each }
function ways.train(make, way, steps)
    local fn = train
    if way.split then fn = function(...) return rewrites.split(train, ...) end end
    if way.checked then
        local inner = fn
        fn = function(...) return programs.debugged(inner, ...) end
    end
    if way.device then return scoped('device', way.device, fn, make, way, steps) end
    return fn(make, way, steps)
end

--- Fails unless a model trains to the same bits in every way of ways.all and of a list, and some of them recompute.
-- Returns what one program a step gave.
-- @param make as in ways.train
-- @param more list of further ways, or nil
function ways.same(make, more)
    local want, most = ways.train(make, {}), 0
    luassert.is_true(#want.bits > 0)
    for _, list in ipairs { ways.all, more or {} } do
        for _, way in ipairs(list) do
            local have = ways.train(make, way)
            luassert.is_true(want.bits == have.bits, ways.text(way) .. ': other bits')
            most = math.max(most, have.recomputed)
        end
    end
    luassert.is_true(most > 0, 'nothing was ever recomputed')
    return want
end

return ways
