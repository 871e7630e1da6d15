-- Breaks running sums, sorting, and the elementwise functions that came with them. mutants.lua says what a row is.
local OPS = 'spec/tensor_ops_spec.lua'

return {
    {
        name = 'a large angle keeps a wrong rest of its turns',
        file = 'kernels/angle.h',
        old = 'double y = x * scale, whole = y * turn, low = fma(y, turn, -whole) + y * more;',
        new = 'double y = x * scale, whole = y * turn, low = 0 * more;',
        spec = OPS,
        filter = 'as exact',
    },
    {
        name = 'log1p forgets what rounding the sum lost',
        file = 'kernels/scalar.h',
        old = 'small = fabsf(x) < 2.98e-8f ? x : y + lost / sum;',
        new = 'small = fabsf(x) < 2.98e-8f ? x : y + 0 * lost;',
        spec = OPS,
        filter = 'as exact',
    },
    {
        name = 'the gradient of a running sum runs the same way',
        file = 'runtime/ops/scan.c',
        old = '!g->d->attrs.i[TURNED]',
        new = 'g->d->attrs.i[TURNED]',
        spec = 'spec/op_spec.lua',
        filter = 'cumsum',
    },
    {
        name = 'the lines of a running sum overlap',
        file = 'kernels/cpu/scan.c',
        old = 'u % k->groups * COLUMNS, at = u / k->groups * n * inner + column;',
        new = 'u % k->groups * COLUMNS, at = u / k->groups * inner + column;',
        spec = 'spec/op_spec.lua',
        filter = 'cumsum',
    },
    {
        name = 'equal elements lose their order',
        file = 'kernels/cpu/scan.c',
        old = 'if (odd_u || u == v) return a < b;',
        new = 'if (odd_u || u == v) return a > b;',
        spec = 'spec/op_spec.lua',
        filter = 'argsort',
    },
    {
        name = 'a heap looks at one child',
        file = 'kernels/cpu/scan.c',
        old = 'if (child + 1 < n && before',
        new = 'if (child + 1 < 0 && before',
        spec = 'spec/op_spec.lua',
        filter = 'argsort',
    },
    {
        name = 'positions past the end of a line take part in its sort',
        file = 'kernels/cuda/scan.cu',
        old = 'compare(s, x, out, begin + own, begin + ((int64_t)2 << k) - 1 - own);',
        new = 'compare(s, x, out, begin + own, begin + ((int64_t)1 << k) + own);',
        spec = 'spec/cuda_op_spec.lua',
        filter = 'argsort',
    },
}
