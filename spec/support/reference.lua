-- The reference as data: the doc comments of lua/wane, the names that scripts can call, and the examples of the
-- comments, which run here as a reader would type them.
--
-- A file whose head says `@module` is part of what scripts use, one whose head says `@internal` is not. In a file that
-- scripts use, every doc comment is public but those that say `@within Internal`.
local ffi = require 'ffi'
local helper = require 'spec.helper'

ffi.cdef 'int chdir(const char *path);'

local reference = {}

local FOLDER = 'lua/wane/'

-- Returns the table `titles` of config.ld, which is Lua: pages show the titles, and specs look them up.
local function titles_of_config()
    local env = { new_type = function() end }
    setfenv(assert(loadstring(helper.read 'config.ld', '@config.ld')), env)()
    for i = 1, 20 do
        local name, value = debug.getupvalue(env.custom_display_name_handler, i)
        if name == 'titles' then return value end
    end
    error 'config.ld has no table of titles'
end
local titles = titles_of_config()

-- ---- comments -----------------------------------------------------------------------------------------------------

-- Returns the name that a line of code defines, as it stands there ('methods.sum', 'Optimizer:step'), or nil; then
-- whether the function is the file's own.
local function defined_by(line)
    local name = line:match '^function ([%w_.:]+)' or line:match '^([%w_]+%.[%w_]+) *='
        or line:match '^    function ([%w_]+[.:][%w_]+)'
    if name then return name, false end
    name = line:match '^local function ([%w_]+)'
    return name, name ~= nil
end

