-- Reads the options of an example: local read, refuse = dofile(root .. '/examples/options.lua').
--
-- read(defaults, others) returns the values of `arg` by name. A default says what an option takes: a number, a text, or
-- nothing where it is false. One that is a table is an option that stands for the values in it, as
-- small = { width = 64 } does. `others` lists options without a default by a value of their kind. --help prints the
-- head of the script. refuse(format, ...) says on the error stream what is wrong with the command line, and ends the
-- process with status 2, as the commands of `wane` do.
local function refuse(format, ...)
    io.stderr:write(('%s: %s\n'):format(arg[0], format:format(...)))
    os.exit(2, true)
end

local function print_head()
    for line in io.lines(arg[0]) do
        local text = line:match '^%-%- ?(.*)'
        if not text then break end
        print(text)
    end
    os.exit(0, true)
end

-- Returns the options as --help and refusals list them.
local function listed(kinds)
    local names = {}
    for name, kind in pairs(kinds) do
        names[#names + 1] = '--' .. name .. (kind == 'number' and ' N' or kind == 'string' and ' TEXT' or '')
    end
    table.sort(names)
    return #names == 0 and 'it takes none' or 'known: ' .. table.concat(names, ', ')
end

local function read(defaults, others)
    local values, kinds, i = {}, {}, 1
    for name, value in pairs(others or {}) do kinds[name] = type(value) end
    for name, value in pairs(defaults) do
        kinds[name] = type(value)
        if type(value) ~= 'table' then values[name] = value end
    end
    while arg[i] do
        local name = arg[i]:match '^%-%-(.+)$' or ''
        local kind = kinds[name]
        if name == 'help' or arg[i] == '-h' then
            print_head()
        elseif kind == 'table' then
            for key, value in pairs(defaults[name]) do values[key] = value end
        elseif kind == 'boolean' then
            values[name] = true
        elseif kind then
            i = i + 1
            values[name] = kind == 'number' and tonumber(arg[i]) or kind == 'string' and arg[i]
                or refuse('--%s takes a %s, got %s', name, kind == 'number' and kind or 'text', tostring(arg[i]))
        else
            refuse("unknown option '%s'; %s", arg[i], listed(kinds))
        end
        i = i + 1
    end
    return values
end

return read, refuse
