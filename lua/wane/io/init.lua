--- Checkpoints that resume to the bit, in the safetensors format.
--
-- A checkpoint holds the model's tensors under their state_dict names, the optimizer's under `optimizer.STATE.NAME`,
-- and in its metadata the numbers and texts: counters of the optimizer, its settings, the state of the random numbers
-- (metadata.lua). Tensors go to the file one by one through a small block (runtime/io); no copy of all is made. Loading
-- compares everything first, and changes nothing unless all of it fits.
-- @module wane.io

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local file = require 'wane.io.file'
local fit = require 'wane.io.fit'
local header = require 'wane.io.header'
local iterate = require 'wane.iterate'
local json = require 'wane.report.json'
local metadata = require 'wane.io.metadata'
local module = require 'wane.module'
local names = require 'wane.io.names'
local op = require 'wane.tensor.op'
local program = require 'wane.program'
local ranges = require 'wane.io.ranges'
local ranks = require 'wane.program.ranks'
local safetensors = require 'wane.io.safetensors'
local source = require 'wane.io.source'
local tensor = require 'wane.tensor'

local raise, shifted = errors.raise, names.shifted

local io_ = {}

local STATE = 'optimizer.'

-- ---- saving ------------------------------------------------------------------------------------------------------
local function entry_of(name, t, what)
    if type(name) ~= 'string' then
        raise(nil, 'value', '%s: tensors are saved under names, got %s under %s', what, errors.describe(t),
            errors.describe(name))
    end
    if not tensor.is(t) then
        raise(nil, 'value', "%s: '%s' must be a tensor, got %s", what, name, errors.describe(t))
    end
    tensor.typed(t)
    local dtype = tensor.dtype_name[t._dtype]
    return { name = name, tensor = t, dtype = dtype, dims = t._dims,
        bytes = tensor.count(t._dims) * binding.element_bytes[dtype] }
end

