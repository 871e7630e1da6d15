--- The table wane.data: data sets from files, and batches of them.
--
-- A data set is a tensor, a list of tensors whose first dims are equal (examples), or tokens (wane.data.tokens). Files
-- are read through a small block into values that the ledger counts; no file is in memory twice.
-- @module wane.data

local lazy = require 'wane.lazy'

local PLACES = { idx = { 'idx' }, npy = { 'npy' }, tokens = { 'tokens' }, batches = { 'batches' } }

return lazy('wane.data', PLACES, {})
