--- Finds the Lua blocks of the pages, makes each a whole script, and runs it, for spec/readme_spec.lua.
--
-- Run as a script, `luajit spec/support/readme.lua`, this file writes what the Lua blocks and the examples of
-- every page print now into the text blocks below them, for when a change of Wane changes bytes. Look at the
-- difference before committing it: spec/readme_spec.lua then holds the pages to it.
local helper = require 'spec.helper'
local files = require 'spec.support.files'

local readme = {}

--- Every page of the project, as paths from its root; spec/bench/RESULTS.md holds results and no snippets.
readme.PAGES = { 'README.md', 'lua/README.md', 'examples/README.md', 'kernels/README.md', 'runtime/README.md',
    'spec/README.md' }
for _, path in ipairs(helper.lines 'ls lua/wane/*/README.md examples/tasks/*.md') do
    readme.PAGES[#readme.PAGES + 1] = path
end

--- The lines before a block that runs on its own.
readme.PREAMBLE = "local wane = require 'wane'; local nn, optim, policy = wane.nn, wane.optim, wane.policy; "

--- Returns whether a block is the command of an example, with a piece of its output below: sh from='first words'
-- lines=3.
function readme.is_example(block) return block.info:match "^sh from='" ~= nil end

-- Returns the fenced blocks in order: { info =, body =, expected = body of the text block right below, or nil }.
function readme.blocks_of(page)
    local blocks, open, gap = {}, nil, false
    for line in (page .. '\n'):gmatch '(.-)\n' do
        local info = line:match '^```(.*)$'
        if open and info == '' then
            open.body, open = table.concat(open, '\n') .. '\n', nil
            gap = false
        elseif open then
            open[#open + 1] = line
        elseif info then
            open = { info = info, after_text = gap }
            blocks[#blocks + 1] = open
        elseif line ~= '' then
            gap = true
        end
    end
    for i, block in ipairs(blocks) do
        local below = blocks[i + 1]
        local has_output = block.info:match '^lua' or readme.is_example(block)
        if has_output and below and below.info == 'text' then block.expected = below.body end
    end
    return blocks
end

local function quoted(s)
    return "'" .. s:gsub("'", "'\\''") .. "'"
end

-- Runs a Lua file from another folder; returns its output, made without measured costs, and its exit code.
function readme.run_file(path, folder)
    local command = ("cd /tmp && WANE_THREADS=2 WANE_ONEDNN=off WANE_COSTS=off LUA_PATH=%s "
        .. '${LUAJIT:-luajit} %s'):format(
        quoted(folder .. '/lua/?.lua;' .. folder .. '/lua/?/init.lua;;'), quoted(path))
    return helper.shell(command)
end

local root = helper.lines('pwd -P')[1]

function readme.run(source)
    local path = os.tmpname()
    files.write(path, source)
    local out, code = readme.run_file(path, root)
    os.remove(path)
    return out, code
end

-- Output and exit code of a command that ran, by the command: blocks show pieces of one output.
local outputs = {}

--- Runs the command of an example; returns so many lines of what it prints, from the first that starts with the words,
-- and its exit code.
function readme.run_example(block)
    local from, count = block.info:match "^sh from='(.-)' lines=(%d+)$"
    local out, code = unpack(outputs[block.body] or {})
    if not out then
        local command = block.body:gsub('^luajit ', '${LUAJIT:-luajit} ')
        out, code = helper.shell('WANE_THREADS=2 WANE_ONEDNN=off WANE_COSTS=off ' .. command)
        outputs[block.body] = { out, code }
    end
    local lines = {}
    for line in out:gmatch '([^\n]*)\n' do
        local is_inside = #lines > 0 or line:sub(1, #from) == from
        if is_inside and #lines < tonumber(count) then lines[#lines + 1] = line:gsub('%s+$', '') end
    end
    return table.concat(lines, '\n') .. '\n', code
end

--- Returns a block as a whole script; `first` is the block of the first script.
function readme.source(block, first)
    if block.info ~= 'lua continues' then return readme.PREAMBLE .. block.body end
    local whole, found = first.body:gsub('if arg.-\npackage.path = [^\n]*\n', '')
    assert(found == 1, 'the first script says where Wane is')
    return whole .. block.body
end

local function refresh()
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
        files.write(helper.root .. '/' .. path, page)
    end
end

if arg and arg[0] and arg[0]:find '/readme%.lua$' then refresh() end

return readme
