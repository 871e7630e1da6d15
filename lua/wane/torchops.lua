--- What PyTorch's eager CUDA ops keep and allocate, one row an op of Wane: the table behind `torchmem.lua`.
--
-- A row says, in PyTorch's terms (not in Wane's, which saves less):
--   view    the result is a view of input 1: no bytes
--   saves   what the autograd node keeps: 'o' the result; a number k, input k, when any input that its gradient
--           serves needs one (`{k, when = j}`: only when input j needs a gradient)
--   extra   function(n) -> bytes of a tensor made only to be saved (dropout's mask, nll's total weight)
--   back    function(c, n, k) -> gradient of input k (c: the machine's backward context)
--   gemm    runs on cuBLAS;  bias: its forward runs on cuBLASLt, with a workspace of its own
-- Checked against live saved-tensor hooks: spec/torchmem_spec.lua with spec/fixtures/torch_saved.lua.
-- It never looks at a schedule, a policy or a device.
-- @module wane.torchops
local errors = require 'wane.errors'

local rows = {}

-- ---- gradients ------------------------------------------------------------------------------------------
-- Where the input was broadcast, what comes out here has the result's shape: the engine sums it after the node's
-- kernels are done (`reduce`).
local function pass(c, n, k)
    local grad = c:same()
    grad.reduce = n.inputs[k].numel ~= n.numel
    return grad
end

-- A new tensor of the result's size.
local function product(c, n, k)
    return { storage = c:temp(n.bytes), dense = true, reduce = n.inputs[k].numel ~= n.numel }
end

-- The same with one more temporary of the result's size alive meanwhile.
local function product2(c, n, k)
    local inner = c:temp(n.bytes)
    local out = product(c, n, k)
    c:drop(inner)
    return out
end

local function fresh(c, _, k) return c:new(k) end
local function view(c) return c:same() end
local function part(c) return c:part() end

-- A mask of one byte an element is alive beside the product.
local function masked(c, n, k)
    local mask = c:temp(n.inputs[k].numel)
    local out = product(c, n, k)
    c:drop(mask)
    return out
end

-- cuBLAS wants real strides: an expanded dy (the gradient of sum) is copied for each product it enters.
local function gemm_grad(c, n, k)
    local copy = not c.dy.dense and c:temp(n.bytes) or nil
    local out = c:new(k)
    if copy then c:drop(copy) end
    return out
end

local function linear_grad(c, n, k)
    if k == 3 then
        local grad = c:same()
        grad.reduce = true
        return grad
    end
    return gemm_grad(c, n, k)
end

-- ---- saved inputs ----------------------------------------------------------------------------------------
local other = { { 1, when = 2 }, { 2, when = 1 } } -- a product needs each side for the other's gradient
local first, result = { { 1 } }, { { 'o' } }

local function op(names, row)
    for name in names:gmatch('%S+') do rows[name] = row end
end

op('add', { back = pass })
op('sub', { back = function(c, n, k) return k == 1 and pass(c, n, 1) or product(c, n, 2) end })
op('mul', { saves = other, back = product })
op('div', { saves = { { 1, when = 2 }, { 2 } }, back = function(c, n, k)
    return k == 1 and product(c, n, 1) or product2(c, n, 2)
end })
op('pow', { saves = { { 1 }, { 2 }, { 'o', when = 2 } }, back = product2 })
op('maximum minimum', { saves = { { 1 }, { 2 } }, back = masked })
op('where', { saves = { { 1 } }, back = function(c, n, k) return k > 1 and product(c, n, k) or nil end })
op('eq ne lt gt le ge argmax', {})
op('full arange eye uniform normal randint', {})

op('neg', { back = fresh })
op('abs', { saves = first, back = product2 })
op('exp', { saves = result, back = fresh })
op('log', { saves = first, back = fresh })
op('sqrt', { saves = result, back = product2 })
op('rsqrt', { saves = result, back = product2 })
op('relu tanh sigmoid', { saves = result, back = fresh })
op('gelu silu', { saves = first, back = fresh })
op('clamp', { saves = first, back = masked })
op('cast', { back = fresh })

op('matmul', { gemm = true, saves = other, back = gemm_grad })
op('linear', { gemm = true, bias = true, saves = { { 1, when = 2 }, { 2, when = 1 } }, back = linear_grad })

op('sum', { back = function(c, n) return c:expanded(n) end })
op('mean', { back = fresh }) -- the expanded gradient divided by the count
op('max min', { saves = { { 1 }, { 'o' } }, back = function(c, n, k)
    local mask = c:temp(n.inputs[k].numel)
    local out = c:new(k)
    c:drop(mask)
    return out
end })
op('expand', { view = true, back = fresh })
op('reshape permute', { view = true, back = view })
op('narrow', { view = true, back = fresh }) -- zeros of the input's size, with dy copied in
op('cat', { back = part })

op('embedding', { saves = { { 2 } }, back = function(c, _, k) return k == 1 and c:new(1) or nil end })
op('gather', { saves = { { 2 } }, back = function(c, _, k) return k == 1 and c:new(1) or nil end })

op('softmax log_softmax', { saves = result, back = fresh })
op('nll', { saves = { { 1 }, { 2 } }, extra = function() return 4 end,
    back = function(c, _, k) return k == 1 and c:new(1) or nil end })
-- mean and rstd are results of native_layer_norm; Wane records them as nodes of their own
op('row_mean row_rstd', {})
op('layernorm', { saves = { { 1 }, { 2 }, { 3 }, { 4, when = 1 } }, back = function(c, _, k)
    return k ~= 2 and k ~= 3 and c:new(k) or nil
end })
op('dropout', { extra = function(n) return n.numel end, back = fresh })

--- The row of a recorded op; an error that says what to do where there is none.
function rows.of(name)
    local hint = name == 'attention' and '; build nn.Attention with tiled = false, whose parts are accounted for' or ''
    return rows[name] or errors.raise(nil, 'unsupported',
        "pytorch: the accounting of op '%s' is not in this version%s", name, hint)
end

--- Bytes an op's autograd node keeps beside parameters, as PyTorch would for one application alone.
-- @param name op of Wane
-- @param n { numel=, bytes=, inputs={ {bytes=, needs=, parameter=}, ... } }: result and inputs
-- @return bytes, not rounded
function rows.saved_bytes(name, n)
    local row, total = rows[name], 0
    for _, save in ipairs(row.saves or {}) do
        local what = save[1]
        if not save.when or n.inputs[save.when].needs then
            if what == 'o' then
                total = total + n.bytes
            elseif not n.inputs[what].parameter then
                total = total + n.inputs[what].bytes
            end
        end
    end
    return total + (row.extra and row.extra(n) or 0)
end

return rows
