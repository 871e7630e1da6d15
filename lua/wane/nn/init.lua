--- The table wane.nn: layers, losses, and the maker of new layers.
--
-- Files are loaded when one of their names is first asked for. An unknown name raises with near names.
-- @module wane.nn

local lazy = require 'wane.lazy'
local module = require 'wane.module'

local PLACES = {
    Linear = { 'linear' }, Embedding = { 'embedding' }, LayerNorm = { 'norms', 'LayerNorm' },
    RMSNorm = { 'norms', 'RMSNorm' }, GroupNorm = { 'norms', 'GroupNorm' }, BatchNorm2d = { 'norms', 'BatchNorm2d' },
    Sequential = { 'sequential', 'Sequential' }, Residual = { 'sequential', 'Residual' },
    MLP = { 'mlp' }, Attention = { 'attention' }, init = { 'initializers' },
    Dropout = { 'stateless', 'Dropout' }, Flatten = { 'stateless', 'Flatten' },
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

return lazy('wane.nn', PLACES, {
    module = module.new,
    Parameter = module.parameter,
    Buffer = module.buffer,
    is_module = module.is,
})
