-- Breaks the table of ops: each row puts a wrong word into a column. mutants.lua says what a row is.
return {
    {
        name = 'an elementwise op that is no step of a fused one',
        file = 'runtime/op.def',
        old = 'sigmoid,         1, 1,    unary,     INPLACE|REAL,           1, same,    elementwise)',
        new = 'sigmoid,         1, 1,    unary,     INPLACE|REAL,           0, same,    elementwise)',
        spec = 'spec/rewrite_spec.lua',
    },
    {
        name = 'a product that autocast leaves as it is',
        file = 'runtime/op.def',
        old = 'linear,          3, 3,    matmul,    0,                      0, low,     rows)',
        new = 'linear,          3, 3,    matmul,    0,                      0, same,    rows)',
        spec = 'spec/autocast_spec.lua',
    },
    {
        name = 'an op whose positions are followed by the rule of another',
        file = 'runtime/op.def',
        old = 'softmax,         1, 1,    softmax,   INPLACE,                0, high,    along)',
        new = 'softmax,         1, 1,    softmax,   INPLACE,                0, high,    elementwise)',
        spec = 'spec/chunked_spec.lua',
    },
    {
        name = 'a product of which PyTorch keeps both sides whatever needs a gradient',
        file = 'lua/wane/pytorch/saves.lua',
        old = "row('mul matmul linear', { a_for_b, b_for_a })",
        new = "row('mul matmul linear', { a, b })",
        spec = 'spec/torchsaves_spec.lua',
    },
}
