--- The table wane.optim: optimizers, the clipping of gradients, and schedules of learning rates.
--
-- Files are loaded when one of their names is first asked for; an unknown name raises with near names.
-- @module wane.optim

local errors = require 'wane.errors'

local PLACES = {
    SGD = { 'sgd' }, Adam = { 'adam', 'Adam' }, AdamW = { 'adam', 'AdamW' }, clip_grad_norm = { 'clip', 'norm' },
    clip_grad_value = { 'clip', 'value' }, RMSprop = { 'rmsprop' }, Lion = { 'lion' }, EMA = { 'ema' },
    schedule = { 'schedule' },
}

return setmetatable({}, {
    __index = function(t, name)
        local place = PLACES[name]
        if not place then
            errors.raise(nil, 'value', "wane.optim has no '%s'; %s", tostring(name), errors.near(name, PLACES))
        end
        local value = require('wane.optim.' .. place[1])
        if place[2] then value = value[place[2]] end
        rawset(t, name, value)
        return value
    end,
})
