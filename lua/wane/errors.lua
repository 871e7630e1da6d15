--- Errors: the class of all errors of Wane, the one function that raises them, and what is known of where they began.
--
-- The invariant: an error names the line of the user's script, never a line of the library, at any depth. Levels of the
-- stack are not counted by hand: errors.where walks the stack up to the first frame whose file lies outside this
-- folder. Error objects pass through `pcall` and `scoped` as the same objects. An error that leaves a module's forward
-- says which module that is, and its traceback holds the user's frames alone.
-- @internal wane.errors

local debug, error, getmetatable, ipairs, math, rawget, select, setmetatable, string, table, tostring, type, xpcall =
    debug, error, getmetatable, ipairs, math, rawget, select, setmetatable, string, table, tostring, type, xpcall

local iterate = require 'wane.iterate'
local shown = require('wane.utf8').shown

local errors = { iterate = iterate } -- for files that raise: most that walk tables do

local here = require 'wane.tree' -- how sources of the library begin

--- Class of error objects; prints. Fields: `code` (a word such as 'shape', 'dtype', 'value' or 'oom'), `message`,
-- `where` ('file:line', or nil), `traceback` (of the user's frames), `path` and `module` (path and type of the module
-- in whose forward it was raised, or nil); with 'oom' also `bytes`, `live`, `peak`, `reserved`, `limit`, `needs`,
-- `least`, in bytes.
local Error = {}
Error.__index = Error
errors.Error = Error

function Error.__tostring(e)
    if e.where then return e.where .. ': ' .. e.message end
    return e.message
end

function Error.__concat(a, b)
    return tostring(a) .. tostring(b)
end

--- Tells whether x is an error object of Wane.
-- @param x any value
function errors.is(x)
    return getmetatable(x) == Error
end

