-- Writes what the Lua blocks and the examples of every page print now into the text blocks below them, for when a
-- change of Wane changes bytes. Look at the difference before committing it: spec/readme_spec.lua then holds the pages
-- to it.
--
--   luajit spec/support/refresh.lua
local helper = require 'spec.helper'
local readme = require 'spec.support.readme'

-- The block of the first script, which `lua continues` blocks of any page go on from.
local first
for _, block in ipairs(readme.blocks_of(helper.read 'README.md')) do
    if block.info:find('file=', 1, true) then first = block end
end
local before = readme.run(readme.source({ info = 'lua continues', body = '' }, first))

-- Returns what a block prints now.
local function output_of(block)
    if readme.is_example(block) then return (readme.run_example(block)) end
    if block.body == first.body then return before end
    local out = readme.run(readme.source(block, first))
    return block.info == 'lua continues' and out:sub(#before + 1) or out
end

for _, path in ipairs(readme.PAGES) do
    local page, at = helper.read(path), 1
    for _, block in ipairs(readme.blocks_of(page)) do
        local is_run = block.info == 'lua' or block.info == 'lua continues' or block.body == first.body
        if block.expected and (is_run or readme.is_example(block)) then
            local from, to = page:find('```text\n' .. block.expected .. '```', at, true)
            page = page:sub(1, from - 1) .. '```text\n' .. output_of(block) .. '```' .. page:sub(to + 1)
            at = from
        end
    end
    local file = assert(io.open(helper.root .. '/' .. path, 'wb'))
    file:write(page)
    file:close()
end
