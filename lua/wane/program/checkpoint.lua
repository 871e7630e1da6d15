--- Regions: parts of the forward that are computed again when the backward needs them.
--
-- A region marks the nodes that are recorded inside it; it wraps nothing, and runs nothing twice by itself. Regions
-- nest. Names and options are PyTorch's. Random numbers are addressed, not streamed, so a recomputed dropout draws the
-- same mask whatever `preserve_rng_state` says, and `use_reentrant` changes nothing here: both values are exact.
-- @module wane.program.checkpoint
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local module = require 'wane.module'
local scoped = require 'wane.scoped'

local C, raise = binding.C, errors.raise

-- Notes for planning that one segment saves nothing: nothing is marked then.
local function note_direct(count)
    local where = errors.where() or 'wane.checkpoint_sequential'
    require('wane.program').note(where, ('%s: wane.checkpoint_sequential with 1 segment saves 0 bytes: the last '
        .. 'segment is kept, and it holds all %d parts; give 2 segments or more'):format(where, count))
end

local checkpoint = {}

local options = { 'use_reentrant', 'preserve_rng_state', 'name', 'determinism_check', 'debug', 'early_stop' }

local function check_callable(fn, what)
    if type(fn) == 'function' or module.is(fn) then return end
    raise(nil, 'value', '%s: expected a function or a module to call, got %s', what, errors.describe(fn))
end

-- Calls fn in a new region inside the one of the nodes that are recorded now.
local function region(name, fn, ...)
    scoped.sync()
    return scoped('region', binding.id(C.wn_region_new(C.wn_here().region, name or 'checkpoint')), fn, ...)
end

--- Calls fn(...) in a region. Returns the results of fn.
-- @param fn function or module
-- @param ... its arguments
-- @usage
-- local hidden = wane.checkpoint(model[1], x)
-- nn.cross_entropy(model[3](hidden:gelu()), y):backward()
function checkpoint.checkpoint(fn, ...)
    check_callable(fn, 'wane.checkpoint')
    return region(nil, fn, ...)
end

--- Calls fn(...) in a region, with PyTorch's options. Returns the results of fn.
-- @param opts {name = of the region in reports; use_reentrant =, preserve_rng_state =, determinism_check =, debug =,
-- early_stop =: change nothing}
-- @param fn function or module
-- @param ... its arguments
-- @usage print(wane.checkpoint_with({ name = 'stem' }, model, x).shape) --> (2, 4)
function checkpoint.checkpoint_with(opts, fn, ...)
    opts = errors.check_options(opts, options, 'wane.checkpoint_with')
    check_callable(fn, 'wane.checkpoint_with')
    return region(opts.name, fn, ...)
end

--- Makes a function like wane.checkpoint with options of its own.
-- @param opts as of wane.checkpoint_with
-- @return function(fn, ...)
-- @usage
-- local checkpoint = wane.checkpoint_fn { name = 'stem' }
-- print(checkpoint(model, x).shape) --> (2, 4)
function checkpoint.checkpoint_fn(opts)
    opts = errors.check_options(opts, options, 'wane.checkpoint_fn')
    return function(fn, ...)
        check_callable(fn, 'wane.checkpoint_fn')
        return region(opts.name, fn, ...)
    end
end

local function parts_of(seq)
    local parts = {}
    local n = module.is(seq) and #seq
        or errors.list(seq, 'wane.checkpoint_sequential', 'functions, or an nn.Sequential', 1)
    for i = 1, n do
        parts[i] = seq[i]
        check_callable(parts[i], ('wane.checkpoint_sequential: entry %d'):format(i))
    end
    if #parts == 0 then raise(nil, 'value', 'wane.checkpoint_sequential: there is nothing in it to call') end
    return parts
end

-- Calls parts[first] to parts[last], each with all results of the one before it.
local function call_parts(parts, first, last, ...)
    if first > last then return ... end
    return call_parts(parts, first + 1, last, parts[first](...))
end

-- Calls the segments from the s-th on, of `size` parts each; all but the last are in regions of their own.
local function call_segments(parts, size, s, segments, ...)
    local first = (s - 1) * size + 1
    if s == segments then return call_parts(parts, first, #parts, ...) end
    return call_segments(parts, size, s + 1, segments,
        region('segment ' .. s, call_parts, parts, first, s * size, ...))
end

--- Calls parts one after the other, in segments of floor(n / segments) parts, each a region.
-- The last segment takes the rest and is kept, as in PyTorch, so segments = 1 is the direct run.
-- @param seq nn.Sequential, or a list of n functions and modules
-- @param segments whole number from 1 to n
-- @param ... arguments of the first part; each further part is called with all results of the one before it
-- @return the results of the last part
-- @usage print(wane.checkpoint_sequential(model, 2, x).shape) --> (2, 4)
function checkpoint.checkpoint_sequential(seq, segments, ...)
    local parts = parts_of(seq)
    if type(segments) ~= 'number' or segments ~= math.floor(segments) or segments < 1 or segments > #parts then
        raise(nil, 'value', 'wane.checkpoint_sequential: segments must be a whole number from 1 to %d (the '
            .. 'parts), got %s',
            #parts, errors.describe(segments))
    end
    local size = math.floor(#parts / segments)
    local function all(_, ...)
        if segments == 1 then note_direct(#parts) end
        return call_segments(parts, size, 1, segments, ...)
    end
    if module.is(seq) then return scoped('module', seq, all, seq, ...) end
    return all(seq, ...)
end

return checkpoint
