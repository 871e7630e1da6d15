--- nn.MLP(d, hidden = 4 d, {act = 'gelu', bias = true, dropout = 0, dtype =, device =}): down(act(up(x))).
--
-- x (..., d) -> (..., d). Its children are up, nn.Linear(d, hidden), down, nn.Linear(hidden, d), act, which is 'relu',
-- 'gelu', 'gelu_tanh', 'silu', 'tanh' or 'sigmoid', and dropout after down where it is above 0.
-- @module wane.nn.mlp
-- @usage print(nn.MLP(8, 32, { act = 'silu' })(x).shape) --> (2, 8)

local errors = require 'wane.errors'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local Linear = require 'wane.nn.linear'
local stateless = require 'wane.nn.stateless'

local ACTS = {
    relu = stateless.ReLU, gelu = stateless.GELU, silu = stateless.SiLU, tanh = stateless.Tanh,
    sigmoid = stateless.Sigmoid, gelu_tanh = function() return stateless.GELU { approximate = 'tanh' } end,
}

local MLP = module.new('MLP', function(self, d, hidden, opts)
    opts = errors.check_options(opts, { 'act', 'bias', 'dropout', 'dtype', 'device' }, 'nn.MLP')
    op.size(d, 'nn.MLP: size', 1)
    hidden = hidden or 4 * d
    local act = ACTS[opts.act or 'gelu']
    if not act then
        errors.raise(nil, 'value', 'nn.MLP: unknown act %s; %s', errors.describe(opts.act),
            errors.near(opts.act, ACTS))
    end
    local rest = { bias = opts.bias, dtype = opts.dtype, device = opts.device }
    self.up = Linear(d, hidden, rest)
    self.act = act()
    self.down = Linear(hidden, d, rest)
    if opts.dropout and opts.dropout ~= 0 then self.dropout = stateless.Dropout(opts.dropout) end
end)

function MLP:forward(x)
    x = self.down(self.act(self.up(x)))
    if self.dropout then x = self.dropout(x) end
    return x
end

return MLP
