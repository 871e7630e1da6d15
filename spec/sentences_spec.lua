-- The rules of comments that can be read off the text: how a comment may open, and that of a function in Lua with a
-- verb; that none goes on in another one; that none uses a noun which gave way to one of the glossary; and how wide a
-- line is. A reader sees one comment at a time: a comment that opens with a pronoun or with "What" has no subject, and
-- one that begins or ends with three dots needs a second comment to be understood.
local helper = require 'spec.helper'

local WIDEST = 120

-- Words that open no sentence which stands alone: pronouns, conjunctions, and clauses without a verb of their own.
local OPENERS = {}
for word in ([[And Also Again Both But Else It Its Ditto He Likewise Or Same So Such Their Them Then These They Those
    What Whatever Whoever Whose]]):gmatch('%a+') do OPENERS[word] = true end

-- Nouns that gave way to those of the glossary in runtime/README.md.
local RETIRED = {
    born = 'allocated', depot = 'offload buffer', harvest = 'take results', pcell = 'ir_cell', pnode = 'ir_node',
    pslab = 'ir_slab', slide = 'prefetch', upkeep = 'gc', wish = 'mode',
}

-- Returns the comments of a text in C, each { line = , text = }; strings are passed over.
local function comments_of_c(text)
    local out, at, line = {}, 1, 1
    while true do
        local from = text:find('[/"\']', at)
        if not from then return out end
        line = line + select(2, text:sub(at, from - 1):gsub('\n', ''))
        local stop
        if text:sub(from, from + 1) == '/*' then
            stop = select(2, text:find('*/', from + 2, true)) or #text
            out[#out + 1] = { line = line, text = text:sub(from + 2, stop - 2):gsub('\n%s*%*? ?', ' ') }
        elseif text:sub(from, from) == '/' then
            stop = from
        else
            local quote = text:sub(from, from)
            stop = from + 1
            while text:sub(stop, stop) ~= quote and stop < #text do
                stop = stop + (text:sub(stop, stop) == '\\' and 2 or 1)
            end
        end
        line = line + select(2, text:sub(from, stop):gsub('\n', ''))
        at = stop + 1
    end
end

-- Returns the end of the string that begins at `from` of a line of Lua, or nil when it begins none.
local function string_end(code, from)
    local quote = code:sub(from, from)
    if quote ~= '"' and quote ~= "'" then return nil end
    local at = from + 1
    while at <= #code and code:sub(at, at) ~= quote do at = at + (code:sub(at, at) == '\\' and 2 or 1) end
    return at
end

-- Returns the comment at the end of a line of Lua, and whether code stands before it; nil: there is none.
local function comment_of_line(code)
    local at = 1
    while at <= #code do
        if code:sub(at, at + 1) == '--' then
            return code:sub(at):match('^%-%-+ ?(.*)$'), code:sub(1, at - 1):find('%S') ~= nil
        end
        at = (string_end(code, at) or at) + 1
    end
end

-- Returns the comments of a text in Lua; lines that follow each other are one comment, and `above` is the line of code
-- below it. Long strings are passed over.
local function comments_of_lua(text)
    local out, line = {}, 0
    local open, long -- the comment that the next line may go on with; what ends the long string
    for code in (text .. '\n'):gmatch('(.-)\n') do
        line = line + 1
        if long then
            if code:find(long, 1, true) then long = nil end
            open = nil
        else
            local comment, has_code = comment_of_line(code)
            local equals = not comment and code:match('%[(=*)%[')
            if equals and not code:find(']' .. equals .. ']', 1, true) then long = ']' .. equals .. ']' end
            if not comment then
                if open then open.above = code end
                open = nil
            elseif open and not has_code then
                open.text = open.text .. ' ' .. comment
            else
                open = { line = line, text = comment }
                out[#out + 1] = open
                if has_code then open = nil end
            end
        end
    end
    return out
end

-- Returns what is wrong with a comment, or nil.
local function fault_of(comment)
    local text = comment:gsub('^%s+', ''):gsub('%s+$', '')
    if text:find('^%.%.%.') or text:find('%.%.%.$') then return 'goes on in another comment: "' .. text .. '"' end
    local first = text:match('^(%a+)')
    if first and OPENERS[first] then return 'opens with ' .. first .. ': "' .. text:sub(1, 60) .. '"' end
    if text:find('^The same') or text:find('^As above') then
        return 'leans on another comment: "' .. text:sub(1, 60) .. '"'
    end
    for word in text:gmatch('%a+') do
        local now = RETIRED[word] or RETIRED[word:gsub('s$', '')]
        if now then return ('says %s for %s: "%s"'):format(word, now, text:sub(1, 60)) end
    end
end

-- Returns whether a line of Lua begins a function.
local function begins_function(code)
    return code:find '^%s*local function' or code:find '^%s*function' or code:find '^%s*[%w_.]+ = function'
        or code:find '^%s*local %w+ = function'
end

-- Returns what is wrong with the comment of a function, or nil. A verb in the present ends in s; the name of a section
-- is no comment of the function below it.
local function fault_of_function(comment)
    if comment:find '^%-%-' or comment:find '^%u%l+s%f[%A]' then return nil end
    return 'opens with no verb: "' .. comment:sub(1, 60) .. '"'
end

local function faults_of(path, text)
    local out = {}
    local is_lua = path:match('%.lua$')
    for _, c in ipairs(is_lua and comments_of_lua(text) or comments_of_c(text)) do
        local fault = fault_of(c.text) or c.above and begins_function(c.above) and fault_of_function(c.text)
        if fault then out[#out + 1] = ('%s:%d: %s'):format(path, c.line, fault) end
    end
    if not is_lua then
        local line = 0
        for row in (text .. '\n'):gmatch('(.-)\n') do
            line = line + 1
            if #row > WIDEST and not row:find('\\$') and row:find('^%s*/?%*') then
                out[#out + 1] = ('%s:%d: %d columns, at most %d'):format(path, line, #row, WIDEST)
            end
        end
    end
    return out
end

describe('the rules of comments', function()
    it('see a pronoun, a clause, dots and a wide line in C', function()
        local text = '/* Its own time. */\nint a; /* ... of a step */\n/* Returns a. */\nchar *s = "/* What */";\n/* '
            .. ('x'):rep(130) .. ' */\n'
        assert.same({ 'a.c:1: opens with Its: "Its own time."', 'a.c:2: goes on in another comment: "... of a step"',
            'a.c:5: 136 columns, at most 120' }, faults_of('a.c', text))
    end)

    it('see a function in Lua whose comment opens with no verb', function()
        local text = '-- The sum of a list.\nlocal function sum() end\n-- Returns a product.\nfunction product() end\n'
            .. '-- The list.\nlocal list = {}\n'
        assert.same({ 'a.lua:1: opens with no verb: "The sum of a list."' }, faults_of('a.lua', text))
    end)

    it('see a retired noun', function()
        assert.same({ 'a.c:2: says depots for offload buffer: "Fills depots."' },
            faults_of('a.c', 'int a;\n/* Fills depots. */\n'))
    end)

    it('see the same in Lua, and pass over strings', function()
        local text = "-- What is kept\n-- of a value.\nlocal s = '-- It'\nlocal t = [[\n-- Its\n]]\n"
            .. 'local n = 1 -- Those\n'
        assert.same({ 'a.lua:1: opens with What: "What is kept of a value."', 'a.lua:7: opens with Those: "Those"' },
            faults_of('a.lua', text))
    end)
end)

describe('comments', function()
    it('stand alone', function()
        local bad = {}
        local command = "find examples kernels lua runtime spec -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' "
            .. "-o -name '*.cpp' -o -name '*.inc' -o -name '*.def' -o -name '*.lua'"
        for _, path in ipairs(helper.lines(command)) do
            for _, fault in ipairs(faults_of(path, helper.read(path))) do bad[#bad + 1] = fault end
        end
        assert(#bad == 0, ('%d comments:\n    %s'):format(#bad, table.concat(bad, '\n    ')))
    end)
end)
