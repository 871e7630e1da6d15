--- The table wane.optim: optimizers, the clipping of gradients, and schedules of learning rates.
--
-- Files are loaded when one of their names is first asked for; an unknown name raises with near names.
-- @module wane.optim

local lazy = require 'wane.lazy'

local PLACES = {
    SGD = { 'sgd' }, Adam = { 'adam', 'Adam' }, AdamW = { 'adam', 'AdamW' }, clip_grad_norm = { 'clip', 'norm' },
    clip_grad_value = { 'clip', 'value' }, RMSprop = { 'rmsprop' }, Lion = { 'lion' }, EMA = { 'ema' },
    schedule = { 'schedule' },
}

return lazy('wane.optim', PLACES, {})
