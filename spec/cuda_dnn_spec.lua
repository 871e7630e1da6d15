-- Checks convolutions by cuDNN on a GPU, with the simulated library (spec/cudasim/dnn.cpp): who computes what; every
-- shape, layout and dtype against f64; the same bits under every policy; exact bytes; wane.tf32; what the library
-- declines; and each call of it that fails. The real library, where a toolkit has it, must open.
local helper = require 'spec.helper'
local case_inputs = require 'spec.support.case_inputs'
local gradcheck = require 'spec.support.gradcheck'
local programs = require 'spec.support.programs'
local op = require 'wane.tensor.op'
local scoped = require 'wane.scoped'
local sim = require 'spec.support.cudasim'
local binding = require 'wane.ffi'
local wane = helper.wane
local nn, optim = wane.nn, wane.optim
local far, on_gpu = sim.far, sim.on_gpu
local C = binding.C

local record = require('spec.cases.array').record

local has_cuda, CUDA = pcall(op.device, 'cuda', 'spec')
local CPU, CONV48 = op.device('cpu', 'spec'), 3
local TOLERANCE = { f32 = 1e-5, bf16 = 1.2e-2 }

-- Returns what `wane version` says with another library of convolutions.
local function version_with(named)
    return (helper.shell(('WANE_CUDA_DNN=%s build/wane version'):format(named)))
end

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

-- Makes a network of convolutions; returns its loss, parameters and optimizer. size: of the image.
local function network(size, dtype)
    wane.manual_seed(size)
    local options = { padding = 1, dtype = dtype }
    local model = nn.Sequential { nn.Conv2d(3, 16, 3, options), nn.BatchNorm2d(16, { dtype = dtype }), nn.ReLU(),
        nn.Conv2d(16, 16, 3, { stride = 2, groups = 2, dtype = dtype }), nn.Conv2d(16, 8, 1, { dtype = dtype }),
        nn.ConvTranspose2d(8, 4, 2, { stride = 2, dtype = dtype }) }
    local opt = optim.SGD(model:parameters(), { lr = 0.1 })
    local x = wane.eval(wane.randn(2, 3, size, size, { dtype = dtype }))
    return function() return model(x):tanh():sum() end, model:parameters(), opt
end

-- Returns the bytes of a list of values.
local function bytes_of(list)
    local out = {}
    wane.eval(unpack(list))
    for i, t in ipairs(list) do out[i] = gradcheck.bytes(t) end
    return table.concat(out)
end

-- Trains that network; returns the bytes of its parameters. Predicted bytes must be measured.
local function train(policy, dtype, is_lines)
    local loss, parameters, opt = network(9, dtype)
    for _ = 1, 3 do
        scoped('listen', function(p) programs.same(programs.read(p), policy .. ', ' .. p.request.mode) end, function()
            if not is_lines then return opt:step(loss(), { policy = policy }) end
            opt:zero_grad()
            loss():backward { policy = policy }
            opt:step()
        end)
    end
    return bytes_of(parameters)
end

