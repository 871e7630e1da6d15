-- Measures steps of GPT-2 124M and 774M, B = 8, T = 1024, under autocast to bf16: seconds, bytes and share of the data
-- sheet's rate under four policies, and PyTorch's where it is: eager, and with its blocks compiled. FLOP of a step: 6 a
-- parameter and token, and 12 a layer, d and position of the context, of which a causal mask needs half.
local gpu = require 'spec.gpu.gpu'
local networks = require 'spec.gpu.networks'
local torch = require 'spec.gpu.torch'
local wane = require 'wane'

local PEAK = 989e12 -- of an H200's data sheet, dense bf16

local function flops(net)
    local c = net.config
    return net.tokens * (6 * net.model:parameter_count() + 6 * c.layers * c.d * c.context)
end

-- Measures one policy; returns its seconds and its peak. aims: { peak =, ms = most of both, first = seconds of
-- save_all, more = percent that this policy may take on top of them }, each of which may be nil.
local function measure(name, net, policy, aims)
    local function step() net.optimizer:step(net.loss(), { policy = policy }) end
    local plan = wane.plan(step, { target = 'h200' })
    local m = wane.measure(net.loss, { optimizer = net.optimizer, policy = policy,
        steps = gpu.size(10, 1), warmup = gpu.size(3, 1) })
    gpu.fact(name .. ': predicted bytes are measured bytes', m.exact)
    gpu.number(name .. ': peak', m.peak, 'B', { predicted = m.predicted_peak, most = aims.peak })
    gpu.number(name, m.seconds * 1e3, 'ms', { most = aims.ms })
    gpu.number(name .. ': with recording and planning', m.wall * 1e3, 'ms')
    gpu.number(name .. ": over the data sheet's roofline", m.seconds / plan.seconds, 'x')
    if aims.first then
        gpu.number(name .. ': more than save_all', 100 * math.max(0, m.seconds / aims.first - 1), '%',
            { most = aims.more })
    end
    return m.seconds, m.peak
end

for _, size in ipairs(gpu.size({ '124M', '774M' }, { 'tiny' })) do
    local name = 'GPT-2 ' .. size
    local batch = gpu.size(8, 2)
    local rates, why = torch.rates(('gpt %s %d'):format(size, batch))
    local theirs = torch.rows(name .. ', PyTorch', rates, '', why)
    torch.rows(name .. ', PyTorch, blocks compiled', rates, 'compiled_', why)
    local net = networks.gpt(size, batch)
    local all, most = measure(name .. ', save_all', net, 'save_all', theirs or {})
    gpu.number(name .. ", save_all: of the data sheet's rate", 100 * flops(net) / all / PEAK, '%', { least = 40 })
    measure(name .. ', elementwise recomputed', net, networks.elementwise, { first = all, more = 5 })
    local _, least = measure(name .. ', every block recomputed', net, 'every(1)', { first = all, more = 32 })
    local budget = math.floor((most + least) / 2)
    measure(name .. ', a budget halfway', net, wane.policy.budget(budget), { first = all })
    net = nil -- luacheck: ignore 311
    wane.memory.trim()
end
gpu.finish()
