--- Reads the doc comments of Wane's own Lua files, for help at the prompt.
-- @internal wane.repl.comments

local system = require 'wane.system'

local comments = {}

--- The folder of Wane's files, with a slash at its end.
comments.folder = debug.getinfo(1, 'S').source:match '^@(.*[/\\])repl[/\\]' or './'

-- Adds a line of a comment to the block's text, or to its examples after an `@usage`.
local function add_comment(block, line)
    local text = line:gsub('^%-%-+ ?', '')
    local first = text:match '^@usage ?(.*)'
    if first then
        block.usage = block.usage or {}
        if first ~= '' then table.insert(block.usage, first) end
    elseif block.usage and not text:match '^@' then
        table.insert(block.usage, text)
    else
        table.insert(block.text, text)
        local tag, name = text:match '^@(%l+) ([%w_.:]+)$'
        if tag then block[tag == 'function' and 'is_of' or 'module'] = name end
    end
end

local known = {} -- file -> its list

--- Lists the doc comments of a file: { file =, text = lines of the comment, usage = lines of its examples or nil,
-- code = the line below it, line = its number, is_of = name after @function, module = name after @module or
-- @internal }.
-- @param file name below the folder, without .lua; of a folder, its init.lua
-- @return list, empty where there is no such file
function comments.of(file)
    if known[file] then return known[file] end
    local list, block, n = {}, nil, 0
    local name = file
    local text = system.read(comments.folder .. name .. '.lua')
    if not text then
        name = file .. '/init'
        text = system.read(comments.folder .. name .. '.lua') or ''
    end
    for line in text:gmatch '([^\n]*)\n' do
        n = n + 1
        if line:find(block and '^%-%-' or '^%-%-%-') then
            if not block then
                block = { file = name, text = {} }
                list[#list + 1] = block
            end
            add_comment(block, line)
        elseif block then
            block.code, block.line, block = line, n, nil
        end
    end
    known[file] = list
    return list
end

return comments
