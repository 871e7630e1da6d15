-- Checks products by cuBLASLt on a GPU, with the simulated library (spec/cudasim/lt.cpp): who computes what; every
-- layout of the operands against f64; the same bits whether an op is fused, a value kept, or a step one program; exact
-- bytes; wane.tf32; and each call of the library that fails. The real library, where a toolkit has it, must open.
local helper = require 'spec.helper'
local gradcheck = require 'spec.support.gradcheck'
local networks = require 'spec.support.networks'
local programs = require 'spec.support.programs'
local op = require 'wane.tensor.op'
local scoped = require 'wane.scoped'
local sim = require 'spec.support.cudasim'
local binding = require 'wane.ffi'
local wane = helper.wane
local nn, optim = wane.nn, wane.optim
local on_gpu = sim.on_gpu
local C = binding.C

local has_cuda = pcall(op.device, 'cuda', 'spec')

-- Returns what `wane version` says with another library of products.
local function version_with(named)
    return (helper.shell(('WANE_CUDA_LT=%s build/wane version'):format(named)))
end

-- Products by name: { shape of a, shape of b, options of matmul }.
local PRODUCTS = {
    plain = { { 70, 150 }, { 150, 40 }, {} }, ['a transposed'] = { { 150, 70 }, { 150, 40 }, { transpose_a = true } },
    ['b transposed'] = { { 70, 150 }, { 40, 150 }, { transpose_b = true } },
    ['both transposed'] = { { 150, 70 }, { 40, 150 }, { transpose_a = true, transpose_b = true } },
    ['a row'] = { { 1, 200 }, { 200, 33 }, {} }, ['a column'] = { { 31, 200 }, { 200, 1 }, {} },
    ['a row and a column'] = { { 1, 200 }, { 200, 1 }, {} },
    ['one term'] = { { 9, 5, 1 }, { 9, 1, 7 }, {} }, batches = { { 3, 5, 7, 130 }, { 3, 5, 130, 9 }, {} },
    ['a matrix of all batches'] = { { 3, 5, 7, 130 }, { 130, 9 }, {} },
    ['a matrix of all batches, transposed'] = { { 4, 17, 31 }, { 9, 31 }, { transpose_b = true } },
    ['batches of a matrix'] = { { 7, 130 }, { 6, 130, 9 }, {} },
    ['batches that cross'] = { { 3, 1, 7, 130 }, { 1, 5, 130, 9 }, {} },
    ['odd batches'] = { { 3, 7, 13 }, { 3, 13, 5 }, {} },
}

-- Checks a product of a dtype against f64, NaN refused; returns its bytes.
local function product(row, dtype)
    local a, b = wane.eval(wane.randn(row[1], { dtype = dtype })), wane.eval(wane.randn(row[2], { dtype = dtype }))
    local y = wane.eval(a:matmul(b, row[3]))
    local have, want = y:to 'f64', a:to('f64'):matmul(b:to 'f64', row[3])
    local off = ((have - want):abs() / (want:abs() + 1)):max():item()
    assert(off <= (dtype == 'bf16' and 1e-2 or 1e-5), ('off by %g'):format(off))
    assert.is_true(gradcheck.bytes(y) == gradcheck.bytes(wane.eval(a:matmul(b, row[3]))))
    return gradcheck.bytes(y)
end

-- Trains a random network three steps; returns the bytes of its states. way: 'fused', 'lines' or 'unwritten', lines
-- without rewrites.
local function train(seed, way, policy)
    local net = networks.make(seed)
    local optimizers = networks.optimizers(net)
    C.wn_debug('rewrite', way == 'unwritten' and 0 or 1)
    local fine, why = pcall(function()
        for _ = 1, #optimizers > 0 and 3 or 0 do
            scoped('listen', function(p) programs.same(programs.read(p), way .. ', ' .. p.request.mode) end, function()
                if way == 'fused' then
                    for _, opt in ipairs(optimizers) do opt:step(net.loss(), { policy = policy }) end
                    return
                end
                for _, opt in ipairs(optimizers) do
                    for _, each in ipairs(optimizers) do each:zero_grad() end
                    net.loss():backward { policy = policy }
                    opt:step()
                end
            end)
        end
    end)
    C.wn_debug('rewrite', 1)
    if not fine then error(why, 0) end
    local states = networks.states(net, optimizers)
    wane.eval(unpack(states))
    return table.concat(programs.bytes(states))
end

