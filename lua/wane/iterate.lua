--- Walks the keys and values of a table: `for key, value in iterate(t) do`, in the place of pairs and of next.
--
-- LuaJIT before April 2022, Debian 12's too, walks tables wrongly where it compiles the walk. A `for` whose iterator is
-- called pairs or next by its name has bytecode of its own, and ends after its first key for good once the compiler
-- gave it up (LuaJIT issue 827), after some 10^5 rounds. By another name, a compiled call of next passes over a key now
-- and then. Here a function that is never compiled calls next. spec/lists_spec.lua holds the library to it.
-- @internal wane.iterate

local function step(t, key) return next(t, key) end
jit.off(step)

--- Returns what a `for` needs to walk a table in no order, metamethods left alone.
-- @param t table
-- @usage
-- local iterate = require 'wane.iterate'
-- for key, value in iterate { a = 1 } do print(key, value) end --> a	1
return function(t)
    return step, t
end
