--- PyTorch's matrix products and flash attention, on byte counts: what they copy first, keep, and give back.
--
-- torch.matmul turns batches of products into one bmm: leading dims are broadcast and merged into one. Where strides
-- do not allow that (heads: (B, T, H, hd) seen as (B, H, T, hd)) the operand is copied, and it is the copy that is
-- kept for the backward. A product with a 2-d right side becomes one mm of all rows. Part of pytorch/ops.lua's table.
-- @internal wane.pytorch.product
local layout = require 'wane.pytorch.layout'

local product = {}

local function count(shape, from, to)
    local n = 1
    for k = from, to do n = n * shape[k] end
    return n
end

-- Whether torch.matmul makes one mm of it: the right side is a matrix.
local function is_folded(n) return #n.inputs[2].shape == 2 end

-- Input k as bmm sees it: bytes when its rows are repeated for every batch, and whether that is a view.
local function batched(n, t, k)
    local own, out = t.node.shape, {}
    for i = 1, #n.shape - 2 do out[i] = n.shape[i] end
    local lead = count(out, 1, #out)
    out[#out + 1], out[#out + 2] = own[#own - 1], own[#own]
    local merged = { lead, own[#own - 1], own[#own] }
    local full = lead * own[#own - 1] * own[#own]
    local is_view = layout.view(out, layout.expanded(own, t.layout, out), merged)
    return n.inputs[k].bytes / n.inputs[k].numel * full, is_view
end

-- A copy of t of this many bytes, noted to be dropped behind the kernel.
local function copied(machine, t, bytes, copies)
    local storage = machine:alloc(bytes)
    copies[#copies + 1] = storage
    return { storage = storage, node = t.node }
end

-- x (..., K) as (rows, K): a copy where its strides say no.
local function rows_of(machine, n, t, copies)
    local shape = t.node.shape
    if #shape < 3 or layout.view(shape, t.layout, { count(shape, 1, #shape - 1), shape[#shape] }) then return t end
    return copied(machine, t, n.inputs[1].bytes, copies)
end

function product.linear_operands(machine, n, inputs)
    local copies = {}
    return { rows_of(machine, n, inputs[1], copies), inputs[2], inputs[3] }, copies
end

function product.matmul_operands(machine, n, inputs)
    local copies = {}
    if is_folded(n) then return { rows_of(machine, n, inputs[1], copies), inputs[2] }, copies end
    local out = {}
    for k, t in ipairs(inputs) do
        local bytes, is_view = batched(n, t, k)
        out[k] = is_view and t or copied(machine, t, bytes, copies)
    end
    return out, copies
end

-- ---- gradients ------------------------------------------------------------------------------------------
-- cuBLAS wants real strides: an expanded dy (the gradient of sum) is copied for each product it enters.
local function gemm_grad(c, n, bytes)
    local copy = not c.dy.dense and c:temp(n.bytes) or nil
    local storage = c:temp(bytes)
    if copy then c:drop(copy) end
    return { storage = storage, dense = true }
end

function product.linear_back(c, n, k)
    if k == 3 then
        local grad = c:same()
        grad.reduce = true
        return grad
    end
    local grad = gemm_grad(c, n, n.inputs[k].bytes)
    grad.is_view = #n.inputs[k].shape > 2 -- of the product's rows
    return grad
end

-- dy with its leading dims merged: a copy where its strides say no.
local function merge(c, n)
    local shape = n.shape
    local merged = is_folded(n) and { count(shape, 1, #shape - 1), shape[#shape] }
        or { count(shape, 1, #shape - 2), shape[#shape - 1], shape[#shape] }
    if c.dy.dense and not layout.view(shape, c.dy.layout, merged) then c:flatten() end
end

function product.matmul_back(c, n, k)
    local input = n.inputs[k]
    merge(c, n)
    local bytes = is_folded(n) and input.bytes or batched(n, { node = input }, k)
    local grad = gemm_grad(c, n, bytes)
    grad.is_view = #input.shape > 2 -- of the rows, or of the batches, of one product
    if is_folded(n) then return grad end
    grad.reduce = bytes ~= input.bytes
    -- taken the other way round, so given back the other way round
    if n.ints[k] == 1 then grad.layout = layout.transposed(product.swapped(input.shape), nil) end
    return grad
end

--- A shape with its last two dims exchanged.
function product.swapped(shape)
    local out = {}
    for k, n in ipairs(shape) do out[k] = n end
    out[#out], out[#out - 1] = shape[#shape - 1], shape[#shape]
    return out
end

-- ---- flash attention --------------------------------------------------------------------------------------
local function up(n, multiple) return math.ceil(n / multiple) * multiple end

-- qkv (B, T, (H + 2 K) hd) -> (B, T, H hd); ints: H, K, causal.
local function sizes(n)
    local b, t, d = n.shape[1], n.shape[2], n.shape[3]
    return b, t, n.ints[1], d / n.ints[1]
end

--- f32, one a query and head.
function product.logsumexp(n)
    local b, t, heads = sizes(n)
    return 4 * b * heads * t
end

-- FlashAttention 2: row sums and an f32 sum of dq beside dq, dk, dv (dk and dv of every query head), which are then
-- put together for the projection.
function product.flash_back(c, n)
    local b, t, heads, hd = sizes(n)
    local element = n.bytes / n.numel
    local sums, dq = c:temp(4 * b * heads * up(t, 128)), c:temp(4 * b * heads * up(t, 128) * up(hd, 32))
    local parts = {}
    for i = 1, 3 do parts[i] = c:temp(b * t * heads * hd * element) end
    c:drop(sums)
    c:drop(dq)
    local grad = c:new(1)
    for i = 1, 3 do c:drop(parts[i]) end
    return grad
end

return product
