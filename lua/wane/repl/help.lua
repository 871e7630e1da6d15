--- `?name` at the prompt: shows what the comments of Wane's own Lua files say about a name.
--
-- A name is looked up where a script would find it: wane, a tensor's methods and fields, nn, optim, policy, data, a
-- model's methods, those of plans, optimizers and other objects. Then the comment that fits it best is searched in the
-- files beside this one, each of which is read once. Help is read from the code and cannot drift from it: a name that
-- is gone has none, and a comment that is written is found by the next prompt.
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
local OWN_FILES = {
    tensor = { 'tensor/', 'program/grad' }, policy = { 'policy/' },
    nn = { 'nn/', 'module/' }, optim = { 'optim/' }, data = { 'data/' },
}

-- Returns the table of a space, name -> value. Values of names that are loaded late are read only when asked for.
local function space(which)
    local wane = require 'wane'
    if which == 'wane' then return wane end
    if which == 'tensor' then return nil end
    return wane[which]
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
local blocks, seen = {}, {} -- of comments.read, and the files that they come from

-- Files that names come from; plain Lua cannot list a folder.
local FILES = {
    'init', 'data', 'io', 'tensor/arith', 'tensor/shape', 'tensor/read', 'tensor', 'tensor/create',
    'program/grad', 'policy', 'policy/decide', 'plan', 'plan/measure', 'plan/measure/memory', 'report/bytes',
    'program/checkpoint', 'program/chunked', 'program/accumulate', 'program/custom', 'module',
    'module/state', 'pytorch', 'cli', 'tensor/op', 'errors', 'scoped',
}

-- Adds the blocks of a file that was not read before, each with all its lines as one text.
local function add(file)
    if seen[file] then return end
    seen[file] = true
    local before = #blocks
    comments.read(blocks, file)
    comments.read(blocks, file .. '/init')
    for i = before + 1, #blocks do
        blocks[i].all = table.concat(blocks[i].text, '\n') .. '\n' .. table.concat(blocks[i].code, '\n')
    end
end

-- Reads the blocks of all files: FILES, and those that were loaded when the name was looked up.
local function load_blocks()
    for _, file in ipairs(FILES) do add(file) end
    -- Looking up the name loaded the files of layers, of optimizers and of names that are loaded late.
    for loaded in iterate(package.loaded) do
        local file = type(loaded) == 'string' and loaded:match '^wane%.(.+)$'
        if file and not file:match '^repl' then add((file:gsub('%.', '/'))) end
    end
end

-- Returns the set of words in a line.
local function words_of(line)
    local found = {}
    for word in line:gmatch '[%a_][%w_]*' do found[word] = true end
    return found
end

-- Returns how a block's code defines `name`: 2 in its first line; 1 further down, where no empty line separates them or
-- the comment contains the name; 0 not at all.
local function defines(block, name)
    local is_near = true
    for i, line in ipairs(block.code) do
        is_near = is_near and line ~= ''
        local defined = line:match '^function [%w_]+[.:]([%w_]+)' or line:match '^local function ([%w_]+)'
            or line:match '^[%w_]+%.([%w_]+) *=' or line:match '^([%w_]+) *='
        if defined == name then return i == 1 and 2 or is_near and 1 or words_of(table.concat(block.text, ' '))[name]
            and 1 or 0 end
        if line:match '^[%w_.]+, ' and words_of(line:match '^[^=]*')[name] then return i == 1 and 2 or 1 end
    end
    return 0
end

-- Tells whether names of a space are defined in a file; a space without files of its own takes any.
local function is_own(which, file)
    for _, own in ipairs(OWN_FILES[which] or {}) do
        if file == own or own:sub(-1) == '/' and file:sub(1, #own) == own then return true end
    end
    return OWN_FILES[which] == nil
end

-- Returns how well the words of a block fit a name, 0 for not at all.
local function score_words(block, which, name)
    if not block.all:find(name, 1, true) then return 0 end
    local text, full = table.concat(block.text, '\n'), which .. '.' .. name
    local points = defines(block, name) * 2
    if (' ' .. text):find('[^%w_.]' .. full:gsub('%.', '%%.') .. '%f[^%w_]') then points = points + 3 end
    return points + (words_of(block.text[1])[name] and 1 or 0)
end

-- Returns how well a block fits a name, 0 for not at all.
local function score(block, which, name, value)
    local points = score_words(block, which, name)
    if type(value) == 'function' then
        local info = debug.getinfo(errors.inner(value), 'S')
        local is_there = info.source:sub(2) == folder .. block.file .. '.lua'
        if is_there and info.linedefined >= block.first and info.linedefined <= block.last then points = points + 2 end
    end
    if points == 0 then return 0 end
    if is_own(which, block.file) then points = points + 1 end
    return points + (block.is_doc and 1 or 0)
end

local LEAST = 4 -- least score of a block that is shown; a passing mention scores less

-- Returns the block that fits a name best, or nil.
local function best(which, name, value)
    local found, most = nil, LEAST - 1
    for _, block in ipairs(blocks) do
        local points = score(block, which, name, value)
        if points > most then found, most = block, points end
    end
    return found
end

-- ---- showing them ------------------------------------------------------------------------------------------------
-- Returns a name as scripts write it: 'tensor:sum', 'wane.zeros'.
local function title(which, name)
    if which == 'tensor' then
        return tensor.methods[name] and 'tensor:' .. name or 'tensor.' .. name
    end
    return which .. '.' .. name
end

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
    for _, which in ipairs(SPACES) do
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
            load_blocks()
            local block = best(which, name, value)
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
