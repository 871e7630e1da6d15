-- Checks convolutions by cuDNN and products by cuBLASLt on a GPU, with the simulated libraries (spec/cudasim/dnn.cpp,
-- spec/cudasim/lt.cpp): who computes what; every shape, layout and dtype against f64; the same bits under every policy;
-- exact bytes; wane.tf32; what a library declines; and each call of it that fails. The real libraries, where a toolkit
-- has them, must open.
local helper = require 'spec.helper'
local case_inputs = require 'spec.support.case_inputs'
local gradcheck = require 'spec.support.gradcheck'
local networks = require 'spec.support.networks'
local programs = require 'spec.support.programs'
local op = require 'wane.tensor.op'
local scoped = require 'wane.scoped'
local sim = require 'spec.support.cudasim'
local split = require('spec.support.rewrites').split
local ways = require 'spec.support.ways'
local binding = require 'wane.ffi'
local wane = helper.wane
local nn, optim = wane.nn, wane.optim
local far, on_gpu = sim.far, sim.on_gpu
local C = binding.C

local record = require('spec.cases.array').record

local has_cuda, CUDA = pcall(op.device, 'cuda', 'spec')
local CPU, CONV48 = op.device('cpu', 'spec'), 3
local TOLERANCE = { f32 = 1e-5, bf16 = 1.2e-2 }

local function two(v) return type(v) == 'table' and v or { v, v } end

local function pair(v) return v[1] * 2 ^ 32 + v[2] end

-- Returns shapes of inputs and a function that records an op. o: images n, inputs ci and outputs co of a group, groups,
-- height h and width w of the image; kernel k, stride, pad, dilation, each of rows and of columns where they differ;
-- layout of the weight; bias.
local function call_of(name, o)
    local g, k, s, p, d = o.groups or 1, two(o.k), two(o.stride or 1), two(o.pad or 0), two(o.dilation or 1)
    local function out(side, i) return math.floor((side + 2 * p[i] - d[i] * (k[i] - 1) - 1) / s[i]) + 1 end
    local x, w = { o.n or 2, g * o.ci, o.h, o.w or o.h }, { g * o.co, o.ci, k[1], k[2] }
    local y = { x[1], g * o.co, out(x[3], 1), out(x[4], 2) }
    local attrs = { i = { pair(s), pair(p), pair(d), g, 0 }, n = 5 }
    local function laid(b) return o.layout and record('relayout', { b }, { layout = o.layout }) or b end
    if name == 'conv2d' then
        return { x, w, o.bias and { w[1] } or nil }, function(a, b, c)
            return record(name, { a, laid(b), c }, attrs)
        end
    elseif name == 'conv2d_dx' then
        attrs.i[5] = pair { x[3], x[4] }
        return { y, w }, function(a, b) return record(name, { a, laid(b) }, attrs) end
    end
    attrs.i[5], attrs.layout = pair(k), o.layout
    return { y, x }, function(a, b) return record(name, { a, b }, attrs) end
end

-- Returns a function that computes an op of a dtype on a device, from the same inputs each time.
local function maker(name, o, dtype)
    local shapes, call = call_of(name, o)
    local arrays = case_inputs.arrays({ name = name, inputs = shapes }, dtype, name)
    return function(device, as)
        return scoped('device', device, function()
            local inputs = case_inputs.tensors(arrays, device)
            for i, t in ipairs(as and inputs or {}) do inputs[i] = t:to(as) end
            return wane.eval(call(unpack(inputs)))
        end)
    end
end

