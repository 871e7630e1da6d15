--- A function over pieces of a tensor, whose results are joined, where that is the function of the whole.
--
-- Each piece is a region, so the backward recomputes one piece at a time, and the values inside fn are never alive for
-- all of x at once. That the result is the same is proven on the nodes that fn records (program/positions.lua): fn is
-- called once with all of x, which never runs, and each piece must be the same graph with fewer positions. An op that
-- mixes the positions is refused by name.
-- @module wane.program.chunked

local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local positions = require 'wane.program.positions'
local shape = require 'wane.tensor.shape'
local tensor = require 'wane.tensor'
local scoped = require 'wane.scoped'
require 'wane.program' -- the kind 'capture'

local raise = errors.raise

scoped.register('lines', op.lines)

local function refuse_read()
    raise(nil, 'value', 'wane.chunked: the function reads or runs a value (item, totable, print, eval, backward); '
        .. 'pieces are only recorded, so do that outside')
end

local function need_tensor(result)
    if tensor.is(result) then return result end
    raise(nil, 'value', 'wane.chunked: the function must return a tensor with the positions of its piece, got %s',
        errors.describe(result))
end

-- Follows the nodes that fn records on all of x, and puts the random counter back.
local function prove(fn, x, dim)
    local whole = x:narrow(dim, 1, x._dims[dim]) -- a value of its own: older nodes are from outside the function
    local result = scoped('counter', true, scoped, 'capture', refuse_read, scoped, 'lines', true, fn, whole)
    return positions.follow(whole, dim, need_tensor(result))
end

--- Calls fn(piece) for pieces of `size` positions of a dim, each in a checkpoint region, and joins the results.
-- The last piece may be shorter. The result has fn(x)'s bits: every position is computed by the same ops from the same
-- numbers, and Wane's products add in the same order whatever the number of rows. (Where `wane version` names a library
-- for large products of bf16, those of a piece may be too small for it and round differently.) Gradients of tensors
-- that the pieces share (weights) are sums over the pieces, so they round differently than one sum over all of x.
-- Dropout and random creations follow the pieces: they draw other numbers than fn(x) would, of the same law. fn is
-- called once more than there are pieces; a number that it computes from the size of its piece (v * v:size(1)) is
-- refused because it differs.
-- @function wane.chunked
-- @param fn function or module: tensor -> tensor
-- @param x tensor
-- @param opts {dim = 1, size = positions of a piece}
-- @return the results one after the other, along the dim where fn leaves the positions
-- @raise 'value' with an op that mixes positions of dim, or that the proof does not know, and the line that recorded it
-- @usage print(wane.chunked(model, wane.randn(10, 8), { size = 4 }).shape) --> (10, 4)
return function(fn, x, opts)
    local what = 'wane.chunked'
    if not tensor.is(x) then
        raise(nil, 'value', '%s: expected a function and a tensor, got %s', what, errors.describe(x))
    end
    if not errors.is_callable(fn) then
        raise(nil, 'value', '%s: expected a function or a module, got %s', what, errors.describe(fn))
    end
    opts = errors.check_options(opts, { 'dim', 'size' }, what)
    local dim = op.dim(x, opts.dim or 1, what) + 1
    local n = tensor.typed(x)._dims[dim]
    local size = op.size(opts.size, what .. ': size', 1)
    local checkpoint = require('wane.program.checkpoint').checkpoint
    if n <= 1 then return need_tensor(checkpoint(fn, x)) end
    local trace = prove(fn, x, dim)
    local pieces = {}
    for start = 1, n, size do
        local length = math.min(size, n - start + 1)
        local piece = x:narrow(dim, start, length)
        local result = need_tensor(checkpoint(fn, piece))
        positions.same(trace, piece, result, length)
        pieces[#pieces + 1] = result
    end
    if #pieces == 1 then return pieces[1] end
    return shape.cat(pieces, trace.result.at.dim)
end
