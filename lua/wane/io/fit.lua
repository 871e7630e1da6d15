--- Comparison of a file with the states of a model, before anything is changed: names, shapes and dtypes.
--
-- Every state of the model gets a list of pieces, tensors of the file that follow each other in it:
--
--     state  blocks.1.attn.qkv.weight  (16, 8)
--     file   q_proj.weight (8, 8) | k_proj.weight (4, 8) | v_proj.weight (4, 8)
--     piece  first = 0, count = 64 | first = 64 ...      | first = 96 ...
-- @internal wane.io.fit

local names = require 'wane.io.names'
local ranges = require 'wane.io.ranges'
local state_match = require 'wane.module.state_match'
local tensor = require 'wane.tensor'

local fit = {}

local STATE = 'optimizer.'

local is_float = { f32 = true, f64 = true, bf16 = true }

local function text_of(dims, dtype)
    return tensor.shape_text(dims) .. ' ' .. dtype
end

local function dtype_of(entry)
    return not entry.why and entry.dtype or entry.kind
end

-- Returns whether a file's entry takes the dtype of a state once floats are cast.
local function casts(wanted, entry)
    return is_float[wanted.dtype] and is_float[entry.dtype or ''] and not entry.why
end

-- Returns the dims that an entry has in the model.
local function dims_of(entry, part)
    if not part.transpose then return entry.dims end
    return #entry.dims == 2 and { entry.dims[2], entry.dims[1] } or nil
end

-- Returns the text that state_match compares with the state's.
local function given_text(entry, part, wanted, cast)
    local dims = dims_of(entry, part)
    local dtype = cast and casts(wanted, entry) and wanted.dtype or dtype_of(entry)
    if dims and (not part.transpose or tensor.shape_text(dims) == tensor.shape_text(part.dims)) then
        return text_of(dims, dtype)
    end
    return text_of(entry.dims, dtype) .. ', to be transposed,'
end

-- Fills in the dims of the parts of a state: those that the rule says in rows, and what is left for one without.
-- Returns nil where they do not make the state's dims together.
local function divide(wanted, parts, found)
    local dims, left, open = wanted.dims, wanted.dims[1] or 1, nil
    for k, part in ipairs(parts) do
        local rows = part.rows or #parts > 1 and found[k] and (dims_of(found[k], part) or {})[1]
        if rows then
            part.dims, left = { rows, unpack(dims, 2) }, left - rows
        elseif open then
            return nil
        else
            open = part
        end
    end
    if open then
        open.dims = #parts == 1 and dims or { left, unpack(dims, 2) }
        return left >= 0
    end
    return left == 0
end