-- Convolutions by name.
local ROWS = {
    ['3 x 3'] = { ci = 5, co = 9, h = 6, w = 9, k = 3, pad = 1 },
    ['one output, one pixel'] = { n = 1, ci = 4, co = 1, h = 3, k = 3 },
    ['1 x 1, read where it is'] = { ci = 12, co = 10, h = 5, k = 1 },
    ['1 x 1, strided'] = { ci = 3, co = 6, h = 7, w = 5, k = 1, stride = 2 },
    ['stride 2, pad 3'] = { ci = 3, co = 8, h = 11, w = 8, k = 5, stride = 2, pad = 3 },
    ['stride beyond the kernel'] = { ci = 2, co = 3, h = 9, k = 2, stride = 4 },
    ['uneven rows and columns'] = { ci = 3, co = 5, h = 8, w = 11, k = { 2, 4 }, stride = { 1, 3 }, pad = { 0, 2 },
        dilation = { 4, 1 } },
    ['dilation'] = { ci = 4, co = 5, h = 9, w = 7, k = 3, pad = 2, dilation = 2 },
    ['groups'] = { groups = 3, ci = 2, co = 4, h = 6, w = 5, k = 3, pad = 1 },
    ['depthwise'] = { groups = 6, ci = 1, co = 1, h = 6, w = 5, k = 3, pad = 1 },
    ['depthwise, two outputs'] = { groups = 8, ci = 1, co = 2, h = 5, k = 3, stride = 2 },
    ['bias, stores of one'] = { ci = 3, co = 7, h = 5, k = 2, bias = true },
    ['bias, wide stores'] = { n = 3, ci = 3, co = 40, h = 5, k = 2, bias = true },
    ['panels'] = { ci = 3, co = 112, h = 4, k = 3, pad = 1, layout = CONV48, bias = true },
    ['panels of groups'] = { groups = 2, ci = 3, co = 32, h = 4, k = 2, layout = CONV48 },
    ['panels of 1 x 1'] = { ci = 5, co = 64, h = 3, k = 1, layout = CONV48 },
}
local OPS = { 'conv2d', 'conv2d_dx', 'conv2d_dw' }

-- Returns a function that makes a network for ways.train: it trains the sum of what it makes of random numbers.
local function trains(shape, dtype, make)
    return function()
        wane.manual_seed(9)
        local model, x = nn.Sequential(make()), wane.eval(wane.randn(shape, { dtype = dtype }))
        local states = model:parameters()
        return { loss = function() return model(x):tanh():sum() end, states = states,
            optimizers = { optim.SGD(states, { lr = 0.1 }) } }
    end
end

-- Returns a network of convolutions over images of a size.
local function network(size, dtype)
    return trains({ 2, 3, size, size }, dtype, function()
        return { nn.Conv2d(3, 16, 3, { padding = 1, dtype = dtype }), nn.BatchNorm2d(16, { dtype = dtype }), nn.ReLU(),
            nn.Conv2d(16, 16, 3, { stride = 2, groups = 2, dtype = dtype }), nn.Conv2d(16, 8, 1, { dtype = dtype }),
            nn.ConvTranspose2d(8, 4, 2, { stride = 2, dtype = dtype }) }
    end)
end

-- Makes each call of a library fail that a step makes, in turn: the error says so, nothing has changed, and the next
-- step works. Returns how many calls there were.
-- @param make function(n) -> function that makes a network of shapes that no step before has met
local function each_call_fails(make, words)
    local n = 0
    local function step()
        n = n + 1
        local world = make(n)()
        wane.eval(unpack(world.states))
        local opt, started = world.optimizers[1], programs.bits(world.states)
        sim.fail('library', n)
        local fine, why = pcall(function() world.loss():backward() end)
        local is_met = sim.fails_in 'library' == 0
        sim.fail('library', 0)
        assert.equal(is_met, not fine)
        if is_met then
            assert.equal('device', why.code)
            assert.matches(words, why.message)
            assert.is_true(started == programs.bits(world.states))
        end
        opt:zero_grad()
        opt:step(world.loss())
        assert.is_true(started ~= programs.bits(world.states))
        return is_met
    end
    repeat assert.is_true(n < 90) until not helper.on('cuda', step)
    return n
end

-- Checks that a function, whose result says how far it is off, is rounded to tf32 while that is asked for alone.
local function check_tf32(off)
    assert.is_false(wane.tf32())
    local exact = off()
    wane.tf32(true)
    local rounded = off()
    assert.is_true(wane.tf32(false))
    assert.is_true(exact < 1e-4 and rounded > 5 * exact and rounded < 0.1, ('%g, %g'):format(exact, rounded))
    assert.equal(exact, off())
end

-- Products by name: { shape of a, shape of b, options of matmul }.
local PRODUCTS = {
    plain = { { 70, 150 }, { 150, 90 }, {} }, ['a transposed'] = { { 150, 70 }, { 150, 90 }, { transpose_a = true } },
    ['b transposed'] = { { 70, 150 }, { 90, 150 }, { transpose_b = true } },
    ['both transposed'] = { { 150, 70 }, { 90, 150 }, { transpose_a = true, transpose_b = true } },
    ['a row'] = { { 1, 200 }, { 200, 33 }, {} }, ['a column'] = { { 31, 200 }, { 200, 1 }, {} },
    ['a row and a column'] = { { 1, 200 }, { 200, 1 }, {} },
    ['one term'] = { { 9, 5, 1 }, { 9, 1, 7 }, {} }, batches = { { 3, 5, 7, 130 }, { 3, 5, 130, 9 }, {} },
    ['a matrix of all batches'] = { { 3, 5, 7, 130 }, { 130, 66 }, {} },
    ['a matrix of all batches, transposed'] = { { 4, 17, 131 }, { 69, 131 }, { transpose_b = true } },
    ['batches of a matrix'] = { { 7, 130 }, { 6, 130, 9 }, {} },
    ['batches that cross'] = { { 3, 1, 7, 130 }, { 1, 5, 130, 9 }, {} },
    ['odd batches'] = { { 3, 7, 13 }, { 3, 13, 5 }, {} },
}

