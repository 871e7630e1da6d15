-- Compares a training step of small models of examples/zoo over images with PyTorch's (spec/fixtures/torch_models.lua,
-- written by torch_models.py beside it, which says what the numbers are): loss, every gradient, every updated
-- parameter, running statistics, and the logits in evaluation, in f64 within 1e-10; with each block recomputed too.
local helper = require 'spec.helper'
local wane = helper.wane

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

local function flat_values(t)
    return t:reshape(t:numel()):totable()
end

-- Returns the two sums that the fixture keeps of a tensor.
local function sums(t)
    local a, b = 0, 0
    for i, v in ipairs(flat_values(t)) do
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

local function step(record, region, policy)
    local m = models[record.name]
    local model = m.new(region)
    fill(model)
    local n = m.dense and { m.shape[1], m.shape[3], m.shape[4] } or { m.shape[1] }
    local images = filled(m.shape, function(i) return math.sin(0.37 * i) end, 'f64')
    local labels = filled(n, function(i) return 7 * i % m.classes end, 'i32')
    local opt = m.optimizer(model:parameters())
    local loss = zoos[record.name:match '^%w+'].loss(model, images, labels)
    loss:backward { policy = policy }
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
