--- Reads the comments of Wane's own Lua files, for help at the prompt.
-- @internal wane.repl.comments

local system = require 'wane.system'

local comments = {}

--- The folder of Wane's files, with a slash at its end.
comments.folder = debug.getinfo(1, 'S').source:match '^@(.*[/\\])repl[/\\]' or './'

local function is_comment(line)
    return line:match '^%-%-' ~= nil and not line:match '^%-%- %-%-%-%-'
end

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
    end
end

--- Appends the comments of a file, if it exists: { file =, first =, last = lines, text = lines of the comment, usage =
-- lines of its examples, code = lines up to the next comment, is_doc = }.
-- @param blocks list that grows
-- @param file name below the folder, without .lua
function comments.read(blocks, file)
    local text, block, n = system.read(comments.folder .. file .. '.lua'), nil, 0
    for line in (text or ''):gmatch '([^\n]*)\n' do
        n = n + 1
        if is_comment(line) then
            if block == nil or #block.code > 0 then
                block = { file = file, first = n, text = {}, code = {}, is_doc = line:match '^%-%-%-' ~= nil }
                blocks[#blocks + 1] = block
            end
            add_comment(block, line)
        elseif block then
            block.code[#block.code + 1] = line
        end
        if block then block.last = n end
    end
end

return comments
