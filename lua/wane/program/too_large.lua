--- Says of a program that does not fit into memory which plan and which budget would.
-- @internal wane.program.too_large
local binding = require 'wane.ffi'
local program = require 'wane.program'

local C = binding.C

local too_large = {}

-- Returns the bytes that a request would reserve under another policy, at least those that making the missing states
-- takes, and the bytes of the data that are their first values; nil when it cannot be planned.
local function reserved_under(request, name)
    local p = program.open(program.under(request, name))
    local ok, found = pcall(function()
        local made = p:first()
        return { bytes = math.max(p:plan():reserved(), made.reserved - made.beside), beside = made.beside }
    end)
    p:close()
    return ok and found or nil
end

--- Completes the error of a program that does not fit by the fewest bytes that any plan needs, and a budget that fits.
-- @param self Program
-- @param e error object of the library
-- @return e
function too_large.error_of(self, e)
    local mode = self.request.mode
    if C.wn_count(self.handle, C.WN_COUNT_GATHERS) > 0 then return e end -- other ranks would have to plan with it
    if e.limit == 0 or e.needs == 0 or (mode ~= 'backward' and mode ~= 'step') then return e end
    if e.bytes ~= self:reserved() then -- another program failed: the one that makes the states
        e.message = e.message .. '; it makes the states and data of the step, before its first run, whatever the plan'
        return e
    end
    local beside = e.needs - e.bytes -- bytes that are held under every plan
    local ok, found = pcall(reserved_under, self.request, 'least')
    if not ok or not found or found.bytes + beside >= e.least then return e end
    e.least, e.policy = found.bytes + beside, 'least'
    e.message = ('%s; policy = %q would do with %.0f bytes'):format(e.message, e.policy, e.least)
    if e.least <= e.limit then
        e.budget = e.limit - beside + found.beside -- a budget counts the data of first values
        e.message = ('%s, and the fastest that fits is {budget = %.0f}'):format(e.message, e.budget)
    end
    return e
end

return too_large
