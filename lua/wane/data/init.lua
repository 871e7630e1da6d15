--- The table wane.data: data sets from files, and batches of them.
--
-- A data set is a tensor, a list of tensors whose first dims are equal (examples), or tokens (wane.data.tokens). Files
-- are read through a small block into values that the ledger counts; no file is in memory twice.
-- @module wane.data

local errors = require 'wane.errors'

local PLACES = { idx = 'idx', npy = 'npy', tokens = 'tokens', batches = 'batches' }

return setmetatable({}, {
    __index = function(t, name)
        if not PLACES[name] then
            errors.raise(nil, 'value', "wane.data has no '%s'; %s", tostring(name), errors.near(name, PLACES))
        end
        local value = require('wane.data.' .. PLACES[name])
        rawset(t, name, value)
        return value
    end,
})
