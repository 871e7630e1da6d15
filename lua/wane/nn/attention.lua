--- nn.Attention(d, heads, {causal = false, dropout = 0, kv_heads = heads, rope =, bias = true, tiled = true, dtype =,
-- device =}): attention, x (B, T, d) -> (B, T, d).
--
-- causal = true: a position sees those up to itself, as in a language model; otherwise it sees all.
--
-- A call takes {mask =, context =}. mask: u8, 1 where a query may see a key (as in PyTorch's
-- scaled_dot_product_attention), or a float that is added to the scores, of a shape that broadcasts to (B, heads, T,
-- keys). A query that sees no key gets zeros. context: a tensor (B, S, d) that keys and values are made of
-- (cross-attention). A mask or a context is composed, whatever `tiled` says, and its (B, heads, T, keys) values are
-- planned to the byte like any others.
--
-- It is a projection `qkv` to d + 2 kv_heads d / heads outputs, attention, and a projection `out`. Attention is one op
-- that makes the (T, T) weights a tile at a time and keeps none (Dao et al., "FlashAttention", 2022); its gradient
-- makes them again. With tiled = false it is composed of products, softmax and dropout, whose (B, heads, T, T) values a
-- policy sees and may drop one by one. Both forms have the same parameters, and draw the same dropout from the same
-- number. kv_heads < heads: groups of query heads share a key and a value head (Ainslie et al., "GQA", 2023). rope:
-- true or a base (10000): rotary positions (Su et al., "RoFormer", 2021). The mask and the tables of rotations are
-- inputs that are made once for each length, never for each call.
-- @module wane.nn.attention
-- @usage
-- local attention = nn.Attention(64, 8, { kv_heads = 2, rope = true })
-- print(attention(wane.randn(2, 16, 64)).shape) --> (2, 16, 64)
-- local cross, words = nn.Attention(64, 8), wane.randn(2, 5, 64)
-- print(cross(wane.randn(2, 16, 64), { context = words, mask = wane.ones(2, 1, 1, 5) }).shape) --> (2, 16, 64)

local arith = require 'wane.tensor.arith'
local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local module = require 'wane.module'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'
local shape = require 'wane.tensor.shape'
local Linear = require 'wane.nn.linear'

local matmul, softmax = tensor.methods.matmul, tensor.methods.softmax
local where, dropout = arith.where, arith.dropout
local to, swap_middle, cut = shape.to, shape.swap_middle, shape.cut
local ATTENTION = op.id.attention
local OPTIONS = { 'causal', 'dropout', 'kv_heads', 'rope', 'bias', 'tiled', 'dtype', 'device' }

local shared = setmetatable({}, { __mode = 'v' }) -- tables that all modules share, as long as one of them holds them

-- Returns the mask (T, T) u8: 1 where position i may see position j, that is j <= i.
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

