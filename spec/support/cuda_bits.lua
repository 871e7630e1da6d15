-- Says of every op what CUDA promises of its numbers, against the CPU: the same bits, or a tolerance relative to the
-- largest magnitude of the result. An op that is not named here has the CPU's bits in every dtype. A NaN equals any
-- other: its sign and its payload are the processor's own.
local bits = {}

-- The functions of f64 come from the GPU's libm, which is within a few ulp of the CPU's. Those of f32 are own formulas
-- of correctly rounded operations (kernels/scalar.h), but for pow.
local LIBM = { f64 = 1e-13 }

-- Promises of ops by dtype, in the order of the gradient of a case: the tolerance holds for its gradients too.
bits.tolerance = {
    -- The CPU may sum pairs of bf16 products; CUDA sums in f32 one by one, or by tensor cores.
    matmul = { bf16 = 1e-2 }, linear = { bf16 = 1e-2 }, matmul_map = { bf16 = 1e-2, f64 = LIBM.f64 },
    linear_map = { bf16 = 1e-2, f64 = LIBM.f64 },
    -- Flash attention joins tiles in an order of its own.
    attention = { f32 = 1e-5, f64 = 1e-12, bf16 = 1e-2 }, attention_grad = { f32 = 1e-5, f64 = 1e-12, bf16 = 1e-2 },
    -- Tensor cores add steps of 16 products of bf16; the gradient of a weight is cut into parts of the pixels.
    conv2d = { f32 = 1e-5, f64 = 1e-12, bf16 = 1e-2 }, conv2d_dx = { f32 = 1e-5, f64 = 1e-12, bf16 = 1e-2 },
    conv2d_dw = { f32 = 1e-5, f64 = 1e-12, bf16 = 1e-2 }, conv2d_map = { f32 = 1e-5, f64 = 1e-12, bf16 = 1e-2 },
    pow = { f32 = 1e-6, f64 = LIBM.f64, bf16 = 1e-2 },
}
for _, op in ipairs { 'exp', 'log', 'tanh', 'sigmoid', 'silu', 'silu_grad', 'gelu', 'gelu_grad', 'elementwise',
    'softmax', 'log_softmax', 'log_softmax_grad', 'row_stats', 'row_nll', 'row_nll_grad', 'softplus', 'sin', 'cos',
    'log1p', 'expm1', 'lstm_cell', 'lstm_cell_grad', 'gru_cell', 'gru_cell_grad' } do
    bits.tolerance[op] = LIBM
end

--- Returns the tolerance of an op in a dtype, or nil where bits are promised.
function bits.of(op, dtype)
    return bits.tolerance[op] and bits.tolerance[op][dtype]
end

return bits
