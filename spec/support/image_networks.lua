--- Makes random networks over images for specs that compare ways to train one: layers of every kind in any order, with
-- parameters that are shared, frozen, computed and read as inputs, norms that are read twice or by nothing. Everything
-- follows from the seed.
local wane = require 'wane'
local dice = require('spec.helper').dice
local nn, optim = wane.nn, wane.optim

local image_networks = {}

local Network = {}
Network.__index = Network

function Network:pick(...)
    return (select(self.roll(select('#', ...)), ...))
end

-- Notes a layer, so that the optimizer and the fingerprint find what is in it.
function Network:keep(layer)
    self.layers[#self.layers + 1] = layer
    return layer
end

function Network:conv(outputs, kernel, o)
    o = o or {}
    o.dtype, o.padding = self.dtype, o.padding or (kernel - 1) / 2
    return self:keep(nn.Conv2d(self.channels, outputs, kernel, o))
end

function Network:norm()
    return self:keep(nn.BatchNorm2d(self.channels, { dtype = self.dtype }))
end

function Network:trains()
    return self.batch * self.h * self.w > 1
end

local function half(n) return math.floor((n - 1) / 2) + 1 end

-- Makers of one layer: each returns x -> y, or nil where the image does not suit it, and says what y is.
local LAYERS = {
    conv = function(n)
        local outputs = n:pick(1, 4, 16, 32, 48, 50)
        local layer = n:conv(outputs, 3, { bias = n:pick(true, false) })
        n.channels = outputs
        return layer
    end,
    pointwise = function(n)
        local outputs = n:pick(2, 8, 33)
        local layer = n:conv(outputs, 1)
        n.channels = outputs
        return layer
    end,
    strided = function(n)
        local layer = n:conv(8, 3, { stride = 2 })
        n.channels, n.h, n.w = 8, half(n.h), half(n.w)
        return layer
    end,
    depthwise = function(n) return n:conv(n.channels, 3, { groups = n.channels }) end,
    transposed = function(n)
        if n.h > 11 then return end
        local layer = n:keep(nn.ConvTranspose2d(n.channels, 8, 2, { stride = 2, dtype = n.dtype }))
        n.channels, n.h, n.w = 8, 2 * n.h, 2 * n.w
        return layer
    end,
    ['conv twice'] = function(n)
        local layer = n:conv(n.channels, 3)
        return function(x) return layer(layer(x)):tanh() end
    end,
    ['two convs of one image'] = function(n)
        local a, b = n:conv(48, 1), n:conv(48, 3)
        n.channels = 48
        return function(x) return a(x):sigmoid() * b(x) end
    end,
    ['frozen conv'] = function(n)
        local layer = n:conv(16, 3)
        layer:requires_grad(false)
        n.channels = 16
        return layer
    end,
    ['computed weight'] = function(n)
        local layer = n:conv(50, 3)
        n.channels = 50
        return function(x)
            local w = layer.weight
            return x:conv2d(w - w:mean({ 2, 3, 4 }, { keepdim = true }), nil, { padding = 1 }) + w:sum() * 0.01
        end
    end,
    ['conv of a constant'] = function(n)
        local layer = n:conv(n.channels, 1)
        return function(x) return x + layer(x:detach()) end
    end,
    norm = function(n) return n:trains() and n:norm() end,
    ['norm, relu'] = function(n)
        local norm = n:trains() and n:norm()
        return norm and function(x) return norm(x):relu() end
    end,
    ['norm twice'] = function(n)
        local norm = n:trains() and n:norm()
        return norm and function(x) return norm(norm(x) * 0.5) + norm(x) end
    end,
    ['norm read by nothing'] = function(n)
        local norm = n:trains() and n:norm()
        return norm and function(x)
            norm(x)
            return x
        end
    end,
    ['frozen norm'] = function(n)
        local norm = n:trains() and n:norm()
        if norm then norm:requires_grad(false) end
        return norm
    end,
    ['norm of groups'] = function(n)
        return n:keep(nn.GroupNorm(n:pick(1, n.channels), n.channels, { dtype = n.dtype }))
    end,
    residual = function(n)
        if not n:trains() then return end
        local conv, norm = n:conv(n.channels, 3, { bias = false }), n:norm()
        return function(x) return (norm(conv(x)) + x):relu() end
    end,
    region = function(n)
        if not n:trains() then return end
        local block = nn.Sequential(n:conv(n.channels, 3), n:norm(), nn.ReLU())
        return function(x) return wane.checkpoint(block, x) end
    end,
    concatenated = function(n)
        local layer = n:conv(8, 1)
        n.channels = n.channels + 8
        return function(x) return wane.cat({ layer(x), x }, 2) end
    end,
    ['max pool'] = function(n)
        if n.h < 2 or n.w < 2 then return end
        n.h, n.w = math.floor(n.h / 2), math.floor(n.w / 2)
        return nn.MaxPool2d(2)
    end,
    ['avg pool'] = function(n)
        if n.h < 2 or n.w < 2 then return end
        n.h, n.w = n.h - 1, n.w - 1
        return nn.AvgPool2d(2, { stride = 1 })
    end,
    upsampled = function(n)
        if n.h > 11 then return end
        n.h, n.w = 2 * n.h, 2 * n.w
        return nn.Upsample { scale = 2, mode = n:pick('nearest', 'bilinear') }
    end,
    padded = function(n)
        n.h, n.w = n.h + 1, n.w + 1
        return function(x) return x:pad { 1, 0, 0, 1 } end
    end,
    turned = function(n)
        n.h, n.w = n.w, n.h
        return function(x) return x:permute(1, 2, 4, 3) end
    end,
    ['channels last by hand'] = function()
        return function(x) return x:permute(1, 3, 4, 2):tanh():permute(1, 4, 2, 3) end
    end,
    ['plus its mean'] = function() return function(x) return x + x:mean({ 3, 4 }, { keepdim = true }) end end,
    relu = function() return nn.ReLU() end,
    gelu = function() return nn.GELU() end,
    dropout = function() return nn.Dropout(0.3) end,
    squared = function() return function(x) return x * x * 0.1 end end,
}
local NAMES = {}
for name in pairs(LAYERS) do NAMES[#NAMES + 1] = name end
table.sort(NAMES)

local function optimizer(n, parameters)
    local kind = n:pick('SGD', 'momentum', 'AdamW')
    n.kinds[#n.kinds + 1] = kind
    if kind == 'AdamW' then return optim.AdamW(parameters, { lr = 1e-2 }) end
    return optim.SGD(parameters, { lr = 1e-2, momentum = kind == 'momentum' and 0.9 or 0 })
end

--- Makes a random network: { model = what holds its layers, loss = function() -> loss, logits = function() -> (batch,
-- 3), optimizer, kinds = names of its layers and more }.
-- @param seed whole number; the network, its first values and its data follow from it
function image_networks.make(seed)
    wane.manual_seed(seed)
    local n = setmetatable({ roll = dice(seed), layers = {}, kinds = {} }, Network)
    n.dtype, n.batch, n.channels = n:pick('f32', 'f32', 'f64', 'bf16'), n:pick(1, 2, 3), n:pick(1, 2, 3, 8, 32)
    n.h, n.w = n:pick(5, 8, 9, 16), n:pick(4, 7, 8, 16)
    n.kinds[1] = ('%s (%d, %d, %d, %d)'):format(n.dtype, n.batch, n.channels, n.h, n.w)
    local x = wane.eval(wane.randn(n.batch, n.channels, n.h, n.w, { dtype = n.dtype }))
    local labels = wane.eval(wane.randint(3, { n.batch }))
    local steps = {}
    for _ = 1, 2 + n.roll(7) do
        local name = NAMES[n.roll(#NAMES)]
        local step = LAYERS[name](n)
        if step then steps[#steps + 1], n.kinds[#n.kinds + 1] = step, name end
    end
    local head = n:keep(nn.Linear(n.channels, 3, { dtype = n.dtype }))
    local model = nn.Sequential(n.layers)
    if n.roll(7) == 1 then
        model:eval()
        n.kinds[#n.kinds + 1] = 'in evaluation'
    end
    local is_mixed = n.dtype == 'f32' and n.roll(3) == 1
    if is_mixed then n.kinds[#n.kinds + 1] = 'autocast' end
    local function forward()
        local v = x
        for _, step in ipairs(steps) do v = step(v) end
        return head(v:adaptive_avg_pool2d(1):flatten(2))
    end
    local function logits() return is_mixed and wane.autocast('bf16', forward) or forward() end
    local function loss()
        local function of_batch() return nn.cross_entropy(forward(), labels) end
        return is_mixed and wane.autocast('bf16', of_batch) or of_batch()
    end
    return { model = model, loss = loss, logits = logits, optimizer = optimizer(n, model:parameters()),
        kinds = n.kinds }
end

return image_networks
