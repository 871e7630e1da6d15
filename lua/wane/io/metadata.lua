--- Turns the numbers and texts of a checkpoint into the strings that a safetensors file can hold, and back.
--
-- `wane.version`, `wane.threads`, `wane.step`; `wane.seed` and `wane.next`, the whole state of the random numbers, all
-- 64 bits in decimal; `wane.optimizer` (its name), `wane.optimizer.SETTING`, `wane.optimizer.count.PARAMETER` (steps);
-- `wane.meta.KEY` and `wane.number.KEY`, the script's own. Doubles are written with 17 digits, which give the same bits
-- back.
-- @internal wane.io.metadata

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local iterate = require 'wane.iterate'
local op = require 'wane.tensor.op'

local C = binding.C
local metadata = {}

local COUNT = 'wane.optimizer.count.'

local function number_text(v)
    return ('%.17g'):format(v)
end

-- Returns an unsigned 64-bit cdata in decimal; LuaJIT prints 12ULL.
local function whole(v)
    return (tostring(v):gsub('ULL$', ''))
end

local MOST = '18446744073709551615'

-- Returns the unsigned 64-bit cdata of a decimal text, or nil.
local function unsigned(text)
    if not text or not text:find '^%d+$' or #text > #MOST or #text == #MOST and text > MOST then return nil end
    local v = 0ULL
    for digit in text:gmatch '%d' do v = v * 10ULL + tonumber(digit) end
    return v
end

local function put_meta(strings, meta, what)
    if type(meta) ~= 'table' then
        errors.raise(nil, 'value', '%s: meta must be a table of strings and numbers, got %s', what,
            errors.describe(meta))
    end
    for key, value in iterate(meta) do
        if type(key) ~= 'string' or type(value) ~= 'string' and type(value) ~= 'number' then
            errors.raise(nil, 'value', '%s: meta holds strings and numbers under names, got %s under %s', what,
                errors.describe(value), errors.describe(key))
        end
        local is_number = type(value) == 'number'
        strings[(is_number and 'wane.number.' or 'wane.meta.') .. key] = is_number and number_text(value) or value
    end
end

--- Returns the strings of a checkpoint that is made now.
-- @param given { step =, meta =, optimizer = { kind =, settings =, count = { name -> steps } } }, all optional
-- @param what opens the message of an error
function metadata.encode(given, what)
    require('wane.scoped').sync() -- the counter is that of the script, not of a suspended planning
    local strings = {
        ['wane.version'] = binding.string(C.wn_version()), ['wane.threads'] = tostring(C.wn_threads()),
        ['wane.seed'] = whole(C.wn_here().seed), ['wane.next'] = whole(C.wn_here().counter),
        ['wane.step'] = given.step and number_text(given.step),
    }
    if given.optimizer then
        strings['wane.optimizer'] = given.optimizer.kind
        for key, value in iterate(given.optimizer.settings) do
            strings['wane.optimizer.' .. key] = type(value) == 'number' and number_text(value) or tostring(value)
        end
        for name, n in iterate(given.optimizer.count) do strings[COUNT .. name] = number_text(n) end
    end
    if given.meta then put_meta(strings, given.meta, what) end
    return strings
end

local function setting(text)
    if text == 'true' or text == 'false' then return text == 'true' end
    return tonumber(text) or text -- no number: the optimizer refuses it by name
end

--- Reads the strings of a checkpoint, or of another writer's file.
-- @param strings table of strings
-- @param path name of the file, for messages
-- @return { version =, threads =, step =, seed =, next = (decimal strings), optimizer = its name, settings =, count =,
-- meta = the script's own; strings of other writers are all meta }
-- @raise 'value' for a step that is no count
function metadata.decode(strings, path)
    local step = strings['wane.step']
    if step then step = op.size(tonumber(step) or step, ("reading '%s': wane.step"):format(path)) end
    local info = {
        version = strings['wane.version'], threads = tonumber(strings['wane.threads']),
        step = step, seed = strings['wane.seed'], next = strings['wane.next'],
        optimizer = strings['wane.optimizer'], settings = {}, count = {}, meta = {},
    }
    for key, text in iterate(strings) do
        local number, word = key:match '^wane%.number%.(.*)$', key:match '^wane%.meta%.(.*)$'
        local parameter, name = key:match '^wane%.optimizer%.count%.(.*)$', key:match '^wane%.optimizer%.([%w_]+)$'
        if number then
            info.meta[number] = tonumber(text)
        elseif word then
            info.meta[word] = text
        elseif parameter then
            info.count[parameter] = tonumber(text)
        elseif name then
            info.settings[name] = setting(text)
        elseif not key:find '^wane%.' then
            info.meta[key] = text
        end
    end
    return info
end

--- Sets the random numbers to go on from where a checkpoint left them. Returns false when it does not say where.
-- @param info as `decode` returns it
-- @param is_dry true: only finds out whether it says where
function metadata.set_random(info, is_dry)
    local seed, next_ = unsigned(info.seed), unsigned(info.next)
    if seed == nil or next_ == nil then return false end
    if not is_dry then
        require('wane.scoped').sync() -- the counter of a suspended planning must not come back over this
        binding.check(C.wn_seed(seed))
        C.wn_counter_set(next_)
    end
    return true
end

return metadata
