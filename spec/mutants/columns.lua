-- Breaks the table of ops: each row puts a wrong word into a column. mutants.lua says what a row is.
return {
    {
        name = 'an elementwise op that is no step of a fused one',
        file = 'runtime/op.def',
        old = 'sigmoid,         1, 1,    unary,     INPLACE|REAL,           1, same,    elementwise, y)',
        new = 'sigmoid,         1, 1,    unary,     INPLACE|REAL,           0, same,    elementwise, y)',
        spec = 'spec/rewrite_spec.lua',
    },
    {
        name = 'a product that autocast leaves as it is',
        file = 'runtime/op.def',
        old = 'linear,          3, 3,    matmul,    0,                      0, low,     rows,        a_for_b+b_for_a)',
        new = 'linear,          3, 3,    matmul,    0,                      0, same,    rows,        a_for_b+b_for_a)',
        spec = 'spec/autocast_spec.lua',
    },
    {
        name = 'an op whose positions are followed by the rule of another',
        file = 'runtime/op.def',
        old = 'softmax,         1, 1,    softmax,   INPLACE,                0, high,    along,       y)',
        new = 'softmax,         1, 1,    softmax,   INPLACE,                0, high,    elementwise, y)',
        spec = 'spec/chunked_spec.lua',
    },
    {
        name = 'a product of which PyTorch keeps both sides whatever needs a gradient',
        file = 'runtime/op.def',
        old = 'mul,             2, 2,    binary,    INPLACE|WHOLE,          2, promote, elementwise, a_for_b+b_for_a)',
        new = 'mul,             2, 2,    binary,    INPLACE|WHOLE,          2, promote, elementwise, a+b)',
        spec = 'spec/torchsaves_spec.lua',
    },
}