-- Compares the parts of one state: adds to ask.wanted and ask.given of state_match. Returns whether all were found.
local function compare(ask, wanted, parts, found, cast)
    local is_whole, are_there, label = divide(wanted, parts, found), true, {}
    for k, part in ipairs(parts) do
        label[k], are_there = part.name, are_there and found[k] ~= nil
    end
    if not is_whole and are_there then -- one line for all: the rows do not add up
        local name, texts = table.concat(label, ' + '), {}
        for k, part in ipairs(parts) do
            texts[k] = given_text(found[k], { transpose = part.transpose, dims = {} }, wanted, cast)
        end
        ask.wanted[#ask.wanted + 1] = { name = name, text = text_of(wanted.dims, wanted.dtype) }
        ask.given[name] = table.concat(texts, ' + ')
        return true
    end
    for k, part in ipairs(parts) do
        local item = { name = part.name, text = text_of(part.dims or wanted.dims, wanted.dtype) }
        local text = found[k] and given_text(found[k], part, wanted, cast)
        local key = part.name .. ' ' .. item.text -- a tensor that two states read is named once
        if not ask.seen[key] then
            ask.seen[key], ask.wanted[#ask.wanted + 1] = true, item
            if ask.given[part.name] == nil or text ~= item.text then ask.given[part.name] = text end
        end
    end
    return are_there
end

-- Appends the pieces of a state.
local function add_pieces(pieces, wanted, parts, found)
    local first = 0
    for k, part in ipairs(parts) do
        local count = tensor.count(found[k].dims)
        pieces[#pieces + 1] = ranges.piece({ entry = found[k], cell = wanted.tensor, first = first, count = count,
            columns = part.transpose and found[k].dims[1] or 0 }, wanted)
        first = first + count
    end
end

-- Returns a hint at the reason why names and dtypes do not fit, or nil.
local function advice_of(states, src, given)
    for _, state in ipairs(states) do
        local there = state.found[1]
        if there and dtype_of(there) ~= state.wanted.dtype and casts(state.wanted, there)
            and given[state.parts[1].name] ~= text_of(state.wanted.dims, state.wanted.dtype)
            and tensor.shape_text(dims_of(there, state.parts[1]) or {}) == tensor.shape_text(state.wanted.dims) then
            return "{cast = true} makes floats into the model's dtype"
        end
    end
    for _, state in ipairs(states) do
        local there = not state.found[1] and names.in_file(state.wanted.name, -1)
        if there and there ~= state.wanted.name and src:find(there) then
            return "PyTorch's files count lists from 0: give {names = 'torch'}"
        end
    end
end

-- Returns { wanted =, parts =, found = }: what the rule says of a state, and what the file has of it.
local function state_of(src, wanted, rule, by, what)
    local parts
    if rule then
        parts = names.parts(rule, wanted.name, what)
    else
        local name = names.in_file(wanted.name, by)
        parts = name and { { name = name } } or { { name = wanted.name, is_none = true } }
    end
    local found = {}
    for k, part in ipairs(parts or {}) do found[k] = not part.is_none and src:find(part.name) or nil end
    return { wanted = wanted, parts = parts, found = found }
end

-- Lists the names in the file that no state took: those that were not expected, and those that may be left out.
local function others_of(src, used, rename, opts)
    local others, ignored, may_ignore = {}, {}, names.ignorer(opts.ignore, opts.what)
    for k = 1, src.n do
        local name = rename(src.names[k])
        -- An optimizer's state is nothing unexpected where only a model is asked for.
        local is_state = name:find(STATE, 1, true) == 1
        if not used[name] and (opts.has_optimizer or not is_state) then
            local list = may_ignore(name) and ignored or others
            list[#list + 1] = name
        end
    end
    return others, ignored
end

--- Compares the tensors of a source with the states that are wanted; changes nothing.
-- @param src of wane.io.source
-- @param list of { name =, tensor =, dtype =, dims = }
-- @param opts { what = opens messages, names =, ignore =, cast =, strict = as for wane.load, has_optimizer = }
-- @return pieces for wane.io.file, and { missing =, unexpected =, ignored =, kept = lists of names }
-- @raise as state_match.check does
function fit.compare(src, list, opts)
    local rule = type(opts.names) == 'function' and opts.names or nil
    local by = rule and 0 or names.shift_of(opts.names, opts.what)
    -- Names of the file are told as the script knows them: with 'torch' as names of the model.
    local function rename(name) return names.shifted(name, -by) end
    local ask = { seen = {}, what = ("%s: '%s' does not fit"):format(opts.what, src.path), wanted = {}, given = {},
        here = 'the model', there = 'the file', is_partial = opts.strict == false }
    local states, used, pieces, kept = {}, {}, {}, {}
    for _, wanted in ipairs(list) do
        local state = state_of(src, wanted, rule, by, opts.what)
        if state.parts then states[#states + 1] = state else kept[#kept + 1] = wanted.name end
    end
    for _, state in ipairs(states) do
        for k, part in ipairs(state.parts) do
            used[rename(part.name)] = state.found[k] ~= nil or nil
            if not part.is_none then part.name = rename(part.name) end
        end
        state.is_whole = compare(ask, state.wanted, state.parts, state.found, opts.cast)
    end
    ask.advice = advice_of(states, src, ask.given)
    local ignored
    ask.unexpected, ignored = others_of(src, used, rename, opts)
    local missing, unexpected = state_match.check(ask)
    for _, state in ipairs(states) do
        if state.is_whole then add_pieces(pieces, state.wanted, state.parts, state.found) end
    end
    return pieces, { missing = missing, unexpected = unexpected, ignored = ignored, kept = kept }
end

return fit