describe('cuDNN on a GPU', function()
    if not has_cuda then
        pending('needs the simulated GPU: make cudasim')
        return
    end

    it('is found where it is asked for, or its absence has words', function()
        assert.truthy(binding.text(C.wn_cuda()):find('cuDNN %d+%.%d+%.%d+'))
        for named, words in pairs {
            ["''"] = 'no cuDNN (WANE_CUDA_DNN=auto asks for it)',
            off = 'no cuDNN (WANE_CUDA_DNN=off)',
            ['/no/such.so'] = 'WANE_CUDA_DNN=/no/such.so cannot be opened (off, auto or a path): own kernels are used',
            ['build/libwane.so'] = 'build/libwane.so is there and lacks cudnnGetVersion: own kernels are used',
        } do
            local text = version_with(named)
            assert.truthy(text:find(words, 1, true), text)
        end
    end)

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
        local text = version_with(found .. '.so')
        for _, ending in ipairs { '', '.c', '.so' } do os.remove(found .. ending) end
        assert.truthy(text:find('too old (version 7605; 8.0 or later is known): own kernels are used', 1, true), text)
    end)

    it("has the names that cudnn.cu calls, in a toolkit's library, which fails with words without a GPU", function()
        local found = helper.lines('ls /usr/local/cuda/lib64/libcudnn.so.[89] 2>/dev/null; true')[1]
        if not found then return end
        assert.truthy(version_with(found):find 'cuDNN [89]%.')
        local text = sim.script('WANE_CUDA_DNN=' .. found, [[
            local wane = require 'wane'
            wane.set_device 'cuda'
            print(wane.randn(1, 3, 4, 4):conv2d(wane.randn(5, 3, 3, 3)):sum():item())]])
        assert.truthy(text:find 'cuDNN [89]%.[%d.]+ does not start %(its status: %d+%)', text)
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
        for _, dtype in ipairs { 'f32', 'bf16' } do
            local function fused()
                wane.manual_seed(5)
                local a, n = wane.nn.Conv2d(4, 24, 3, { dtype = dtype }), wane.nn.BatchNorm2d(24, { dtype = dtype })
                n.running_mean:assign(wane.randn(24, { dtype = dtype }))
                n.weight:assign(wane.randn(24, { dtype = dtype }))
                n:eval()
                local x = wane.eval(wane.randn(2, 4, 7, 6, { dtype = dtype }))
                local z = wane.eval(a(x))
                return gradcheck.bytes(wane.no_grad(function() return wane.eval((n(a(x)) + z):relu()) end))
            end
            on_gpu(fused) -- asks the library for algorithms
            local have, calls = on_gpu(fused)
            assert.equal(2, calls)
            binding.check(C.wn_debug('rewrite', 0))
            local ok, apart, again = pcall(on_gpu, fused)
            binding.check(C.wn_debug('rewrite', 1))
            assert(ok, apart)
            assert.equal(2, again)
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
            local loss, parameters, opt = network(10, 'f32')
            local function step() return opt:step(loss()) end
            local least = wane.min_budget(step)
            assert.is_true(least > most and least < most + 2 ^ 20, least)
            assert.is_true(wane.plan(step).reserved < 2 ^ 20)
            scoped('listen', function(p) programs.same(programs.read(p), p.request.mode) end, function()
                opt:step(loss(), { budget = least })
            end)
            assert.is_true(#bytes_of(parameters) > 0)
        end)
    end)

    for _, dtype in ipairs { 'f32', 'bf16' } do
        it('trains ' .. dtype .. ' to the same bits in every way, with exact bytes', function()
            local want, calls = on_gpu(train, 'save_all', dtype)
            assert.is_true(calls > 0)
            for _, way in ipairs { { 'save_all', true }, { 'recompute_all' }, { 'recompute_all', true }, { 'least' },
                { 'segments(2)' } } do
                assert.is_true(want == on_gpu(train, way[1], dtype, way[2]), way[1])
            end
        end)
    end

    it('keeps its place on the stream, whatever the order of streams, and in graphs', function()
        local want = on_gpu(train, 'save_all', 'f32')
        for seed = 1, 4 do
            local before = sim.counters().graph_launches
            sim.schedule('random', seed, 'shuffled')
            local fine, have = pcall(on_gpu, train, 'recompute_all', 'f32')
            sim.schedule 'eager'
            assert.is_true(fine, have)
            assert.is_true(want == have, 'seed ' .. seed)
            assert.is_true(sim.counters().graph_launches > before)
        end
    end)

    it('rounds to tf32 only when asked to, and plans anew', function()
        local make = maker('conv2d', { ci = 9, co = 7, h = 8, k = 3 }, 'f32')
        local want = gradcheck.values(make(CPU, 'f64'))
        local function off(tolerance)
            return far(gradcheck.values((on_gpu(make, CUDA))), want, tolerance)
        end
        assert.is_nil(off(1e-5))
        assert.is_false(wane.tf32(true))
        local rounded, is_near = off(1e-5), not off(1e-2)
        assert.is_true(wane.tf32(false))
        assert.truthy(rounded)
        assert.is_true(is_near)
        assert.is_nil(off(1e-5))
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
        local before = wane.set_device 'cuda'
        local function step(n)
            local loss, parameters, opt = network(11 + n, 'f32') -- shapes that no step before has met
            local started = bytes_of(parameters)
            sim.fail('library', n)
            local fine, why = pcall(function() loss():backward() end)
            local is_met = sim.fails_in 'library' == 0
            sim.fail('library', 0)
            assert.equal(is_met, not fine)
            if is_met then
                assert.equal('device', why.code)
                assert.truthy(why.message:find 'cuDNN failed at conv2d[_dxw]* of an image %d+ x', why.message)
                assert.is_true(started == bytes_of(parameters))
            end
            opt:zero_grad()
            opt:step(loss())
            assert.is_true(started ~= bytes_of(parameters))
            return is_met
        end
        local n = 0
        repeat n = n + 1 until not step(n) or n > 90
        wane.set_device(before)
        assert.is_true(n > 30 and n <= 90, 'calls met: ' .. n)
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
