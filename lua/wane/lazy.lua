--- Fills a table of the library with what its files have, each loaded when a name of it is first asked for.
-- @internal wane.lazy

local errors = require 'wane.errors'

--- Returns the table, which raises for an unknown name, with near ones, and for every assignment.
-- @param name of the table: 'wane.nn'
-- @param PLACES name -> { file, field of that file; nil: the file is the value itself }
-- @param t what the table has from the start
-- @param say function(key) that returns what to say of an unknown name, or nil for names near it (optional)
-- @raise 'value'
return function(name, PLACES, t, say)
    return setmetatable(t, {
        __index = function(_, key)
            local place = PLACES[key]
            if not place then
                errors.raise(nil, 'value', '%s', say and say(key) or ("%s has no '%s'; %s"):format(name, tostring(key),
                    errors.near(key, errors.names(PLACES, t))))
            end
            local value = require(name .. '.' .. place[1])
            if place[2] then value = value[place[2]] end
            rawset(t, key, value)
            return value
        end,
        __newindex = function(_, key)
            errors.raise(nil, 'value', '%s.%s = ...: the table is closed; keep your own in locals', name, tostring(key))
        end,
    })
end
