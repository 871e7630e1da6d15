--- Names of the phases of a program: forward, recompute, backward, update.
-- @internal wane.plan.phase
local phase = {}

local names = { [0] = 'forward', 'recompute', 'backward', 'update' }

--- Returns a function that is given the phases of a program's instructions as numbers, in their order, and returns
-- their names. Without an optimizer there is no update: what writes a gradient or a running statistic belongs to the
-- phase around it.
-- @param p Program
function phase.reader(p)
    local around, has_optimizer = 'forward', #(p.request.updates or {}) > 0
    return function(number)
        local name = names[number]
        if name ~= 'update' or has_optimizer then
            around = name
        elseif around == 'recompute' then
            around = 'backward'
        end
        return around
    end
end

return phase
