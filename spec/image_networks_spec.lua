-- Checks images whose channels are last in memory (WN_NHWC in runtime/base/layout.h): a value of that layout is read,
-- differentiated and recomputed as the plain value of the same numbers is, by every op, and a script can see the layout
-- by counting nodes alone. Then trains random networks over images (spec/support/image_networks.lua) under every kind
-- of policy: parameters, running statistics and the bytes of a step must be what they are when everything is saved, bit
-- by bit, and what the plan predicts, to the byte. Then compares whole models with PyTorch.
local helper = require 'spec.helper'
local networks = require 'spec.support.networks'
local wane = helper.wane or require 'wane'
local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local op = require 'wane.tensor.op'
local tensor = require 'wane.tensor'
local gradcheck = require 'spec.support.gradcheck'
local image_networks = require 'spec.support.image_networks'
local measure = require 'wane.plan.measure'
local programs = require 'spec.support.programs'
local split = require('spec.support.rewrites').split

local lib, nn, policy = binding.C, wane.nn, wane.policy
local PLAIN, NHWC, CONV48 = 0, 2, 3
local N, C, H, W = 2, 3, 4, 5
local MIRROR = op.device('mirror', 'spec')

local function leaf(seed, ...)
    wane.manual_seed(seed)
    return nn.Parameter(wane.randn(...), 'x')
end

-- Functions of images x and z (N, C, H, W), and of smaller operands: w (C, 1, 1), v (N, 1, 1, 1), u (H, W),
-- t (C, H, W). exact = false: sums, which add in the order of memory.
local cases = {
    { 'elementwise, one operand', function(o) return o.x:relu() + o.x:exp():tanh():clamp(-1, 2) end },
    { 'two images', function(o) return o.x * o.z - o.x / (o.z ^ 2 + 1) end },
    { 'an image and a plain one', function(o) return o.x * o.plain + o.plain end },
    { 'numbers', function(o) return 3 - o.x * 2 end },
    { 'an operand a channel', function(o) return o.x * o.w + o.w end, false },
    { 'an operand of four dims a channel', function(o) return o.x * o.w:reshape(1, C, 1, 1) end, false },
    { 'an operand an image', function(o) return o.v * o.x end, false },
    { 'an operand a pixel', function(o) return o.x + o.u end, false },
    { 'an operand without images', function(o) return o.x * o.t end, false },
    { 'comparisons and where', function(o) return wane.where(o.x:gt(o.z), o.x, o.z * 2) end },
    { 'maximum', function(o) return o.x:maximum(o.z) end },
    { 'a cast and back', function(o) return o.x:to 'bf16':to 'f32' * o.z end },
    { 'cat of channels', function(o) return wane.cat({ o.x, o.z, o.plain }, 2) ^ 2 end },
    { 'cat of images', function(o) return wane.cat({ o.x, o.plain }, 1) ^ 2 end },
    { 'cat of rows', function(o) return wane.cat({ o.z, o.x }, 3) ^ 2 end },
    { 'cat of many', function(o)
        local list = {}
        for k = 1, 11 do list[k] = k % 2 == 0 and o.x or o.plain end
        return wane.cat(list, 4) ^ 2
    end, false },
    { 'narrow of channels', function(o) return o.x:narrow(2, 2, 2) * 3 end },
    { 'narrow to one channel', function(o) return o.x:narrow(2, 2, 1) * 3 end },
    { 'narrow of rows', function(o) return o.x:narrow(3, 2, 2) ^ 2 end },
    { 'narrow to one pixel', function(o) return o.x:narrow(3, 2, 1):narrow(4, 3, 1) ^ 2 end },
    { 'narrow of images', function(o) return o.x:narrow(1, 2, 1) ^ 2 end },
    { 'sum of all', function(o) return o.x:sum() end, false },
    { 'sums a channel', function(o) return (o.x:sum(1, { keepdim = true }) ^ 2):sum() end, false },
    { 'mean of pixels', function(o) return o.x:mean(4):mean(3) ^ 2 end, false },
    { 'sum of channels', function(o) return o.x:sum(2) ^ 2 end, false },
    { 'sum of rows', function(o) return o.x:sum(3, { keepdim = true }) ^ 2 end, false },
    { 'max of pixels', function(o) return o.x:max(3) end },
    { 'softmax of channels', function(o) return o.x:softmax(2) end },
    { 'softmax of columns', function(o) return o.x:log_softmax(4) end },
    { 'permute', function(o) return o.x:permute(1, 3, 4, 2) * 2 end },
    { 'transpose', function(o) return o.x:permute(2, 1, 4, 3) * 2 end },
    { 'reshape', function(o) return (o.x:reshape(N * C, H * W) * 2):softmax(2) end },
    { 'flatten', function(o) return o.x:flatten(2) ^ 2 end },
    { 'a product', function(o) return o.x:matmul(o.z:permute(1, 2, 4, 3)) end },
    { 'padding', function(o) return o.x:pad { 1, 2, 0, 1 } * 2 end },
    { 'expand', function(o) return o.x:narrow(3, 1, 1):narrow(4, 1, 1):expand(N, C, H, W) * o.z end, false },
    { 'dropout', function(o)
        wane.manual_seed(5)
        return nn.Dropout(0.5)(o.x) * o.z
    end },
    { 'max pooling', function(o) return o.x:max_pool2d(2) * 2 end },
    { 'mean pooling', function(o) return o.x:avg_pool2d { 2, 3 } * 2 end },
}

