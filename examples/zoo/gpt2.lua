-- GPT-2 in its four published sizes, and in any other: learned positions, norms before attention and MLP, GELU,
-- a head that is the token table. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
--
--   local gpt2 = require 'zoo.gpt2'                    -- with examples/?.lua on package.path
--   local model = gpt2.new('774M', { dropout = 0.1 })  -- '124M' '355M' '774M' '1558M'
--   local loss = gpt2.loss(model, ids, labels)         -- ids, labels (B, T) i32, 0-based; T up to model.config.context
--
-- The published weights use the tanh approximation of GELU; Wane's GELU is the exact one, with erf. It saves the same
-- bytes, but published weights loaded here give slightly other numbers. First values of weights follow the paper
-- (normal 0.02, the projections back into the stream divided by sqrt(2 layers)); nothing is allocated until a program
-- runs.
local wane = require 'wane'

local nn = wane.nn

local gpt2 = {}

--- Sizes by name. Fields: vocab, context, layers, heads, d (size of the stream; the MLP is 4 d wide).
gpt2.configs = {
    ['124M'] = { vocab = 50257, context = 1024, layers = 12, heads = 12, d = 768 },
    ['355M'] = { vocab = 50257, context = 1024, layers = 24, heads = 16, d = 1024 },
    ['774M'] = { vocab = 50257, context = 1024, layers = 36, heads = 20, d = 1280 },
    ['1558M'] = { vocab = 50257, context = 1024, layers = 48, heads = 25, d = 1600 },
    small = { vocab = 96, context = 64, layers = 3, heads = 4, d = 64 }, -- trains on a CPU in seconds
}

--- Counts of parameters of the published models.
gpt2.parameters = { ['124M'] = 124439808, ['355M'] = 354823168, ['774M'] = 774030080, ['1558M'] = 1557611200 }

local Block = nn.module('Block', function(self, c, o)
    self.ln1 = nn.LayerNorm(c.d, o.place)
    self.attn = nn.Attention(c.d, c.heads, { dropout = o.dropout, tiled = o.tiled, dtype = o.dtype, device = o.device })
    self.drop = nn.Dropout(o.dropout)
    self.ln2 = nn.LayerNorm(c.d, o.place)
    self.mlp = nn.MLP(c.d, 4 * c.d, { act = 'gelu', dropout = o.dropout, dtype = o.dtype, device = o.device })
end)
function Block:forward(x)
    x = x + self.drop(self.attn(self.ln1(x)))
    return x + self.mlp(self.ln2(x))
end

local GPT2 = nn.module('GPT2', function(self, c, o)
    self.config = c
    self.wte, self.wpe = nn.Embedding(c.vocab, c.d, o.place), nn.Embedding(c.context, c.d, o.place)
    self.drop = nn.Dropout(o.dropout)
    self.blocks = {}
    for i = 1, c.layers do self.blocks[i] = Block(c, o) end
    self.norm = nn.LayerNorm(c.d, o.place)
    self.region = o.region
end)

-- Returns logits (B, T, vocab) of ids (B, T), in f32 whatever the model's dtype.
function GPT2:forward(ids)
    local t = ids.shape[2]
    if t > self.config.context then
        error(('gpt2: %d positions given, the model has %d'):format(t, self.config.context), 0)
    end
    local x = self.drop(self.wte(ids) + self.wpe(wane.arange(0, t, { dtype = 'i32', device = ids.device })))
    for _, block in ipairs(self.blocks) do x = self.region and wane.checkpoint(block, x) or block(x) end
    local logits = self.norm(x):matmul(self.wte.weight, { transpose_b = true })
    return logits.dtype == 'f32' and logits or logits:to 'f32'
end

local function start(model, layers)
    for name, p in model:named_parameters() do
        if name:match('%.bias$') then
            nn.init.zeros(p)
        elseif name:match('attn%.out%.weight$') or name:match('mlp%.down%.weight$') then
            nn.init.normal(p, 0.02 / math.sqrt(2 * layers))
        elseif not name:match('^norm') and not name:match('%.ln%d%.') then
            nn.init.normal(p, 0.02)
        end
    end
    return model
end

local known = { dropout = true, tiled = true, region = true, dtype = true, device = true }

--- Makes a model.
-- @param what name of a config, or a table like one
-- @param opts { dropout = 0, tiled = true, region = false, dtype = 'f32', device = }; region: wane.checkpoint around
-- each block
function gpt2.new(what, opts)
    local c, o = gpt2.configs[what] or what, {}
    if type(c) ~= 'table' then
        error("gpt2.new: no size '" .. tostring(c) .. "'; known: 124M 355M 774M 1558M small", 2)
    end
    for name, value in pairs(opts or {}) do
        if not known[name] then error("gpt2.new: unknown option '" .. tostring(name) .. "'", 2) end
        o[name] = value
    end
    o.dropout = o.dropout or 0
    o.place = { dtype = o.dtype, device = o.device }
    return start(GPT2(c, o), c.layers)
end

--- Records the mean loss of a batch. ids, labels: (B, T) i32.
function gpt2.loss(model, ids, labels)
    return nn.cross_entropy(model(ids), labels)
end

return gpt2