-- Takes the examples out of a comment: lists of lines, one list an `@usage`.
local function split_usage(lines)
    local text, usages, usage = {}, {}, nil
    for _, line in ipairs(lines) do
        local rest = line:match '^@usage ?(.*)'
        if rest then
            usage = { rest }
            usages[#usages + 1] = usage
        elseif line:match '^@%l' then
            usage = nil
            text[#text + 1] = line
        else
            table.insert(usage or text, line)
        end
    end
    for k, list in ipairs(usages) do usages[k] = table.concat(list, '\n') end
    return text, usages
end

local function block_of(file, lines, first, code)
    local text, usages = split_usage(lines)
    local name, is_local = defined_by(code or '')
    local block = { file = file, line = first, text = table.concat(text, '\n'), usages = usages, code = name }
    is_local = is_local and not block.text:find '\n@function '
    block.is_internal = is_local or block.text:find '\n@within Internal' ~= nil or block.text:find '\n@local' ~= nil
    return block
end

--- Reads the doc comments of one file.
-- @return { name = 'tensor/arith', is_public =, head = block, blocks = list, bare = names of functions without one,
-- hidden = lines of doc comments that LDoc takes for part of the comment above them }
function reference.file(name)
    local file = { name = name, blocks = {}, bare = {}, hidden = {} }
    local lines, first, number, is_below = nil, nil, 0, false
    for line in helper.read(FOLDER .. name .. '.lua'):gmatch '([^\n]*)\n' do
        number = number + 1
        local comment = line:match '^ *%-%-%-? ?(.*)'
        if comment and line:match '^ *%-%-%-' and not line:match '^ *%-%-%-%-' then
            lines, first = { comment }, number
            if is_below then file.hidden[#file.hidden + 1] = number end
        elseif comment and lines then
            lines[#lines + 1] = comment
        elseif lines then
            local block = block_of(name, lines, first, line)
            if file.head then file.blocks[#file.blocks + 1] = block else file.head = block end
            lines = nil
        else
            local bare, is_local = defined_by(line)
            if bare and not is_local and line:match '^%s*function' then file.bare[#file.bare + 1] = bare end
        end
        is_below = comment ~= nil
    end
    file.is_public = file.head ~= nil and file.head.text:find '\n@module ' ~= nil
    return file
end

--- Reads all files, sorted by name.
function reference.files()
    local files = {}
    for _, path in ipairs(helper.lines('find ' .. FOLDER .. " -name '*.lua' | LC_ALL=C sort")) do
        files[#files + 1] = reference.file(path:sub(#FOLDER + 1, -5))
    end
    return files
end

-- ---- names --------------------------------------------------------------------------------------------------------

--- Returns the title of a block in the reference ('tensor:sum', 'wane.zeros', 'nn.Linear'), or nil.
function reference.title(block)
    local tagged = block.text:match '\n@function ([%w_.:]+)'
    if tagged then return tagged end
    if block.code then
        local before, name = block.code:match '^([%w_]+)[.:]([%w_]+)$'
        local own = titles[block.file] or {}
        local prefix = own[before] or titles[before]
        if prefix then return prefix .. (own[block.code] or name) end
    end
    return block.text:match '^([%l_][%w_.]*%.[%w_]+)%f[^%w_]'
end

-- Names of the table `wane` that Wane's own files and specs use.
local OWN = { scoped = true }

--- Lists all that a script can call: { title =, value =, file = where a function stands, or nil }.
function reference.callable()
    local wane = helper.wane or require 'wane'
    local names, tensor = require 'wane.repl.names', require 'wane.tensor'
    local list = {}
    local function add(prefix, t)
        for _, name in ipairs(names.of(t)) do
            local value = t[name]
            local source = type(value) == 'function' and debug.getinfo(wane.errors.inner(value), 'S').source
            local mt = debug.getmetatable(value)
            if not OWN[name] and (source or type(value) == 'table' and type(mt) == 'table' and mt.__call) then
                local file = source and source:match 'lua/wane/(.*)%.lua$'
                list[#list + 1] = { title = prefix .. name, value = value, file = file }
            end
        end
    end
    add('wane.', wane)
    add('nn.', wane.nn)
    add('nn.init.', wane.nn.init)
    add('optim.', wane.optim)
    add('optim.schedule.', wane.optim.schedule)
    add('policy.', wane.policy)
    add('data.', wane.data)
    add('tensor:', tensor.methods)
    add('tensor.', tensor.fields)
    add('module:', require('wane.module').Module)
    add('optimizer:', require 'wane.optim.optimizer')
    return list
end

--- Returns all blocks of public files by their title.
function reference.by_title(files)
    local found = {}
    for _, file in ipairs(files) do
        if file.is_public then
            local head = reference.title(file.head)
            if head then found[head] = file.head end
            for _, block in ipairs(file.blocks) do
                local title = reference.title(block)
                if title then found[title] = block end
            end
        end
    end
    return found
end

-- ---- examples -----------------------------------------------------------------------------------------------------

--- The lines before every example; config.ld shows them to readers.
reference.PREAMBLE = [[
local ffi, wane = require 'ffi', require 'wane'
local nn, optim, policy, data = wane.nn, wane.optim, wane.policy, wane.data
local model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
local opt = optim.AdamW(model:parameters(), { lr = 0.01 })
local x, y = wane.randn(2, 8), wane.randint(4, { 2 })
local loss = nn.cross_entropy(model(x), y)]]

-- Returns what `-->` promises, one entry a line.
local function promised(usage)
    local lines = {}
    for text in usage:gmatch '%-%-> ?([^\n]*)' do lines[#lines + 1] = text end
    return lines
end

local function environment(out)
    local env = { print = function(...)
        local words = {}
        for k = 1, select('#', ...) do words[k] = tostring((select(k, ...))) end
        for line in (table.concat(words, '\t') .. '\n'):gmatch '(.-)\n' do out[#out + 1] = line:gsub('%s+$', '') end
    end }
    return setmetatable(env, {
        __index = function(_, name)
            if _G[name] == nil then error('the example reads ' .. name .. ', which nothing defines', 2) end
            return _G[name]
        end,
        __newindex = function(_, name) error('the example assigns the global ' .. name, 2) end,
    })
end

--- Calls fn() in a new folder, for what examples write; the folder is removed.
function reference.in_folder(fn)
    local folder, root = helper.lines('mktemp -d')[1], helper.lines('pwd -P')[1]
    local path = package.path
    package.path = ('%s/lua/?.lua;%s/lua/?/init.lua;'):format(root, root) .. path
    assert(ffi.C.chdir(folder) == 0)
    local ok, failure = pcall(fn)
    assert(ffi.C.chdir(root) == 0)
    package.path = path
    helper.lines("rm -rf '" .. folder .. "'")
    if not ok then error(failure, 0) end
end

--- Runs one example after the preamble.
-- @return nil, or what went wrong
function reference.run(usage)
    local source = reference.PREAMBLE:gsub('\n', ' ') .. ' do ' .. usage .. '\nend'
    local chunk, syntax = loadstring(source, '=example')
    if not chunk then return syntax end
    local wane, out = require 'wane', {}
    wane.manual_seed(1)
    local device, lines = wane.set_device 'cpu', wane.lines(false)
    local ok, failure = pcall(setfenv(chunk, environment(out)))
    wane.set_device(device)
    wane.lines(lines)
    if not ok then return tostring(failure) end
    local wanted = promised(usage)
    if #wanted == 0 then return nil end
    local got, expected = table.concat(out, '\n'), table.concat(wanted, '\n')
    if got ~= expected then return ('it prints\n%s\nand its comments promise\n%s'):format(got, expected) end
end

return reference
