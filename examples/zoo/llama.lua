-- LLaMA: RMSNorm, rotary positions, SwiGLU, no biases, a head of its own. Touvron et al., "LLaMA", 2023; grouped heads
-- as in the models after it.
--
--   local llama = require 'wane.zoo.llama'
--   local model = llama.new('7B')                      -- '7B', '8B' (grouped heads, LLaMA 3), 'small'
--   local loss = llama.loss(model, ids, labels)        -- ids, labels (B, T) i32, 0-based
--   local published = llama.load 'folder/of/llama'     -- weights in the naming of Hugging Face, see zoo/published.lua
--
-- Rotation turns the two halves of a head against each other, as the published checkpoints are laid out for Hugging
-- Face. A 7B model is meant for planning: on the device meta it takes no memory.
local wane = require 'wane'

local published = require 'wane.zoo.published'

local nn, raise = wane.nn, wane.errors.raise

local llama = {}

--- Sizes by name. Fields: vocab, layers, heads, kv_heads, d, hidden (of SwiGLU), base (of the rotation); and where they
-- differ from what stands here, eps = 1e-6 (of norms), tied = false (true: the head is the table of tokens).
llama.configs = {
    ['7B'] = { vocab = 32000, layers = 32, heads = 32, kv_heads = 32, d = 4096, hidden = 11008, base = 10000 },
    ['8B'] = { vocab = 128256, layers = 32, heads = 32, kv_heads = 8, d = 4096, hidden = 14336, base = 500000,
        eps = 1e-5 },
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
    self.norm1 = nn.RMSNorm(c.d, o.norm)
    self.attn = nn.Attention(c.d, c.heads, { causal = true, kv_heads = c.kv_heads, rope = c.base, tiled = o.tiled,
        bias = false, dtype = o.dtype, device = o.device })
    self.norm2 = nn.RMSNorm(c.d, o.norm)
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
    self.norm = nn.RMSNorm(c.d, o.norm)
    if not c.tied then self.head = nn.Linear(c.d, c.vocab, { bias = false, dtype = o.dtype, device = o.device }) end
    self.region = o.region
end)

-- Returns logits (B, T, vocab) of ids (B, T), in f32 for a bf16 model.
function Llama:forward(ids)
    local x = self.embed(ids)
    for _, block in ipairs(self.blocks) do x = self.region and wane.checkpoint(block, x) or block(x) end
    x = self.norm(x)
    local logits = self.head and self.head(x) or x:matmul(self.embed.weight, { transpose_b = true })
    return logits.dtype == 'bf16' and logits:to 'f32' or logits
end

local known = { tiled = true, region = true, dtype = true, device = true }

--- Makes a model, whose weights are at first normal with deviation 0.02.
-- @param what name of a config, or a table like one
-- @param opts { tiled = true, region = false (wane.checkpoint around each block), dtype = 'f32', device = }
function llama.new(what, opts)
    local c, o = llama.configs[what] or what, {}
    if type(c) ~= 'table' then raise(nil, 'value', "llama.new: no size '%s'; known: 7B 8B small", tostring(c)) end
    for name, value in pairs(opts or {}) do
        if not known[name] then raise(nil, 'value', "llama.new: unknown option '%s'", tostring(name)) end
        o[name] = value
    end
    o.place = { dtype = o.dtype, device = o.device }
    o.norm = { eps = c.eps, dtype = o.dtype, device = o.device }
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

-- ---- published weights --------------------------------------------------------------------------------------------
local PLACES = { norm1 = 'input_layernorm', norm2 = 'post_attention_layernorm', ['attn.out'] = 'self_attn.o_proj',
    ['mlp.gate'] = 'mlp.gate_proj', ['mlp.up'] = 'mlp.up_proj', ['mlp.down'] = 'mlp.down_proj' }

-- Returns the rule for wane.load. Queries, keys and values are three matrices there, and one here.
local function names_of(prefix, c)
    local other = c.kv_heads * c.d / c.heads
    return function(state)
        local block, inner = state:match '^blocks%.(%d+)%.(.+)%.weight$'
        if block then
            local at = ('%slayers.%d.'):format(prefix, block - 1)
            if inner ~= 'attn.qkv' then return at .. PLACES[inner] .. '.weight' end
            return { { name = at .. 'self_attn.q_proj.weight', rows = c.d },
                { name = at .. 'self_attn.k_proj.weight', rows = other },
                { name = at .. 'self_attn.v_proj.weight', rows = other } }
        end
        if state == 'head.weight' then return prefix:gsub('model%.$', '') .. 'lm_head.weight' end
        return prefix .. state:gsub('^embed', 'embed_tokens')
    end
end

-- Returns a config with the defaults filled in.
local function complete(c)
    return { vocab = c.vocab, layers = c.layers, heads = c.heads, kv_heads = c.kv_heads or c.heads, d = c.d,
        hidden = c.hidden, base = c.base or 10000, eps = c.eps or 1e-6, tied = c.tied == true }
end

-- Returns the config that a config.json means. rope_parameters has the base in the files of newer writers.
local function read(config)
    local rope = config.rope_parameters
    if type(rope) ~= 'table' then rope = { rope_theta = config.rope_theta } end
    published.require_values(config, { model_type = { 'llama' }, hidden_act = { 'silu' }, attention_bias = { false },
        mlp_bias = { false }, rope_scaling = {}, pretraining_tp = { 1 } })
    published.require_values(rope, { rope_type = { 'default' } })
    local c = published.numbers(config, { vocab = 'vocab_size', layers = 'num_hidden_layers',
        heads = 'num_attention_heads', d = 'hidden_size', hidden = 'intermediate_size' })
    published.require_values(config, { head_dim = { c.d / c.heads } })
    c.kv_heads, c.base = config.num_key_value_heads or c.heads, rope.rope_theta or 10000
    c.eps, c.tied = config.rms_norm_eps, config.tie_word_embeddings == true
    return c
end

--- Loads published weights into a new model, or into one that is given.
-- @param path of the weights: a file, an index of several files, or a folder; config.json is read beside them
-- @param opts options of llama.new; config = what llama.new takes, in the place of config.json; model = one that takes
-- the weights. Rotations that are scaled for longer texts (rope_scaling) are refused
-- @return the model
function llama.load(path, opts)
    return published.load({ what = 'llama.load', new = llama.new, read = read, complete = complete,
        smallest = llama.configs.small, table_name = 'embed_tokens.weight', names = names_of,
        ignore = { '%.rotary_emb%.inv_freq$' } }, path, opts)
end

return llama
