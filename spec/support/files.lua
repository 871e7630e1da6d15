--- Makes the files and folders that specs need, and runs examples as a shell does. Needs the helper for the latter
-- alone, so that tools without the library read and write files by it too.
local files = {}

--- Makes a fresh folder; returns its name.
function files.folder()
    local name = os.tmpname()
    os.remove(name)
    assert(os.execute('mkdir -p "' .. name .. '"') == 0)
    return name
end

--- Writes texts into a file, one behind the other; returns its name.
function files.write(path, ...)
    local file = assert(io.open(path, 'wb'))
    file:write(...)
    file:close()
    return path
end

local scripts = {}

--- Writes a script of Lua; returns its name. files.forget removes all of them.
function files.script(text)
    scripts[#scripts + 1] = files.write(os.tmpname() .. '.lua', text)
    return scripts[#scripts]
end

--- Removes the scripts that were written.
function files.forget()
    for _, name in ipairs(scripts) do os.remove(name) end
    scripts = {}
end

--- Returns the text of a file, or nil where there is none.
function files.read(path)
    local file = io.open(path, 'rb')
    if not file then return nil end
    local text = file:read '*a'
    file:close()
    return text
end

--- Returns a whole number as so many bytes, the least significant first.
function files.little(n, count)
    local bytes = {}
    for k = 1, count do bytes[k], n = string.char(n % 256), math.floor(n / 256) end
    return table.concat(bytes)
end

--- Runs a text of Lua in a process of its own, for at most a minute; returns what it prints and its exit code.
-- @param environment variables as a shell has them before a command; none when nil
function files.lua(text, environment)
    return require('spec.helper').shell((environment or '')
        .. " LUA_PATH='lua/?.lua;lua/?/init.lua;;' timeout 60 ${LUAJIT:-luajit} -", text)
end

--- Runs an example with options from another folder; returns what it prints. Fails where it ends badly.
-- @param name below examples/, such as 'projects/hunt'
-- @param options text of the command line
-- @param environment variables as a shell has them before a command; none when nil
function files.example(name, options, environment)
    local helper = require 'spec.helper'
    local root = helper.lines('pwd')[1]
    local out, code = helper.shell(('cd / && %s %s "%s/examples/%s.lua" %s'):format(environment or '',
        os.getenv 'LUAJIT' or 'luajit', root, name, options))
    assert(code == 0, out)
    return out
end

return files
