--- Defines the models on which budgets are specified, small enough to run under fifty budgets each. Each entry is {
-- name, build = function() -> fn, model; is_slow = whether its plans take seconds }; fn records and returns the loss.
local helper = require 'spec.helper'
local wane = helper.wane or require 'wane'
local stacks = require 'spec.support.stacks'
local nn = wane.nn

local models = {}

local SLOW = { ['LLaMA-style'] = true, ['GPT-2, small'] = true }

local function add(name, build)
    models[#models + 1] = { name = name, build = build, is_slow = SLOW[name] or false }
end

add('E2, small', function()
    local m = stacks.linear(stacks.equal(12, 64), function() return nn.ReLU() end)
    local x = wane.eval(wane.randn(256, 64))
    return function() return m(x):sum() end, m
end)

add('GPT-2, small', function()
    local m = nn.Sequential { nn.Embedding(50, 32) }
    for _, block in ipairs(stacks.blocks(5, 32, 4, { weights = 0.1, mlp = 0.1 })) do m:add(block) end
    m:add(nn.LayerNorm(32)):add(nn.Linear(32, 50))
    local x, y = wane.eval(wane.randint(50, { 4, 32 }), wane.randint(50, { 4, 32 }))
    return function() return nn.cross_entropy(m(x), y) end, m
end)

local LlamaBlock = nn.module('BudgetLlamaBlock', function(self, d, heads)
    self.norm1 = nn.RMSNorm(d)
    self.attn = nn.Attention(d, heads, { causal = true, rope = true, kv_heads = 2, bias = false })
    self.norm2, self.gate = nn.RMSNorm(d), nn.Linear(d, 3 * d, { bias = false })
    self.up, self.down = nn.Linear(d, 3 * d, { bias = false }), nn.Linear(3 * d, d, { bias = false })
end)
function LlamaBlock:forward(x)
    x = x + self.attn(self.norm1(x))
    local h = self.norm2(x)
    return x + self.down(self.gate(h):silu() * self.up(h))
end

add('LLaMA-style', function()
    local m = nn.Sequential {}
    for _ = 1, 4 do m:add(LlamaBlock(32, 4)) end
    local x = wane.eval(wane.randn(4, 32, 32))
    return function() return m(x):sum() end, m
end)

add('deep uneven MLP', function()
    local widths = { 16, 96, 24, 64, 128, 8, 48, 80, 16, 112, 32, 64, 24, 16 }
    local m = stacks.linear(widths, function(i) return i % 2 == 0 and nn.ReLU() or nn.GELU() end)
    local x = wane.eval(wane.randn(192, 16))
    return function() return (m(x) * m(x)):mean() end, m
end)

local UNet = nn.module('BudgetUNet', function(self, depth, width)
    self.depth, self.down, self.up = depth, {}, {}
    for i = 1, depth do
        self.down[i] = nn.Linear(width, width)
        self.up[i] = nn.Linear(width, width)
    end
end)
function UNet:forward(x)
    local skips = {}
    for i = 1, self.depth do
        x = self.down[i](x):gelu()
        skips[i] = x
    end
    for i = self.depth, 1, -1 do x = self.up[i](x + skips[i]):tanh() end
    return x
end

add('U-shaped MLP', function()
    local m, x = UNet(6, 48), wane.eval(wane.randn(128, 48))
    return function() return m(x):sum() end, m
end)

local Shared = nn.module('BudgetShared', function(self, width, times)
    self.times, self.norm, self.block = times, nn.LayerNorm(width), nn.MLP(width, 3 * width)
end)
function Shared:forward(x)
    for _ = 1, self.times do x = x + self.block(self.norm(x)) end
    return x
end

add('a block used eight times', function()
    local m, x = Shared(40, 8), wane.eval(wane.randn(128, 40))
    return function() return m(x):mean() end, m
end)

--- Lists policies that people write, as strings; a model takes those it has units enough for.
models.by_hand = { 'save_all', 'recompute_all', 'sqrt', 'every(1)', 'every(2)', 'every(3)', 'every(4)', 'segments(2)',
    'segments(3)', 'segments(4)', 'segments(6)', 'segments(8)', 'keep_last(1)', 'keep_last(2)', 'keep_last(3)' }

--- Returns budgets evenly spaced from `least` bytes to `most`.
function models.budgets(least, most, count)
    local list = {}
    for i = 1, count do list[i] = math.floor(least + (most - least) * (i - 1) / (count - 1)) end
    return list
end

--- Plans fn under `count` budgets from the least to one byte below what save_all reserves, and asks of each which
-- policy by hand that fits is fastest.
-- @return list of { budget, seconds, best = name, best_seconds }, best nil where none fits; least and most bytes
function models.compare(fn, count)
    local hand, rows = {}, {}
    for _, name in ipairs(models.by_hand) do
        local ok, p = pcall(wane.plan, fn, { policy = name })
        if ok then hand[#hand + 1] = { name = name, reserved = p.reserved, seconds = p.seconds } end
    end
    local least, most = wane.min_budget(fn), wane.plan(fn, { policy = 'save_all' }).reserved
    for i, budget in ipairs(models.budgets(least, most - 1, count)) do
        local row = { budget = budget, seconds = wane.plan(fn, { budget = budget }).seconds }
        for _, h in ipairs(hand) do
            if h.reserved <= budget and (not row.best or h.seconds < row.best_seconds) then
                row.best, row.best_seconds = h.name, h.seconds
            end
        end
        rows[i] = row
    end
    return rows, least, most
end

return models
