--- `?name` at the prompt: shows what the comments of Wane's own Lua files say about a name.
--
-- A name is looked up where a script would find it: wane, a tensor's methods and fields, nn, optim, policy, data, a
-- model's methods, those of plans, optimizers and other objects. Its comment is the one that says so by `@function`, by
-- its first words or by `@module`, or the one above the function that the name stands for. Help is read from the code
-- and cannot drift from it: a name that is gone has none, and a comment that is written is found by the next prompt.
-- @internal wane.repl.help

local comments = require 'wane.repl.comments'
local errors = require 'wane.errors'
local iterate = require 'wane.iterate'
local module = require 'wane.module'
local names = require 'wane.repl.names'
local objects = require 'wane.repl.objects'
local tensor = require 'wane.tensor'

local help = {}

local folder = comments.folder

-- ---- the names there are -----------------------------------------------------------------------------------------
-- Spaces in the order in which a bare name is looked up; `data` is no name of the prompt, but wane.data exists.
local SPACES = { 'wane', 'tensor', 'nn', 'optim', 'policy', 'data' }

-- Returns the table of a space, name -> value. Values of names that are loaded late are read only when asked for.
local function space(which)
    local wane = require 'wane'
    if which == 'wane' then return wane end
    if which == 'tensor' then return nil end
    return names.value(wane, which)
end