local SMALL = { w = { C, 1, 1 }, v = { N, 1, 1, 1 }, u = { H, W }, t = { C, H, W } }

-- Returns value and gradients of a case, with images in a layout, as raw bytes, or as lists of numbers.
local function read_case(case, layout, read, how)
    local leaves = { x = leaf(1, N, C, H, W), z = leaf(2, N, C, H, W), plain = leaf(3, N, C, H, W) }
    local k = 3
    for name, dims in pairs(SMALL) do
        k = k + 1
        leaves[name] = leaf(#name + dims[1], unpack(dims))
    end
    local o = setmetatable({ x = create.laid(leaves.x * 1, layout), z = create.laid(leaves.z * 1, layout) },
        { __index = leaves })
    local y = case[2](o)
    local out = { read(y) }
    wane.manual_seed(9)
    local weights = wane.randn(unpack(y.shape))
    o.x = nil
    ;(y * weights):sum():backward { policy = how }
    for _, name in ipairs { 'x', 'z', 'plain', 'w', 'v', 'u', 't' } do
        local g = leaves[name].grad
        out[#out + 1] = g and read(g) or 'none'
    end
    return out
end

describe('an image with channels last', function()
    for _, case in ipairs(cases) do
        it('is read as a plain one: ' .. case[1], function()
            local exact = case[3] ~= false
            local read = exact and gradcheck.bytes or gradcheck.values
            local plain, last = read_case(case, PLAIN, read), read_case(case, NHWC, read)
            for k = 1, #plain do
                if exact or plain[k] == 'none' then
                    assert(plain[k] == last[k], ('part %d has other bits'):format(k))
                else
                    local wrong = gradcheck.differ(last[k], plain[k], 1e-5)
                    assert(not wrong, wrong)
                end
            end
            local again = read_case(case, NHWC, read, 'recompute_all')
            for k = 1, #last do assert.are.same(last[k], again[k]) end
        end)
    end

    it('is read and written by parts, in every order of parts', function()
        for _, dims in ipairs { { 2, 3, 4, 5 }, { 1, 70, 3, 3 }, { 3, 17000, 2, 1 } } do
            wane.manual_seed(4)
            local x = wane.randn(unpack(dims)):retain()
            local want = gradcheck.bytes(x)
            local cell = nn.Parameter(create.laid(x, NHWC), 'x')
            assert.equal(NHWC, create.layout(cell))
            assert(gradcheck.bytes(cell) == want, 'other elements than the plain value')
            local moved = tensor.wrap(binding.id(lib.wn_cell_move(cell.id, MIRROR, NHWC)))
            assert(gradcheck.bytes(moved) == want, 'other elements on another device')
            moved = tensor.wrap(binding.id(lib.wn_cell_move(cell.id, MIRROR, PLAIN)))
            assert(gradcheck.bytes(moved) == want, 'other elements in another layout')
        end
    end)

    it('is chosen for a sum over a dim that the image has not, which is refused then', function()
        local x, attrs = create.laid(wane.randn(N, C, H, W), NHWC), binding.new 'struct wn_attrs'
        for _, dim in ipairs { -1, 4, 1e6, 2 ^ 40 } do
            attrs.n, attrs.i[0] = 1, dim
            assert.is_true(lib.wn_record(lib.wn_op_id 'sum', 1, binding.handles(1, { x.id }), attrs, 0) < 0)
        end
    end)

    it('is plain where both orders are one', function()
        for _, dims in ipairs { { 4, 1, 3, 3 }, { 4, 5, 1, 1 }, { 0, 3, 2, 2 } } do
            assert.equal(PLAIN, create.layout(create.laid(wane.randn(unpack(dims)), NHWC)))
        end
        local m = nn.Sequential(nn.Conv2d(3, 16, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))
        local x = wane.randn(2, 3, 8, 8):retain()
        local moves = {}
        for _, step in ipairs(wane.plan(function() return m(x):sum():backward() end):schedule()) do
            if step.what == 'run' and step.op == 'relayout' then moves[#moves + 1] = step.op end
        end
        assert.equal(1, #moves) -- the image that comes in
    end)
end)

describe('a convolution', function()
    it('has weights in panels, whose gradients and states are in panels too, and a plain one where told', function()
        local a, PANELS = nn.Conv2d(3, 32, 3), helper.device == 'cpu' and CONV48 or PLAIN -- a GPU has none
        assert.equal(PANELS, create.layout(a.weight))
        assert.equal(PLAIN, create.layout(nn.Conv2d(3, 20, 3).weight))
        assert.equal(PLAIN, create.layout(nn.Conv2d(3, 32, 3, { layout = 'plain' }).weight))
        a(wane.randn(2, 3, 8, 8)):sum():backward()
        assert.equal(PANELS, create.layout(a.weight.grad))
        local bits = {}
        for k, layout in ipairs { false, 'plain' } do
            wane.manual_seed(2)
            local b = nn.Conv2d(5, 48, { 3, 2 }, { layout = layout or nil })
            local x = wane.randn(2, 5, 7, 6):retain()
            local y = b(x)
            bits[k] = gradcheck.bytes(b.weight) .. gradcheck.bytes(y)
            ;(y ^ 2):sum():backward()
            bits[k] = bits[k] .. gradcheck.bytes(b.weight.grad) .. gradcheck.bytes(b.bias.grad)
        end
        assert(bits[1] == bits[2], 'panels change bits')
    end)
end)

-- ---- random networks ------------------------------------------------------------------------------------------------

local SEEDS = 10
if helper.is_long then SEEDS = 30 end

-- Ways to write a step: function(net, loss of the whole step) -> loss. A way that does not suit a network says so by
-- the error that is named here.
local WAYS = {
    ['recompute_all'] = function(net) return net.optimizer:step(net.loss(), { policy = 'recompute_all' }) end,
    ['the least bytes'] = function(net) return net.optimizer:step(net.loss(), { policy = 'least' }) end,
    ['norms and relu again'] = function(net)
        return net.optimizer:step(net.loss(), { policy = policy.compose(
            policy.by_type { BatchNorm2d = 'recompute', optional = true },
            policy.by_op { relu = 'recompute', optional = true }) })
    end,
    ['a third each'] = function(net)
        return net.optimizer:step(net.loss(), { policy = function(r)
            local word = ({ 'save', 'recompute', 'offload' })[r.index % 3 + 1]
            return word == 'offload' and r.bytes < 4096 and 'save' or word -- less than a page is not moved
        end })
    end,
    ['half the way to the least'] = function(net)
        return net.optimizer:step(net.loss(), { budget = net.middle })
    end,
    ['three lines'] = function(net)
        net.optimizer:zero_grad()
        local loss = net.loss()
        loss:backward { policy = 'recompute_all' }
        net.optimizer:step()
        return loss
    end,
}

local function fingerprint(model)
    local list = {}
    for _, p in model:named_parameters() do list[#list + 1] = measure.fingerprint { p } end
    for _, b in model:named_buffers() do list[#list + 1] = measure.fingerprint { b } end
    return table.concat(list, ' ')
end

-- Returns the fingerprint after two steps, each planned before and run under a limit of the bytes predicted.
local function trained(seed, way)
    collectgarbage()
    collectgarbage()
    local before = networks.clean()
    local net = image_networks.make(seed)
    local what = ('network %d: %s'):format(seed, table.concat(net.kinds, ', '))
    local function plain() return net.optimizer:step(net.loss()) end
    local function step() return way(net) end
    net.middle = math.floor((wane.min_budget(plain) + wane.plan(plain).reserved) / 2)
    for k = 1, 2 do networks.as_planned(step, before, ('%s, step %d'):format(what, k)) end
    return fingerprint(net.model), what
end

describe('random networks over images', function()
    local saved = {}
    lazy_setup(function()
        for seed = 1, SEEDS do
            saved[seed] = trained(seed, function(net) return net.optimizer:step(net.loss()) end)
        end
    end)

    for name, way in pairs(WAYS) do
        it('train to the same bits in the bytes predicted: ' .. name, function()
            for seed = 1, SEEDS do
                local bits, what = trained(seed, way)
                assert(bits == saved[seed], what .. ': other bits than with everything saved')
            end
        end)
    end

    it('give the bits of separate ops in evaluation, in the bytes predicted', function()
        local fused = 0
        for seed = 1, 3 * SEEDS do
            local net = image_networks.make(seed)
            local what = ('network %d: %s'):format(seed, table.concat(net.kinds, ', '))
            net.optimizer:step(net.loss())
            net.model:eval()
            local function run()
                wane.manual_seed(seed) -- some dropouts are no part of the model
                local out = wane.no_grad(net.logits)
                return programs.run { mode = 'eval', roots = { out } }, measure.fingerprint { out }
            end
            local _, apart = split(run)
            local p, bits = run()
            for _, made in ipairs(programs.schedule(p)) do
                if made.op and made.op:find('conv2d+batch_norm', 1, true) then fused = fused + 1 end
            end
            assert(bits == apart, what .. ': other bits')
            assert(p.predicted.peak == p.measured.peak and p.predicted.reserved == p.measured.reserved,
                ('%s: held %d bytes, predicted %d'):format(what, p.measured.peak, p.predicted.peak))
        end
        assert.is_true(fused > SEEDS / 2, fused .. ' norms over convolutions')
    end)

    it('of which several differ in every step', function()
        local distinct = {}
        for seed = 1, SEEDS do distinct[saved[seed]] = true end
        local n = 0
        for _ in pairs(distinct) do n = n + 1 end
        assert.equal(SEEDS, n)
    end)
end)

-- ---- models of the zoo ----------------------------------------------------------------------------------------------
-- Compares a training step of small models of examples/zoo over images with PyTorch's (spec/fixtures/torch_models.lua,
-- written by torch_models.py beside it, which says what the numbers are): loss, every gradient, every updated
-- parameter, running statistics, and the logits in evaluation, in f64 within 1e-10; with each block recomputed too.

local resnet, vit = require 'wane.zoo.resnet', require 'wane.zoo.vit'
local unet, cnn100 = require 'wane.zoo.unet', require 'wane.zoo.cnn100'
local optim = wane.optim
local zoos = { resnet = resnet, vit = vit, unet = unet, cnn100 = cnn100 }
local fixture = dofile(helper.root .. '/spec/fixtures/torch_models.lua')
local TOLERANCE = 1e-10

local function sgd(p) return optim.SGD(p, { lr = 0.1, momentum = 0.9, weight_decay = 1e-3 }) end
local function adamw(p) return optim.AdamW(p, { lr = 0.01, weight_decay = 0.1 }) end
local function adam(p) return optim.Adam(p, { lr = 0.01 }) end

local function options(o)
    o.dtype = 'f64'
    return o
end

local models = {
    ['resnet basic'] = { shape = { 3, 3, 10, 10 }, classes = 5, optimizer = sgd, new = function(region)
        return resnet.new({ block = 'basic', layers = { 1, 1 }, width = 6, stem = 'small' },
            options { classes = 5, region = region })
    end },
    ['resnet bottleneck'] = { shape = { 2, 3, 24, 24 }, classes = 5, optimizer = sgd, new = function(region)
        return resnet.new({ block = 'bottleneck', layers = { 1, 1 }, width = 4, stem = 'image' },
            options { classes = 5, region = region })
    end },
    vit = { shape = { 3, 3, 8, 8 }, classes = 5, optimizer = adamw, new = function(region)
        return vit.new({ size = 8, patch = 4, layers = 2, heads = 2, d = 12, mlp = 20 },
            options { classes = 5, region = region })
    end },
    ['unet transpose'] = { shape = { 2, 3, 12, 8 }, classes = 3, dense = true, optimizer = adam, new = function(region)
        return unet.new({ width = 4, stages = 3 }, options { classes = 3, region = region })
    end },
    ['unet bilinear'] = { shape = { 2, 3, 8, 8 }, classes = 3, dense = true, optimizer = sgd, new = function(region)
        return unet.new({ width = 4, stages = 3 }, options { classes = 3, up = 'bilinear', region = region })
    end },
    cnn100 = { shape = { 2, 1, 28, 28 }, classes = 10, optimizer = sgd, new = function()
        return cnn100.new({ width = 6, layers = 8 }, options {})
    end },
}

-- Returns the name that PyTorch has: lists count from 0.
local function torch_name(name)
    return (name:gsub('%.(%d+)%f[%.]', function(n) return '.' .. n - 1 end))
end

local function numel(shape)
    local n = 1
    for _, d in ipairs(shape) do n = n * d end
    return n
end

-- Returns a tensor of a shape whose element i is f(i), i from 0.
local function filled(shape, f, dtype)
    local list = {}
    for i = 1, numel(shape) do list[i] = f(i - 1) end
    return wane.tensor(list, { dtype = dtype }):reshape(shape)
end

-- Returns the two sums that the fixture keeps of a tensor.
local function sums(t)
    local a, b = 0, 0
    for i, v in ipairs(gradcheck.values(t)) do
        a, b = a + v * math.cos(0.7 * (i - 1) + 0.3), b + v * math.sin(1.1 * (i - 1) + 0.2)
    end
    return { a, b }
end

local function near(have, want, what)
    for k = 1, 2 do
        local apart = math.abs(have[k] - want[k])
        if not (apart <= TOLERANCE * (1 + math.abs(want[k]))) then
            error(('%s: %.17g, PyTorch has %.17g'):format(what, have[k], want[k]), 0)
        end
    end
end

-- Gives every parameter the fixture's first values, in the order of PyTorch's names.
local function fill(model)
    local names, by_name = {}, {}
    for name, p in model:named_parameters() do
        local key = torch_name(name)
        names[#names + 1], by_name[key == 'class' and 'cls' or key] = key == 'class' and 'cls' or key, p
    end
    table.sort(names)
    for k, name in ipairs(names) do
        local p = by_name[name]
        local shape = p.shape
        local fan = math.max(1, math.floor(numel(shape) / shape[1]))
        local one = #shape == 1 and name:match 'weight$' and 1 or 0
        p:assign(filled(shape, function(i) return 0.3 * math.sin(1.7 * i + k - 1) / math.sqrt(fan) + one end, 'f64'))
    end
end

-- Compares a set of tensors by PyTorch's names.
local function compare(want, each, what)
    local n = 0
    for name, t in each do
        local key = torch_name(name)
        near(sums(t), want[key] or error(('%s: PyTorch has no %s'):format(what, key), 0), what .. ' of ' .. key)
        n = n + 1
    end
    for _ in pairs(want) do n = n - 1 end
    assert.equal(0, n, what .. ': PyTorch has others')
end

local function step(record, region, how)
    local m = models[record.name]
    local model = m.new(region)
    fill(model)
    local n = m.dense and { m.shape[1], m.shape[3], m.shape[4] } or { m.shape[1] }
    local images = filled(m.shape, function(i) return math.sin(0.37 * i) end, 'f64')
    local labels = filled(n, function(i) return 7 * i % m.classes end, 'i32')
    local opt = m.optimizer(model:parameters())
    local loss = zoos[record.name:match '^%w+'].loss(model, images, labels)
    loss:backward { policy = how }
    near({ loss:item(), loss:item() }, { record.loss, record.loss }, 'loss')
    local gradients = {}
    for name, p in model:named_parameters() do gradients[#gradients + 1] = { name, p.grad } end
    local k = 0
    compare(record.gradients, function()
        k = k + 1
        if gradients[k] then return gradients[k][1], gradients[k][2] end
    end, 'gradient')
    opt:step()
    compare(record.parameters, model:named_parameters(), 'parameter')
    compare(record.buffers, model:named_buffers(), 'buffer')
    model:eval()
    near(sums(model(images)), record.evaluated, 'logits in evaluation')
end

describe('a model over images trains as in PyTorch:', function()
    for _, record in ipairs(fixture) do
        it(record.name, function() step(record) end)
        it(record.name .. ', recomputed', function() step(record, true, 'recompute_all') end)
    end
end)