-- Checks a product of a dtype against f64, NaN refused, and its bits a second time.
local function product(row, dtype)
    local a, b = wane.eval(wane.randn(row[1], { dtype = dtype })), wane.eval(wane.randn(row[2], { dtype = dtype }))
    local y = wane.eval(a:matmul(b, row[3]))
    local have, want = y:to 'f64', a:to('f64'):matmul(b:to 'f64', row[3])
    local off = ((have - want):abs() / (want:abs() + 1)):max():item()
    assert(off <= (dtype == 'bf16' and 1e-2 or 1e-5), ('off by %g'):format(off))
    assert.is_true(gradcheck.bytes(y) == gradcheck.bytes(wane.eval(a:matmul(b, row[3]))))
end

describe('a library of a GPU', function()
    if not has_cuda then
        pending('needs the simulated GPU: make cudasim')
        return
    end

    local LIBRARIES = {
        cuDNN = { variable = 'WANE_CUDA_DNN', symbol = 'cudnnGetVersion', path = 'libcudnn.so.[89]',
            run = 'wane.randn(1, 3, 4, 4):conv2d(wane.randn(5, 3, 3, 3))',
            unset = 'no cuDNN (WANE_CUDA_DNN=auto asks for it)' },
        cuBLASLt = { variable = 'WANE_CUDA_LT', symbol = 'cublasLtGetVersion', path = 'libcublasLt.so.1?',
            run = 'wane.randn(70, 200):matmul(wane.randn(200, 70))' },
    }
    for name, library in pairs(LIBRARIES) do
        local variable = library.variable
        -- Returns what `wane version` says with another library.
        local function version_with(named)
            return (helper.shell(('%s=%s build/wane version'):format(variable, named)))
        end

        it('is found, or its absence has words: ' .. name, function()
            assert.truthy(binding.text(C.wn_cuda()):find(name .. ' %d+%.%d+%.%d+'))
            for named, words in pairs { off = ('no %s (%s=off)'):format(name, variable), ["''"] = library.unset,
                ['/no/such.so'] = variable .. '=/no/such.so cannot be opened (off, auto or a path): own kernels are',
                ['build/libwane.so'] = ('build/libwane.so is there and lacks %s: own kernels are used'):format(
                    library.symbol) } do
                local text = version_with(named)
                assert.truthy(text:find(words, 1, true), text)
            end
        end)

        it("has the names that are called, in a toolkit's library, which fails with words without a GPU: " .. name,
            function()
                local path = helper.lines(('ls /usr/local/cuda/lib64/%s 2>/dev/null; true'):format(library.path))[1]
                if not path then return end
                assert.truthy(version_with(path):find(name .. ' %d+%.'))
                local text = sim.script(variable .. '=' .. path, ([[
                    local wane = require 'wane'
                    wane.set_device 'cuda'
                    print(%s:sum():item())]]):format(library.run))
                assert.truthy(text:find(name .. ' %d+%.[%d.]+ does not start %(its status: %d+%)'), text)
            end)
    end
end)

