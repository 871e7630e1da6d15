--- Comparison of the tensors of a model with those of a table or a file, by name, shape and dtype.
--
-- One error tells all differences, before anything is changed.
-- @internal wane.module.state_match

local errors = require 'wane.errors'

local state_match = {}

local SHOWN = 6 -- differences of each kind that the message shows; the error object has them all
local LONGEST = 80 -- bytes of a name that the message shows
local LOOKED_AT = 1000 -- names among which near names are looked for

local function listed(items, form)
    local words = {}
    for k = 1, math.min(SHOWN, #items) do words[k] = form(items[k]) end
    if #items > SHOWN then words[#words + 1] = ('and %d more'):format(#items - SHOWN) end
    return table.concat(words, ', ')
end

local function shown(name)
    return "'" .. (#name > LONGEST and name:sub(1, LONGEST) .. '...' or name) .. "'"
end

-- Returns a hint at near names, or ''. It looks at the first LOOKED_AT names that are not too long.
local function near(name, others)
    local few = {}
    for k = 1, math.min(#others, LOOKED_AT) do
        if #others[k] <= LONGEST then few[#few + 1] = others[k] end
    end
    local words = #name <= LONGEST and errors.near(name, few) or ''
    return words:find '^did you mean' and (' (%s)'):format(words) or ''
end

-- Names that PyTorch's files have and no module here: counters of batches, which only momentum = None reads there.
local SKIPPED = 'num_batches_tracked'

local function is_skipped(name)
    return name == SKIPPED or name:sub(-#SKIPPED - 1) == '.' .. SKIPPED
end

-- Lists the names that are given and not wanted.
local function others_of(ask)
    local is_wanted, names, list = {}, ask.unexpected, {}
    if not names then
        names = {}
        for name in errors.iterate(ask.given) do names[#names + 1] = name end
    end
    for _, item in ipairs(ask.wanted) do is_wanted[item.name] = true end
    for _, name in ipairs(names) do
        if not is_wanted[name] and not is_skipped(name) then list[#list + 1] = name end
    end
    return list
end

--- Compares names, shapes and dtypes.
-- @param ask { what = opens the message, wanted = list of { name =, text = '(2, 3) f32' }, given = { name -> text }, of
-- the wanted names at least, unexpected = list of given names that are not wanted (nil: those of `given`), here =
-- 'the model', there = 'the file', is_partial = names may be missing on either side, advice = text or nil }
-- @return list of missing names, list of unexpected names (empty unless is_partial)
-- @raise 'shape' when only shapes or dtypes differ, else 'value'; with the lists missing, unexpected and wrong
function state_match.check(ask)
    local missing, unexpected, wrong, known = {}, others_of(ask), {}, {}
    for _, item in ipairs(ask.wanted) do
        known[#known + 1] = item.name
        local text = ask.given[item.name]
        if text == nil then
            missing[#missing + 1] = item.name
        elseif text ~= item.text then
            wrong[#wrong + 1] = { name = item.name, here = item.text, there = text }
        end
    end
    table.sort(unexpected)
    local parts = {}
    if not ask.is_partial and #missing > 0 then
        parts[1] = ('missing in %s: %s'):format(ask.there, listed(missing, function(name)
            return shown(name) .. near(name, unexpected)
        end))
    end
    if not ask.is_partial and #unexpected > 0 then
        parts[#parts + 1] = ('not in %s: %s'):format(ask.here, listed(unexpected, function(name)
            return shown(name) .. near(name, known)
        end))
    end
    if #wrong > 0 then
        parts[#parts + 1] = listed(wrong, function(w)
            return ('%s is %s in %s, %s in %s'):format(shown(w.name), w.here, ask.here, w.there, ask.there)
        end)
    end
    if ask.is_partial and #ask.wanted > 0 and #missing == #ask.wanted then
        parts[#parts + 1] = ('no name of %s is in %s'):format(ask.here, ask.there)
    end
    if #parts == 0 then return missing, unexpected end
    local is_shape = #parts == 1 and #wrong > 0
    local message = ask.what .. ': ' .. table.concat(parts, '; ') .. (ask.advice and '; ' .. ask.advice or '')
    error(errors.new(is_shape and 'shape' or 'value', message,
        { missing = missing, unexpected = unexpected, wrong = wrong }), 0)
end

return state_match
