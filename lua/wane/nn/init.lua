--- The table wane.nn: layers, losses, and the maker of new layers.
--
-- Files are loaded when one of their names is first asked for. An unknown name raises with near names.
-- @module wane.nn

local errors = require 'wane.errors'
local module = require 'wane.module'

local rawset, require, setmetatable = rawset, require, setmetatable

-- name -> { file, field of that file; nil: the file is the class itself }
local PLACES = {
    Linear = { 'linear' }, Embedding = { 'embedding' }, LayerNorm = { 'norms', 'LayerNorm' },
    RMSNorm = { 'norms', 'RMSNorm' }, GroupNorm = { 'norms', 'GroupNorm' }, BatchNorm2d = { 'norms', 'BatchNorm2d' },
    Sequential = { 'sequential' }, Residual = { 'residual' }, MLP = { 'mlp' }, Attention = { 'attention' },
    init = { 'initializers' }, Dropout = { 'stateless', 'Dropout' }, Flatten = { 'stateless', 'Flatten' },
    Conv2d = { 'convolution', 'Conv2d' }, ConvTranspose2d = { 'convolution', 'ConvTranspose2d' },
    MaxPool2d = { 'pooling', 'MaxPool2d' }, AvgPool2d = { 'pooling', 'AvgPool2d' },
    AdaptiveAvgPool2d = { 'pooling', 'AdaptiveAvgPool2d' }, Upsample = { 'pooling', 'Upsample' },
    LSTM = { 'recurrent', 'LSTM' }, GRU = { 'recurrent', 'GRU' },
    ReLU = { 'stateless', 'ReLU' }, GELU = { 'stateless', 'GELU' }, SiLU = { 'stateless', 'SiLU' },
    Tanh = { 'stateless', 'Tanh' }, Sigmoid = { 'stateless', 'Sigmoid' },
    Softmax = { 'stateless', 'Softmax' }, Identity = { 'stateless', 'Identity' },
    cross_entropy = { 'losses', 'cross_entropy' }, nll_loss = { 'losses', 'nll_loss' },
    mse_loss = { 'distances', 'mse_loss' }, l1_loss = { 'distances', 'l1_loss' },
    smooth_l1_loss = { 'distances', 'smooth_l1_loss' }, bce = { 'distances', 'bce' },
    bce_with_logits = { 'distances', 'bce_with_logits' }, kl_div = { 'distances', 'kl_div' },
}

local nn = {
    module = module.new,
    Parameter = module.parameter,
    Buffer = module.buffer,
    is_module = module.is,
}

return setmetatable(nn, {
    __index = function(t, name)
        local place = PLACES[name]
        if place then
            local value = require('wane.nn.' .. place[1])
            if place[2] then value = value[place[2]] end
            rawset(t, name, value)
            return value
        end
        local known = errors.names(PLACES, { module = 1, Parameter = 1, Buffer = 1 })
        errors.raise(nil, 'value', "wane.nn has no '%s'; %s", tostring(name), errors.near(name, known))
    end,
    __newindex = function(_, name)
        errors.raise(nil, 'value', "wane.nn.%s = ...: the table is closed; keep your own layers in locals",
            tostring(name))
    end,
})
