--- Keeps all modules of Wane in a process to one folder, that of the first one: returns how sources in it begin.
--
-- Many modules are loaded when their name is first asked for, and a script may have changed package.path by then: to
-- the same folder spelled otherwise, whose files errors would take for the user's, or to another version of Wane, which
-- would be mixed with this one. So `wane` and `wane.*` are looked for in package.preload, then in this folder alone.
-- @internal wane.tree

local source = debug.getinfo(1, 'S').source
local here = source:match('^(.*[/\\])') or '@'
local root = source:match('^@(.*)wane[/\\]tree%.lua$')

-- Loads a module of Wane from this folder; any other module is left to the loaders behind this one.
local function load_here(name)
    if name ~= 'wane' and not name:find '^wane%.' then return nil end
    local path, tried = package.searchpath(name, root .. '?.lua;' .. root .. '?/init.lua')
    if not path then
        error(("module '%s' not found: modules of Wane come from %swane alone, which has none of that name%s"):format(
            name, root, tried), 3)
    end
    local chunk, why = loadfile(path)
    if not chunk then error(("error loading module '%s' from file '%s':\n\t%s"):format(name, path, why), 3) end
    return chunk
end

if root then table.insert(package.loaders, 2, load_here) end

return here
