-- Writes what README.md's Lua blocks print now into the text blocks below them, for when a change of Wane changes
-- bytes. Look at the difference before committing it: spec/readme_spec.lua then holds the page to it.
--
--   luajit spec/support/readme.lua
local function read(path)
    local file = assert(io.open(path, 'rb'))
    local text = file:read '*a'
    file:close()
    return text
end

local function write(path, text)
    local file = assert(io.open(path, 'wb'))
    file:write(text)
    file:close()
end

local PREAMBLE = "local wane = require 'wane'; local nn, optim, policy = wane.nn, wane.optim, wane.policy; "
local page = read 'README.md'
local first = page:match '```lua file=[^\n]*\n(.-)\n```\n'
local bare_first = first:gsub('local root = .-\npackage.path = [^\n]*\n', '')

local function output(source)
    local path = os.tmpname()
    write(path, source)
    local pipe = io.popen(('WANE_THREADS=2 LUA_PATH="lua/?.lua;lua/?/init.lua;;" luajit %s 2>&1'):format(path))
    local text = pipe:read '*a'
    pipe:close()
    os.remove(path)
    return text
end

local before = output(bare_first)
local parts, at = {}, 1
while true do
    local start, body_at, info = page:find('```lua([^\n]*)\n', at)
    if not start then break end
    local body_end, after = page:find('\n```\n', body_at, true)
    local body = page:sub(body_at + 1, body_end - 1)
    local fence, text_at = page:find('\n```[^\n]*\n', after)
    local text
    if fence and page:sub(fence, text_at) == '\n```text\n' then
        if info:find('file=', 1, true) then text = before
        elseif info == ' continues' then text = output(bare_first .. '\n' .. body .. '\n'):sub(#before + 1)
        elseif info == '' then text = output(PREAMBLE .. body .. '\n') end
    end
    if text then
        parts[#parts + 1] = page:sub(at, text_at) .. text
        at = page:find('```\n', text_at, true)
    else
        parts[#parts + 1] = page:sub(at, after)
        at = after + 1
    end
end
write('README.md', table.concat(parts) .. page:sub(at))
