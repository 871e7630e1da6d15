-- Reads the shapes of Lua off its text: what a file requires, and the lines and the parameters of each function.
local bytecode = require 'jit.util'
local c_shapes = require 'spec.support.c_shapes'

local lua_shapes = {}
local lines_of = c_shapes.lines_of

--- Returns the name of the module of a file: 'lua/wane/plan/init.lua' -> 'wane.plan'.
function lua_shapes.module_of(path)
    return (path:gsub('^lua/', ''):gsub('%.lua$', ''):gsub('/init$', ''):gsub('/', '.'))
end

--- Returns the modules of Wane that a text requires, at its top or inside functions; comments are not read.
function lua_shapes.requires(text)
    local out = {}
    for _, line in ipairs(lines_of(text)) do
        if not line:match('^%s*%-%-') then
            for name in line:gmatch('require%s*%(?%s*[\'"](wane[%w_.]*)[\'"]') do
                if not name:match('%.$') then out[#out + 1] = name end -- the rest of a name that is put together
            end
        end
    end
    return out
end

--- Names each cycle that a walk along the requires closes: 'a -> b -> a'.
function lua_shapes.cycles(graph)
    local bad, state, way, names = {}, {}, {}, {}
    local function visit(name)
        state[name], way[#way + 1] = #way + 1, name
        for _, target in ipairs(graph[name]) do
            if graph[target] and state[target] == nil then
                visit(target)
            elseif graph[target] and state[target] ~= 'done' then
                bad[#bad + 1] = table.concat(way, ' -> ', state[target]) .. ' -> ' .. target
            end
        end
        state[name], way[#way] = 'done', nil
    end
    for name in pairs(graph) do names[#names + 1] = name end
    table.sort(names)
    for _, name in ipairs(names) do
        if state[name] == nil then visit(name) end
    end
    return bad
end

--- Counts the parameters of every function that a text defines, without the object of a method and without `...`.
-- Returns a list of { name =, line =, n = }.
function lua_shapes.parameters(text)
    local out = {}
    local code = text:gsub('%-%-[^\n]*', '')
    for at, name, list in code:gmatch('()%f[%w_]function%f[^%w_]%s*([%w_.:]*)%s*(%b())') do
        if not list:find('[^%w_.,%s()]') then
            local _, line = code:sub(1, at):gsub('\n', '')
            local n = 0
            for _ in list:gmatch('[%a_][%w_]*') do n = n + 1 end
            out[#out + 1] = { name = name == '' and 'function' or name, line = line + 1, n = n }
        end
    end
    return out
end

-- Appends the functions inside a compiled one, however deep.
local function add_functions(out, fn, lines)
    for k = 1, bytecode.funcinfo(fn).gcconsts do
        local inner = bytecode.funck(fn, -k)
        if type(inner) == 'proto' then
            local info = bytecode.funcinfo(inner)
            out[#out + 1] = { name = lines[info.linedefined]:match '^%s*(.*)', line = info.linedefined,
                lines = info.lastlinedefined - info.linedefined + 1 }
            add_functions(out, inner, lines)
        end
    end
end

--- Finds the functions of a text, from the word `function` to the `end` that closes it. Returns a list of
-- { name = (its first line), line =, lines = }.
function lua_shapes.functions(text)
    local out = {}
    add_functions(out, assert(loadstring((text:gsub('^#[^\n]*', '')))), lines_of(text))
    return out
end

return lua_shapes