-- Tells whether a frame of the stack belongs to the user's Lua code: neither to C nor to the library.
local function is_users(info)
    return info.what ~= 'C' and info.source:sub(1, #here) ~= here and info.currentline >= 0
end

local others = setmetatable({}, { __mode = 'k' }) -- function that was found to be none of the user's -> true

--- Returns 'file:line' of the innermost frame outside the library, or nil when there is none.
-- @param level number of frames above the caller that are skipped (default 1)
function errors.where(level)
    level = (level or 1) + 1
    while true do
        local frame = debug.getinfo(level, 'f')
        if not frame then return nil end
        local info = not others[frame.func] and debug.getinfo(level, 'Sl')
        if info and is_users(info) then return info.short_src .. ':' .. info.currentline end
        others[frame.func] = true
        level = level + 1
    end
end

--- Returns 'file:line' of the frame `level` above the caller when it is outside the library, else nil.
-- @param level 1: the caller of the function that asks
function errors.where_if_direct(level)
    local info = debug.getinfo(level + 1, 'Sl')
    return info and is_users(info) and info.short_src .. ':' .. info.currentline or nil
end

-- ---- tracebacks ---------------------------------------------------------------------------------------------------

local FIRST, LAST = 60, 20 -- innermost and outermost frames of the stack that a traceback looks at

-- Returns the number of frames of the stack, counted from the caller.
local function depth()
    local low, high = 1, 2
    while debug.getinfo(high, 'l') do low, high = high, 2 * high end
    while high - low > 1 do
        local middle = math.floor((low + high) / 2)
        if debug.getinfo(middle, 'l') then low = middle else high = middle end
    end
    return low - 1
end

-- Returns the line of a traceback about a frame.
local function frame_text(info)
    local place = ('\t%s:%d: in '):format(info.short_src, info.currentline)
    if info.what == 'main' then return place .. 'main chunk' end
    if info.name then return ("%sfunction '%s'"):format(place, info.name) end
    return ('%sfunction <%s:%d>'):format(place, info.short_src, info.linedefined)
end

-- Appends a line, or counts it where it is the line before.
local function add_line(lines, text)
    local before = lines[#lines]
    if before and before.text == text then
        before.count = before.count + 1
    else
        lines[#lines + 1] = { text = text, count = 1 }
    end
end

-- Returns the traceback of these lines, `ours` frames of the library left out.
local function lines_text(lines, ours)
    local out = { 'stack traceback:' }
    for _, line in ipairs(lines) do
        out[#out + 1] = line.text
        if line.count > 1 then out[#out] = ('%s, %d times'):format(line.text, line.count) end
    end
    if ours > 0 then out[#out + 1] = ('\t(%d frame%s of Wane left out)'):format(ours, ours == 1 and '' or 's') end
    return table.concat(out, '\n')
end

--- Returns the user's frames of the stack as lines of text, the innermost first. Frames of the library that lie between
-- them are counted in the last line. Of a very deep stack the frames in the middle are left out.
-- @param level number of frames above the caller that are skipped (default 1)
-- @return 'stack traceback:' and a line for each frame; the empty text when no frame is the user's
function errors.trace(level)
    level = (level or 1) + 1
    local lines, ours, passed = {}, 0, 0
    local last = depth()
    local jump = last > level + FIRST + LAST and level + FIRST or nil
    while level <= last do
        local info = debug.getinfo(level, 'Sln')
        if is_users(info) then
            add_line(lines, frame_text(info))
            ours, passed = ours + passed, 0
        elseif info.what ~= 'C' then
            passed = passed + 1
        end
        level = level + 1
        if level == jump then
            add_line(lines, ('\t... (%d frames)'):format(last - LAST - level + 1))
            level = last - LAST + 1
        end
    end
    return #lines == 0 and '' or lines_text(lines, ours)
end

-- ---- where an error began -----------------------------------------------------------------------------------------

local tracebacks = setmetatable({}, { __mode = 'k' }) -- error that is a table -> traceback of its origin
local last = {} -- the last error that is no table, as { value =, traceback = }
local current = function() end -- returns path and type of the module whose forward runs

--- Sets the function that returns path and type of the module whose forward runs, or nothing.
-- @param fn function without arguments that cannot fail
function errors.set_current(fn)
    current = fn
end

-- Adds to an error the module whose forward it leaves, once: the innermost one. A text without a position, as
-- error('stop', 0) raises, and an object of another class are what the user's code compares, and stay as they are.
local function add_module(e)
    local path, kind = current()
    if kind == nil then return e end
    local place = (' [in %s]'):format(path == '' and kind or ('%s (%s)'):format(path, kind))
    if errors.is(e) then
        if e.path == nil then e.path, e.module, e.message = path, kind, e.message .. place end
    elseif type(e) == 'string' and e:find '^[^\n]-:%d+: ' and not e:find(' [in ', 1, true) then
        return e .. place
    end
    return e
end

--- Raises an error again that `errors.handler` or pcall has caught; it keeps the traceback of its origin.
-- @param e any value
function errors.again(e)
    error(e, 0)
end
local again = errors.again

--- Keeps the traceback of an error's origin, and adds the module whose forward the error leaves. It is the handler of
-- every xpcall.
-- @param e error
-- @return the error object; a text may be longer by the module
function errors.handler(e)
    local raiser = debug.getinfo(3, 'f')
    local is_again = raiser ~= nil and raiser.func == again
    local before = e
    e = add_module(e)
    if type(e) == 'table' then
        tracebacks[e] = tracebacks[e] or errors.is(e) and e.traceback or errors.trace(2)
    elseif not (is_again and last.value == before) then
        -- An error that Lua raised at a line of the library is a fault of the library, whose frames tell more.
        local is_fault = type(e) == 'string' and e:find '^[^\n:]*lua/wane/[%w_/]+%.lua:%d+: '
        last = { value = e, traceback = is_fault and debug.traceback('', 2):sub(2) or errors.trace(2) }
    end
    return e
end

--- Returns fn(...): what xpcall calls in the place of fn. LuaJIT gives up a trace that returns to an xpcall around its
-- start, and after some of these the code for good: no trace begins here, since it takes `...`.
function errors.inside(fn, ...)
    return select(1, fn(...))
end

--- Calls fn(...) as pcall does, and keeps the traceback of an error's origin: what catches an error that it raises
-- again calls this, and `errors.again` then.
-- @param fn function
-- @param ... its arguments
-- @return true and the results, or false and the error
function errors.pcall(fn, ...)
    return xpcall(errors.inside, errors.handler, fn, ...)
end

--- Returns the traceback of the origin of an error that `errors.handler` has seen, or nil.
-- @param e error that was caught: an object, or a text
function errors.traceback_of(e)
    if type(e) == 'table' then return tracebacks[e] end
    return last.value == e and last.traceback or nil
end

--- Makes an error object without raising it.
-- @param code a word
-- @param message one line; names in it may come from files, so its control characters are shown as escapes
-- @param extra table of further fields (optional)
-- @return error object
function errors.new(code, message, extra)
    local e = setmetatable({ code = code, message = shown(message, '\n\t') }, Error)
    if extra then
        for k, v in iterate(extra) do e[k] = v end
    end
    e.where = errors.where(2)
    e.traceback = errors.trace(2)
    return e
end

--- Raises an error object at the user's line.
-- @param _ ignored; the user's line is found by walking the stack
-- @param code a word
-- @param fmt format of the message
-- @param ... arguments of the format
function errors.raise(_, code, fmt, ...)
    error(errors.new(code, select('#', ...) > 0 and string.format(fmt, ...) or fmt), 0)
end

-- Returns the edit distance of two words, in which a swap of neighbours counts one (Damerau-Levenshtein).
local function distance(a, b)
    local la, lb = #a, #b
    local before, row, after = {}, {}, {}
    for j = 0, lb do row[j] = j end
    for i = 1, la do
        after[0] = i
        local ca = a:byte(i)
        for j = 1, lb do
            local cost = ca == b:byte(j) and 0 or 1
            local d = math.min(row[j] + 1, after[j - 1] + 1, row[j - 1] + cost)
            if i > 1 and j > 1 and ca == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
                d = math.min(d, before[j - 2] + 1)
            end
            after[j] = d
        end
        before, row, after = row, after, before
    end
    return row[lb]
end

--- Returns the keys of tables that are texts, each once, sorted.
-- @param ... tables
function errors.names(...)
    local names, seen = {}, {}
    for _, t in ipairs { ... } do
        for name in iterate(t) do
            if type(name) == 'string' and not seen[name] then names[#names + 1], seen[name] = name, true end
        end
    end
    table.sort(names)
    return names
end

-- Returns the candidates as a list of names, each once.
local function listed(candidates)
    if rawget(candidates, 1) == nil then return errors.names(candidates) end
    local names, seen = {}, {}
    for _, candidate in ipairs(candidates) do
        local name = tostring(candidate)
        if not seen[name] then names[#names + 1], seen[name] = name, true end
    end
    return names
end

--- Returns a hint after an unknown name: "did you mean 'gelu'?", or the list of all names when no name is near.
-- @param name text that was written
-- @param candidates list of names, or a table whose keys are the names
-- @return text
function errors.near(name, candidates)
    name = tostring(name)
    local names, found = listed(candidates), {}
    local limit = #name <= 2 and 0 or math.min(3, math.max(1, math.floor(#name / 3)))
    for i, candidate in ipairs(names) do
        local d = distance(name:lower(), candidate:lower())
        -- A part counts where it begins the name or is most of it: 'lin' is near Linear, 'ear' is not.
        local at = #name >= 3 and candidate:lower():find(name:lower(), 1, true)
        local is_part = at and (at == 1 or 2 * #name > #candidate or candidate:sub(at - 1, at - 1) == '_')
        if d <= limit or is_part then
            found[#found + 1] = { name = candidate, d = d, i = i }
        end
    end
    if #found == 0 then
        if #names == 0 then return 'there are none' end
        if #names > 40 then return 'there is no name like it' end
        return 'known: ' .. table.concat(names, ', ')
    end
    table.sort(found, function(a, b)
        if a.d ~= b.d then return a.d < b.d end
        return a.i < b.i
    end)
    local words = {}
    for i = 1, math.min(3, #found) do words[i] = "'" .. found[i].name .. "'" end
    return 'did you mean ' .. table.concat(words, ' or ') .. '?'
end

--- Refuses options that `allowed` does not list.
-- @param opts table of options, or nil
-- @param allowed list of names, or a table whose keys are the names
-- @param what opens the message: 'nn.Linear'
-- @param flags list of those that must be true or false (optional)
-- @return opts, or an empty table for nil
-- @raise 'value' for an unknown option and for options that are not a plain table
function errors.check_options(opts, allowed, what, flags)
    if opts == nil then return {} end
    if type(opts) ~= 'table' or getmetatable(opts) ~= nil then
        errors.raise(nil, 'value', '%s: options must be a plain table, got %s', what, errors.describe(opts))
    end
    local is_list = rawget(allowed, 1) ~= nil
    for name in iterate(opts) do
        local known = not is_list and allowed[name] ~= nil
        for _, a in ipairs(allowed) do known = known or a == name end
        if not known then
            errors.raise(nil, 'value', "%s: unknown option '%s'; %s", what, tostring(name),
                errors.near(name, allowed))
        end
    end
    if flags then errors.check_flags(opts, flags, what) end
    return opts
end

-- Raises why `key` is no key of a list; `names` lists the options of the function.
local function refuse_key(key, what, of, names)
    local place = ("%s: %s is no entry of a list of %s"):format(what, type(key) == 'number' and ('[%s]'):format(key)
        or errors.describe(key), of)
    if type(key) == 'number' then errors.raise(nil, 'value', '%s; its entries are numbered from 1', place) end
    for _, name in ipairs(type(key) == 'string' and names or {}) do
        if name == key then
            errors.raise(nil, 'value', '%s; options are a table of their own after the list: ({ ... }, { %s = ... })',
                place, key)
        end
    end
    errors.raise(nil, 'value', '%s, which has no names%s', place, type(key) == 'string' and names
        and '; options come in a table of their own after the list, and ' .. errors.near(key, names) or '')
end

--- Checks a list that a script gave: a table whose keys are the numbers 1 to n. Every list of every function comes
-- through here, since a hole, which a misspelt name leaves, would end a list in silence.
-- @param list value that was given
-- @param what opens the message: 'wane.stack'
-- @param of what it lists: 'tensors'
-- @param least number of entries, 0 unless given
-- @param names list of the options of the function, for a message about one that stands in the list; may be nil
-- @return n
-- @raise 'value' for anything that is no list, for a hole, and for any other key
function errors.list(list, what, of, least, names)
    local mt = getmetatable(list)
    if type(list) ~= 'table' or type(mt) == 'table' and mt.__describe then
        errors.raise(nil, 'value', '%s: expected a list of %s, got %s', what, of, errors.describe(list))
    end
    local n, highest = 0, 0
    for key in iterate(list) do
        if type(key) ~= 'number' or key % 1 ~= 0 or key < 1 then refuse_key(key, what, of, names) end
        n = n + 1
        if key > highest then highest = key end
    end
    if n ~= highest then
        local hole = 1
        while list[hole] ~= nil do hole = hole + 1 end
        errors.raise(nil, 'value', '%s: entry %d of the list of %s is nil, and entry %d is not; is its name misspelt?',
            what, hole, of, highest)
    end
    if n < (least or 0) then
        errors.raise(nil, 'value', '%s: expected a list of %s, got an empty one', what, of)
    end
    return n
end

--- Returns the list that a call gave, as arguments or as one list, and the number of its entries. Of arguments an entry
-- may be nil: the caller's check of each refuses it.
-- @param what opens the message
-- @param of what is listed: 'dims'
-- @param ... the arguments
-- @raise 'value' as errors.list does, and for an argument beside a list
function errors.listed(what, of, ...)
    local first, second = ...
    local mt = getmetatable(first)
    if type(first) ~= 'table' or type(mt) == 'table' and mt.__describe then return { ... }, select('#', ...) end
    if second ~= nil then
        errors.raise(nil, 'value', '%s: expected one list of %s, got %s beside it', what, of, errors.describe(second))
    end
    return first, errors.list(first, what, of)
end

-- n -> function(fn, refuse) that returns fn, of n arguments, with a refusal of one more. Written out, since passing on
-- `...` takes longer than recording may.
local STRICT = {
    [0] = function(fn, no) return function(x) if x ~= nil then no(x) end return fn() end end,
    function(fn, no) return function(a, x) if x ~= nil then no(x) end return fn(a) end end,
    function(fn, no) return function(a, b, x) if x ~= nil then no(x) end return fn(a, b) end end,
    function(fn, no) return function(a, b, c, x) if x ~= nil then no(x) end return fn(a, b, c) end end,
    function(fn, no) return function(a, b, c, d, x) if x ~= nil then no(x) end return fn(a, b, c, d) end end,
}
local inner = setmetatable({}, { __mode = 'k' }) -- function of errors.strict -> what it calls

--- Makes the functions of a table, in place, refuse one argument more than they take. A function of `...` stays.
-- @param functions table of functions by name
-- @param text format of a call, for messages: 't:%s(...)'
-- @param is_own function(x) that tells whether x is an object of these methods; nil: they are no methods, or check that
-- themselves
-- @return functions
function errors.strict(functions, text, is_own)
    local is_method = text:find(':', 1, true) ~= nil
    for name, fn in iterate(functions) do
        local info = type(fn) == 'function' and not inner[fn] and debug.getinfo(fn, 'u')
        local make, strict = info and not info.isvararg and STRICT[info.nparams], fn
        if make then
            local takes = info.nparams - (is_method and 1 or 0)
            strict = make(fn, function(x)
                errors.raise(nil, 'value', '%s takes %d argument%s, got one more: %s', text:format(name), takes,
                    takes == 1 and '' or 's', errors.describe(x))
            end)
        end
        functions[name] = info and is_own and function(self, ...)
            if not is_own(self) then
                errors.raise(nil, 'value', '%s: called on %s; write the call with a colon, %s', name,
                    errors.describe(self), text:format(name))
            end
            return strict(self, ...)
        end or strict
        if info then inner[functions[name]] = fn end
    end
    return functions
end

--- Returns the function that one of errors.strict calls, else fn itself: its source and lines are the documented ones.
function errors.inner(fn)
    return inner[fn] or fn
end

--- Refuses options that are neither true, false nor absent.
-- @param opts table of options
-- @param names list of names
-- @param what opens the message
-- @raise 'value'
function errors.check_flags(opts, names, what)
    for _, name in ipairs(names) do
        if type(opts[name]) ~= 'nil' and type(opts[name]) ~= 'boolean' then
            errors.raise(nil, 'value', '%s: %s must be true or false, got %s', what, name, errors.describe(opts[name]))
        end
    end
end

--- Checks a count that a loop runs to.
-- @param n value that was given
-- @param what opens the message: 'wane.measure: steps'
-- @param least smallest count allowed
-- @param most largest count allowed
-- @return n
-- @raise 'value' for a value that is not a whole number between them
function errors.count(n, what, least, most)
    if type(n) ~= 'number' or n % 1 ~= 0 or n < least or n > most then
        errors.raise(nil, 'value', '%s must be a whole number from %d to %d, got %s', what, least, most,
            errors.describe(n))
    end
    return n
end

--- Most steps that one call measures or trains: at a microsecond each they take a second.
errors.MOST_STEPS = 1e6

--- Tells whether x can be called: a function, or a table with __call in its metatable.
-- @param x any value
function errors.is_callable(x)
    local mt = type(x) == 'table' and getmetatable(x)
    return type(x) == 'function' or type(mt) == 'table' and rawget(mt, '__call') ~= nil
end

--- Returns a short text for a value in a message: '(2, 3) f32' for a tensor, a number as it is, a string in quotes.
-- @param x any value
function errors.describe(x)
    local kind = type(x)
    if kind == 'string' then return "'" .. x .. "'" end
    if kind == 'number' or kind == 'nil' or kind == 'boolean' then return tostring(x) end
    local mt = getmetatable(x)
    if type(mt) == 'table' and mt.__describe then return mt.__describe(x) end
    return 'a ' .. kind
end

return errors
