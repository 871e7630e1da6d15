-- GPT-2 in its four published sizes, and in any other: learned positions, norms before attention and MLP, GELU,
-- a head that is the token table. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
--
--   local gpt2 = require 'wane.zoo.gpt2'
--   local model = gpt2.new('774M', { dropout = 0.1 })  -- '124M' '355M' '774M' '1558M'
--   local loss = gpt2.loss(model, ids, labels)         -- ids, labels (B, T) i32, 0-based; T up to model.config.context
--
--   local published = gpt2.load 'folder/of/gpt2'       -- weights in the naming of Hugging Face, see zoo/published.lua
--
-- A model that is made anew has the exact GELU, with erf; published weights mean the tanh approximation, and a model
-- that they are loaded into has that one (config.act). It saves the same bytes, because it is a region that is computed
-- again from its input. First values of weights follow the paper (normal 0.02, the projections back into the stream
-- divided by sqrt(2 layers)); nothing is allocated until a program runs.
local wane = require 'wane'

local published = require 'wane.zoo.published'

local nn, raise = wane.nn, wane.errors.raise

local gpt2 = {}

--- Sizes by name. Fields: vocab, context, layers, heads, d (size of the stream); and where they differ from what stands
-- here, hidden = 4 d (size of the MLP), act = 'gelu' (or 'gelu_tanh', the approximation), eps = 1e-5 (of norms), tied =
-- true (false: the head is a table of its own).
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
    self.ln1 = nn.LayerNorm(c.d, o.norm)
    self.attn = nn.Attention(c.d, c.heads, { causal = true, dropout = o.dropout, tiled = o.tiled, dtype = o.dtype,
        device = o.device })
    self.drop = nn.Dropout(o.dropout)
    self.ln2 = nn.LayerNorm(c.d, o.norm)
    self.mlp = nn.MLP(c.d, c.hidden or 4 * c.d, { act = c.act or 'gelu', dropout = o.dropout, dtype = o.dtype,
        device = o.device })
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
    self.norm = nn.LayerNorm(c.d, o.norm)
    if c.tied == false then
        self.head = nn.Linear(c.d, c.vocab, { bias = false, dtype = o.dtype, device = o.device })
    end
    self.region = o.region
end)

-- Returns logits (B, T, vocab) of ids (B, T), in f32 for a bf16 model.
function GPT2:forward(ids)
    local t = ids.shape[2]
    if t > self.config.context then
        raise(nil, 'value', 'gpt2: %d positions given, the model has %d', t, self.config.context)
    end
    local x = self.drop(self.wte(ids) + self.wpe(wane.arange(0, t, { dtype = 'i32', device = ids.device })))
    for _, block in ipairs(self.blocks) do x = self.region and wane.checkpoint(block, x) or block(x) end
    x = self.norm(x)
    local logits = self.head and self.head(x) or x:matmul(self.wte.weight, { transpose_b = true })
    return logits.dtype == 'bf16' and logits:to 'f32' or logits
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
        raise(nil, 'value', "gpt2.new: no size '%s'; known: 124M 355M 774M 1558M small", tostring(c))
    end
    for name, value in pairs(opts or {}) do
        if not known[name] then raise(nil, 'value', "gpt2.new: unknown option '%s'", tostring(name)) end
        o[name] = value
    end
    o.dropout = o.dropout or 0
    if c.act ~= nil and c.act ~= 'gelu' and c.act ~= 'gelu_tanh' then
        raise(nil, 'value', "gpt2.new: act = '%s'; known: gelu gelu_tanh", tostring(c.act))
    end
    o.place = { dtype = o.dtype, device = o.device }
    o.norm = { eps = c.eps, dtype = o.dtype, device = o.device }
    return start(GPT2(c, o), c.layers)
end

--- Records the mean loss of a batch. ids, labels: (B, T) i32.
function gpt2.loss(model, ids, labels)
    return nn.cross_entropy(model(ids), labels)
end

