--- nn.Attention(d, heads, {causal = true, dropout = 0, kv_heads = heads, rope =, bias = true}): self-attention.
--
-- x (B, T, d) -> (B, T, d). Composed: qkv and out projections, two products, softmax, so that a policy sees and may
-- drop each. kv_heads < heads: groups of query heads share a key and a value head (Ainslie et al., "GQA", 2023).
-- rope: true or a base (10000): rotary positions (Su et al., "RoFormer", 2021). The mask and the rotation tables are
-- inputs made once a length, never per call.
-- @module wane.nn.attention

local arith = require 'wane.arith'
local binding = require 'wane.ffi'
local create = require 'wane.create'
local errors = require 'wane.errors'
local module = require 'wane.module'
local op = require 'wane.op'
local tensor = require 'wane.tensor'
local shape = require 'wane.shape'
local Linear = require 'wane.nn.linear'

local matmul, softmax = tensor.methods.matmul, tensor.methods.softmax
local where, dropout = arith.where, arith.dropout
local to, swap_middle, cut = shape.to, shape.swap_middle, shape.cut
local OPTIONS = { 'causal', 'dropout', 'kv_heads', 'rope', 'bias', 'dtype', 'device' }

local shared = setmetatable({}, { __mode = 'v' }) -- tables all modules share, while one of them holds them

-- (T, T) u8: 1 where position j may be seen from position i, j <= i.
local function causal_mask(t, device)
    local key = 'mask ' .. t .. ' ' .. device
    local mask = shared[key]
    if mask == nil then
        local bytes = binding.array('u8', t * t)
        for i = 0, t - 1 do
            for j = 0, i do bytes[i * t + j] = 1 end
        end
        mask = create.data({ t, t }, 'u8', device, bytes)
        shared[key] = mask
    end
    return mask
end

-- cos and sin (T, hd) of position x frequency; the second half repeats the first.
local function rotation(t, hd, base, dtype, device)
    local key = ('rope %d %d %.17g %s %d'):format(t, hd, base, dtype, device)
    local pair = shared[key]
    if pair == nil then
        local stored = dtype == 'f64' and 'f64' or 'f32'
        local cos, sin = binding.array(stored, t * hd), binding.array(stored, t * hd)
        local half = hd / 2
        for p = 0, t - 1 do
            for k = 0, half - 1 do
                local angle = p * base ^ (-2 * k / hd)
                cos[p * hd + k], cos[p * hd + k + half] = math.cos(angle), math.cos(angle)
                sin[p * hd + k], sin[p * hd + k + half] = math.sin(angle), math.sin(angle)
            end
        end
        pair = {
            create.data({ t, hd }, stored, device, cos):to(dtype),
            create.data({ t, hd }, stored, device, sin):to(dtype),
        }
        shared[key] = pair
    end
    return pair
end

-- (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), x1 and x2 the halves of the last of four dims.
local function rotate(x, pair, hd)
    local half = hd / 2
    local first, second = cut(x, 3, 0, half), cut(x, 3, half, half)
    return x * pair[1] + shape.cat({ -second, first }, -1) * pair[2]
end

local Attention = module.new('Attention', function(self, d, heads, opts)
    local what = 'nn.Attention'
    opts = errors.check_options(opts, OPTIONS, what)
    self.d, self.heads = op.size(d, what .. ': size', 1), op.size(heads, what .. ': heads', 1)
    self.kv_heads = op.size(opts.kv_heads or heads, what .. ': kv_heads', 1)
    if d % heads ~= 0 then
        errors.raise(nil, 'value', '%s: size %d is not a multiple of %d heads', what, d, heads)
    end
    if heads % self.kv_heads ~= 0 then
        errors.raise(nil, 'value', '%s: %d heads are not a multiple of %d kv_heads', what, heads, self.kv_heads)
    end
    self.hd = d / heads
    self.factor = 1 / math.sqrt(self.hd)
    self.causal = opts.causal ~= false
    self.p = opts.dropout or 0
    if type(self.p) ~= 'number' or not (self.p >= 0 and self.p < 1) then
        errors.raise(nil, 'value', '%s: dropout must be a number from 0 to below 1, got %s', what,
            errors.describe(opts.dropout))
    end
    if opts.rope then
        self.base = opts.rope == true and 10000 or op.finite(opts.rope, what .. ': rope')
        if self.hd % 2 ~= 0 then
            errors.raise(nil, 'value', '%s: rope needs heads of even size, got %d', what, self.hd)
        end
    end
    local rest = { bias = opts.bias, dtype = opts.dtype, device = opts.device }
    self.qkv = Linear(d, d + 2 * self.kv_heads * self.hd, rest)
    self.out = Linear(d, d, rest)
end)

-- Columns start.. of y (b, t, ...) as (b, heads, t, hd).
local function heads_of(y, start, b, t, heads, hd)
    return swap_middle(to(cut(y, 2, start, heads * hd), 4, b, t, heads, hd))
end

local function mask_of(self, t, device)
    if self._mask_size ~= t or self._mask_device ~= device then
        rawset(self, '_mask', causal_mask(t, device))
        rawset(self, '_mask_size', t)
        rawset(self, '_mask_device', device)
    end
    return self._mask
end

local TRANSPOSED = { transpose_b = true }
local MASKED = -math.huge

-- softmax(q k^T / sqrt(hd)) v; the masked scores are -inf.
local function attend(self, q, k, v, mask)
    local scores = matmul(q * self.factor, k, TRANSPOSED)
    if mask then scores = where(mask, scores, MASKED) end
    local weights = softmax(scores, -1)
    if self.training and self.p > 0 then weights = dropout(weights, self.p) end
    return matmul(weights, v)
end

function Attention:forward(x)
    tensor.need_self(x, 'attention')
    local dims = tensor.typed(x)._dims
    if #dims ~= 3 or dims[3] ~= self.d then
        errors.raise(nil, 'shape', 'attention: expected (batch, time, %d), got %s', self.d, tensor.describe(x))
    end
    local b, t, heads, kv, hd = dims[1], dims[2], self.heads, self.kv_heads, self.hd
    local y = self.qkv(x)
    local q = heads_of(y, 0, b, t, heads, hd)
    local k = heads_of(y, heads * hd, b, t, kv, hd)
    local v = heads_of(y, (heads + kv) * hd, b, t, kv, hd)
    if self.base then
        local pair = rotation(t, hd, self.base, tensor.dtype_name[x._dtype], x._device)
        rawset(self, '_rotation', pair)
        q, k = rotate(q, pair, hd), rotate(k, pair, hd)
    end
    local mask = self.causal and t > 1 and mask_of(self, t, x._device) or nil
    local o
    if kv == heads then
        o = attend(self, q, k, v, mask)
    else
        q = to(q, 5, b, kv, heads / kv, t, hd)
        k, v = to(k, 5, b, kv, 1, t, hd), to(v, 5, b, kv, 1, t, hd)
        o = to(attend(self, q, k, v, mask), 4, b, heads, t, hd)
    end
    return self.out(to(swap_middle(o), 3, b, t, self.d))
end

function Attention:extra()
    return ('%d, %d'):format(self.d, self.heads)
end

return Attention
