-- LLaMA: RMSNorm, rotary positions, SwiGLU, no biases, a head of its own. Touvron et al., "LLaMA", 2023; grouped heads
-- as in the models after it.
--
--   local llama = require 'zoo.llama'                  -- with examples/?.lua on package.path
--   local model = llama.new('7B')                      -- '7B', '8B' (grouped heads, LLaMA 3), 'small'
--   local loss = llama.loss(model, ids, labels)        -- ids, labels (B, T) i32, 0-based
--
-- Rotation turns the two halves of a head against each other, as the published checkpoints are laid out for Hugging
-- Face. A 7B model is meant for planning: on the device meta it takes no memory.
local wane = require 'wane'

local nn = wane.nn

local llama = {}

--- Sizes by name. Fields: vocab, layers, heads, kv_heads, d, hidden (of SwiGLU), base (of the rotation).
llama.configs = {
    ['7B'] = { vocab = 32000, layers = 32, heads = 32, kv_heads = 32, d = 4096, hidden = 11008, base = 10000 },
    ['8B'] = { vocab = 128256, layers = 32, heads = 32, kv_heads = 8, d = 4096, hidden = 14336, base = 500000 },
    small = { vocab = 96, layers = 3, heads = 4, kv_heads = 2, d = 64, hidden = 176, base = 10000 },
}

--- Counts of parameters of the published models.
llama.parameters = { ['7B'] = 6738415616, ['8B'] = 8030261248 }

-- Computes down(silu(gate x) * up x) (Shazeer, "GLU Variants Improve Transformer", 2020).
local SwiGLU = nn.module('SwiGLU', function(self, d, hidden, o)
    self.gate, self.up, self.down = nn.Linear(d, hidden, o), nn.Linear(d, hidden, o), nn.Linear(hidden, d, o)
end)
function SwiGLU:forward(x) return self.down(self.gate(x):silu() * self.up(x)) end

local Block = nn.module('Block', function(self, c, o)
    self.norm1 = nn.RMSNorm(c.d, o.place)
    self.attn = nn.Attention(c.d, c.heads, { kv_heads = c.kv_heads, rope = c.base, tiled = o.tiled, bias = false,
        dtype = o.dtype, device = o.device })
    self.norm2 = nn.RMSNorm(c.d, o.place)
    self.mlp = SwiGLU(c.d, c.hidden, { bias = false, dtype = o.dtype, device = o.device })
end)
function Block:forward(x)
    x = x + self.attn(self.norm1(x))
    return x + self.mlp(self.norm2(x))
end

local Llama = nn.module('Llama', function(self, c, o)
    self.config = c
    self.embed = nn.Embedding(c.vocab, c.d, o.place)
    self.blocks = {}
    for i = 1, c.layers do self.blocks[i] = Block(c, o) end
    self.norm = nn.RMSNorm(c.d, o.place)
    self.head = nn.Linear(c.d, c.vocab, { bias = false, dtype = o.dtype, device = o.device })
    self.region = o.region
end)

-- Returns logits (B, T, vocab) of ids (B, T), in f32 whatever the model's dtype.
function Llama:forward(ids)
    local x = self.embed(ids)
    for _, block in ipairs(self.blocks) do x = self.region and wane.checkpoint(block, x) or block(x) end
    local logits = self.head(self.norm(x))
    return logits.dtype == 'f32' and logits or logits:to 'f32'
end

local known = { tiled = true, region = true, dtype = true, device = true }

--- Makes a model, whose weights are at first normal with deviation 0.02.
-- @param what name of a config, or a table like one
-- @param opts { tiled = true, region = false (wane.checkpoint around each block), dtype = 'f32', device = }
function llama.new(what, opts)
    local c, o = llama.configs[what] or what, {}
    if type(c) ~= 'table' then error("llama.new: no size '" .. tostring(c) .. "'; known: 7B 8B small", 2) end
    for name, value in pairs(opts or {}) do
        if not known[name] then error("llama.new: unknown option '" .. tostring(name) .. "'", 2) end
        o[name] = value
    end
    o.place = { dtype = o.dtype, device = o.device }
    local model = Llama(c, o)
    for name, p in model:named_parameters() do
        if not name:match('norm%d?%.weight$') then nn.init.normal(p, 0.02) end
    end
    return model
end

--- Records the mean loss of a batch. ids, labels: (B, T) i32.
function llama.loss(model, ids, labels)
    return nn.cross_entropy(model(ids), labels)
end

return llama
