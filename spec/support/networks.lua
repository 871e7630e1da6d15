--- Makes random networks for specs that compare ways to train one: parameters are inputs, products of parameters are
-- weights, weights are computed, frozen and shared. Everything follows from the seed.
local wane = require 'wane'
local programs = require 'spec.support.programs'
local dice = require('spec.helper').dice
local nn, optim = wane.nn, wane.optim

local networks = {}

local function pick(roll, list)
    return list[roll(#list)]
end

-- Makers of one layer: each notes the parameters it makes and returns h -> h', both (rows, width).
local LAYERS = {
    linear = function(net, i, o)
        local layer = nn.Linear(i, o, { dtype = net.dtype })
        net:add(layer.weight)
        net:add(layer.bias)
        return function(h) return layer(h) end
    end,
    product = function(net, i, o)
        local w = net:new(i, o)
        return function(h) return h:matmul(w) end
    end,
    ['low rank'] = function(net, i, o)
        local a, b = net:new(i, 8), net:new(8, o)
        return function(h) return h:matmul(a:matmul(b)) end
    end,
    masked = function(net, i, o)
        local w = net:add(nn.Linear(i, o, { dtype = net.dtype, bias = false }).weight)
        local mask = wane.eval(wane.rand(o, i):lt(0.7):to(net.dtype))
        return function(h) return h:matmul(w * mask, { transpose_b = true }) end
    end,
    ['of a weight'] = function(net, i, o)
        local w = net:add(nn.Linear(i, o, { dtype = net.dtype, bias = false }).weight)
        return function(h) return h:matmul(w:relu() + w * 0.1, { transpose_b = true }) end
    end,
    ['weight as a factor'] = function(net, i, o)
        local w = net:add(nn.Linear(o, i, { dtype = net.dtype, bias = false }).weight)
        return function(h) return h:matmul(w) end
    end,
    ['there and back'] = function(net, i, o)
        local w, v = net:new(o, i), net:new(o, o)
        return function(h) return h:matmul(w, { transpose_b = true }):matmul(v):matmul(w):matmul(w:t()) end
    end,
    ['product of weights'] = function(net, i, o)
        local a = net:add(nn.Linear(i, 32, { dtype = net.dtype, bias = false }).weight)
        local b = net:add(nn.Linear(32, o, { dtype = net.dtype, bias = false }).weight)
        return function(h) return h:matmul(b:matmul(a):t()) end
    end,
    mixing = function(net, i, o)
        local rows, w = net:new(net.rows, net.rows), net:new(i, o)
        return function(h) return rows:matmul(h):matmul(w) end
    end,
}
local NAMES = { 'linear', 'linear', 'linear', 'product', 'low rank', 'masked', 'of a weight', 'weight as a factor',
    'there and back', 'product of weights', 'mixing' }
local ACTS = { 'relu', 'gelu', 'tanh', 'silu' }

local Network = {}
Network.__index = Network

function Network:add(p)
    self.all[#self.all + 1] = p
    return p
end

function Network:new(rows, columns)
    return self:add(nn.Parameter(wane.randn(rows, columns, { dtype = self.dtype }) * 0.2))
end

-- Makes a loss of parameters alone: of products of parameters, in circles too.
local function penalty(net)
    local a, b, c = net:new(16, 8), net:new(8, 16), net:new(16, 16)
    local kind = net.roll(4)
    return function()
        if kind == 1 then return (a:matmul(b) ^ 2):mean() end
        if kind == 2 then return (a:matmul(b):matmul(c) ^ 2):mean() end
        if kind == 3 then return (a:matmul(b) ^ 2):mean() + (b:matmul(c) ^ 2):mean() + (c:matmul(a) ^ 2):mean() end
        return (c:detach():matmul(c) ^ 2):mean() + (b:matmul(a):matmul(b) ^ 2):mean()
    end
end

-- Makes the input: data, a learnt matrix, or their sum.
local function input(net, width)
    local kind = net.roll(3)
    local x = wane.eval(wane.randn(net.rows, width, { dtype = net.dtype }))
    if kind == 1 then return function() return x end end
    local p = net:new(net.rows, width)
    if kind == 2 then return function() return p end end
    return function() return x + p end
end

local function stack(net, width)
    local layers = {}
    for _ = 1, 1 + net.roll(4) do
        local o = pick(net.roll, { 16, 32, 64, 80, 10, 112 })
        local name = pick(net.roll, NAMES)
        net.kinds[#net.kinds + 1] = name
        layers[#layers + 1] = LAYERS[name](net, width, o)
        local act, is_normed = net.roll(5), net.roll(4) == 1
        if ACTS[act] then layers[#layers + 1] = function(h) return h[ACTS[act]](h) end end
        if is_normed then
            local norm = nn.LayerNorm(o, { dtype = net.dtype })
            net:add(norm.weight)
            net:add(norm.bias)
            layers[#layers + 1] = function(h) return norm(h) end
        end
        if net.roll(6) == 1 then
            local drop = nn.Dropout(0.2)
            layers[#layers + 1] = function(h) return drop(h) end
        end
        width = o
    end
    return layers, width
end

--- Makes a random network: { loss = function() -> loss, parameters = list (frozen ones too), kinds = names of its
-- layers, roll = its generator, frozen = how many parameters are }.
-- @param seed whole number; the network, its first values and its data follow from it
-- @param dtype 'f32' by default
function networks.make(seed, dtype)
    wane.manual_seed(seed)
    local roll = dice(seed)
    local net = setmetatable({ roll = roll, all = {}, kinds = {}, dtype = dtype or 'f32' }, Network)
    net.rows = pick(roll, { 1, 3, 8, 16, 33, 100, 140 })
    local width = pick(roll, { 16, 32, 48, 20 })
    local x = input(net, width)
    local layers, out = stack(net, width)
    local extra = roll(3) == 1 and penalty(net)
    local head = net:new(out, 10)
    local labels = wane.eval(wane.randint(0, 10, { net.rows }))
    local n_frozen = 0
    for _, p in ipairs(net.all) do
        if p ~= head and roll(5) == 1 then
            p.requires_grad = false
            n_frozen = n_frozen + 1
        end
    end
    local function loss()
        local h = x()
        for _, layer in ipairs(layers) do h = layer(h) end
        local l = nn.cross_entropy(h:matmul(head), labels)
        return extra and l + extra() * 0.5 or l
    end
    return { loss = loss, parameters = net.all, kinds = net.kinds, roll = roll, frozen = n_frozen }
end

local OPTIMIZERS = {
    function(list, more) return optim.SGD(list, more { lr = 0.05 }) end,
    function(list, more) return optim.SGD(list, more { lr = 0.05, momentum = 0.9 }) end,
    function(list, more)
        return optim.SGD(list, more { lr = 0.05, momentum = 0.8, nesterov = true, weight_decay = 0.1 })
    end,
    function(list, more) return optim.Adam(list, more { lr = 0.01 }) end,
    function(list, more) return optim.AdamW(list, more { lr = 0.01, weight_decay = 0.1 }) end,
}

--- Makes one or two optimizers of a network's parameters, which may share some.
-- @param net of networks.make
-- @param more options for each, or nil
function networks.optimizers(net, more)
    local function with(opts)
        for key, value in pairs(more or {}) do opts[key] = value end
        return opts
    end
    local roll, list = net.roll, net.parameters
    if roll(3) > 1 then return { OPTIMIZERS[roll(#OPTIMIZERS)](list, with) } end
    local first, second = {}, {}
    for _, p in ipairs(list) do
        local where = roll(3)
        if where < 3 then first[#first + 1] = p end
        if where > 1 then second[#second + 1] = p end
    end
    local out = {}
    for _, some in ipairs { first, second } do
        local trains = false
        for _, p in ipairs(some) do trains = trains or p.requires_grad end
        if trains then out[#out + 1] = OPTIMIZERS[roll(#OPTIMIZERS)](some, with) end
    end
    return out
end

--- Returns parameters and optimizer cells, in a fixed order.
function networks.states(net, optimizers)
    return programs.cells(net.parameters, optimizers)
end

local function backward(loss, policy)
    loss:backward { policy = policy }
    return loss
end

--- Ways to write a step of several run points: function(net, optimizers) -> function(policy) -> loss.
networks.steps = {
    ['the three lines'] = function(net, opts)
        return function(policy)
            for _, opt in ipairs(opts) do opt:zero_grad() end
            local loss = backward(net.loss(), policy)
            for _, opt in ipairs(opts) do opt:step() end
            return loss
        end
    end,
    ['gradients cleared at the end'] = function(net, opts)
        return function(policy)
            local loss = backward(net.loss(), policy)
            for _, opt in ipairs(opts) do opt:step() end
            for _, opt in ipairs(opts) do opt:zero_grad() end
            return loss
        end
    end,
    ['two backwards'] = function(net, opts)
        return function(policy)
            for _, opt in ipairs(opts) do opt:zero_grad() end
            local a = backward(net.loss(), policy)
            local b = backward(net.loss() * 0.5, policy)
            for _, opt in ipairs(opts) do opt:step() end
            return a, b
        end
    end,
    ['micro-batches'] = function(net, opts)
        return function(policy)
            for _, opt in ipairs(opts) do opt:zero_grad() end
            local loss = wane.accumulate(net.loss, { micro = 3, policy = policy })
            for _, opt in ipairs(opts) do opt:step() end
            return loss
        end
    end,
    ['an average beside'] = function(net, opts)
        local p = opts[1]:parameters()[1]
        local average = nn.Parameter(wane.zeros(p.shape))
        return function(policy)
            for _, opt in ipairs(opts) do opt:zero_grad() end
            local loss = backward(net.loss(), policy)
            for _, opt in ipairs(opts) do opt:step() end
            wane.no_grad(function() average:assign(average * 0.9 + p * 0.1) end)
            return loss
        end
    end,
}

--- Gives back idle memory and takes the limit away. Returns the bytes reserved since, by nobody's fault: what other
-- specs left.
function networks.clean()
    wane.memory.limit(nil)
    wane.memory.trim()
    return wane.memory().reserved
end

--- Calls fn under a limit of so many bytes above those there were before.
-- @return the most bytes that were reserved meanwhile, and that were alive, above those of before
function networks.limited(bytes, before, fn)
    wane.memory.limit(before + bytes)
    wane.memory.reset_peak()
    local ok, why = pcall(fn)
    local memory = wane.memory()
    wane.memory.limit(nil)
    if not ok then error(why, 0) end
    return memory.peak_reserved - before, memory.peak - before
end

--- Plans a step and runs it under a limit of the bytes predicted; fails unless it holds as many as predicted, and
-- reserves no more.
-- @param step function
-- @param before what networks.clean returned
-- @param what words for the message
-- @param is_bound true: it may hold fewer, as a first step does without the gradients that later ones find
-- @return the plan
function networks.as_planned(step, before, what, is_bound)
    collectgarbage()
    collectgarbage()
    local p = assert(wane.plan(step))
    local bytes, peak = math.max(p.reserved, p.first.reserved), p.peak
    if p.first.cells > 0 then peak = #p.parts > 1 and p.first.peak or math.max(p.first.peak, peak) end
    wane.memory.trim()
    local ok, reserved, live = pcall(networks.limited, bytes, before, step)
    assert(ok, what .. ': ' .. tostring(reserved))
    local fits = reserved <= bytes and (live == peak or (is_bound and live < peak))
    assert(fits, ('%s: held %d and reserved %d bytes, predicted %d and %d\n%s'):format(what, live, reserved, peak,
        bytes, tostring(p.parts)))
    return p
end

return networks
