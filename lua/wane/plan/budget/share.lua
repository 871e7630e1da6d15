--- Plans for all ranks at once. A program that gathers states from ranks needs one plan on all of them: ranks that
-- gather in different orders would wait for each other. Rank 0 chooses, and the others take its recipe.
-- @internal wane.plan.budget.share
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local policies = require 'wane.policy'
local ranks = require 'wane.program.ranks'
local recipe = require 'wane.policy.recipe'

local C, check = binding.C, binding.check

local share = {}

-- Tells whether all ranks have a plan for the program.
local function are_planned(p)
    local all, mine = binding.array('f64', ranks.size), binding.array('f64', 1)
    mine[0] = C.wn_is_planned(p.handle)
    ranks.gather('a plan for all ranks', function() return mine, 8 end, all, 8 * ranks.size)
    for r = 0, ranks.size - 1 do
        if all[r] == 0 then return false end
    end
    return true
end

-- Returns the text of rank 0, which `make` makes there, on all ranks.
local function text_of_first(make)
    local sizes, text = binding.array('f64', ranks.size), ''
    ranks.gather('the plan of rank 0', function()
        local n = binding.array('f64', 1)
        if ranks.rank == 0 then text = make() end
        n[0] = #text
        return n, 8
    end, sizes, 8 * ranks.size)
    local n = sizes[0]
    local all = binding.array('u8', n * ranks.size)
    ranks.gather('the text of the plan of rank 0', function()
        local mine = binding.array('u8', n)
        if ranks.rank == 0 then binding.copy(mine, text, n) end
        return mine, n
    end, all, n * ranks.size)
    return binding.string(all, n)
end

--- Plans an open program on all ranks as rank 0 does. Every rank calls it, whether it knows a plan or not.
-- @param p Program
-- @param decide function(p) that has its policies decide and chooses a plan
-- @raise 'budget' where the plan of rank 0 reserves more on this one
function share.plan(p, decide)
    if are_planned(p) then return end
    local text = text_of_first(function()
        if C.wn_is_planned(p.handle) == 0 then
            decide(p)
            check(C.wn_plan(p.handle))
        end
        return binding.text(C.wn_recipe(p.handle))
    end)
    if C.wn_is_planned(p.handle) ~= 0 then return end
    local limit = policies.limit_of(p.policy or p.fallback)
    recipe.give(p, recipe.parse(text), p:graph())
    check(C.wn_plan(p.handle))
    if limit and p:reserved() > limit then
        errors.raise(nil, 'budget', 'a budget of %s bytes cannot be kept: the plan of rank 0 takes %s here; where '
            .. 'parameters are sharded all ranks have one plan, so give all of them one budget', bytes.exact(limit),
            bytes.exact(p:reserved()))
    end
end

return share
