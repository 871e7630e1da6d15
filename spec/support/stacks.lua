--- Makes networks of equal parts for benches and for the specs of budgets: linear layers with activations, and blocks
-- of a transformer.
local wane = require 'wane'
local nn = wane.nn

local stacks = {}

--- Returns the widths of n layers of one width.
function stacks.equal(n, width)
    local widths = {}
    for i = 1, n + 1 do widths[i] = width end
    return widths
end

--- Makes linear layers between widths, each with an activation.
-- @param widths of the input and of each layer's result
-- @param act function(i) that makes the activation of layer i, or returns nil
-- @param o options of nn.Linear, or nil
function stacks.linear(widths, act, o)
    local layers = {}
    for i = 1, #widths - 1 do
        layers[#layers + 1] = nn.Linear(widths[i], widths[i + 1], o)
        layers[#layers + 1] = act(i)
    end
    return nn.Sequential(layers)
end

local Block = nn.module('Block', function(self, d, heads, p)
    self.ln1, self.attn = nn.LayerNorm(d), nn.Attention(d, heads, { causal = true, dropout = p.weights })
    self.drop = p.attention and nn.Dropout(p.attention)
    self.ln2, self.mlp = nn.LayerNorm(d), nn.MLP(d, 4 * d, { dropout = p.mlp })
end)
function Block:forward(x)
    local y = self.attn(self.ln1(x))
    x = x + (self.drop and self.drop(y) or y)
    return x + self.mlp(self.ln2(x))
end

--- Makes a list of n blocks of a GPT, d wide.
-- @param p probabilities of dropout { weights = of attention, attention = behind it, mlp = behind the MLP }, each of
-- which may be nil, or nil
function stacks.blocks(n, d, heads, p)
    local list = {}
    for i = 1, n do list[i] = Block(d, heads, p or {}) end
    return list
end

return stacks
