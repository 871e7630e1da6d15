--- The networks that the checks train: heavy layers and GPT-2, each with a loss, an optimizer and its data on the GPU.
local wane = require 'wane'
local gpt2 = require 'wane.zoo.gpt2'

local nn, optim, policy = wane.nn, wane.optim, wane.policy
local networks = {}

-- Ops whose values cost little to compute again.
local CHEAP = { gelu = true, relu = true, dropout = true, layernorm = true, row_mean = true, row_rstd = true }

--- Recomputes values of elementwise ops and norms, and saves the others.
networks.elementwise = policy.of(function(r) return CHEAP[r.op] and 'recompute' or 'save' end)
--- Policies that change no bits: six, by the names that wane.measure takes.
networks.policies = { 'save_all', 'recompute_all', 'sqrt', 'segments(3)', 'every(2)', 'least' }

local HeavyLayer = nn.module('HeavyLayer', function(self, width)
    self.linear = nn.Linear(width, width)
    self.relu = nn.ReLU()
end)
function HeavyLayer:forward(x) return self.relu(self.linear(x)) end

--- Makes the network of heavy layers with SGD.
-- @return { model =, loss = function, optimizer = }
function networks.heavy(depth, width, batch)
    wane.manual_seed(1)
    local layers = {}
    for i = 1, depth do layers[i] = HeavyLayer(width) end
    local model = nn.Sequential(layers)
    local x = wane.randn(batch, width):retain()
    wane.eval(x)
    return { model = model, loss = function() return model(x):sum() end,
        optimizer = optim.SGD(model:parameters(), { lr = 1e-6 }) }
end

networks.tiny = { vocab = 96, context = 16, layers = 3, heads = 2, d = 32 }

--- Makes a GPT-2 with AdamW that trains in bf16.
-- @param size '124M', '774M', or 'tiny' for three blocks 32 wide
-- @param batch rows of a context each
-- @param precision 'autocast' (f32 parameters, the default) or 'bf16' (parameters and states in bf16)
-- @return { model =, loss = function, optimizer =, tokens = of a batch }
function networks.gpt(size, batch, precision)
    wane.manual_seed(1)
    local config = size == 'tiny' and networks.tiny or gpt2.configs[size]
    local model = gpt2.new(config, { dtype = precision == 'bf16' and 'bf16' or 'f32' })
    local ids = wane.randint(config.vocab, { batch, config.context }):retain()
    local labels = wane.randint(config.vocab, { batch, config.context }):retain()
    wane.eval(ids)
    wane.eval(labels)
    local dtype = precision == 'bf16' and 'f32' or 'bf16' -- under autocast to f32 nothing is cast
    return { model = model, tokens = batch * config.context, config = config,
        loss = function() return wane.autocast(dtype, gpt2.loss, model, ids, labels) end,
        optimizer = optim.AdamW(model:parameters(), { lr = 1e-4 }) }
end

return networks