-- Lists the tensors of a model in its own order, or of a table in the order of their names.
local function entries_of(model, what)
    local dict, order, is_named = model, {}, {}
    if module.is(model) then
        dict = model:state_dict()
        for name in model:named_parameters() do
            order[#order + 1], is_named[name] = name, true
        end
    elseif type(model) == 'table' and type(getmetatable(model)) == 'table' and getmetatable(model).unreadable then
        raise(nil, 'value', "%s: '%s' of this table could not be read; copy those you want into another", what,
            (next(getmetatable(model).unreadable)))
    elseif type(model) ~= 'table' or getmetatable(model) ~= nil then
        raise(nil, 'value', '%s: expected a model or a table of tensors, got %s', what, errors.describe(model))
    end
    local rest = {}
    for name, t in iterate(dict) do
        entry_of(name, t, what)
        if not is_named[name] then rest[#rest + 1] = name end
    end
    table.sort(rest)
    for _, name in ipairs(rest) do order[#order + 1] = name end
    local list = {}
    for k, name in ipairs(order) do
        list[k] = entry_of(name, dict[name], what)
        if tensor.is_sharded(dict[name]) then ranges.entry(list[k], dict[name]) end
    end
    return list
end

-- Describes an optimizer by the names of its parameters: { kind =, settings =, names =, count = { name -> steps },
-- entries = }.
local function optimizer_of(optimizer, model, what)
    if type(optimizer) ~= 'table' or tensor.is(optimizer) or not optimizer.set_progress or not module.is(model) then
        raise(nil, 'value', '%s: optimizer = %s; expected an optimizer of the model that is given', what,
            errors.describe(optimizer))
    end
    local name_of, dict = {}, optimizer:state_dict()
    for name, p in model:named_parameters() do name_of[p.id] = name end
    local out = { kind = dict.kind, settings = dict.settings, count = {}, names = {}, entries = {} }
    for k, p in ipairs(optimizer:parameters()) do
        local name = name_of[p.id]
        if not name then
            raise(nil, 'value', '%s: parameter %d of the optimizer, %s, is none of the model', what, k,
                tensor.describe(p))
        end
        out.names[k], out.count[name] = name, dict.count[k]
    end
    local params = optimizer:parameters()
    for _, state in ipairs(dict.states) do
        for k, name in ipairs(out.names) do
            local cell = dict.cells[('%s.%d'):format(state, k)] -- groups may differ in their states
            if cell then
                out.entries[#out.entries + 1] = ranges.entry(entry_of(STATE .. state .. '.' .. name, cell, what),
                    params[k])
            end
        end
    end
    return out
end

-- Raises 'value' while a function is planned.
local function check_running(what)
    if program.is_planning() then
        raise(nil, 'value', '%s: the function that is planned does it; do it between steps', what)
    end
end

-- Computes the tensors that hold no bytes yet: states that no program needed so far, and values that were not run.
local function compute(list)
    local missing = {}
    for _, entry in ipairs(list) do
        if not op.held(entry.tensor) then missing[#missing + 1] = entry.tensor end
    end
    if #missing > 0 then op.eval(missing) end
end

local SAVE_OPTIONS = { 'optimizer', 'step', 'meta', 'names' }

-- The bytes of a tensor are allocated in units of 256, or in pages.
-- Measured: a tensor that is read takes 640 bytes, its name and its place in the table 250 (Lua's and C's memory).
local BYTES_OF_TENSOR, UNIT, PAGE = 890, 256, 4096

-- Raises 'io' for tensors that would take much more memory than their file: 300,000 tensors without bytes fit in 16
-- MiB. list: n tensors, list:entry(k).
local function check_cost(list, path, size)
    local cost = 0
    for k = 1, list.n do
        local bytes = list:entry(k).bytes
        local unit = bytes > PAGE / 2 and PAGE or UNIT
        cost = cost + BYTES_OF_TENSOR + math.ceil(bytes / unit) * unit
    end
    if cost > json.FLOOR + 7 * size then
        raise(nil, 'io', "reading '%s': its %d tensors would take %.1f MiB, the file has %.1f; load it into a model, "
            .. 'which makes no tensors', path, list.n, cost / 2 ^ 20, size / 2 ^ 20)
    end
end

-- Raises 'value' where wane.load would refuse a file, which the reader's own checks tell.
local function check_readable(path, text, bytes, is_table)
    local fine, e = errors.pcall(function()
        local size = #text + bytes
        local head, strings = header.check({ path = path, size = size }, text:sub(9))
        metadata.decode(strings, path)
        if is_table then check_cost(head, path, size) end
    end)
    if fine then return end
    if not errors.is(e) then errors.again(e) end
    raise(nil, 'value', 'wane.save: nothing was written, because wane.load would refuse the file: %s', e.message)
end

-- Writes a checkpoint, or, on another rank than the first, gives it the ranges that this one has.
local function save(path, model, opts)
    local what = 'wane.save'
    opts = errors.check_options(opts, SAVE_OPTIONS, what)
    check_running(what)
    local by, list = names.shift_of(opts.names, what), entries_of(model, what)
    if opts.step ~= nil then op.size(opts.step, what .. ': step') end
    local optimizer = opts.optimizer and optimizer_of(opts.optimizer, model, what)
    for _, entry in ipairs(optimizer and optimizer.entries or {}) do list[#list + 1] = entry end
    local given = { step = opts.step, meta = opts.meta }
    if optimizer then
        given.optimizer = { kind = optimizer.kind, settings = optimizer.settings, count = {} }
        for name, n in iterate(optimizer.count) do given.optimizer.count[shifted(name, by)] = n end
    end
    compute(list)
    for _, entry in ipairs(list) do
        local there = names.in_file(entry.name, by)
        if there == nil then
            raise(nil, 'value', "%s: names = 'torch': '%s' would come back as '%s'; lists count from 1 here", what,
                entry.name, shifted(shifted(entry.name, by), -by))
        end
        entry.name = there
    end
    local strings = metadata.encode(given, what)
    if by ~= 0 then strings.format = 'pt' end -- readers of PyTorch's files look for it
    local text, sorted, bytes = safetensors.header(list, strings, what)
    if ranks.rank > 0 then
        for _, entry in ipairs(sorted) do ranges.save(nil, entry) end
        return 0
    end
    check_readable(path, text, bytes, not module.is(model))
    return file.write(path, what, function(f)
        f:write(text)
        for _, entry in ipairs(sorted) do ranges.save(f, entry) end
        return #text + bytes
    end)
end

--- Writes a checkpoint. A run point.
-- On several ranks (wane.dist) all call it and rank 0 writes: the file of any number of ranks is that of one.
-- The file takes the place of an older one only when it is complete and on disk: a failure before that leaves the old
-- file whole.
-- @function wane.save
-- @param path name of the file
-- @param model a model, or a table of tensors by name
-- @param opts {optimizer =: its state, settings and counters are saved too; step = an integer; meta = a table of
-- strings and numbers; names = 'torch': lists count from 0 in the file, as PyTorch has them}
-- @return bytes of the file
-- @raise 'io' with the system's reason; 'value' or 'dtype' for what cannot be saved, or what wane.load would refuse
-- @usage
-- opt:step(loss)
-- local bytes = wane.save('run.safetensors', model, { optimizer = opt, step = 1, meta = { note = 'first' } })
-- print(bytes > 3 * 4 * model:parameter_count()) --> true
function io_.save(path, model, opts)
    if ranks.size == 1 then return save(path, model, opts) end
    if ranks.is_ghost then
        raise(nil, 'value', 'wane.save: rank %d of %d is a ghost, whose values mean nothing', ranks.rank, ranks.size)
    end
    local bytes, said = binding.array('f64', ranks.size), ('wane.save to %s'):format(tostring(path))
    ranks.attempt(said, function()
        local mine = binding.array('f64', 1)
        mine[0] = save(path, model, opts)
        ranks.gather(said, function() return mine, 8 end, bytes, 8 * ranks.size)
    end)
    return bytes[0]
end

-- ---- loading -----------------------------------------------------------------------------------------------------
-- Makes a table of tensors that raises when a tensor that cannot be read is asked for by name, and not before.
local function dict_of(path, unreadable)
    if #unreadable == 0 then return {} end
    local reasons = {}
    for _, item in ipairs(unreadable) do reasons[item.name] = item end
    return setmetatable({}, {
        unreadable = reasons,
        __index = function(_, name)
            local item = reasons[name]
            if item == nil then return nil end
            raise(nil, item.code, "wane.load: '%s' of '%s' cannot be read: it is %s", name, path, item.why)
        end,
    })
end

-- Returns all tensors that can be read, by name, and a list of the others.
local function read_all(src, by)
    check_cost(src, src.path, src.size)
    local found, unreadable = {}, {}
    for k = 1, src.n do
        local entry = src:entry(k)
        local ok, value, why, code = true, nil, entry.why, 'dtype'
        if not why then ok, value = errors.pcall(entry.file.data, entry.file, entry) end
        if not ok then
            if not errors.is(value) or value.code ~= 'value' then errors.again(value) end
            why, code = 'not what its dtype here holds: ' .. value.message, 'value'
        end
        local name = shifted(entry.name, -by)
        if why then
            unreadable[#unreadable + 1] = { name = name, dtype = entry.kind, shape = entry.dims, why = why,
                code = code }
        else
            found[name] = value
        end
    end
    local dict = dict_of(src.path, unreadable)
    if #unreadable == 0 then return found, unreadable end
    for name, value in iterate(found) do rawset(dict, name, value) end
    return dict, unreadable
end

-- Returns the optimizer's counters in its order; raises 'value' for a file of another kind of optimizer.
local function check_optimizer(src, info, optimizer, opts)
    local kind = optimizer.kind
    if info.optimizer ~= kind then
        raise(nil, 'value', "wane.load: '%s' holds %s, the optimizer given is %s", src.path,
            info.optimizer or 'no optimizer', kind)
    end
    local count = {}
    for k, name in ipairs(optimizer.names) do
        count[k] = info.count[name]
        if count[k] == nil then
            if opts.strict ~= false then
                raise(nil, 'value', "wane.load: '%s' does not say how many steps '%s' made", src.path, name)
            end
            count[k] = optimizer.count[name]
        end
    end
    opts.optimizer:check_progress(count, info.settings)
    return count
end

-- Reads bytes into the states. When there is no room, it gives back all idle memory and tries once more.
local function load_pieces(pieces)
    local ok, e = errors.pcall(file.load, pieces)
    if ok then return end
    if not errors.is(e) or e.code ~= 'oom' then errors.again(e) end
    for _, device in ipairs(op.device_names()) do require('wane.plan.measure.memory').trim(device) end
    file.load(pieces)
end

local function load_into(src, info, model, opts)
    local what = 'wane.load'
    if not module.is(model) then
        raise(nil, 'value', '%s: expected a model, or nothing for a table of tensors, got %s', what,
            errors.describe(model))
    end
    local wanted, optimizer, count = entries_of(model, what), nil, nil
    if opts.optimizer then
        optimizer = optimizer_of(opts.optimizer, model, what)
        count = check_optimizer(src, info, optimizer, opts)
        for _, entry in ipairs(optimizer.entries) do wanted[#wanted + 1] = entry end
    end
    local wants_random = opts.random
    if wants_random == nil then wants_random = opts.optimizer ~= nil end
    if wants_random and not metadata.set_random(info, true) then
        raise(nil, 'value', "%s: '%s' does not say where the random numbers stood; give {random = false}", what,
            src.path)
    end
    local pieces, differences = fit.compare(src, wanted, { what = what, names = opts.names, ignore = opts.ignore,
        cast = opts.cast, strict = opts.strict, has_optimizer = optimizer ~= nil })
    load_pieces(pieces)
    if optimizer then opts.optimizer:set_progress(count, info.settings) end
    if wants_random then metadata.set_random(info) end
    for key, list in iterate(differences) do info[key] = list end
    return info
end

-- Checks what a function of names goes with. Returns by how much the numbers of lists change.
local function shift_of(model, opts, what)
    if type(opts.names) ~= 'function' then return names.shift_of(opts.names, what) end
    local other = model == nil and 'no model is given' or opts.optimizer and 'an optimizer is given'
    if other then
        raise(nil, 'value', "%s: names is a function, which names the tensors of a model's states, and %s", what, other)
    end
    return 0
end

local LOAD_OPTIONS = { 'optimizer', 'strict', 'names', 'ignore', 'random', 'cast' }

local function is_options(x)
    return type(x) == 'table' and getmetatable(x) == nil
end

--- Takes a checkpoint back, to the bit.
-- Nothing is changed unless every name, shape and dtype fits; one error tells all that do not. With `optimizer` its
-- state, settings and counters come back too, and the random numbers go on from where they were.
-- @function wane.load
-- @param path name of a safetensors file, of an index of several (model.safetensors.index.json), or of a folder with
-- either
-- @param model a model; without one the tensors are returned as a table
-- @param opts {optimizer =; strict = true: every name must be on both sides; names = 'torch': lists count from 0 in the
-- file, or function(name of a state) that returns the name in the file, { name =, transpose = true } for a matrix that
-- is (columns, rows) there, a list of these for tensors that follow each other along dim 1 (rows = how many of them
-- each has), or nil for a state that stays as it is; ignore = list of Lua patterns of names in the file that may be
-- left out; random = whether the random numbers are set (with an optimizer unless given); cast = false: floats of
-- another dtype become the model's, rounded to nearest}
-- @return { step =, meta =, seed =, next =, threads =, version =, optimizer = name, settings =, missing =, unexpected
-- =, ignored =, kept = (states that stayed) lists }; without a model a table of tensors by name, then that table, with
-- unreadable = list of { name =, dtype =, shape =, why = }: a tensor listed there raises when it is asked for. F16 and
-- 8-bit floats are read as f32, which holds each of them, 16-, 32- and 64-bit integers as i32, booleans as u8.
-- @raise 'io' when the file cannot be read or is no whole safetensors file, with the byte; 'value' or 'shape' when it
-- does not fit, with the lists missing, unexpected and wrong, or with the first number that the dtype does not hold;
-- 'oom'
-- @usage
-- wane.save('run.safetensors', model, { step = 7 })
-- print(wane.load('run.safetensors', model).step) --> 7
-- print(wane.load('run.safetensors')['1.weight'].shape) --> (16, 8)
-- wane.save('other.safetensors', { w = wane.zeros(8, 16), b = wane.ones(16) })
-- wane.load('other.safetensors', model[1], { names = function(name)
--     return name == 'weight' and { name = 'w', transpose = true } or 'b'
-- end })
-- print(model[1].bias:sum():item()) --> 16
function io_.load(path, model, opts)
    local what = 'wane.load'
    if opts == nil and is_options(model) then model, opts = nil, model end
    opts = errors.check_options(opts, LOAD_OPTIONS, what, { 'strict', 'random', 'cast' })
    check_running(what)
    local by = shift_of(model, opts, what)
    return source.read(path, what, function(src, strings)
        local info = metadata.decode(strings, src.path)
        if by ~= 0 then
            local count = {}
            for name, n in iterate(info.count) do count[shifted(name, -by)] = n end
            info.count = count
        end
        if model == nil then
            local dict
            dict, info.unreadable = read_all(src, by)
            return dict, info
        end
        return load_into(src, info, model, opts)
    end)
end

return io_
