--- PyTorch's matrix products and flash attention in byte counts: what they copy first, save, and allocate in the
-- backward. These functions are columns of the table in pytorch/ops.lua.
--
-- torch.matmul turns batched products into one bmm, whose leading dims are broadcast and merged into one. Where strides
-- do not allow that - heads: (B, T, H, hd) seen as (B, H, T, hd) - the operand is copied, and the backward keeps the
-- copy. A product whose right side is a matrix becomes one mm over all rows.
-- @internal wane.pytorch.product
local layout = require 'wane.pytorch.layout'

local product = {}

-- Returns the number of elements of the dims from `from` to `to`.
local function count(shape, from, to)
    local n = 1
    for k = from, to do n = n * shape[k] end
    return n
end

-- Tells whether torch.matmul makes one mm: the right side is a matrix.
local function is_folded(n) return #n.inputs[2].shape == 2 end

-- Returns the bytes of input k as bmm reads it, repeated for every batch, and whether that is a view of it.
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

-- Copies t into a storage of `bytes` bytes, and adds that to the list of copies that are dropped after the kernel.
local function copied(machine, t, bytes, copies)
    local storage = machine:alloc(bytes)
    copies[#copies + 1] = storage
    return { storage = storage, node = t.node }
end

-- Returns x (..., K) as (rows, K): x itself, or a copy where its strides do not allow a view.
local function rows_of(machine, n, t, copies)
    local shape = t.node.shape
    if #shape < 3 or layout.view(shape, t.layout, { count(shape, 1, #shape - 1), shape[#shape] }) then return t end
    return copied(machine, t, n.inputs[1].bytes, copies)
end

-- Returns the operands of a linear product, x as (rows, K), and the list of copies.
function product.linear_operands(machine, n, inputs)
    local copies = {}
    return { rows_of(machine, n, inputs[1], copies), inputs[2], inputs[3] }, copies
end

-- Returns the operands of torch.matmul as mm or bmm reads them, and the list of copies.
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
-- Returns a gradient of `bytes` bytes made by cuBLAS. cuBLAS needs real strides, so an expanded dy (the gradient of
-- sum) is copied for each product that reads it.
local function gemm_grad(c, n, bytes)
    local copy = not c.dy.dense and c:temp(n.bytes) or nil
    local storage = c:temp(bytes)
    if copy then c:drop(copy) end
    return { storage = storage, dense = true }
end

-- Returns the gradient of input k of a linear product; that of the bias is dy, to be summed.
function product.linear_back(c, n, k)
    if k == 3 then
        local grad = c:same()
        grad.reduce = true
        return grad
    end
    local grad = gemm_grad(c, n, n.inputs[k].bytes)
    grad.is_view = #n.inputs[k].shape > 2 -- a view of the gradient with shape (rows, K)
    return grad
end

-- Merges the leading dims of dy, by a copy where its strides do not allow a view.
local function merge(c, n)
    local shape = n.shape
    local merged = is_folded(n) and { count(shape, 1, #shape - 1), shape[#shape] }
        or { count(shape, 1, #shape - 2), shape[#shape - 1], shape[#shape] }
    if c.dy.dense and not layout.view(shape, c.dy.layout, merged) then c:flatten() end
end

-- Returns the gradient of input k of torch.matmul.
function product.matmul_back(c, n, k)
    local input = n.inputs[k]
    merge(c, n)
    local bytes = is_folded(n) and input.bytes or batched(n, { node = input }, k)
    local grad = gemm_grad(c, n, bytes)
    grad.is_view = #input.shape > 2 -- a view of the gradient of the mm or bmm
    if is_folded(n) then return grad end
    grad.reduce = bytes ~= input.bytes
    -- The input was read transposed, so its gradient is the transposed view of a product.
    if n.ints[k] == 1 then grad.layout = layout.transposed(product.swapped(input.shape), nil) end
    return grad
end

--- Returns a shape with its last two dims exchanged.
-- @param shape list of dims
function product.swapped(shape)
    local out = { unpack(shape) }
    out[#out], out[#out - 1] = shape[#shape - 1], shape[#shape]
    return out
end

-- ---- flash attention --------------------------------------------------------------------------------------
-- Returns n rounded up to a multiple.
local function round_up(n, multiple) return math.ceil(n / multiple) * multiple end

-- Returns B, T, H and hd of an attention with qkv: (B, T, (H + 2 K) hd) and result (B, T, H hd); n.ints: H, K, causal.
local function sizes(n)
    local b, t, d = n.shape[1], n.shape[2], n.shape[3]
    return b, t, n.ints[1], d / n.ints[1]
end

--- Returns the bytes of the log-sum-exp: f32, one a query and head.
-- @param n node of an attention
function product.logsumexp(n)
    local b, t, heads = sizes(n)
    return 4 * b * heads * t
end

-- Returns the gradient of qkv by FlashAttention 2. Its temporaries are the row sums and an f32 sum of dq, and dq, dk
-- and dv, where dk and dv have every query head; the gradient of the projection is put together from these.
function product.flash_back(c, n)
    local b, t, heads, hd = sizes(n)
    local element = n.bytes / n.numel
    local rows = round_up(t, 128)
    local sums, dq = c:temp(4 * b * heads * rows), c:temp(4 * b * heads * rows * round_up(hd, 32))
    local parts = {}
    for i = 1, 3 do parts[i] = c:temp(b * t * heads * hd * element) end
    c:drop(sums)
    c:drop(dq)
    local grad = c:new(1)
    for i = 1, 3 do c:drop(parts[i]) end
    return grad
end

return product