-- Returns the names of a space, sorted by table.
local function names_in(which)
    if which ~= 'tensor' then return names.of(space(which)) end
    local found = {}
    for _, t in ipairs { tensor.methods, tensor.fields } do
        for _, name in ipairs(names.of(t)) do found[#found + 1] = name end
    end
    return found
end

-- Returns the value of a name in a space.
local function value_in(which, name)
    if which == 'tensor' then return tensor.methods[name] or tensor.fields[name] end
    return names.value(space(which), name)
end

-- Tells whether a space has a name.
local function has(which, name)
    for _, known in ipairs(names_in(which)) do
        if known == name then return true end
    end
    return false
end

-- ---- the comments there are --------------------------------------------------------------------------------------
-- Returns a name as scripts write it: 'tensor:sum', 'wane.zeros'.
local function title(which, name)
    if which == 'tensor' then
        return tensor.methods[name] and 'tensor:' .. name or 'tensor.' .. name
    end
    return which .. '.' .. name
end

-- Returns how a comment is about a name, 0 where it is not. info: of the function that the name stands for, or nil.
local function rank(block, wanted, info)
    if block.is_of == wanted then return 4 end
    local is_above = info and block.line == info.linedefined
    if is_above and info.source == '@' .. folder .. block.file .. '.lua' then return 3 end
    if block.text[1]:match '^[%w_.]+' == wanted then return 2 end
    return block.module == wanted and 1 or 0
end

-- Returns the comment about a name, or nil. Looking the name up loaded the files that it comes from.
local function comment_of(which, name, value)
    local wanted, found, most = title(which, name), nil, 0
    local info = type(value) == 'function' and debug.getinfo(errors.inner(value), 'S') or nil
    for loaded in iterate(package.loaded) do
        local file = loaded == 'wane' and 'init' or type(loaded) == 'string' and loaded:match '^wane%.(.+)$'
        for _, block in ipairs(file and comments.of((file:gsub('%.', '/'))) or {}) do
            local own = rank(block, wanted, info)
            if own > most then found, most = block, own end
        end
    end
    return found
end

-- ---- showing them ------------------------------------------------------------------------------------------------
-- Returns the text of a block as it is shown.
local function shown(block)
    local lines = {}
    for _, line in ipairs(block.text) do
        local name, rest = line:match '^@param ([%w_.]+) ?(.*)'
        if name then
            line = '  ' .. name .. ': ' .. rest
        elseif line:match '^@return' then
            line = '  returns ' .. line:match '^@return ?(.*)'
        elseif line:match '^@raise' then
            line = '  raises ' .. line:match '^@raise ?(.*)'
        elseif line:match '^@' then
            line = nil
        end
        lines[#lines + 1] = line
    end
    while lines[#lines] == '' do lines[#lines] = nil end
    if block.usage then lines[#lines + 1] = 'for example:' end
    for _, line in ipairs(block.usage or {}) do lines[#lines + 1] = '  ' .. line end
    return '  ' .. table.concat(lines, '\n  ')
end

-- Returns the text for a name without a comment: why it has no value, or the line that defines it.
local function place(which, name, value)
    if value == nil then
        local ok, failure = pcall(function() return space(which)[name] end)
        if not ok then return '  ' .. (errors.is(failure) and failure.message or tostring(failure)) end
    end
    local info = type(value) == 'function' and debug.getinfo(errors.inner(value), 'S')
    if not info then return '  has no comment of its own' end
    return ('  has no comment of its own; see lua/wane/%s, line %d'):format(
        info.source:sub(#folder + 2), info.linedefined)
end

-- Returns names like an unknown one.
local function near(name)
    local known = {}
    for _, which in ipairs(SPACES) do
        for _, candidate in ipairs(names_in(which)) do known[candidate] = true end
    end
    for _, which in ipairs(objects.kinds()) do
        for candidate in iterate(objects.methods(which)) do known[candidate] = true end
    end
    return errors.near(name, known)
end

-- Returns the spaces that the text before the last name stands for: the space itself, or that of a value of the prompt.
local function spaces_of(env, before)
    if before == '' then return SPACES end
    for _, which in ipairs { 'nn.init', unpack(SPACES) } do
        if before == which or before == 'wane.' .. which then return { which } end
    end
    local value = names.value(env, before)
    if tensor.is(value) then return { 'tensor' } end
    return {}
end

-- Appends what is known of the methods of plans, optimizers and other objects.
local function add_objects(out, env, before, name)
    for _, which in ipairs(objects.kinds()) do
        local is_meant = before == '' or before == which or 'wane.' .. before == which or 'optim.' .. before == which
            or before == 'wane.' .. which or objects.kind(names.value(env, before)) == which
            or which == 'module' and module.is(names.value(env, before))
        local block = is_meant and objects.methods(which)[name]
        if block then out[#out + 1] = objects.title(which, name) .. '\n' .. shown(block) end
    end
end

-- Returns a line with the methods of a kind of object that a name or its value stands for, or nil.
local function methods_line(env, name)
    local which = objects.kind(names.value(env, name)) or name
    if not objects.is(which) then return nil end
    local list = {}
    for method in iterate(objects.methods(which)) do list[#list + 1] = objects.title(which, method) end
    table.sort(list)
    return ('%s is %s: %s'):format(name, name == which and 'a kind of object' or 'one of ' .. which,
        table.concat(list, ', '))
end

local USAGE = [[
?name tells about a name: ?zeros, ?wane.memory, ?tensor:sum, ?nn.Linear, ?plan:explain, or ?x for what x is.
who() lists the tensors, modules and optimizers among the names, with their bytes.
Values print themselves; end a line with ; to keep it quiet; _ is the last value; TAB completes; ^C stops; ^D leaves.]]

--- Returns the text about a name.
-- @param env names of the prompt: `?t:sum` may be about a tensor t
-- @param query text after the question mark
-- @return several lines without the last newline; for an unknown name, names like it
function help.text(env, query)
    query = query:gsub('%s+$', ''):gsub('^%s+', ''):gsub('%(.*$', '')
    if query == '' then return USAGE end
    local before, name = query:match '^(.*)[.:]([%w_]+)$'
    if before == nil then before, name = '', query end
    local out = {}
    for _, which in ipairs(spaces_of(env, before)) do
        if has(which, name) then
            local value = value_in(which, name)
            local block = comment_of(which, name, value)
            out[#out + 1] = title(which, name) .. '\n' .. (block and shown(block) or place(which, name, value))
        end
    end
    add_objects(out, env, before, name)
    local methods = before == '' and methods_line(env, name)
    if methods then out[#out + 1] = methods end
    if #out > 0 then return table.concat(out, '\n') end
    local value = names.value(env, query)
    if value ~= nil and before == '' then
        local kind = tensor.is(value) and 'a tensor' or module.is(value) and 'a module' or 'a ' .. type(value)
        local fields = names.of(value)
        return query .. ' is ' .. kind .. (#fields > 0 and ': ' .. table.concat(fields, ', ') or '')
    end
    return 'nothing is known of ' .. query .. '; ' .. near(name)
end

return help