describe('cuDNN on a GPU', function()
    if not has_cuda then return end

    it('is refused where it is older than version 8', function()
        local found = os.tmpname()
        local source = assert(io.open(found .. '.c', 'w'))
        source:write '#include <stddef.h>\nsize_t cudnnGetVersion(void) { return 7605; }\n'
        for line in io.lines 'kernels/cuda/cudnn.cu' do
            local name = line:match '^    {"(cudnn%w+)"'
            if name and name ~= 'cudnnGetVersion' then source:write('int ', name, '(void) { return 1; }\n') end
        end
        source:close()
        local _, code = helper.shell(('${CC:-cc} -shared -fPIC -o %s.so %s.c'):format(found, found))
        assert.equal(0, code)
        local text = helper.shell(('WANE_CUDA_DNN=%s.so build/wane version'):format(found))
        for _, ending in ipairs { '', '.c', '.so' } do os.remove(found .. ending) end
        assert.truthy(text:find('too old (version 7605; 8.0 or later is known): own kernels are used', 1, true), text)
    end)

    for name, row in pairs(ROWS) do
        it('computes ' .. name .. ' in f32 and bf16, to the same bits each time', function()
            for _, which in ipairs(OPS) do
                for _, dtype in ipairs { 'f32', 'bf16' } do
                    local make = maker(which, row, dtype)
                    local have = on_gpu(make, CUDA)
                    local wrong = far(gradcheck.values(have), gradcheck.values(make(CPU, 'f64')), TOLERANCE[dtype])
                    assert(not wrong, ('%s of %s: %s'):format(which, dtype, tostring(wrong)))
                    local again, calls = on_gpu(make, CUDA)
                    assert.is_true(gradcheck.bytes(have) == gradcheck.bytes(again))
                    assert.equal(1, calls, which)
                end
            end
        end)
    end

    -- Checks that own kernels compute an op, to the CPU's bits.
    local function own(which, row, dtype)
        local make = maker(which, row, dtype)
        on_gpu(make, CUDA)
        local have, calls = on_gpu(make, CUDA)
        assert.equal(0, calls, which)
        assert.is_true(gradcheck.bytes(have) == gradcheck.bytes(make(CPU)), which)
    end

    it('leaves f64 to own kernels, and what it declines', function()
        local large = { ci = 3, co = 8, h = 9, k = 7, pad = 2 } -- wants more scratch than a plan gives
        local apart = { ci = 3, co = 8, h = 9, k = 3, dilation = 3 } -- has no algorithm
        for _, which in ipairs(OPS) do
            own(which, ROWS['3 x 3'], 'f64')
            if which ~= 'conv2d' then
                own(which, large, 'f32')
                own(which, apart, 'f32')
            end
        end
        for _, row in ipairs { large, apart } do -- another algorithm computes it
            local make = maker('conv2d', row, 'f32')
            on_gpu(make, CUDA)
            local have, calls = on_gpu(make, CUDA)
            assert.equal(1, calls)
            assert(not far(gradcheck.values(have), gradcheck.values(make(CPU, 'f64')), 1e-5))
        end
    end)

    it('computes the sums under what is fused over a convolution, to the bits of separate ops', function()
        for _, o in ipairs { { dtype = 'f32' }, { dtype = 'bf16' }, { dtype = 'bf16', bias = false } } do
            local dtype = o.dtype
            local function fused()
                wane.manual_seed(5)
                local a, n = nn.Conv2d(4, 24, 3, o), nn.BatchNorm2d(24, { dtype = dtype })
                n.running_mean:assign(wane.randn(24, { dtype = dtype }))
                n.weight:assign(wane.randn(24, { dtype = dtype }))
                n:eval()
                local x = wane.eval(wane.randn(2, 4, 7, 6, { dtype = dtype }))
                local z = wane.eval(a(x))
                return gradcheck.bytes(wane.no_grad(function() return wane.eval((n(a(x)) + z):relu()) end))
            end
            on_gpu(fused) -- asks the library for algorithms
            local have, calls = on_gpu(fused)
            local apart, again = split(on_gpu, fused)
            assert.same({ 2, 2 }, { calls, again })
            assert.is_true(have == apart, dtype)
        end
    end)

    it('takes the bytes of its scratch and of the reordered weight; where it declines those of own kernels', function()
        local function workspaces(row)
            return on_gpu(function()
                local shapes, call = call_of('conv2d_dx', row)
                local a, b = wane.eval(wane.randn(unpack(shapes[1]))), wane.eval(wane.randn(unpack(shapes[2])))
                local p = programs.run { mode = 'eval', roots = { call(a, b) } }
                programs.same(p, 'conv2d_dx')
                for _, step in ipairs(programs.schedule(p)) do
                    if step.op == 'conv2d_dx' then return step.workspace end
                end
            end)
        end
        local function padded(n) return math.ceil(n / 256) * 256 end
        assert.equal(padded(4 * 9 * 5 * 9) + padded(4 * (9 + 6) + 2001), workspaces(ROWS['3 x 3']))
        assert.equal(padded(4 * (1 + 5) + 2001), workspaces(ROWS['1 x 1, read where it is']))
        assert.equal(padded(4 * 8 * 9 * 9), workspaces { ci = 9, co = 8, h = 9, k = 3, dilation = 3 })
    end)

    it('has all the scratch of a plan that it may want until it has said what it wants', function()
        local most = 32 * 2 ^ 20
        on_gpu(function()
            local world = network(10, 'f32')()
            local opt, loss = world.optimizers[1], world.loss
            local function step() return opt:step(loss()) end
            local least = wane.min_budget(step)
            assert.is_true(least > most and least < most + 2 ^ 20, least)
            assert.is_true(wane.plan(step).reserved < 2 ^ 20)
            scoped('listen', function(p) programs.same(programs.read(p), p.request.mode) end, function()
                opt:step(loss(), { budget = least })
            end)
        end)
    end)

    for _, dtype in ipairs { 'f32', 'bf16' } do
        it('trains ' .. dtype .. ' to the same bits in every way, with exact bytes', function()
            local want, calls = on_gpu(ways.train, network(9, dtype), {})
            assert.is_true(calls > 0)
            for _, way in ipairs { { lines = true }, { policy = 'recompute_all' },
                { policy = 'recompute_all', lines = true }, { policy = 'least' }, { policy = 'segments(2)' } } do
                assert.is_true(want.bits == on_gpu(ways.train, network(9, dtype), way).bits, ways.text(way))
            end
        end)
    end

    it('keeps its place on the stream, whatever the order of streams, and in graphs', function()
        local want = on_gpu(ways.train, network(9, 'f32'), {})
        for seed = 1, 4 do
            local before = sim.counters().graph_launches
            sim.schedule('random', seed, 'shuffled')
            local fine, have = pcall(on_gpu, ways.train, network(9, 'f32'), { policy = 'recompute_all' })
            sim.schedule 'eager'
            assert.is_true(fine, have)
            assert.is_true(want.bits == have.bits, 'seed ' .. seed)
            assert.is_true(sim.counters().graph_launches > before)
        end
    end)

    it('rounds to tf32 only when asked to, and plans anew', function()
        local make = maker('conv2d', { ci = 9, co = 7, h = 8, k = 3 }, 'f32')
        local want = make(CPU, 'f64')
        check_tf32(function()
            return ((on_gpu(make, CUDA)):to('cpu'):to 'f64' - want):abs():max():item() / want:abs():max():item()
        end)
    end)

    it('says so where it does not start, and starts at the next step', function()
        local text = sim.script('WANE_CUDA_DNN=simulated', [[
            local wane, sim = require 'wane', require 'spec.support.cudasim'
            wane.set_device 'cuda'
            local x, w = wane.eval(wane.randn(1, 3, 4, 4)), wane.eval(wane.randn(5, 3, 3, 3))
            for _, call in ipairs { 'library', 'malloc' } do
                sim.fail(call, 1)
                local _, why = pcall(wane.eval, x:conv2d(w))
                sim.fail(call, 0)
                print(why.code, why.message)
            end
            print('sum', wane.eval(x:conv2d(w)):sum():item())]])
        assert.truthy(text:find('device%s+[^\n]*cuDNN 9%.19%.0 does not start %(its status: 1001%): it may need '
            .. 'another driver; WANE_CUDA_DNN names another one, WANE_CUDA_DNN=off does without'), text)
        assert.truthy(text:find('oom%s+[^\n]*out of memory: cuDNN 9%.19%.0 has none left to start'), text)
        assert.truthy(text:find('sum%s+%-?%d'), text)
    end)

    it('reports each call that fails, changes nothing then, and the next step works', function()
        local n = each_call_fails(function(n) return network(11 + n, 'f32') end,
            'cuDNN failed at conv2d[_dxw]* of an image %d+ x')
        assert.is_true(n > 30, 'calls met: ' .. n)
    end)

    it('computes again where the GPU had no memory left to load a kernel of the library', function()
        local make = maker('conv2d', ROWS['1 x 1, read where it is'], 'f32')
        local want = gradcheck.bytes((on_gpu(make, CUDA)))
        sim.fail('load', 2) -- the first writes scratch
        local have, calls = on_gpu(make, CUDA)
        local left = sim.fails_in 'load'
        sim.fail('load', 0)
        assert.equal(0, left)
        assert.equal(2, calls)
        assert.is_true(want == gradcheck.bytes(have))
    end)
end)

