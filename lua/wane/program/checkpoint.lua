--- Regions: wane.checkpoint and its kin. A region marks what is recorded inside it as "recompute this when the
-- backward needs it"; it wraps nothing and runs nothing twice by itself. Regions nest.
--
-- Names and options are PyTorch's. Random numbers are addressed, not streamed, so a recomputed dropout draws the
-- same mask whatever `preserve_rng_state` says, and `use_reentrant` changes nothing here: both values are exact.
-- @module wane.program.checkpoint
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local module = require 'wane.module'
local within = require 'wane.scoped'

local C, raise = binding.C, errors.raise

-- With one segment nothing is marked, so only who plans can be told.
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

-- The region recording stands in.
local function current()
    within.sync()
    local region = C.wn_region_set(0)
    C.wn_region_set(region)
    return region
end

local function region(name, fn, ...)
    return within('region', binding.id(C.wn_region_new(current(), name or 'checkpoint')), fn, ...)
end

--- wane.checkpoint(fn, ...): calls fn(...) in a region and returns what it returns.
-- @param fn function or module
function checkpoint.checkpoint(fn, ...)
    check_callable(fn, 'wane.checkpoint')
    return region(nil, fn, ...)
end

--- The same with PyTorch's options.
-- @param opts { use_reentrant =, preserve_rng_state =, name =, determinism_check =, debug =, early_stop = }
-- @param fn function or module
function checkpoint.checkpoint_with(opts, fn, ...)
    opts = errors.check_options(opts, options, 'wane.checkpoint_with')
    check_callable(fn, 'wane.checkpoint_with')
    return region(opts.name, fn, ...)
end

--- A checkpoint function with options of its own: local ck = wane.checkpoint_fn{name = 'block'}; y = ck(block, x).
function checkpoint.checkpoint_fn(opts)
    opts = errors.check_options(opts, options, 'wane.checkpoint_fn')
    return function(fn, ...)
        check_callable(fn, 'wane.checkpoint_fn')
        return region(opts.name, fn, ...)
    end
end

local function parts_of(seq)
    local parts = {}
    if type(seq) ~= 'table' then
        raise(nil, 'value', 'wane.checkpoint_sequential: expected an nn.Sequential or a list of functions, got %s',
            errors.describe(seq))
    end
    for i = 1, #seq do
        parts[i] = seq[i]
        check_callable(parts[i], ('wane.checkpoint_sequential: entry %d'):format(i))
    end
    if #parts == 0 then raise(nil, 'value', 'wane.checkpoint_sequential: there is nothing in it to call') end
    return parts
end

-- Calls parts[first .. last], each with all that the one before it returned.
local function call_parts(parts, first, last, ...)
    if first > last then return ... end
    return call_parts(parts, first + 1, last, parts[first](...))
end

-- Calls the segments from the s-th on, `size` parts each, all but the last in a region of its own.
local function call_segments(parts, size, s, segments, ...)
    local first = (s - 1) * size + 1
    if s == segments then return call_parts(parts, first, #parts, ...) end
    return call_segments(parts, size, s + 1, segments,
        region('segment ' .. s, call_parts, parts, first, s * size, ...))
end

--- PyTorch's checkpoint_sequential: segments of floor(n / segments) parts, each a region; the last segment takes
-- the rest and is kept, so segments = 1 is the direct run.
-- @param seq nn.Sequential, or a list of functions and modules
-- @param segments whole number from 1 to the number of parts
-- @param ... what the first part takes; each further part takes all that the one before it returns
-- @return all that the last part returns
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
    if module.is(seq) then return within('module', seq, all, seq, ...) end
    return all(seq, ...)
end

return checkpoint
