-- Writes what README.md's Lua blocks and its examples print now into the text blocks below them, for when a change of
-- Wane changes bytes. Look at the difference before committing it: spec/readme_spec.lua then holds the page to it.
--
--   luajit spec/support/refresh.lua
local helper = require 'spec.helper'
local readme = require 'spec.support.readme'

local page = helper.read 'README.md'
local blocks = readme.blocks_of(page)
local first, before
for _, block in ipairs(blocks) do
    if block.info:find('file=', 1, true) then first = block end
end

local at = 1
for _, block in ipairs(blocks) do
    local continues = block.info == 'lua continues'
    local is_example = readme.is_example(block)
    if block.expected and (continues or block == first or block.info == 'lua' or is_example) then
        local out
        if is_example then
            out = readme.run_example(block)
        elseif block == first then
            out = readme.run(readme.source({ info = 'lua continues', body = '' }, first))
        else
            out = readme.run(readme.source(block, first))
        end
        if block == first then before = out end
        if continues then out = out:sub(#before + 1) end
        local from, to = page:find('```text\n' .. block.expected .. '```', at, true)
        page = page:sub(1, from - 1) .. '```text\n' .. out .. '```' .. page:sub(to + 1)
        at = from
    end
end
local file = assert(io.open(helper.root .. '/README.md', 'wb'))
file:write(page)
file:close()