describe('cuBLASLt on a GPU', function()
    if not has_cuda then return end

    for name, row in pairs(PRODUCTS) do
        it('computes ' .. name .. ' in f32 and bf16', function()
            for _, dtype in ipairs { 'f32', 'bf16' } do on_gpu(product, row, dtype) end
        end)
    end

    -- Returns how often the library is called for a product (m, k) (n, k)'.
    local function calls(m, n, k, dtype)
        return select(2, on_gpu(function()
            local a, b = wane.zeros(m, k, { dtype = dtype }), wane.zeros(n, k, { dtype = dtype })
            wane.eval(a:matmul(b, { transpose_b = true }))
        end))
    end

    it('computes bf16, and f32 but for few rows and for what an update computes itself', function()
        assert.is_true(calls(9, 8, 9, 'bf16') > 0)
        assert.is_true(calls(65, 66, 129, 'f32') > 0 and calls(1, 65537, 129, 'f32') > 0)
        assert.equal(0, calls(65, 66, 128, 'f32') + calls(9, 8, 300, 'f64'))
        assert.equal(0, calls(64, 200, 129, 'f32') + calls(200, 64, 129, 'f32') + calls(1, 65536, 129, 'f32'))
    end)

    it('leaves large products of bf16 to own kernels where the rows of the result alone lie on no 16 bytes', function()
        assert.equal(0, calls(129, 8186, 16, 'bf16'))
        assert.is_true(calls(129, 8192, 16, 'bf16') > 0)
        assert.is_true(calls(129, 1018, 16, 'bf16') > 0)
    end)

    it('keeps bits when an op is fused with a product, in f32 and bf16', function()
        for _, dtype in ipairs { 'f32', 'bf16' } do
            on_gpu(function()
                local x = wane.eval(wane.randn(80, 140, { dtype = dtype }))
                local layer = nn.Linear(140, 90, { dtype = dtype })
                local w = nn.Parameter(wane.randn(140, 90, { dtype = dtype }))
                local z = wane.eval(wane.randn(80, 90, { dtype = dtype }))
                for _, fn in ipairs {
                    function() return layer(x):relu() end, function() return layer(x):gelu() end,
                    function() return layer(x) + z end, function() return x:matmul(w):tanh() end,
                    function() return x:matmul(w) * z end,
                } do
                    local function bits() return gradcheck.bytes(wane.eval(fn())) end
                    assert.is_true(bits() == split(bits), dtype)
                end
            end)
        end
    end)

    for seed = 1, helper.is_long and 24 or 8 do
        it('trains random network ' .. seed .. ' to the same bits in every way, with exact bytes', function()
            local function make()
                local net = networks.make(seed)
                local optimizers = networks.optimizers(net)
                return { loss = net.loss, optimizers = optimizers, states = networks.states(net, optimizers) }
            end
            if #make().optimizers == 0 then return end
            local want = on_gpu(ways.train, make, { split = true, lines = true })
            for _, way in ipairs { {}, { policy = 'recompute_all', lines = true }, { policy = 'least' } } do
                assert.is_true(want.bits == on_gpu(ways.train, make, way).bits, ways.text(way))
            end
        end)
    end

    it('takes no bytes: a plan made elsewhere has those of the GPU', function()
        local function plan(device, target)
            local made = helper.on(device, function()
                local model = nn.Sequential { nn.Linear(200, 300), nn.ReLU(), nn.Linear(300, 200) }
                local opt = optim.Adam(model:parameters())
                local x = wane.randn(150, 200)
                return wane.plan(function() opt:step(model(x):sum()) end, { target = target })
            end)
            return { made.peak, made.reserved }
        end
        assert.same(plan 'cuda', plan('meta', 'h200'))
    end)

    it('rounds to tf32 only when asked to, and plans anew', function()
        check_tf32(function()
            return on_gpu(function()
                wane.manual_seed(6)
                local a, b = wane.eval(wane.randn(70, 200)), wane.eval(wane.randn(200, 70))
                return (a:matmul(b):to 'f64' - a:to('f64'):matmul(b:to 'f64')):abs():max():item()
            end)
        end)
        helper.refused(nil, function() wane.tf32 'yes' end, 'expected true, false or nil')
    end)

    it('reports each call that fails, changes nothing then, and the next step works', function()
        local n = each_call_fails(function(n)
            return trains({ 140, 70 + n }, 'f32', function()
                return { nn.Linear(70 + n, 160), nn.ReLU(), nn.Linear(160, 70) }
            end)
        end, 'cuBLASLt failed at a product')
        assert.is_true(n > 6, 'calls met: ' .. n)
    end)
end)
