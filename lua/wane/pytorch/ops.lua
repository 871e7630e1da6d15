--- The bytes that PyTorch's eager CUDA ops save and allocate: the table behind `pytorch/init.lua`, one row an op of
-- Wane.
--
-- pytorch/saves.lua says what an op saves for its backward. A row of this table holds the other facts, in PyTorch's
-- terms. An op without a row is unknown: its result and gradients are counted, and what PyTorch would save of it and
-- allocate beside them is left out.
--
--     view      function(n, t) -> is_view, layout: whether the result is a view of input 1 (no bytes), and its strides
--     like      the result's dims lie in memory as those of the inputs do (TensorIterator); else it is row-major
--     flat      the kernel needs row-major inputs, forward and backward: others are copied first
--     operands  function(machine, n, inputs) -> tensors that the kernel reads instead (pytorch/product.lua)
--     flat_back its backward needs a row-major gradient
--     reversed  its gradients are computed from the last input to the first (PyTorch's order is that of the names)
--     result    function(n) -> bytes of the result's storage where it has more than the result needs
--     scratch   function(n, inputs, has_grad) -> bytes of a temporary of the forward; inputs: the tensors that it
--               reads; has_grad: an autograd node is made for it
--     makes     its kernel makes a saved tensor that Wane records as another node (layer norm's statistics)
--     back      function(c, n, k) -> gradient of input k (c: the machine's backward context)
--     gemm      runs on cuBLAS
--     bias      its forward runs on cuBLASLt, with a workspace of its own
--
-- The table is checked against live PyTorch: spec/torchsaves_spec.lua with spec/fixtures/torch_operands.lua (a step of
-- one op for every kind of operand), and spec/torchmem_spec.lua with torch_layers.lua (layers in a Sequential). It
-- reads no schedule, policy or device.
-- @internal wane.pytorch.ops
local iterate = require 'wane.iterate'
local layout = require 'wane.pytorch.layout'
local products = require 'wane.pytorch.product'
local saves = require 'wane.pytorch.saves'

local rows = {}

-- ---- gradients ------------------------------------------------------------------------------------------
-- Returns the incoming gradient. Where the input was broadcast it has the result's shape, and the engine sums it after
-- the node's kernels are done (`reduce`).
local function pass(c, n, k)
    local reduce = n.inputs[k].numel ~= n.numel
    local grad = c:same(not reduce and c.dy.layout or nil)
    grad.reduce = reduce
    return grad
end

-- Returns a new tensor of the result's size, as a product with dy is.
local function product(c, n, k)
    local reduce = n.inputs[k].numel ~= n.numel
    return { storage = c:temp(n.bytes), dense = true, layout = not reduce and c:like() or nil, reduce = reduce }
end

-- Returns a gradient function whose result is the last of `count` tensors of the result's size that one expression
-- makes, all alive until it ends. Beside them are `masks` tensors of a byte an element, and one number where the
-- expression makes one of a literal.
local function product_of(count, masks, number)
    return function(c, n, k)
        local temporaries = {}
        for i = 1, count - 1 do temporaries[i] = c:temp(n.bytes) end
        for _ = 1, masks or 0 do temporaries[#temporaries + 1] = c:temp(n.numel) end
        if number then temporaries[#temporaries + 1] = c:temp(n.bytes / n.numel) end
        local out = product(c, n, k)
        for _, storage in ipairs(temporaries) do c:drop(storage) end
        return out
    end
end

-- Returns a new gradient of the size of input k, row-major.
local function fresh(c, _, k) return c:new(k) end
-- Returns a new gradient of the size of input k, laid out as the incoming one.
local function fresh_like(c, _, k) return c:new(k, c:like()) end
-- Returns the part of the incoming gradient that belongs to input k.
local function part(c, n, k) return c:part(layout.normal(n.inputs[k].shape, c:strides())) end

-- ---- views -------------------------------------------------------------------------------------------------
local function reshaped(n, t) return layout.view(t.node.shape, t.layout, n.shape) end

-- Returns dy under the input's shape: a view of it, or a copy.
local function reshape_back(c, n, k)
    local is_view, strides = true, nil
    if c.dy.dense then is_view, strides = layout.view(n.shape, c.dy.layout, n.inputs[k].shape) end
    return is_view and c:view(strides) or c:new(k)
end

-- Returns the dims of a permutation, from 1.
local function order_of(n)
    local order = {}
    for k = 1, #n.shape do order[k] = n.ints[k] + 1 end
    return order
end

local function permuted(n, t) return true, layout.permuted(t.node.shape, t.layout, order_of(n)) end

local function permute_back(c, n)
    local back = {}
    for k, from in ipairs(order_of(n)) do back[from] = k end
    return c:view(c.dy.dense and layout.permuted(n.shape, c.dy.layout, back) or nil)
end

local function narrowed(n, t)
    return true, layout.normal(n.shape, t.layout or layout.dense(t.node.shape))
end

local function expanded(n, t) return true, layout.expanded(t.node.shape, t.layout, n.shape) end

-- ---- rows --------------------------------------------------------------------------------------------------
-- Adds the row of each named op, with what it saves: the list `saves`, and `extra`.
local function op(names, row)
    for name in names:gmatch('%S+') do
        local own = { saves = saves[name] or {} }
        own.extra = own.saves.extra
        for key, value in iterate(row) do own[key] = value end
        rows[name] = own
    end
end

op('add', { like = true, back = pass })
op('sub', { like = true, back = function(c, n, k) return k == 1 and pass(c, n, 1) or product(c, n, 2) end })
op('mul', { like = true, back = product })
-- dy / b; -dy * ((a / b) / b)
local quotient = { product, product_of(4) }
op('div', { like = true, reversed = true, back = function(c, n, k) return quotient[k](c, n, k) end })
-- dy * (b * a ^ (b - 1)) with 0 where b == 0; dy * where(a == 0 and b >= 0, 0, y * log a); the second pair is of a
-- number.
local power = { product_of(5, 1, true), product_of(4, 1, true) }
local power_of_number = { product_of(3), product_of(2) }
op('pow', { like = true, reversed = true, back = function(c, n, k)
    return (n.inputs[3 - k].op == 'const' and power_of_number or power)[k](c, n, k)
end })
-- where(a == b, dy / 2, dy), then zeros where a < b.
op('maximum minimum', { like = true, back = product_of(2, 2) })
local chosen = product_of(1, 0, true)
op('where', { like = true, reversed = true, back = function(c, n, k) return k > 1 and chosen(c, n, k) or nil end })
op('eq ne lt gt le ge isnan', { like = true })
-- (x == x) * (abs(x) != inf): two masks and the absolute values live until the product exists.
op('within', {})
op('isfinite', { like = true, scratch = function(n) return 2 * n.numel + n.inputs[1].bytes end })
op('argmax argsort', {})
op('cumsum', { back = product_of(2) }) -- the sums of the turned dy, turned
op('full arange eye uniform normal randint', {})

op('neg cast', { like = true, back = fresh_like })
op('abs sqrt', { like = true, back = product_of(2) })
op('rsqrt', { like = true, back = product_of(3) }) -- -0.5 * dy * y ^ 3
op('exp log relu tanh sigmoid gelu silu softplus', { like = true, back = fresh_like })
op('sin cos log1p expm1', { like = true, back = product_of(2) }) -- dy * cos x; dy / (x + 1); dy * (y + 1)
op('floor round sign', { like = true, back = fresh_like })
op('clamp', { like = true, back = product_of(1, 2, true) })

op('matmul', { gemm = true, operands = products.matmul_operands, back = products.matmul_back })
op('linear', { gemm = true, bias = true, operands = products.linear_operands, back = products.linear_back })
-- scaled_dot_product_attention by the flash kernel: q, k, v (views of one projection), out and logsumexp (f32, a
-- query row and head). Its random state, two numbers, is not counted.
op('attention', { back = products.flash_back })

op('sum', { back = function(c, n) return c:expanded(n) end })
op('mean', { back = fresh }) -- the expanded gradient divided by the count
-- (dy * mask) / (number of elements of the mask in a row, an int64).
op('max min', { back = function(c, n, k)
    local input = n.inputs[k]
    local temporaries = { c:temp(input.numel), c:temp(input.bytes), c:temp(8 * n.numel) }
    local out = c:new(k)
    for _, storage in ipairs(temporaries) do c:drop(storage) end
    return out
end })
-- Returns the bytes of the first operand of a node. The result of mse_loss is a number whose storage has that many
-- bytes, because PyTorch allocates it with the operand's shape first and resizes it. The squared differences are a
-- temporary of the forward, of as many bytes.
local function bytes_of_operand(n) return n.inputs[1].bytes end
op('mse_loss', { back = fresh, result = bytes_of_operand, scratch = bytes_of_operand })
op('expand', { view = expanded, back = fresh })
op('reshape', { view = reshaped, back = reshape_back })
op('relayout', { view = reshaped, back = reshape_back }) -- PyTorch has no such op: the shape is the same
op('permute', { view = permuted, back = permute_back })
op('narrow', { view = narrowed, back = fresh }) -- zeros of the input's size, with dy copied in
op('cat', { back = part })

op('embedding', { flat_back = true, back = function(c, _, k) return k == 1 and c:new(1) or nil end })
op('scatter_add', { back = function(c, n, k) -- of (t, source, ids)
    if k == 1 then return pass(c, n, 1) end
    return k == 2 and c:new(2) or nil -- the elements of dy at the ids
end })
op('gather', { back = function(c, _, k) return k == 1 and c:new(1) or nil end })

op('softmax log_softmax', { flat = true, back = fresh })
op('nll', { back = function(c, _, k) return k == 1 and c:new(1) or nil end })
-- mean and rstd are results of native_layer_norm; Wane records them as nodes of their own.
op('row_mean row_rstd', {})
op('layernorm', { flat = true, makes = true, back = function(c, _, k)
    return k ~= 2 and k ~= 3 and c:new(k) or nil
end })
op('dropout', { like = true, back = fresh_like })

-- Convolutions and poolings copy an input that is not row-major, and save the input as it was.
local function copy_of_strided(_, inputs) return inputs[1].layout and inputs[1].node.bytes or 0 end
op('conv2d', { flat_back = true, scratch = copy_of_strided, back = fresh })
op('conv2d_dx', { flat_back = true, scratch = copy_of_strided, back = fresh })
op('conv_transpose2d', { flat_back = true, scratch = copy_of_strided, back = fresh })
-- The indices are made even where nothing keeps them. Wane's own are a node, which has no bytes here.
op('max_pool2d_index', { view = function() return true end })
op('max_pool2d', { flat_back = true, scratch = function(n, inputs, has_grad)
    return copy_of_strided(n, inputs) + (has_grad and 0 or 8 * n.numel)
end, back = function(c, _, k) return k == 1 and c:new(1) or nil end })
op('avg_pool2d upsample2d', { flat_back = true, scratch = copy_of_strided, back = fresh })
-- mean and rstd are results of native_batch_norm and native_group_norm.
op('channel_mean channel_rstd', {})
op('batch_norm', { flat_back = true, makes = true, scratch = copy_of_strided, back = function(c, _, k)
    return k ~= 2 and k ~= 3 and c:new(k) or nil
end })
-- The fused cell of a GRU takes both projections as they are: Wane's gates are no tensor of it.
op('gru_gates', { view = function() return true end, back = fresh })
op('lstm_cell gru_cell', { flat = true, back = fresh })
op('pad', { back = fresh })

local UNKNOWN = { saves = {}, back = fresh } -- the row of an op that has none

--- Returns the row of a recorded op.
-- @param name op of Wane
function rows.of(name)
    return rows[name] or UNKNOWN
end

--- Lists the ops of a graph that have no row, in the order in which they are met.
-- @param order list of nodes
-- @return list of { op =, count = }
function rows.unknown(order)
    local list, of = {}, {}
    for _, node in ipairs(order) do
        local name = node.op
        if not rows[name] then
            if not of[name] then
                of[name] = { op = name, count = 0 }
                list[#list + 1] = of[name]
            end
            of[name].count = of[name].count + 1
        end
    end
    return list
end

--- Tells whether an entry of `saves` holds for these inputs.
-- @param save entry { k or 'y', when =, unless = }
-- @param inputs list of nodes
-- @param needs name of the field that says whether an input needs a gradient
function rows.is_saved(save, inputs, needs)
    if save[1] ~= 'y' and not inputs[save[1]] then return false end
    if save.when then return inputs[save.when][needs] end
    return not (save.unless and inputs[save.unless].op == 'const')
end

return rows
