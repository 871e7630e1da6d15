--- Rows of spec/bench/rival.lua for models over images: a step of ResNet-18, of a U-Net and of a ViT, saved and with
-- blocks recomputed. The floor counts the products of convolutions and linear layers, three times those of a forward,
-- and those of a recomputed forward, over the peak; norms, pools, attention and memory are not counted.
-- @param small 1 or true: tiny models, to see that the bench runs
local small = ...
local wane = require 'wane'

local optim = wane.optim
local resnet, vit, unet = require 'wane.zoo.resnet', require 'wane.zoo.vit', require 'wane.zoo.unet'

local sizes = small and { resnet = { 18, 16, 2 }, unet = { 4, 3, 16, 1 }, vit = { 16, 8, 2, 2, 16, 1 } }
    or { resnet = { 18, 64, 16 }, unet = { 64, 5, 128, 4 }, vit = { 224, 16, 12, 6, 384, 4 } }

local function sgd(p) return optim.SGD(p, { lr = 0.01, momentum = 0.9 }) end
local function adamw(p) return optim.AdamW(p, { lr = 1e-3, weight_decay = 0.01 }) end

-- Returns a function that builds a model and returns it and its step.
local function step_of(make, optimizer, policy)
    return function()
        local model, loss = make()
        local opt = optimizer(model:parameters())
        return model, function() opt:step(loss(), { policy = policy }) end
    end
end

local function make_resnet()
    local model, size, batch = resnet.new(sizes.resnet[1]), sizes.resnet[2], sizes.resnet[3]
    local x, labels = wane.randn(batch, 3, size, size):retain(), wane.randint(1000, { batch }):retain()
    return model, function() return resnet.loss(model, x, labels) end
end

local function make_unet()
    local width, stages, size, batch = unpack(sizes.unet)
    local model = unet.new { width = width, stages = stages }
    local x, labels = wane.randn(batch, 3, size, size):retain(), wane.randint(2, { batch, size, size }):retain()
    return model, function() return unet.loss(model, x, labels) end
end

local function make_vit()
    local size, patch, layers, heads, d, batch = unpack(sizes.vit)
    local model = vit.new { size = size, patch = patch, layers = layers, heads = heads, d = d, mlp = 4 * d }
    local x, labels = wane.randn(batch, 3, size, size):retain(), wane.randint(1000, { batch }):retain()
    return model, function() return vit.loss(model, x, labels) end
end

-- Returns the FLOPs of convolutions and linear layers in one forward, counted from a plan on meta.
local function forward_flops(make)
    local before, flops = wane.set_device 'meta', 0
    local _, loss = make()
    for _, node in ipairs(wane.plan(loss).parts[1].program:graph()) do
        if node.op == 'conv2d' or node.op == 'linear' or node.op == 'conv2d_dx' then flops = flops + node.flops end
    end
    wane.set_device(before)
    return flops
end

local function words(name, list, again)
    return name .. ' ' .. table.concat(list, ' ') .. ' ' .. again
end

local models = {
    { name = ('ResNet-%d, %d x %d, batch %d, SGD'):format(sizes.resnet[1], sizes.resnet[2], sizes.resnet[2],
        sizes.resnet[3]), short = 'ResNet', make = make_resnet, optimizer = sgd, key = 'resnet' },
    { name = ('U-Net, %d x %d, batch %d, AdamW'):format(sizes.unet[3], sizes.unet[3], sizes.unet[4]), short = 'U-Net',
        make = make_unet, optimizer = adamw, key = 'unet' },
    { name = ('ViT-small, %d x %d, batch %d, AdamW'):format(sizes.vit[1], sizes.vit[1], sizes.vit[6]), short = 'ViT',
        make = make_vit, optimizer = adamw, key = 'vit' },
}

local rows = {}
for _, m in ipairs(models) do
    local flops = forward_flops(m.make)
    for again = 0, 1 do
        rows[#rows + 1] = { name = m.name .. (again == 1 and ', recomputed' or ''),
            short = m.short .. (again == 1 and ', recomputed' or ''),
            step = step_of(m.make, m.optimizer, again == 1 and 'recompute_all' or nil),
            torch = words(m.key, sizes[m.key], again), floor = { { (3 + again) * flops, 0, { 1, 0, 0 } } },
            aims = { time = 0.9, floor = 0.8, bytes = 1 } }
    end
end
return rows
