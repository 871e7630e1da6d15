-- Compares convolutions, poolings, norms and resizing of images with live PyTorch (spec/fixtures/torch_images.lua,
-- written by torch_images.py beside it): results and all gradients in f64, of methods and of layers, and the losses of
-- a small network. Then checks what the fixture does not have: arguments, initial values, what is recorded.
local helper = require 'spec.helper'
local wane = helper.wane
local gradcheck = require 'spec.support.gradcheck'
local native = require 'spec.support.native'
local op = require 'wane.tensor.op'

local nn = wane.nn
local fixture = dofile(helper.root .. '/spec/fixtures/torch_images.lua')
local TOLERANCE = 1e-10

-- Returns the numbers sin(k + shift) / 2, k from 1, as a tensor of a shape.
local function waves(shift, shape, opts)
    local n, list = 1, {}
    for _, d in ipairs(shape) do n = n * d end
    for k = 1, n do list[k] = math.sin(k + shift) / 2 end
    local t = wane.tensor(list, { dtype = 'f64' }):reshape(shape)
    if not opts then return t end
    local leaf = wane.zeros(shape, { dtype = 'f64', requires_grad = true })
    leaf:assign(t)
    return leaf
end

-- Returns the four numbers that the fixture has of a tensor.
local function digest(t)
    local values, a, b = gradcheck.values(t), 0, 0
    for k, v in ipairs(values) do
        a, b = a + v * math.cos(k), b + v * math.sin(1.5 * k)
    end
    return { a, b, values[1], values[#values] }
end

local function near(want, got, what) gradcheck.near(want, got, TOLERANCE, what) end

local function dims(t) return { unpack(t.shape) } end

-- Compares y and the gradients of the leaves with a row of the fixture.
local function compare(row, y, leaves)
    assert.same(row.shape, dims(y))
    near(row.y, digest(y), 'result');
    (y * waves(0.25, row.shape)):sum():backward()
    for k, leaf in ipairs(leaves) do
        assert.same(dims(leaf), dims(leaf.grad))
        near(row.grads[k], digest(leaf.grad), 'gradient ' .. k)
        leaf.grad = nil
    end
    assert.equal(#row.grads, #leaves)
end

describe('what PyTorch computes of images, and its gradients:', function()
    for _, row in ipairs(fixture.ops) do
        it((row.name:gsub('%s+', ' ')), function()
            local operands = {}
            for k, shape in ipairs(row.shapes) do operands[k] = waves(k - 1, shape, true) end
            compare(row, row.call(unpack(operands)), operands)
        end)
    end

    for _, row in ipairs(fixture.layers) do
        it((row.name:gsub('%s+', ' ')), function()
            local layer, x = row.make(nn), waves(0, row.x, true)
            local leaves = { x }
            for k, p in ipairs(layer:parameters()) do
                p:assign(waves(k, p.shape))
                leaves[k + 1] = p
            end
            compare(row, layer(x), leaves)
        end)
    end

    it('ties, a NaN, infinities and padding in a maximum', function()
        local nan, inf = 0 / 0, 1 / 0
        for _, row in ipairs(fixture.slopes) do
            local x = wane.zeros(1, 1, 6, 4, { dtype = 'f64', requires_grad = true })
            x:assign(wane.tensor({ { { { 1, 1, 2, 2 }, { 1, 1, 2, 3 }, { nan, 1, 4, 4 }, { 2, 1, 4, nan },
                { -1, -2, -inf, -inf }, { -3, -1, -inf, -inf } } } }, { dtype = 'f64' }))
            local y = row.call(x)
            near(row.y, gradcheck.values(y), 'result');
            (y * waves(0.25, dims(y))):sum():backward()
            near(row.dx, gradcheck.values(x.grad), 'gradient')
        end
    end)
end)

describe('layers of images', function()
    local function refused(words, fn, ...)
        local arguments = { ... }
        local why = helper.refused(nil, function() fn(unpack(arguments)) end, words)
        assert.is_true(wane.errors.is(why), tostring(why))
        assert.is_truthy(tostring(why.where):find('image_spec', 1, true), tostring(why.where))
    end

    local function images(...) return wane.randn(...) end

    -- Returns how many nodes of each op a function records.
    local function ops_of(fn)
        local counts = {}
        for _, node in ipairs(wane.plan(fn).parts[1].program:graph()) do
            if node.phase == 'forward' then counts[node.op] = (counts[node.op] or 0) + 1 end
        end
        return counts
    end

    it('lower the loss as PyTorch does', function()
        local f64 = { dtype = 'f64' }
        local function with(opts)
            opts.dtype = 'f64'
            return opts
        end
        local net = nn.Sequential { nn.Conv2d(3, 16, 3, with { padding = 1 }), nn.GroupNorm(4, 16, f64), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(16, 16, 3, with { stride = 2, padding = 1 }), nn.ReLU(),
            nn.ConvTranspose2d(16, 8, 2, with { stride = 2 }), nn.Upsample { scale = 2 }, nn.AvgPool2d(2),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5, f64) }
        for k, p in ipairs(net:parameters()) do p:assign(waves(k, p.shape)) end
        local x, labels = waves(0.5, { 4, 3, 8, 8 }):retain(), wane.tensor({ 0, 1, 2, 3 }, { dtype = 'i32' })
        local opt, losses = wane.optim.SGD(net:parameters(), { lr = 0.02 }), {}
        for k = 1, 4 do losses[k] = opt:step(nn.cross_entropy(net(x), labels)):item() end
        near(fixture.losses, losses, 'loss')
    end)

    it('start uniform in +-1/sqrt(fan-in)', function()
        wane.manual_seed(4)
        for _, row in ipairs { { nn.Conv2d(8, 32, 3), { 32, 8, 3, 3 }, 72 },
            { nn.Conv2d(8, 32, { 1, 3 }, { groups = 4 }), { 32, 2, 1, 3 }, 6 },
            { nn.ConvTranspose2d(16, 8, 3, { groups = 2 }), { 16, 4, 3, 3 }, 36 } } do
            local layer, bound = row[1], 1 / math.sqrt(row[3])
            assert.same(row[2], dims(layer.weight))
            assert.same({ layer.n_out }, dims(layer.bias))
            local most = layer.weight:abs():max():item()
            assert.is_true(most < bound * 1.000001 and most > 0.95 * bound, most)
            assert.is_true(layer.bias:abs():max():item() < bound)
        end
        assert.is_nil(nn.Conv2d(2, 2, 1, { bias = false }).bias)
    end)

    it('take initial values by the fans of 4 dims', function()
        wane.manual_seed(5)
        local w = nn.Conv2d(8, 32, 3).weight
        local most = nn.init.kaiming_uniform(w):abs():max():item()
        assert.is_true(most < math.sqrt(6 / 72) and most > 0.99 * math.sqrt(6 / 72), most)
        most = nn.init.xavier_uniform(w):abs():max():item()
        assert.is_true(most < math.sqrt(6 / 360) and most > 0.99 * math.sqrt(6 / 360), most)
        local mean = (nn.init.kaiming_normal(w, { mode = 'fan_out' }) ^ 2):mean():item()
        assert.is_true(math.abs(mean / (2 / 288) - 1) < 0.1, mean)
        refused("mode must be 'fan_in' or 'fan_out', got 'out'", nn.init.kaiming_normal, w, { mode = 'out' })
    end)

    it('show their sizes', function()
        assert.equal('Conv2d(3, 16, {3, 5}, stride = 2, padding = {2, 4}, dilation = 2)', tostring(nn.Conv2d(3, 16,
            { 3, 5 }, { stride = 2, dilation = 2, padding = { 2, 4 } })))
        assert.equal('Conv2d(4, 4, 3, padding = 1, groups = 4, bias = false)', tostring(nn.Conv2d(4, 4, 3,
            { padding = 'same', groups = 4, bias = false })))
        assert.equal('Conv2d(4, 4, 3)', tostring(nn.Conv2d(4, 4, 3, { padding = 'valid' })))
        assert.equal('ConvTranspose2d(4, 2, 3, stride = 2, output_padding = 1)', tostring(nn.ConvTranspose2d(4, 2, 3,
            { stride = 2, output_padding = 1 })))
        assert.equal('MaxPool2d(3, stride = 2, padding = 1)', tostring(nn.MaxPool2d(3, { stride = 2, padding = 1 })))
        assert.equal('AvgPool2d({2, 3}, ceil_mode = true)', tostring(nn.AvgPool2d({ 2, 3 }, { ceil_mode = true })))
        assert.equal('AdaptiveAvgPool2d({2, 3})', tostring(nn.AdaptiveAvgPool2d { 2, 3 }))
        assert.equal("Upsample(scale = 2, mode = 'nearest')", tostring(nn.Upsample { scale = 2 }))
        assert.equal("Upsample(size = {4, 5}, mode = 'bilinear', align_corners = true)", tostring(nn.Upsample {
            size = { 4, 5 }, mode = 'bilinear', align_corners = true }))
        assert.equal('GroupNorm(2, 4, eps = 0.1, affine = false)', tostring(nn.GroupNorm(2, 4,
            { eps = 0.1, affine = false })))
    end)

    -- Element (h, k) of image and kernel adds to row h stride + k dilation - padding of the result, as columns do.
    it('transposed, take an output padding below the stride or the dilation, as PyTorch does', function()
        local H, K = 4, 3
        for stride = 1, 3 do
            for dilation = 1, 4 do
                for padding = 0, 2 do
                    for more = 0, math.max(stride, dilation) - 1 do
                        local x = wane.randn(1, 1, H, 1, { dtype = 'f64', requires_grad = true }):retain()
                        local w = wane.randn(1, 1, K, 1, { dtype = 'f64' }):retain()
                        local size = (H - 1) * stride - 2 * padding + dilation * (K - 1) + more + 1
                        local want, slope, xs, ws = {}, {}, x:reshape(-1):totable(), w:reshape(-1):totable()
                        for r = 1, size do want[r] = 0 end
                        for h = 1, H do
                            slope[h] = 0
                            for k = 1, K do
                                local r = (h - 1) * stride + (k - 1) * dilation - padding + 1
                                if want[r] then want[r] = want[r] + xs[h] * ws[k] end
                                if want[r] then slope[h] = slope[h] + ws[k] * r end
                            end
                        end
                        local y = x:conv_transpose2d(w, { stride = { stride, 1 }, dilation = { dilation, 1 },
                            padding = { padding, 0 }, output_padding = { more, 0 } })
                        local g = wane.grad((y:reshape(-1) * wane.arange(1, size + 1, 1, { dtype = 'f64' })):sum(), x)
                        local have, got = y:reshape(-1):totable(), g:reshape(-1):totable()
                        assert.equal(size, #have)
                        for r = 1, size do assert.is_true(math.abs(want[r] - have[r]) < 1e-12) end
                        for h = 1, H do assert.is_true(math.abs(slope[h] - got[h]) < 1e-11) end
                    end
                end
            end
        end
    end)

    it('refuse sizes that are none, at the line of the script', function()
        local x, w = images(1, 4, 6, 6), images(8, 4, 3, 3)
        refused('conv2d: stride must be an integer from 1 to 1048575, or two of them, {rows, columns}, got 0', x.conv2d,
            x, w, { stride = 0 })
        refused('conv2d: padding must be an integer from 0', x.conv2d, x, w, { padding = { 1, 2, 3 } })
        refused('conv2d: dilation must be', x.conv2d, x, w, { dilation = 2 ^ 31 })
        refused('conv2d: groups must be', x.conv2d, x, w, { groups = { 1, 1 } })
        refused("unknown option 'pading'; did you mean 'padding'?", x.conv2d, x, w, { pading = 1 })
        refused('conv2d: weight: expected a tensor, got nil', x.conv2d, x)
        refused('conv2d: bias: expected a tensor, got 3', x.conv2d, x, w, 3)
        refused("padding 'same' needs stride 1, got {1, 2}", nn.Conv2d, 4, 8, 3, { padding = 'same',
            stride = { 1, 2 } })
        refused("padding 'same' needs an odd kernel, got 2 x 3", nn.Conv2d, 4, 8, { 2, 3 }, { padding = 'same' })
        refused("padding must be a number, {rows, columns}, 'same' or 'valid', got 'full'", nn.Conv2d, 4, 8, 3,
            { padding = 'full' })
        refused('nn.Conv2d: 4 inputs do not divide into 3 groups', nn.Conv2d, 4, 6, 3, { groups = 3 })
        refused('nn.ConvTranspose2d: 8 outputs do not divide into 3 groups', nn.ConvTranspose2d, 6, 8, 3,
            { groups = 3 })
        refused('nn.Conv2d: kernel must be', nn.Conv2d, 4, 6)
        refused('output_padding 3 given, expected less than the stride 2 or the dilation 3', x.conv_transpose2d, x,
            images(4, 3, 2, 2), { stride = 2, output_padding = 3, dilation = 3 })
        refused('output_padding 2 given, expected less than the stride 2', x.conv_transpose2d, x, images(4, 3, 2, 2),
            { stride = 2, output_padding = 2 })
        refused('conv_transpose2d: the image would have -3 rows', x.conv_transpose2d, x, images(4, 3, 2, 2),
            { padding = { 5, 0 } })
        refused('the weight is for 8 input channels, the image has 4', x.conv_transpose2d, x, w)
        refused('the bias is (4) f32, expected (3)', x.conv_transpose2d, x, images(4, 3, 2, 2), images(4))
        refused('add the batch with :unsqueeze(1)', x.conv_transpose2d, images(4, 6, 6), images(4, 3, 2, 2))
        refused('ceil_mode must be true or false, got 1', nn.MaxPool2d, 2, { ceil_mode = 1 })
        refused('avg_pool2d: kernel must be', x.avg_pool2d, x)
        refused('expected a size or a scale, got neither', x.upsample, x, {})
        refused('expected a size or a scale, got both', nn.Upsample, { size = 2, scale = 2 })
        refused("mode must be 'nearest' or 'bilinear', got 'cubic'", nn.Upsample, { scale = 2, mode = 'cubic' })
        refused("align_corners belongs to mode 'bilinear'", nn.Upsample, { scale = 2, align_corners = true })
        refused('scale must be a number above 0', x.upsample, x, { scale = { 2, -1 } })
        refused('scale 0.1 makes an image of 0 rows', x.upsample, x, { scale = 0.1 })
        refused('expected a list of two numbers a dim', x.pad, x, { 1 })
        refused('for at most the 4 dims', x.pad, x, { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 })
        refused('cut with t:narrow', x.pad, x, { 1, -1 })
        refused('pad: only zeros are added in this version, got 2', x.pad, x, { 1, 1 }, 2)
        refused('nn.GroupNorm: 4 channels do not divide into 3 groups', nn.GroupNorm, 3, 4)
        refused('group_norm: expected (batch, 8, ...), got (1, 4, 6, 6) f32', nn.GroupNorm(2, 8), x)
    end)

    for _, name in ipairs { 'conv2d', 'max_pool2d', 'avg_pool2d', 'adaptive_avg_pool2d', 'upsample' } do
        it(('refuse an image without its batch, and say how to add it: %s'):format(name), function()
            local more = { conv2d = images(8, 4, 3, 3), upsample = { scale = 2 } }
            local x = images(4, 6, 6)
            refused('add the batch with :unsqueeze(1)', x[name], x, more[name] or 2)
        end)
    end

    it('keep the places of largest elements only where a gradient may flow', function()
        local x = images(1, 2, 4, 4, { requires_grad = true })
        local pool = nn.MaxPool2d(2)
        assert.equal(1, ops_of(function() return pool(x):sum() end).max_pool2d_index)
        assert.is_nil(ops_of(function() return pool(x:detach()):sum() end).max_pool2d_index)
        assert.is_nil(ops_of(function() return wane.no_grad(function() return pool(x):sum() end) end).max_pool2d_index)
        assert.is_nil(ops_of(function() return images(1, 2, 4, 4):max_pool2d(2):sum() end).max_pool2d_index)
        assert.is_false(wane.no_grad(function() return pool(x) end).requires_grad)
        assert.is_true(pool(x).requires_grad)
    end)

    it('change the order of an image in memory once, where it comes in', function()
        local net = nn.Sequential { nn.GroupNorm(1, 3), nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.ReLU(),
            nn.MaxPool2d(2), nn.ConvTranspose2d(16, 16, 2), nn.Upsample { scale = 2 }, nn.AvgPool2d(2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4) }
        local x = images(2, 3, 8, 8)
        local counts = ops_of(function() return net(x):sum() end)
        assert.equal(1, counts.relayout)
        assert.equal(2, counts.batch_norm)
        assert.is_nil(ops_of(function() return images(2, 1, 4, 4):max_pool2d(2):sum() end).relayout)
    end)

    it('compute in bf16 inside autocast, norms in f32', function()
        local x, bias = images(1, 16, 4, 4), images(8)
        local conv, up, norm = nn.Conv2d(16, 8, 3), nn.ConvTranspose2d(16, 8, 2), nn.GroupNorm(2, 16)
        wane.autocast('bf16', function()
            assert.equal('bf16', conv(x).dtype)
            assert.equal('bf16', up(x).dtype)
            assert.equal('bf16', x:conv2d(images(8, 16, 1, 1), bias).dtype)
            assert.equal('f32', norm(x:to 'bf16').dtype)
            assert.equal('bf16', conv(x):max_pool2d(2).dtype)
        end)
    end)

    it('have the same weights after model:to, state_dict and a file', function()
        local a, b = nn.Sequential { nn.Conv2d(3, 32, 3) }, nn.Sequential { nn.Conv2d(3, 32, 3, { layout = 'plain' }) }
        b:load_state_dict(a:state_dict())
        local x = images(1, 3, 5, 5):retain()
        assert.same(a(x):totable(), b(x):totable())
        local path = os.tmpname()
        wane.save(path, a)
        nn.init.zeros(b[1].weight)
        wane.load(path, b)
        os.remove(path)
        assert.same(a[1].weight:totable(), b[1].weight:totable())
        a:to 'f64':to 'f32'
        assert.same(a[1].weight:totable(), b[1].weight:totable())
    end)
end)

describe("PyTorch's bytes of images", function()
    local p = wane.randn(2, 4, 16, 16, { requires_grad = true }) -- 8192 bytes

    local function account(fn)
        return wane.plan(fn):pytorch { torch = '1.10', hold = { 'inputs', 'loss' } }
    end

    it('have one result of a padding of several dims, and none that is kept', function()
        local at = account(function() return p:pad({ 1, 1, 1, 1 }):sum() end)
        assert.equal(8192 + 10752 + 512, at.peak_forward) -- p, (2, 4, 18, 18), the sum
        assert.equal(8192 + 512, at.after_forward)
        at = account(function() return p:pad({ 1, 1 }):pad({ 1, 1 }):sum() end)
        assert.equal(8192 + 9216 + 10240, at.peak_forward) -- p, (2, 4, 16, 18), (2, 4, 16, 20)
    end)

    it('have indices of a maximum while it is computed, and keep them where a gradient needs them', function()
        local at = account(function() return p:max_pool2d(2):sum() end)
        assert.equal(8192 + 4096 + 512, at.after_forward) -- p, an int64 a window, the sum
        local q = wane.zeros(1, { requires_grad = true })
        local x = wane.eval(wane.randn(2, 4, 16, 16))
        at = account(function() return (x:max_pool2d(2):sum() * q):sum() end)
        assert.equal(512 + 8192 + 2048 + 4096, at.peak_forward) -- q, x, the result, its indices
    end)

    it('have one result of a transposed convolution with its bias', function()
        local w, b = wane.randn(4, 4, 1, 1), wane.randn(4)
        wane.eval(w, b)
        local at = account(function() return p:conv_transpose2d(w, b):sum() end)
        assert.equal(8192 + 512 + 512 + 8192 + 512, at.peak_forward) -- p, w, b, the result, the sum
    end)
end)

describe('wane.chunked over images', function()
    local x = wane.randn(5, 8, 6, 6):retain()

    it('takes the batch in pieces', function()
        local o = { padding = 1 }
        local net = nn.Sequential { nn.Conv2d(8, 16, 3, o), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2),
            nn.ConvTranspose2d(16, 8, 2, { stride = 2 }), nn.Upsample { scale = 2, mode = 'bilinear' },
            nn.AvgPool2d(2), nn.AdaptiveAvgPool2d({ 2, 3 }), nn.Flatten(), nn.Linear(48, 4) }
        local function fn(v) return net(v:pad { 1, 0, 0, 1 }) end
        assert.same(fn(x):totable(), wane.chunked(fn, x, { size = 2 }):totable())
    end)

    it('refuses channels, rows and columns, and names the op', function()
        local conv = nn.Conv2d(8, 8, 3)
        local function pool(v) return (v * conv.bias:sum()):max_pool2d(2) end
        local function means(v) return op.record('channel_mean', { v }, { n = 1, i = { 0 } }) end
        for name, fn in pairs { conv2d = conv, max_pool2d_index = pool, avg_pool2d = nn.AvgPool2d(2),
            upsample2d = nn.Upsample { scale = 2 }, channel_mean = nn.GroupNorm(2, 8) } do
            for dim = 2, 4 do
                helper.refused(nil, function() wane.chunked(fn, x, { dim = dim, size = 2 }) end,
                    ('wane.chunked: %s ('):format(name))
            end
        end
        helper.refused(nil, function() wane.chunked(means, x, { size = 2 }) end, 'channel_mean',
            'averages over all rows')
    end)
end)

require('ffi').cdef 'int64_t prefetched_behind(int64_t columns);'

it('micro-tiles of Winograd prefetch no line behind the transformed weight', function()
    local library = native.load('prefetches.so', 'gcc -std=c11 -D_GNU_SOURCE -w -O1 -shared -fPIC -ffunction-sections '
        .. '-fvisibility=hidden -Wl,--gc-sections -Wl,-z,defs -DWN_CPU_CLASS=plain -o %s spec/support/prefetches.c')
    for columns = 32, 160, 16 do assert.equal(0, tonumber(library.prefetched_behind(columns)), columns) end
end)
