-- Measures every kernel that memory bounds against the machine's bandwidth for the same mix of reads and writes, in the
-- same run, a repetition of the one after a repetition of the other. Bytes are those of the definition: each input
-- once, the output once. The limit is the faster of ordinary and non-temporal stores; for a row that reads single lines
-- all over memory, it is what memory gives of such lines, and its note has a stream's limit.
--
--   luajit spec/bench/kernels.lua [--rows pattern]... [--seconds a_row]
--
-- `--rows 'images of'` measures the norms over channels, poolings and resizing of images alone.
-- Numbers are medians of elapsed seconds; a row goes on up to three times as long as asked (1.5 s) where somebody else
-- has the cores.
-- What the share of undisturbed repetitions is: shares.lua. Rows marked * are bound by arithmetic: their share says how
-- far from memory's pace they are.
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local wane = require 'wane'
local C = require('wane.ffi').C
local scoped = require 'wane.scoped'
local programs = require 'spec.support.programs'
local record = require('wane.tensor.op').record
local shares = require 'spec.bench.shares'
local probe = common.probe()
local threads = C.wn_threads()

local only = {}
local budget = common.options({ seconds = 1.5, rows = function(pattern) only[#only + 1] = pattern end },
    '--rows PATTERN, --seconds A_ROW').seconds

local watch = shares.new(common, probe, threads)
local PROBED = 2 ^ 28 -- bytes a repetition of the probe goes over
local SIZES = { f32 = 4, i32 = 4, f64 = 8, u8 = 1, bf16 = 2 }

-- ---- values -------------------------------------------------------------------------------------------------------
-- Values by name: each is made when it is first asked for, then kept, so that its pages are touched and no row pays
-- for them.
local made = {}
local function keep(name, make)
    return function()
        if not made[name] then
            made[name] = make():retain()
            wane.eval(made[name])
        end
        return made[name]
    end
end

local function noise(...)
    local dims = { ... }
    return function() return wane.rand(dims) * 2 - 1 end
end

local N, D = 8192, 4096 -- 128 MiB in f32
local x, y = keep('x', noise(N, D)), keep('y', noise(N, D))
local big = keep('big', noise(2 * N, D)) -- for what only reads
local row, column = keep('row', noise(D)), keep('column', noise(N, 1))
local weight = keep('weight', noise(D))
local mask = keep('mask', function() return x():gt(y()) end)
local top = keep('top', function() return x():max(2) end)
local dtop = keep('dtop', noise(N))
local whole = keep('whole', function() return wane.randint(0, 100, { N, D }) end)
local bytes_ = keep('bytes', function() return (big() * 100):to 'u8' end)
local mean, rstd = keep('mean', noise(N)), keep('rstd', function() return wane.rand(N) + 0.5 end)
local probabilities = keep('probabilities', function() return x():softmax(-1) end)
local table_, spots = keep('table', noise(2 ^ 15, 1024)), keep('spots', function()
    return wane.randint(0, 2 ^ 15, { 2 ^ 15 })
end)
local picks = keep('picks', function() return wane.randint(0, D, { N, D }) end)
local logp, labels = keep('logp', noise(2 ^ 15, 2048)), keep('labels', function()
    return wane.randint(0, 2048, { 2 ^ 15 })
end)
local spread, statistics = keep('gradients of rows', noise(2 ^ 15)), keep('statistics', noise(2 ^ 15, 2))
local number = keep('number', function() return wane.rand {} end)
local heads = keep('heads', noise(512, 256, 6, 64))

local function shaped(value, ...)
    local dims = { ... }
    return function() return value():reshape(unpack(dims)) end
end

-- ---- rows ---------------------------------------------------------------------------------------------------------
-- Rows are { name, inputs, call, reads =, writes =, in_place =, lines =, bytes =, bound =, note = }. reads and writes
-- are the probe's streams (1 and 1 unless given). lines = { n, bytes apart }: n lines so far apart are read, no stream.
-- bytes is given when it is not each input and the output once. bound says that arithmetic bounds the row.
local rows = {}
local function is_asked(name)
    for _, pattern in ipairs(only) do
        if name:find(pattern) then return true end
    end
    return #only == 0
end

local function add(name, inputs, call, options)
    if not is_asked(name) then return end
    local r = options or {}
    r.name, r.inputs, r.call = name, inputs, call
    rows[#rows + 1] = r
end

local two, reading = { reads = 2 }, { writes = 0 }
local function with(base, more)
    local out = {}
    for k, v in pairs(base) do out[k] = v end
    for k, v in pairs(more) do out[k] = v end
    return out
end

local function op(name, attrs)
    return function(...) return record(name, { ... }, attrs) end
end
local function dim(...) return { i = { ... }, n = select('#', ...) } end

for _, name in ipairs { 'add', 'mul' } do
    add(name, { x, y }, op(name), with(two, {}))
    add(name .. ', a number', { x, number }, op(name))
    add(name .. ', a row (D)', { x, row }, op(name))
    add(name .. ', a column (N, 1)', { x, column }, op(name))
end
add('where, a mask', { mask, x, y }, op 'where', with(two, {}))
local heavy = { gelu = true, tanh = true, silu = true, sigmoid = true, exp = true }
for _, name in ipairs { 'relu', 'exp', 'sigmoid', 'silu', 'tanh', 'gelu' } do
    add(name, { x }, op(name), { bound = heavy[name] })
end
for _, name in ipairs { 'relu', 'sigmoid', 'silu', 'tanh', 'gelu' } do
    add(name .. '_grad', { x, y }, op(name .. '_grad'), with(two, { bound = name == 'silu' or name == 'gelu' }))
end
local function to(dtype) return function(v) return v:to(dtype) end end
add('cast f32 to f64', { x }, to 'f64', { writes = 2 })
add('cast f32 to i32', { x }, to 'i32')
add('cast f32 to u8', { x }, to 'u8', { reads = 4 })
add('cast i32 to f32', { whole }, to 'f32')
add('cast u8 to f32', { bytes_ }, to 'f32', { writes = 4 })
add('dropout', { x }, op('dropout', { f = { 0.1 } }), { bound = true })

for _, name in ipairs { 'sum', 'max' } do
    add(name .. ' of all', { big }, op(name), with(reading, {}))
    add(name .. ' of rows', { big }, op(name, dim(1)), with(reading, {}))
    add(name .. ' of short rows', { shaped(big, 2 ^ 20, 64) }, op(name, dim(1)), with(reading, {}))
    add(name .. ' of columns', { big }, op(name, dim(0)), with(reading, {}))
end
add('mean of rows', { big }, op('mean', dim(1)), with(reading, {}))
add('min of rows', { big }, op('min', dim(1)), with(reading, {}))
add('argmax of rows', { big }, op('argmax', { i = { 1 } }), with(reading, {}))
add('argmax of columns', { big }, op('argmax', { i = { 0 } }), with(reading, {}))
add('extreme_grad of rows', { dtop, x, top }, op('extreme_grad', dim(1)))

for _, name in ipairs { 'softmax', 'log_softmax' } do
    add(name .. ', rows of 256', { shaped(x, 2 ^ 17, 256) }, op(name, dim(1)), { bound = true })
    add(name .. ', rows of 4096', { x }, op(name, dim(1)), { bound = true })
    add(name .. ', rows of 32768', { shaped(x, 1024, 2 ^ 15) }, op(name, dim(1)), { bound = true })
    add(name .. ', columns', { x }, op(name, dim(0)), { bound = true })
    for along, what in ipairs { ', columns', '' } do
        add(name .. '_grad' .. what, { x, probabilities }, op(name .. '_grad', dim(along - 1)),
            with(two, { bound = name == 'log_softmax' }))
    end
end
add('row_stats', { logp }, op 'row_stats', { writes = 0, bound = true })
add('row_nll', { logp, labels }, op('row_nll', { i = { -1, 0 } }), { writes = 0, lines = { 2 ^ 15, 8192 },
    bytes = 2 ^ 15 * (64 + 4 + 4) })
add('row_nll_grad', { spread, labels, logp, statistics }, op('row_nll_grad', { i = { -1, 1, 2048 }, dtype = 'f32' }),
    { bound = true })

add('row_mean', { big }, op 'row_mean', with(reading, {}))
add('row_rstd', { x, mean }, op('row_rstd', { f = { 1e-5 } }), with(reading, {}))
add('layernorm', { x, mean, rstd, weight, row }, op 'layernorm')
add('layernorm_dx', { y, x, mean, rstd, weight }, op 'layernorm_dx', with(two, {}))
add('layernorm_dw', { y, x, mean, rstd }, op 'layernorm_dw', { reads = 2, writes = 0 })

add('embedding', { table_, spots }, op 'embedding')
add('embedding_grad', { table_, spots }, op('embedding_grad', { i = { 2 ^ 15 } }))
add('gather', { x, picks }, op('gather', { i = { 1 } }), with(two, {}))
add('gather_grad', { x, picks }, op('gather_grad', { i = { 1, D } }), with(two, { bound = true }))

add('permute (0, 2, 1, 3)', { heads }, op('permute', { i = { 0, 2, 1, 3 } }))
add('permute (1, 0)', { x }, op('permute', { i = { 1, 0 } }))
add('permute (0, 2, 1)', { shaped(x, 512, 256, 256) }, op('permute', { i = { 0, 2, 1 } }))
add('narrow', { big }, op('narrow', { i = { 1, 100, D / 2 } }), { bytes = 2 * N * D / 2 * 8 })
add('narrow_grad', { shaped(x, 2 * N, D / 2) }, op('narrow_grad', { i = { 1, 100, D } }), { writes = 2 })
add('cat', { x, y }, op('cat', { i = { 1 } }))
add('expand of a row', { row }, op('expand', { i = { 2 * N, D } }), { reads = 0 })
add('expand of a column', { column }, op('expand', { i = { N, 2 * D } }), { reads = 0 })

-- Rows that pack a value and unpack it.
local whole_shape = { n = 2, i = { N, D }, dtype = 0 }
local int8 = keep('int8', function() return record('pack_int8', { x() }) end)
local signs = keep('signs', function() return record('pack_sign', { x() }) end)
add('cast f32 to bf16', { x }, to 'bf16', { reads = 2 })
add('pack_int8', { x }, op 'pack_int8', { reads = 4 })
add('unpack_int8', { int8 }, op('unpack_int8', whole_shape), { writes = 4 })
add('pack_sign', { x }, op 'pack_sign', with(reading, {}))
add('unpack_sign', { signs }, op('unpack_sign', whole_shape), { reads = 0 })

local function creation(name, options)
    add(name, {}, function()
        return record(name, {}, { i = { 2 * N, D }, n = 2, f = { 0, 1 }, dtype = 0 })
    end, with({ reads = 0 }, options or {}))
end
creation 'full'
creation('uniform', { bound = true })
add('normal', {}, function() return wane.randn(N, D) end, { reads = 0, bound = true })

-- Rows over images of two sizes, their channels last: norms over channels, poolings, resizing.
local NHWC = 2 -- base/layout.h
local function pair(n) return n * 2 ^ 32 + n end
local function window(kernel, stride, pad, size)
    return { i = { pair(kernel), pair(stride), pair(pad), 0, size and pair(size) or 0 } }
end

-- Returns what adds a row over n images of c channels and size x size pixels: function(name, inputs, attributes,
-- { streams read, written }).
local function adder(n, c, size)
    local what = (', images of (%d, %d, %d, %d)'):format(n, c, size, size)
    return function(name, inputs, attributes, mix)
        add(name .. what, inputs, op(name:match '^[%w_]+', attributes), { reads = mix[1], writes = mix[2] })
    end
end

local function noisy(what, ...)
    local dims = { ... }
    return keep(what .. table.concat(dims, ' '), function()
        local t = wane.rand(dims) * 2 - 1
        return #dims == 4 and record('relayout', { t }, { layout = NHWC }) or t
    end)
end

local function add_norms(n, c, size)
    local row_over, dims = adder(n, c, size), { n, c, size, size }
    local image, dy = noisy('image', unpack(dims)), noisy('dy', unpack(dims))
    local scale, shift, batch = noisy('scale', c), noisy('shift', c), { i = { 0 }, f = { 1e-5 } }
    local means, deviations = noisy('means', c), keep('deviations ' .. c, function() return wane.rand(c) + 0.5 end)
    row_over('channel_mean', { image }, batch, { 1, 0 })
    row_over('channel_rstd', { image, means }, batch, { 1, 0 })
    row_over('batch_norm', { image, means, deviations, scale, shift }, batch, { 1, 1 })
    row_over('batch_norm_sums', { dy, image, means, deviations }, batch, { 2, 0 })
    row_over('batch_norm_dx', { dy, image, means, deviations, scale, noisy('sums', 2, c) }, batch, { 2, 1 })
    local groups, statistic = { i = { 32 }, f = { 1e-5 } }, noisy('statistic', n, 32)
    row_over('channel_mean, 32 groups', { image }, groups, { 1, 0 })
    row_over('batch_norm, 32 groups', { image, statistic, statistic, scale, shift }, groups, { 1, 1 })
end

local function add_pools(n, c, size)
    local row_over, image = adder(n, c, size), noisy('image', n, c, size, size)
    local half = noisy('half', n, c, size / 2, size / 2)
    for _, kernel in ipairs { 2, 3 } do
        local forward, backward = window(kernel, 2, kernel - 2), window(kernel, 2, kernel - 2, size)
        local by = (', %d x %d'):format(kernel, kernel)
        local index = keep(('index %d %d'):format(kernel, size), function()
            return record('max_pool2d_index', { image() }, forward)
        end)
        row_over('max_pool2d_index' .. by, { image }, forward, { 1, 0 })
        row_over('max_pool2d' .. by, { image }, forward, { 4, 1 })
        row_over('max_pool2d' .. by .. ', by the index', { image, index }, forward, { 4, 1 })
        row_over('max_pool2d_dx' .. by, { half, index }, backward, { 1, 4 })
        row_over('avg_pool2d' .. by, { image }, forward, { 4, 1 })
        row_over('avg_pool2d_dx' .. by, { half }, backward, { 1, 4 })
    end
    row_over('avg_pool2d, all', { image }, { i = { pair(1), pair(1), 0, 4 } }, { 1, 0 })
end

local function add_resizes(n, c, size)
    local row_over, image = adder(n, c, size), noisy('image', n, c, size, size)
    local twice = noisy('twice', n, c, size * 2, size * 2)
    for mode, name in ipairs { 'nearest', 'bilinear' } do
        local attributes = { i = { pair(size * 2), mode - 1, 0, pair(size) }, f = { 0, 0 } }
        row_over('upsample2d, ' .. name, { image }, attributes, { 1, 4 })
        row_over('upsample2d_dx, ' .. name, { twice }, attributes, { 4, 1 })
    end
end

for _, shape in ipairs { { 64, 64, 56 }, { 256, 256, 14 } } do
    add_norms(unpack(shape))
    add_pools(unpack(shape))
    add_resizes(unpack(shape))
end

-- ---- effects: programs of their own -------------------------------------------------------------------------------

-- Adds a row that measures steps of an optimizer whose gradient exists; run() returns the seconds of one.
local function stepping(name, make, options)
    if not is_asked(name) then return end
    options.name, options.in_place, options.bytes = name, true, (options.reads + options.writes) * 4 * N * D
    options.start = function()
        local p = wane.nn.Parameter(x())
        p:sum():backward()
        local opt = make(wane.optim, { p })
        return function()
            local seconds
            scoped('listen', function(program) seconds = programs.read(program).measured.seconds end, function()
                opt:step()
            end)
            return seconds
        end
    end
    rows[#rows + 1] = options
end
stepping('sgd', function(optim, p) return optim.SGD(p, { lr = 1e-3, weight_decay = 0.1 }) end,
    { reads = 2, writes = 1 })
stepping('momentum', function(optim, p) return optim.SGD(p, { lr = 1e-3, momentum = 0.9 }) end,
    { reads = 3, writes = 2 })
stepping('adam', function(optim, p) return optim.Adam(p, { lr = 1e-3 }) end, { reads = 4, writes = 3 })
if is_asked 'accumulate' then
    rows[#rows + 1] = { name = 'accumulate', reads = 3, writes = 2, bytes = 5 * 4 * N * D,
        note = 'with the sum and the expand around it', start = function()
            local p = wane.nn.Parameter(x())
            p:sum():backward()
            return function()
                return programs.run({ mode = 'backward', roots = { p:sum() } }).measured.seconds
            end
        end }
end

-- Causes of rows below 80 %, as far as known; they are shown beside every row that matches. perf annotate showed those
-- of exp and dropout; where a time is given, the same kernel over 16 rows by one thread showed it; the others are read
-- off the loops.
local reasons = {
    { '^exp$', 'arithmetic: about 30 instructions for 16 elements' },
    { '^sigmoid$', 'arithmetic: an exp and a division' }, { '^silu', 'arithmetic: an exp and a division' },
    { '^tanh$', 'arithmetic: two polynomials, an exp, a division' },
    { '^gelu', 'arithmetic: two polynomials, a division' },
    { '^dropout', 'arithmetic: Philox' },
    { '^uniform', 'arithmetic: Philox' },
    { '^normal', 'arithmetic: Philox, then a logarithm, a root and two polynomials in double' },
    { '^argmax of rows', 'a second look at one stretch a row' },
    { '^softmax, rows of 256', 'arithmetic: 0.55 ns an element of a thread in the second cache, 29 GB/s of two' },
    { '^softmax, rows', 'arithmetic: 0.39 ns an element of a thread in the second cache, 41 GB/s of two' },
    { '^softmax, columns', 'x is read three times, for maxima, sums and results; two exps' },
    { '^softmax_grad, columns', 'dy and y are read twice' },
    { '^log_softmax, rows of 256', 'arithmetic: 0.56 ns an element of a thread in the second cache, 29 GB/s of two' },
    { '^log_softmax, rows', 'arithmetic: 0.41 ns an element of a thread in the second cache, 39 GB/s of two' },
    { '^log_softmax, columns', 'x is read three times, for maxima, sums and results' },
    { '^log_softmax_grad, columns', 'dy is read twice; an exp' },
    { '^log_softmax_grad', 'arithmetic: 0.32 ns an element of a thread in the second cache, 75 GB/s of two' },
    { '^nll_grad', 'lines of zeros are written twice as fast as others on this machine' },
    { '^embedding$', 'rows of a page at random places' },
    { '^embedding_grad', 'rows of a page at random places, added line by line; their list is made by one thread' },
    { '^gather$', 'index, value, store: 0.31 ns an element of a thread in the second cache, 78 GB/s of two' },
    { '^gather_grad', 'arithmetic: load, add, store at random places, 0.49 ns an element of a thread in the second '
        .. 'cache, 49 GB/s of two' },
    { '^narrow$', 'half of each row is skipped, which the prefetcher does not know' },
}
for _, r in ipairs(rows) do
    for _, reason in ipairs(reasons) do
        if r.name:find(reason[1]) then r.note = reason[2] end
    end
end

-- ---- measuring ----------------------------------------------------------------------------------------------------
local function size_of(t)
    return t:numel() * SIZES[t.dtype]
end

-- Prepares the program of a row: the op, of which one row is the result, so that what it writes lies in the arena,
-- whose pages were touched before. Returns a function that runs it and returns its seconds, and the bytes.
local function prepared(r)
    if r.start then return r.start(), r.bytes end
    local bytes, inputs = 0, {}
    for i, input in ipairs(r.inputs) do
        inputs[i] = input()
        bytes = bytes + size_of(inputs[i])
    end
    bytes = bytes + size_of(r.call(unpack(inputs)))
    return function()
        local out = r.call(unpack(inputs))
        if out:numel() > 2 ^ 12 then out = out:narrow(1, 1, 1) end
        return programs.run({ mode = 'eval', roots = { out } }).measured.seconds
    end, r.bytes or bytes
end

local head = { 'kernel, ' .. threads .. ' threads', 's', 'MB moved', 'GB/s', 'limit, GB/s', 'share',
    'share, cores ours alone', 'note' }
-- Runs one repetition. Returns { seconds of the row, stream = the probe's GB/s for the same mix of streams, limit = its
-- GB/s for what the row reads }, and what `watch` saw in between.
local function repetition(r, run)
    local one, near = { seconds = run() }, watch:look()
    local function mix(past_caches)
        return probe.mix(threads, r.reads or 1, r.writes or 1, r.in_place and 1 or 0, past_caches, PROBED)
    end
    one.stream = math.max(mix(0), r.writes ~= 0 and mix(1) or 0)
    one.limit = r.lines and probe.lines(threads, r.lines[1], r.lines[2]) or one.stream
    return one, near
end

-- Measures a row and returns its cells. The share is the median of those of the repetitions. Where somebody is on the
-- cores the row goes on for some time, until enough repetitions had them alone.
local function measured(r)
    local run, bytes = prepared(r)
    run()
    local seconds, streams, limits, all, alone, from = {}, {}, {}, {}, {}, C.wn_now()
    local function is_enough()
        local spent = C.wn_now() - from
        return #all >= 3 and (#all >= 15 or spent > budget) and (#alone >= 10 or spent > 3 * budget)
    end
    while not is_enough() do
        local before, one, near = watch:look(), repetition(r, run)
        local i = #all + 1
        seconds[i], streams[i], limits[i] = one.seconds, one.stream, one.limit
        all[i] = bytes / one.seconds * 1e-9 / one.limit
        if watch:is_alone(math.max(before, near)) then alone[#alone + 1] = all[i] end
    end
    local note, own = r.note or '', watch:text(alone, #all)
    if r.lines then
        note = ('one line in %d bytes; the limit of a stream is %.1f GB/s'):format(r.lines[2],
            common.median(streams))
    end
    local time, limit = common.median(seconds), common.median(limits)
    local rate = bytes / time * 1e-9
    return { r.name .. (r.bound and ' *' or ''), ('%.5f'):format(time), ('%.0f'):format(bytes * 1e-6),
        ('%.1f'):format(rate), ('%.1f'):format(limit),
        ('%.0f %%'):format(100 * common.median(all)), own, note }
end

local lines = {}
for i, r in ipairs(rows) do
    common.progress(('kernels: %d of %d, %s'):format(i, #rows, r.name))
    lines[i] = measured(r)
    collectgarbage()
end
common.progress()
common.table(head, lines)
