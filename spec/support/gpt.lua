--- A small GPT with everything a plan can stumble over: tied embedding, learned positions, causal attention, dropout,
-- a block used twice (not in a row), frozen weights in the middle. Its modules are its own, not the library's
-- composed ones, so that the recording shown here is all there is.
--
-- gpt.train runs it for some steps and returns bytes to compare and, for every program that ran, what was predicted
-- and what was measured.
local helper = require 'spec.helper'
local gradcheck = require 'spec.support.gradcheck'
local wane = helper.wane
local nn = wane.nn
local binding, scoped = require 'wane.ffi', require 'wane.scoped'

local C = binding.C

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

-- ---- training it ------------------------------------------------------------------------------------------------

local measured, summary = binding.new('struct wn_measured'), binding.new('struct wn_summary')

-- Returns predicted and measured bytes of a program that ran: name -> { predicted, measured }; then how many nodes are
-- recomputed.
local function numbers_of(p)
    binding.check(C.wn_measured(p.handle, measured))
    binding.check(C.wn_summary(p.handle, summary))
    local out = { peak = { summary.peak, measured.peak }, reserved = { summary.reserved, measured.reserved } }
    for kind = 0, C.WN_KIND_COUNT - 1 do
        local name = binding.text(C.wn_kind_name(kind))
        out['peak of ' .. name] = { summary.peak_kinds[kind], measured.peak_kinds[kind] }
    end
    for i = 0, 4 do out['instant ' .. i + 1] = { summary.at[i], measured.at[i] } end
    for _, pair in pairs(out) do pair[1], pair[2] = tonumber(pair[1]), tonumber(pair[2]) end
    return out, summary.recomputed
end

-- Runs one step, with o.fused in one program, else in three lines; returns the loss.
local function step(model, opt, k, o)
    local ids, labels = gpt.batch_of(k % 5)
    local loss = wane.autocast(o.autocast and 'bf16' or 'f32', gpt.loss, model, ids, labels, o.marks)
    opt.lr = 0.003 * math.min(1, k / 5)
    if o.fused then
        opt:step(loss, { policy = o.policy })
    else
        opt:zero_grad()
        loss:backward { policy = o.policy }
        opt:step()
    end
    return loss
end

local function train(o)
    wane.manual_seed(5)
    local model = gpt.model(o.dtype)
    if o.attach then o.attach(model) end
    local opt = wane.optim.AdamW(model:parameters(), { lr = 0.003, weight_decay = 0.01 })
    local out = { losses = {}, names = {}, parameters = {}, programs = {}, peak = 0, recomputed = 0 }
    out.first = gradcheck.bytes(model.blocks[2].mlp.up.weight)
    scoped('listen', function(p)
        local numbers, again = numbers_of(p)
        numbers.mode = p.request.mode
        out.programs[#out.programs + 1] = numbers
        out.peak = math.max(out.peak, numbers.peak[2])
        out.recomputed = math.max(out.recomputed, again)
    end, function()
        for k = 1, o.steps do
            local loss = step(model, opt, k, o)
            out.losses[k] = gradcheck.bytes(loss)
            out.value = loss:item()
            out.start = out.start or out.value
        end
    end)
    for name, p in model:named_parameters() do
        table.insert(out.names, name)
        table.insert(out.parameters, gradcheck.bytes(p))
    end
    out.last = gradcheck.bytes(model.blocks[2].mlp.up.weight)
    return out
end

--- Trains a new model.
-- @param o { steps =, policy =, marks = nil, 'regions' or 'nested', fused =, attach = function(model), device = number,
-- dtype =, autocast = }
-- @return { losses = bytes a step, names, parameters = bytes each, programs = numbers each, peak, recomputed, start,
-- value = first and last loss, first, last = bytes of a frozen weight }
function gpt.train(o)
    return scoped('device', o.device or 0, train, o)
end

return gpt
