--- Lines of the prompt and cells of a notebook as chunks, whose last expression is their value.
--
-- Lua's grammar has no statement that is an expression, so the place where the last expression begins is found by
-- compiling: it is the first line, or the first text behind a `;`, from which on all is an expression, and before which
-- all is statements.
-- @internal wane.repl.cell

local cell = {}

local END = '\n)' -- closes the bracket on a line of its own, behind a comment

-- Tells whether a text is an expression, or several between commas.
local function is_expression(text)
    return loadstring('local _ = ' .. text) ~= nil and loadstring('return __values(' .. text .. END) ~= nil
end

-- Returns the places at which a statement may begin: those of lines, and those behind a `;`.
local function starts_of(source)
    local starts = {}
    for at in ('\n' .. source):gmatch '[\n;]()' do starts[#starts + 1] = at - 1 end
    return starts
end

-- Tells whether a text is statements, and does not end within a comment.
local function is_statements(text)
    return loadstring(text) ~= nil and loadstring(text .. '=') == nil
end

-- Returns the part of a source before its last expression, and the expression; or nil. Where the whole source is
-- statements already, lines that may be the rest of a statement stay with it: only a call is an expression there.
local function split(source)
    local is_whole = loadstring(source) ~= nil
    for _, at in ipairs(starts_of(source)) do
        local head, tail = source:sub(1, at - 1), source:sub(at)
        if is_expression(tail) and is_statements(head) and (not is_whole or loadstring(tail)) then
            return head, tail
        end
    end
end

-- Returns values as a list with their number.
local function pack(...)
    return { n = select('#', ...), ... }
end

-- Compiles the parts of a cell. The values are computed before the locals are kept, because they may change them; the
-- local that holds them is forgotten at once. The bracket closes on the line of the expression, which errors of
-- indexing name; behind a comment it moves to the next line.
local function compile_split(session, head, tail, name)
    local env = session.env
    session:keep_locals()
    rawset(env, '__pack', pack)
    rawset(env, '__unpack', function(results)
        rawset(env, '__results', nil)
        return unpack(results, 1, results.n)
    end)
    local function compile(close)
        return loadstring(head .. 'local __results = __pack(' .. tail .. close
            .. ' __capture() return __unpack(__results)', name)
    end
    return compile ')' or compile(END)
end

--- Compiles a cell.
-- @param session of repl/session.lua
-- @param source text of the cell
-- @param name of the chunk, for errors: 'cell 3'
-- @param line number of its first line, 1 unless given
-- @return chunk, which returns the values of the last expression or those of a `return`, and whether they are kept
-- quiet (by a `;` at the end); or nil, the message, and whether further lines may complete the cell
function cell.compile(session, source, name, line)
    name = '=' .. name
    local before, bare, ends = ('\n'):rep((line or 1) - 1), source:gsub(';%s*$', '')
    local head, tail = split(bare)
    if head then
        local chunk = compile_split(session, before .. head, tail, name)
        if chunk then return chunk, ends > 0 end
    end
    local chunk, message, more = session:statement(before .. source, name)
    if chunk then return chunk, ends > 0 end
    local _, why = loadstring('return ' .. bare)
    return nil, message, more or why ~= nil and why:match "'<eof>'$" ~= nil
end

return cell
