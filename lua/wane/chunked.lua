--- wane.chunked(fn, x, {dim = 1, size =}): fn over pieces of x, put together again.
--
-- Each piece is a region, so the backward recomputes one piece at a time and what fn keeps inside is never alive for
-- all of x at once. Exact when fn treats the positions of dim independently.
-- @module wane.chunked

local errors = require 'wane.errors'
local op = require 'wane.op'
local shape = require 'wane.shape'
local tensor = require 'wane.tensor'

local raise = errors.raise

--- Calls fn(piece) for pieces of `size` positions of dim (the last may be shorter), each in a checkpoint region.
-- @param fn function or module: tensor -> tensor with dim of the piece's size
-- @param x tensor
-- @param opts {dim = 1, size = positions of a piece}
-- @return the results one after the other along dim
return function(fn, x, opts)
    local what = 'wane.chunked'
    if not tensor.is(x) then
        raise(nil, 'value', '%s: expected a function and a tensor, got %s', what, errors.describe(x))
    end
    opts = errors.check_options(opts, { 'dim', 'size' }, what)
    local dim = opts.dim or 1
    local n = tensor.typed(x)._dims[op.dim(x, dim, what) + 1]
    local size = op.size(opts.size, what .. ': size', 1)
    local checkpoint = require('wane.checkpoint').checkpoint
    local pieces = {}
    for start = 1, math.max(n, 1), size do
        local piece = checkpoint(fn, x:narrow(dim, start, math.min(size, n - start + 1)))
        if not tensor.is(piece) or tensor.typed(piece)._ndim == 0 then
            raise(nil, 'value', '%s: the function must return a tensor with dim %d, got %s', what, dim,
                errors.describe(piece))
        end
        pieces[#pieces + 1] = piece
    end
    if #pieces == 1 then return pieces[1] end
    return shape.cat(pieces, dim)
end
