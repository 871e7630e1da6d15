--- Tells what to write for a method that an object does not have: m:paramters().
--
-- A field that an object lacks is nil, as of any table, so it matters whether a script reads it to call it as a method.
-- LuaJIT compiles m:name() as a MOV of m to where arguments begin, and a TGETS of the name right behind it.
-- @internal wane.module.misspelt
local code = require 'jit.util'
local errors = require 'wane.errors'

local misspelt = {}

-- Returns the opcode of an instruction and its operands A, B, C and D.
local function parts(fn, at)
    local word = code.funcbc(fn, at)
    local function bits(from, mask) return bit.band(bit.rshift(word, from), mask) end
    return bits(0, 255), bits(8, 255), bits(24, 255), bits(16, 255), bits(16, 65535)
end

local function sample(m) m:name() end
local MOV, to = parts(sample, 1)
local TGETS, from = parts(sample, 2)

-- Tells whether each read of a name at the line where a function stands is that of a method to call.
local function is_called(fn, line, name)
    local found = false
    for at = 1, (code.funcinfo(fn).bytecodes or 1) - 1 do
        local op, place, object, key = parts(fn, at)
        if op == TGETS and code.funck(fn, -key - 1) == name and code.funcinfo(fn, at).currentline == line then
            local before, argument, _, _, moved = parts(fn, at - 1)
            if before ~= MOV or argument - place ~= to - from or moved ~= object then return false end
            found = true
        end
    end
    return found
end

-- Returns what to call in the place of a method. LuaJIT compiles no function of whose arguments a closure is made.
local function refusal(describe, name, hint)
    return function(object)
        errors.raise(nil, 'value', "%s has no method '%s'; %s", describe(object), name, hint)
    end
end

--- Returns an __index function for the table of methods of a class.
-- @param methods table of methods by name
-- @param describe function(object) that returns what it is, for the message
-- @param level of the reader on the stack: 2 where objects lead to the methods by tables alone, else 3
-- @param elsewhere names of methods in other libraries -> what to write here (optional)
function misspelt.index(methods, describe, level, elsewhere)
    local hints = {} -- name -> what to say of it, or false
    return function(_, name)
        local hint = hints[name]
        if hint == nil and type(name) == 'string' then
            local way = elsewhere and elsewhere[name]
            hint = way and 'write ' .. way or errors.near(name, methods):match '^did you mean.*' or false
            hints[name] = hint
        end
        local reader = hint and debug.getinfo(level, 'fl')
        if not reader or not is_called(reader.func, reader.currentline, name) then return nil end
        return refusal(describe, name, hint)
    end
end

return misspelt