-- ---- published weights --------------------------------------------------------------------------------------------
local PLACES = { ln1 = 'ln_1', ln2 = 'ln_2', ['attn.qkv'] = 'attn.c_attn', ['attn.out'] = 'attn.c_proj',
    ['mlp.up'] = 'mlp.c_fc', ['mlp.down'] = 'mlp.c_proj' }

-- Returns the rule for wane.load. The published linear layers hold their weights as (inputs, outputs).
local function names_of(prefix)
    return function(state)
        local block, inner, kind = state:match '^blocks%.(%d+)%.(.+)%.(%a+)$'
        if block then
            local name = ('%sh.%d.%s.%s'):format(prefix, block - 1, PLACES[inner], kind)
            return { name = name, transpose = kind == 'weight' and not inner:find '^ln' or nil }
        end
        if state == 'head.weight' then return 'lm_head.weight' end
        return prefix .. state:gsub('^norm', 'ln_f')
    end
end

-- Returns a config with the defaults filled in.
local function complete(c)
    return { vocab = c.vocab, context = c.context, layers = c.layers, heads = c.heads, d = c.d,
        hidden = c.hidden or 4 * c.d, act = c.act or 'gelu', eps = c.eps or 1e-5, tied = c.tied ~= false }
end

local ACTS = { gelu = 'gelu', gelu_new = 'gelu_tanh', gelu_pytorch_tanh = 'gelu_tanh' }

-- Returns the config that a config.json means.
local function read(config)
    published.require_values(config, {
        model_type = { 'gpt2' }, activation_function = { 'gelu_new', 'gelu_pytorch_tanh', 'gelu' },
        scale_attn_weights = { true }, scale_attn_by_inverse_layer_idx = { false }, add_cross_attention = { false },
    })
    local c = published.numbers(config, { vocab = 'vocab_size', context = 'n_positions', layers = 'n_layer',
        heads = 'n_head', d = 'n_embd' })
    c.act, c.eps = ACTS[config.activation_function or 'gelu_new'], config.layer_norm_epsilon
    c.hidden, c.tied = config.n_inner, config.tie_word_embeddings ~= false
    c.dropout = 0 -- of the training that made the weights: the model has what the options say
    for _, name in ipairs { 'attn_pdrop', 'embd_pdrop', 'resid_pdrop' } do
        c.dropout = math.max(c.dropout, tonumber(config[name]) or 0)
    end
    return c
end

-- Returns the config of weights without a config.json that have one of the published sizes, whatever their vocabulary.
local function guess(list)
    local rows, layers = {}, 0
    for _, entry in ipairs(list) do
        local block = entry.name:match 'h%.(%d+)%.ln_1%.weight$'
        layers = math.max(layers, block and block + 1 or 0)
        local name = entry.name:match '(wt?p?e)%.weight$'
        if name then rows[name] = entry.shape end
    end
    for _, c in pairs(rows.wte and rows.wpe and gpt2.configs or {}) do
        if c.layers == layers and c.d == rows.wte[2] then
            return { vocab = rows.wte[1], context = rows.wpe[1], layers = layers, heads = c.heads, d = c.d,
                act = 'gelu_tanh' }
        end
    end
end

--- Loads published weights into a new model, or into one that is given.
-- @param path of the weights: a file, an index of several files, or a folder; config.json is read beside them. Without
-- one the published sizes are known by their shapes
-- @param opts options of gpt2.new; config = what gpt2.new takes, in the place of config.json; model = one that takes
-- the weights. The model has no dropout unless `dropout` says so, and a line on the error stream names that of a
-- config.json. lm_head.weight is left out where the head is the token table (config.tied)
-- @return the model
function gpt2.load(path, opts)
    return published.load({ what = 'gpt2.load', new = gpt2.new, read = read, complete = complete,
        smallest = gpt2.configs.small, guess = guess, table_name = 'wte.weight', names = names_of,
        ignore = { '%.attn%.bias$', '%.attn%.masked_bias$', '^lm_head%.weight$' } }, path, opts)
end

return gpt2