-- Returns the tables cos and sin (T, hd) of position * frequency, whose second half repeats the first. dims: (T, hd),
-- with dims of size 1 between them.
local function rotation(t, hd, base, dtype, device, dims)
    local key = ('rope %d %d %.17g %s %d %d'):format(t, hd, base, dtype, device, #dims)
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
        -- A cast that the next step finds recorded would make it another program.
        if dtype == 'bf16' then stored, cos, sin = dtype, binding.round(cos, t * hd), binding.round(sin, t * hd) end
        pair = { create.data(dims, stored, device, cos), create.data(dims, stored, device, sin) }
        shared[key] = pair
    end
    return pair
end

-- Rotates (x1, x2) to (x1 cos - x2 sin, x2 cos + x1 sin), where x1 and x2 are the halves of the last of four dims.
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
    errors.check_flags(opts, { 'causal', 'tiled', 'bias' }, what)
    self.causal, self.tiled = opts.causal == true, opts.tiled ~= false
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

-- Returns the columns from `start` on of y: (b, t, columns), as (b, heads, t, hd).
local function heads_of(y, start, b, t, heads, hd)
    return swap_middle(to(cut(y, 2, start, heads * hd), b, t, heads, hd))
end

local function mask_of(self, t, device)
    rawset(self, '_mask', causal_mask(t, device))
    return self._mask
end

local TRANSPOSED = { transpose_b = true }
local MASKED = -math.huge
local HIDDEN = -1e30 -- finite: a row of it alone has a softmax, which is then replaced by zeros

-- Returns softmax(q k^T / sqrt(hd)) v; scores that the causal mask hides are -inf. given: { allowed = u8, added = nil
-- or float }, of a mask that was given.
local function attend(self, q, k, v, mask, given)
    local scores = matmul(q * self.factor, k, TRANSPOSED)
    if mask then scores = where(mask, scores, MASKED) end
    if given then
        if given.added then scores = scores + given.added:to(scores.dtype) end
        scores = where(given.allowed, scores, HIDDEN)
    end
    local weights = softmax(scores, -1)
    if given then weights = where(given.allowed, weights, 0) end
    if self.training and self.p > 0 then weights = dropout(weights, self.p) end
    return matmul(weights, v)
end

-- Returns the tables of rotations for the length of x, which the module holds.
local function rotation_of(self, x, t, dims)
    local pair = rotation(t, self.hd, self.base, tensor.dtype_name[x._dtype], x._device, dims)
    rawset(self, '_rotation', pair)
    return pair
end

-- Attends in one op. y: (b, t, columns), the projection. Queries and keys are rotated alike, so they are rotated as one
-- tensor, next to each other as they are.
local function attend_tiled(self, y, b, t)
    local heads, kv, hd = self.heads, self.kv_heads, self.hd
    if self.base then
        local pair, turned = rotation_of(self, y, t, { t, 1, hd }), heads + kv
        local both = rotate(to(cut(y, 2, 0, turned * hd), b, t, turned, hd), pair, hd)
        y = shape.cat({ to(both, b, t, turned * hd), cut(y, 2, turned * hd, kv * hd) }, -1)
    end
    local at = op.attrs(heads, kv, self.causal and 1 or 0)
    at.f[0], at.f[1] = self.training and self.p or 0, self.factor
    return (op.unary(ATTENTION, y, at))
end

-- Attends with all heads. q: (b, heads, t, hd), k and v: (b, kv, s, hd). Returns (b, t, d).
local function gather_heads(self, q, k, v, mask, given)
    local heads, kv, hd = self.heads, self.kv_heads, self.hd
    local b, t, s = tensor.typed(q)._dims[1], q._dims[3], tensor.typed(k)._dims[3]
    local o
    if kv == heads then
        o = attend(self, q, k, v, mask, given)
    else
        q = to(q, b, kv, heads / kv, t, hd)
        k, v = to(k, b, kv, 1, s, hd), to(v, b, kv, 1, s, hd)
        o = to(attend(self, q, k, v, mask, given), b, heads, t, hd)
    end
    return to(swap_middle(o), b, t, self.d)
end

-- Attends with products, softmax and dropout. y: (b, t, columns), the projection.
local function attend_composed(self, y, b, t, given)
    local heads, kv, hd = self.heads, self.kv_heads, self.hd
    local q = heads_of(y, 0, b, t, heads, hd)
    local k = heads_of(y, heads * hd, b, t, kv, hd)
    local v = heads_of(y, (heads + kv) * hd, b, t, kv, hd)
    if self.base then
        local pair = rotation_of(self, y, t, { t, hd })
        q, k = rotate(q, pair, hd), rotate(k, pair, hd)
    end
    local mask = self.causal and t > 1 and mask_of(self, t, y._device) or nil
    return gather_heads(self, q, k, v, mask, given)
end

-- Returns a mask that was given as { allowed =, added = }, of the dims that scores have here; raises unless it
-- broadcasts to (b, heads, t, s).
local function read_mask(self, mask, b, t, s)
    if not tensor.is(mask) then
        errors.raise(nil, 'value', 'attention: mask must be a tensor, u8 (1: may see) or float (added), got %s',
            errors.describe(mask))
    end
    local dims, want, list = tensor.typed(mask)._dims, { b, self.heads, t, s }, {}
    local fits = #dims <= 4
    for k = 1, 4 do
        list[k] = dims[k - 4 + #dims] or 1
        fits = fits and (list[k] == 1 or list[k] == want[k])
    end
    if not fits then
        errors.raise(nil, 'shape', 'attention: the mask %s does not broadcast to (batch, heads, queries, keys) = '
            .. '(%d, %d, %d, %d)', tensor.describe(mask), b, self.heads, t, s)
    end
    local is_float = tensor.is_float[mask._dtype]
    if not is_float and mask.dtype ~= 'u8' then
        errors.raise(nil, 'dtype', "attention: a mask is u8 (1: may see) or float (added), got %s; write mask:ne(0)",
            tensor.describe(mask))
    end
    if self.kv_heads ~= self.heads then
        local h = list[2]
        mask = h == 1 and mask:reshape(list[1], 1, 1, list[3], list[4])
            or mask:reshape(list[1], self.kv_heads, h / self.kv_heads, list[3], list[4])
    end
    if is_float then return { allowed = mask:ne(MASKED), added = mask } end -- a NaN is not hidden
    return { allowed = mask:ne(0) }
end

-- Returns x w^T + bias with the rows [start, start + n) of the projection.
local function project(linear, x, start, n)
    local w, bias = linear.weight:narrow(1, start + 1, n), linear.bias
    return arith.linear(x, w, bias and bias:narrow(1, start + 1, n))
end

local function check_input(self, x, what)
    tensor.need_self(x, what)
    local dims = tensor.typed(x)._dims
    if #dims ~= 3 or dims[3] ~= self.d then
        errors.raise(nil, 'shape', '%s: expected (batch, time, %d), got %s', what, self.d, tensor.describe(x))
    end
    return dims
end

-- Attends from x to a context, keys and values made of it.
local function attend_context(self, x, context, mask)
    local dims, seen = x._dims, check_input(self, context, 'attention: context')
    local heads, kv, hd, b, t = self.heads, self.kv_heads, self.hd, dims[1], dims[2]
    if self.causal or self.base then
        errors.raise(nil, 'unsupported', 'attention: a context needs a module without %s; make it without and give a '
            .. 'mask', self.causal and 'causal' or 'rope')
    end
    if seen[1] ~= b then
        errors.raise(nil, 'shape', 'attention: the context %s has another batch than %s', tensor.describe(context),
            tensor.describe(x))
    end
    local s = seen[2]
    local both = project(self.qkv, context, heads * hd, 2 * kv * hd)
    local q = heads_of(project(self.qkv, x, 0, heads * hd), 0, b, t, heads, hd)
    local k, v = heads_of(both, 0, b, s, kv, hd), heads_of(both, kv * hd, b, s, kv, hd)
    return gather_heads(self, q, k, v, nil, mask and read_mask(self, mask, b, t, s))
end

local CALL_OPTIONS = { 'mask', 'context' }

function Attention:forward(x, opts)
    local dims = check_input(self, x, 'attention')
    if opts ~= nil then
        opts = errors.check_options(opts, CALL_OPTIONS, 'attention')
        if opts.context ~= nil then return (self.out(attend_context(self, x, opts.context, opts.mask))) end
        if opts.mask ~= nil then
            local given = read_mask(self, opts.mask, dims[1], dims[2], dims[2])
            return (self.out(attend_composed(self, self.qkv(x), dims[1], dims[2], given)))
        end
    end
    local inner = self.tiled and attend_tiled or attend_composed
    return (self.out(inner(self, self.qkv(x), dims[1], dims[2])))
end

function Attention:extra()
    return ('%d, %d%s'):format(self.d, self.heads, self.causal and ', causal = true' or '')
end

return Attention