describe('cuBLASLt on a GPU', function()
    if not has_cuda then
        pending('needs the simulated GPU: make cudasim')
        return
    end

    it('is found, or its absence has words', function()
        assert.truthy(binding.text(C.wn_cuda()):find('cuBLASLt %d+%.%d+%.%d+'))
        assert.truthy(version_with('off'):find('no cuBLASLt (WANE_CUDA_LT=off)', 1, true))
        assert.truthy(version_with('/no/such.so'):find('WANE_CUDA_LT=/no/such.so cannot be opened', 1, true))
        local other = version_with 'build/libwane.so'
        assert.truthy(other:find('build/libwane.so is there and lacks cublasLtGetVersion', 1, true), other)
    end)

    it("has the names that cublaslt.cu calls, in a toolkit's library, which fails with words without a GPU", function()
        local found = helper.lines('ls /usr/local/cuda/lib64/libcublasLt.so.1? 2>/dev/null; true')[1]
        if not found then return end
        assert.truthy(version_with(found):find 'cuBLASLt 1%d%.')
        local text = sim.script('WANE_CUDA_LT=' .. found, [[
            local wane = require 'wane'
            wane.set_device 'cuda'
            print(wane.randn(9, 200):matmul(wane.randn(200, 9)):sum():item())]])
        assert.truthy(text:find 'cuBLASLt 1%d%.[%d.]+ does not start %(its status: %d+%)', text)
    end)

    for name, row in pairs(PRODUCTS) do
        it('computes ' .. name .. ' in f32 and bf16', function()
            for _, dtype in ipairs { 'f32', 'bf16' } do on_gpu(product, row, dtype) end
        end)
    end

    it('computes bf16, and f32 but for what an update computes itself', function()
        local function calls(dtype, k)
            return select(2, on_gpu(function()
                wane.eval(wane.randn(9, k, { dtype = dtype }):matmul(wane.randn(k, 8, { dtype = dtype })))
            end))
        end
        assert.is_true(calls('bf16', 9) > 0)
        assert.is_true(calls('f32', 129) > 0)
        assert.equal(0, calls('f32', 128))
        assert.equal(0, calls('f64', 300))
    end)

    it('leaves large products of bf16 to own kernels where the rows of the result alone lie on no 16 bytes', function()
        local function calls(m, n, options)
            return select(2, on_gpu(function()
                local a, b = wane.zeros(m, 16, { dtype = 'bf16' }), wane.zeros(n, 16, { dtype = 'bf16' })
                wane.eval(a:matmul(b, options or { transpose_b = true }))
            end))
        end
        assert.equal(0, calls(129, 8186))
        assert.is_true(calls(129, 8192) > 0)
        assert.is_true(calls(129, 1018) > 0)
    end)

    it('keeps bits when an op is fused with a product, in f32 and bf16', function()
        for _, dtype in ipairs { 'f32', 'bf16' } do
            on_gpu(function()
                local x = wane.eval(wane.randn(40, 140, { dtype = dtype }))
                local layer = nn.Linear(140, 50, { dtype = dtype })
                local w = nn.Parameter(wane.randn(140, 50, { dtype = dtype }))
                local z = wane.eval(wane.randn(40, 50, { dtype = dtype }))
                for _, fn in ipairs {
                    function() return layer(x):relu() end, function() return layer(x):gelu() end,
                    function() return layer(x) + z end, function() return x:matmul(w):tanh() end,
                    function() return x:matmul(w) * z end,
                } do
                    local fused = gradcheck.bytes(wane.eval(fn()))
                    C.wn_debug('rewrite', 0)
                    local split = gradcheck.bytes(wane.eval(fn()))
                    C.wn_debug('rewrite', 1)
                    assert.is_true(fused == split, dtype)
                end
            end)
        end
    end)

    for seed = 1, helper.is_long and 24 or 8 do
        it('trains random network ' .. seed .. ' to the same bits in every way, with exact bytes', function()
            local want = on_gpu(train, seed, 'unwritten', 'save_all')
            assert.is_true(#want > 0)
            for _, way in ipairs { { 'fused', 'save_all' }, { 'lines', 'recompute_all' }, { 'fused', 'least' } } do
                assert.is_true(want == on_gpu(train, seed, way[1], way[2]), table.concat(way, ', '))
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
        local function off()
            return on_gpu(function()
                local a, b = wane.eval(wane.randn(30, 200)), wane.eval(wane.randn(200, 30))
                return (a:matmul(b):to 'f64' - a:to('f64'):matmul(b:to 'f64')):abs():max():item()
            end)
        end
        assert.is_false(wane.tf32())
        assert.is_true(off() < 1e-4)
        assert.is_false(wane.tf32(true))
        local rounded = off()
        assert.is_true(wane.tf32(false))
        assert.is_true(rounded > 1e-3 and rounded < 0.1)
        assert.is_true(off() < 1e-4)
        local fine, why = pcall(wane.tf32, 'yes')
        assert.is_false(fine)
        assert.truthy(why.message:find('expected true, false or nil', 1, true))
    end)

    it('reports each call that fails, changes nothing then, and the next step works', function()
        local before = wane.set_device 'cuda'
        local function step(n)
            wane.manual_seed(3)
            -- Shapes that no step before has met.
            local model = nn.Sequential { nn.Linear(60 + n, 160), nn.ReLU(), nn.Linear(160, 30) }
            local opt = optim.SGD(model:parameters(), { lr = 0.1 })
            local x = wane.eval(wane.randn(140, 60 + n))
            wane.eval(unpack(model:parameters()))
            local started = table.concat(programs.bytes(model:parameters()))
            sim.fail('library', n)
            local fine, why = pcall(function() model(x):sum():backward() end)
            local is_met = sim.fails_in 'library' == 0
            sim.fail('library', 0)
            assert.equal(is_met, not fine)
            if is_met then
                assert.equal('device', why.code)
                assert.truthy(why.message:find('cuBLASLt failed at a product', 1, true), why.message)
                assert.is_true(started == table.concat(programs.bytes(model:parameters())))
            end
            opt:zero_grad()
            opt:step(model(x):sum())
            assert.is_true(started ~= table.concat(programs.bytes(model:parameters())))
            return is_met
        end
        local n = 0
        repeat n = n + 1 until not step(n) or n > 40
        wane.set_device(before)
        assert.is_true(n > 6 and n <= 40, 'calls met: ' .. n)
    end)
end)
