--- Names the functions of upper rooms that lower rooms call, so that no room requires one above it.
--
-- `upper.run(request)` calls what the file `wane.init` filled in under that name; the file of the function is loaded at
-- its first call. Reading a name that was not filled in raises.
-- @internal wane.upper
local errors = require 'wane.errors'

return setmetatable({}, {
    __index = function(_, name)
        errors.raise(nil, 'internal', "upper: nothing was filled in for '%s'; wane/init.lua does it, load that first",
            tostring(name))
    end,
})
