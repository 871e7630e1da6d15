-- Reads the shapes of C off its text: the lines of each function and each macro, the parameters of each function, and
-- the fields of each struct.
-- Needs no compiler: it knows the layout that clang-format gives, where the brace of a function begins a line.
local c_shapes = {}

local function lines_of(text)
    local out = {}
    for line in (text:gsub('\n$', '') .. '\n'):gmatch('(.-)\r?\n') do out[#out + 1] = line end
    return out
end
c_shapes.lines_of = lines_of

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

--- Counts the parameters of every function that a text defines, in macros too. Returns a list of { name =, n = }.
function c_shapes.parameters(text)
    local out = {}
    for name, list in code_of(text):gsub('\\%s*\n', '\n'):gmatch('([%w_#]+)%s*(%b())%s*\n%s*{') do
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

return c_shapes
