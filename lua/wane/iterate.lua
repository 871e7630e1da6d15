--- Walks the keys and values of a table: `for key, value in iterate(t) do`, in the place of pairs and of next.
--
-- LuaJIT compiles a `for` whose iterator is called pairs or next by its name to bytecode of its own. In the versions
-- before April 2022, Debian 12's among them, such a loop ends after its first key for good once the compiler has given
-- it up (LuaJIT issue 827): entries are left out in silence, after some 10^5 rounds. By any other name it is a plain
-- loop, which keeps its entries. spec/lists_spec.lua holds the library to this.
-- @internal wane.iterate

--- Returns what a `for` needs to walk a table in no order, metamethods left alone.
-- @param t table
-- @usage
-- local iterate = require 'wane.iterate'
-- for key, value in iterate { a = 1 } do print(key, value) end --> a	1
return function(t)
    return next, t
end
