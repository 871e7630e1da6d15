--- A small GPT with everything a plan can stumble over: tied embedding, learned positions, causal attention, dropout,
-- a block used twice (not in a row), frozen weights in the middle. Its modules are its own, not the library's
-- composed ones, so that the recording shown here is all there is. spec/support/ways.lua trains it.
local wane = require('spec.helper').wane
local nn, binding = wane.nn, require 'wane.ffi'

local gpt = { vocab = 61, d = 32, heads = 4, t = 16, batch = 4, dropout = 0.1, order = { 1, 2, 1 } }

-- ---- the model --------------------------------------------------------------------------------------------------

-- Returns a causal mask (t, t) u8: 1 where a position may look.
local function causal(t)
    local bytes = binding.array('u8', t * t)
    for i = 0, t - 1 do
        for j = 0, i do bytes[i * t + j] = 1 end
    end
    return wane.from(bytes, { t, t }, 'u8')
end

local Attention = nn.module('Attention', function(self, mask, o)
    self.mask = mask
    self.q, self.k, self.v = nn.Linear(gpt.d, gpt.d, o), nn.Linear(gpt.d, gpt.d, o), nn.Linear(gpt.d, gpt.d, o)
    self.out = nn.Linear(gpt.d, gpt.d, o)
    self.drop = nn.Dropout(gpt.dropout)
end)

-- Splits (b, t, d) into heads: (b, heads, t, d / heads).
local function split(x, b)
    return x:reshape(b, gpt.t, gpt.heads, gpt.d / gpt.heads):permute(1, 3, 2, 4)
end

function Attention:forward(x)
    local b = x.shape[1]
    local q, k, v = split(self.q(x), b), split(self.k(x), b), split(self.v(x), b)
    local scores = q:matmul(k:transpose(-2, -1)) * (1 / math.sqrt(gpt.d / gpt.heads))
    local weights = self.drop(wane.where(self.mask, scores, -math.huge):softmax(-1))
    return self.out(weights:matmul(v):permute(1, 3, 2, 4):reshape(b, gpt.t, gpt.d))
end

local MLP = nn.module('MLP', function(self, o)
    self.up, self.down = nn.Linear(gpt.d, 4 * gpt.d, o), nn.Linear(4 * gpt.d, gpt.d, o)
    self.drop = nn.Dropout(gpt.dropout)
end)

function MLP:forward(x)
    return self.drop(self.down(self.up(x):gelu()))
end

local Block = nn.module('Block', function(self, mask, o)
    self.ln1, self.attn = nn.LayerNorm(gpt.d, o), Attention(mask, o)
    self.ln2, self.mlp = nn.LayerNorm(gpt.d, o), MLP(o)
end)

local function direct(fn, ...) return fn(...) end

function Block:forward(x, call)
    x = x + self.attn(self.ln1(x))
    return x + call(function(v) return self.mlp(self.ln2(v)) end, x)
end

local GPT = nn.module('GPT', function(self, o)
    local mask = causal(gpt.t)
    self.wte, self.wpe = nn.Embedding(gpt.vocab, gpt.d, o), nn.Embedding(gpt.t, gpt.d, o)
    nn.init.normal(self.wte.weight, 0.2)
    nn.init.normal(self.wpe.weight, 0.2)
    self.drop = nn.Dropout(gpt.dropout)
    self.blocks = { Block(mask, o), Block(mask, o) }
    self.norm = nn.LayerNorm(gpt.d, o)
    local frozen = self.blocks[2].mlp.up
    frozen.weight.requires_grad, frozen.bias.requires_grad = false, false
    local positions = binding.array('i32', gpt.t)
    for k = 0, gpt.t - 1 do positions[k] = k end
    self.positions = wane.from(positions, { gpt.t }, 'i32')
end)

-- Computes the logits of ids. marks say how blocks are called: 'regions' marks each, 'nested' marks the first two
-- together, each, and the MLP inside.
function GPT:forward(ids, marks)
    local each = (marks == 'regions' or marks == 'nested') and wane.checkpoint or direct
    local inner = marks == 'nested' and wane.checkpoint or direct
    local function run(x, first, last)
        for i = first, last do x = each(self.blocks[gpt.order[i]], x, inner) end
        return x
    end
    local x = self.drop(self.wte(ids) + self.wpe(self.positions))
    x = run(inner(run, x, 1, 2), 3, #gpt.order)
    return self.norm(x):matmul(self.wte.weight:transpose(1, 2))
end

--- Makes a new model; every call with the same seed gives the same numbers.
-- @param dtype 'f32' or 'f64'
function gpt.model(dtype)
    return GPT { dtype = dtype or 'f32' }
end

-- ---- its data ---------------------------------------------------------------------------------------------------

--- Returns batch number k: ids and labels (batch, t) i32, a sequence that can be learned. batch: rows, default
-- gpt.batch.
function gpt.batch_of(k, batch)
    batch = batch or gpt.batch
    local ids, labels = binding.array('i32', batch * gpt.t), binding.array('i32', batch * gpt.t)
    for row = 0, batch - 1 do
        local token = (7 * k + 13 * row) % gpt.vocab
        for i = 0, gpt.t - 1 do
            ids[row * gpt.t + i] = token
            token = (token * 5 + 3 * row + 1) % gpt.vocab
            labels[row * gpt.t + i] = token
        end
    end
    local dims = { batch, gpt.t }
    return wane.from(ids, dims, 'i32'), wane.from(labels, dims, 'i32')
end

--- Records the loss of a batch.
function gpt.loss(model, ids, labels, marks)
    return nn.cross_entropy(model(ids, marks), labels)
end

--- Makes a new model and its optimizer, for ways.train.
-- @param way { marks = nil, 'regions' or 'nested', attach = function(model), dtype =, autocast = }
-- @return world, with names of its states
function gpt.world(way)
    wane.manual_seed(5)
    local model = gpt.model(way.dtype)
    if way.attach then way.attach(model) end
    local opt = wane.optim.AdamW(model:parameters(), { lr = 0.003, weight_decay = 0.01 })
    local names, states = {}, {}
    for name, p in model:named_parameters() do
        names[#names + 1], states[#states + 1] = name, p
    end
    local function loss(k)
        opt.lr = 0.003 * math.min(1, k / 5)
        local ids, labels = gpt.batch_of(k % 5)
        return wane.autocast(way.autocast and 'bf16' or 'f32', gpt.loss, model, ids, labels, way.marks)
    end
    return { loss = loss, optimizers = { opt }, states = states, names = names }
end

return gpt
