-- Reads the shapes of code off its text. Of C: the lines of each function and each macro, the parameters of each
-- function, and the fields of each struct; it needs no compiler, as it knows the layout that clang-format gives, where
-- the brace of a function begins a line. Of Lua: what a file requires, and the lines and parameters of each function.
local bytecode = require 'jit.util'

local c_shapes, lua_shapes = {}, {}

local function lines_of(text)
    local out = {}
    for line in (text:gsub('\n$', '') .. '\n'):gmatch('(.-)\r?\n') do out[#out + 1] = line end
    return out
end

-- Blanks comments, strings and constants of characters; keeps lines.
local function code_of(text)
    text = text:gsub('\\[^\n]', '  '):gsub('/%*.-%*/', function(comment) return (comment:gsub('[^\n]', ' ')) end)
    return (text:gsub("'[^'\n]*'", '0'):gsub('"[^"\n]*"', '0'):gsub('//[^\n]*', ''))
end

--- Finds functions: from a brace in the first column to the one that closes it. Returns a list of
-- { name = (the line before the brace), line =, lines = }.
function c_shapes.functions(text)
    local out, start, name = {}, nil, '?'
    local list = lines_of(text)
    for i, line in ipairs(list) do
        if line:match('^{') then
            start, name = i, list[i - 1] or '?'
        elseif line:match('^}') and start then
            out[#out + 1] = { name = name, line = start, lines = i - start + 1 }
            start = nil
        end
    end
    return out
end

--- Finds macros: a #define with the lines that continue it. Returns a list of { name =, line =, lines = }.
function c_shapes.macros(text)
    local out, list = {}, lines_of(text)
    for i, line in ipairs(list) do
        local name = line:match('^%s*#%s*define%s+([%w_]+)')
        local last = i
        while name and list[last]:match('\\%s*$') do last = last + 1 end
        if name then out[#out + 1] = { name = name, line = i, lines = last - i + 1 } end
    end
    return out
end

local is_statement = { ['if'] = true, ['for'] = true, ['while'] = true, ['switch'] = true }

--- Counts the parameters of every function that a text defines, in macros and in templates, FN(name), too. Returns a
-- list of { name =, n = }.
function c_shapes.parameters(text)
    local out = {}
    text = code_of(text):gsub('\\%s*\n', '\n'):gsub('[%w_]+%(([%w_#]+)%)(%b()%s*\n%s*{)', '%1%2')
    for name, list in text:gmatch('([%w_#]+)%s*(%b())%s*\n%s*{') do
        local flat = list:sub(2, -2):gsub('%b()', ''):gsub('%b<>', '')
        local n = flat:match('^%s*$') and 0 or flat:match('^%s*void%s*$') and 0 or select(2, flat:gsub(',', '')) + 1
        if not is_statement[name] then out[#out + 1] = { name = name, n = n } end
    end
    return out
end

-- Appends the structs of a text without comments to `out`, those inside others too.
local function add_structs(code, out)
    for name, body in code:gmatch('struct%s*([%w_]*)%s*(%b{})') do
        local flat = body:sub(2, -2):gsub('%b{}', ''):gsub('%b()', '')
        out[#out + 1] = { name = name, n = select(2, flat:gsub('[,;]', '')) }
        add_structs(body:sub(2, -2), out)
    end
    return out
end

--- Counts the fields of every struct that a text declares; one that is a struct itself counts as one. Returns a list of
-- { name = ('' for a struct without a name), n = }.
function c_shapes.structs(text) return add_structs(code_of(text), {}) end

-- Blanks directives with the lines that continue them; keeps lines.
local function without_directives(code)
    local list, is_continued = lines_of(code), false
    for i, line in ipairs(list) do
        local is_directive = is_continued or line:find '^%s*#' ~= nil
        is_continued = is_directive and line:find '\\%s*$' ~= nil
        if is_directive then list[i] = '' end
    end
    return table.concat(list, '\n')
end

-- Returns the parts of a list between its braces, without what is inside of further brackets.
local function parts_of(body)
    local out = {}
    local flat = body:sub(2, -2):gsub('%b()', '()'):gsub('%b{}', '{}'):gsub('%b[]', '[]')
    for part in (flat .. ','):gmatch '(.-),' do out[#out + 1] = part:match '^%s*(.-)%s*$' end
    return out
end

-- Returns how many parts of a list are given by their position.
local function positional_of(body)
    local n = 0
    for _, part in ipairs(parts_of(body)) do
        if part ~= '' and not part:find '^[.%[]' then n = n + 1 end
    end
    return n
end

-- Returns what a brace at `at` begins, by what stands before it: 'struct', an initializer of one; 'array'; nil.
local function kind_of(code, at)
    local before = code:sub(math.max(1, at - 300), at - 1):match '[^;]*$'
    local declared = before:match '([^{}]*)=%s*$'
    if declared and declared:find '^%s*[.%[]' then return nil end
    if declared then return declared:find '%[' and 'array' or 'struct' end
    if before:find '%(%s*[%w_%s]+%)$' or before:find 'return%s*$' or before:find '[%w_>]$' then return 'struct' end
end

-- Tells whether the fields of an array's rows are named above it: in the same declaration, or in {} of a comment.
local function names_fields(text, code, at)
    local line = select(2, code:sub(1, at):gsub('\n', '')) + 1
    local list = lines_of(text)
    if list[line]:find '^%s*}' then return true end
    while line > 1 and not list[line - 1]:find '%*/%s*\\?%s*$' and list[line - 1]:find '%S' do line = line - 1 end
    while line > 1 and list[line - 1]:find '%S' do
        line = line - 1
        if list[line]:find '%b{}' then return true end
        if list[line]:find '/%*' then return false end
    end
    return false
end

--- Finds initializers of structs, outside of macros. The rows of an array count where no comment above it and no struct
-- in its declaration names their fields. Returns a list of { name = (the word before), n = (fields by position) }.
function c_shapes.positional(text)
    local out, code = {}, without_directives(code_of(text))
    for at in code:gmatch '(){' do
        local body, kind = code:match('^%b{}', at), kind_of(code, at)
        local name = code:sub(1, at - 1):match '([%w_]+)[^%w_]*$'
        if body and kind == 'struct' and not body:find ';' then
            out[#out + 1] = { name = name, n = positional_of(body) }
        end
        if body and kind == 'array' and not names_fields(text, code, at) then
            for row in body:sub(2, -2):gmatch '%b{}' do out[#out + 1] = { name = name, n = positional_of(row) } end
        end
    end
    return out
end

-- ---- Lua ------------------------------------------------------------------------------------------------------------
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

return { c = c_shapes, lua = lua_shapes, lines_of = lines_of }
