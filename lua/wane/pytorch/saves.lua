--- Rows of the tensors that PyTorch keeps of an op for its backward, one row an op that it keeps something of.
--
-- A row lists entries { k or 'y', when = j, unless = j }: input k, or the result; only when input j needs a gradient;
-- unless input j is a number. `extra` is a function(n) that returns the bytes of a tensor that is made only to be kept.
-- PyTorch's inputs are those of the op in Wane, or of a function that is one op in PyTorch and several here
-- (pytorch/graph.lua). spec/torchsaves_spec.lua compares the rows with what live PyTorch keeps.
-- @internal wane.pytorch.saves
local products = require 'wane.pytorch.product'

local a, b, c, y = { 1 }, { 2 }, { 3 }, { 'y' }
local a_for_b, b_for_a, c_for_b, d_for_a = { 1, when = 2 }, { 2, when = 1 }, { 3, when = 2 }, { 4, when = 1 }

local saves = {
    div = { a_for_b, b }, pow = { a, b, { 'y', unless = 2 } }, where = { a },
    embedding = { b }, gather = { a, b }, scatter_add = { c_for_b }, mse_loss = { a, b },
    dropout = { extra = function(n) return n.numel end }, -- the mask, one byte an element
    nll = { a, b, c, extra = function() return 4 end }, -- the total weight, one f32
    attention = { a, y, extra = products.logsumexp },
    max_pool2d = { a, extra = function(n) return 8 * n.numel end }, -- the indices, an int64 a window
    avg_pool2d = { a },
    -- The fused cells of a GPU keep 4 gates of an LSTM, whose result has 2 parts, and 5 numbers an element of a GRU.
    lstm_cell = { b, extra = function(n) return 2 * n.bytes end },
    gru_cell = { extra = function(n) return 5 * n.bytes end },
}

-- Gives each named op a row.
local function row(names, entries)
    for name in names:gmatch '%S+' do saves[name] = entries end
end

row('mul matmul linear', { a_for_b, b_for_a })
row('maximum minimum conv2d conv2d_dx conv_transpose2d', { a, b })
row('abs log gelu silu softplus sin cos log1p clamp', { a })
row('exp sqrt rsqrt relu tanh sigmoid expm1 softmax log_softmax', { y })
row('max min', { a, y })
row('layernorm batch_norm', { a, b, c, d_for_a }) -- b and c are mean and rstd

return saves
