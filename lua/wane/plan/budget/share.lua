--- Plans for all ranks at once. A program that gathers states from ranks needs one plan on all of them: ranks that
-- gather in different orders would wait for each other. Rank 0 chooses, and the others take its recipe. A range may
-- have a stripe more than another, so that some rank needs more bytes than rank 0 for one recipe: rank 0 then chooses a
-- plan of as many bytes less, until all ranks keep their budgets. Where it has no such plan, the rank that needs most
-- chooses, as the plan of the fewest bytes is not the same on all.
-- @internal wane.plan.budget.share
local binding = require 'wane.ffi'
local bytes = require 'wane.report.bytes'
local errors = require 'wane.errors'
local policies = require 'wane.policy'
local ranks = require 'wane.program.ranks'
local recipe = require 'wane.policy.recipe'

local C, check = binding.C, binding.check

local share = {}

local known, digest -- the text of a recipe, and a number of it

-- Returns a number of the recipe of a program, 0 where it is not planned.
local function digest_of(p)
    if C.wn_is_planned(p.handle) == 0 then return 0 end
    local text = binding.text(C.wn_recipe(p.handle))
    if text ~= known then
        known, digest = text, 1
        for i = 1, #text do digest = (31 * digest + text:byte(i)) % 2 ^ 47 end
    end
    return digest
end

-- Tells whether all ranks have one plan for the program.
local function have_one_plan(p)
    local all = ranks.numbers('a plan for all ranks', 1, function() return digest_of(p) end)
    for r = 0, ranks.size - 1 do
        if all[r][1] == 0 or all[r][1] ~= all[0][1] then return false end
    end
    return true
end

-- Returns the text of a rank, which `make` makes there, on all ranks.
local function text_of(rank, make)
    local text = ''
    local n = ranks.numbers('the plan of one rank', 1, function()
        if ranks.rank == rank then text = make() end
        return #text
    end)[rank][1]
    local all = binding.array('u8', n * ranks.size)
    ranks.gather('the text of the plan of one rank', function()
        local mine = binding.array('u8', n)
        if ranks.rank == rank then binding.copy(mine, text, n) end
        return mine, n
    end, all, n * ranks.size)
    return binding.string(all + rank * n, n)
end

-- Returns the bytes that a planned program takes here, and those of making what is missing before its first run.
local function needed(p)
    local first = p.first_run or p:first()
    return p:reserved() + first.beside, first.reserved
end

-- Opens a planned program to another plan.
local function open_again(p)
    check(C.wn_plan_forget(p.handle, 1))
    check(C.wn_decide_by(p.handle, policies.key(p.policy, p.fallback)))
end

-- Has this rank plan a program by a recipe, and returns by how many bytes the rank that is farthest over its limit is
-- over it, 0 at least, and which one that is.
local function most_over(p, text, limit)
    local all = ranks.numbers('the bytes of one plan', 1, function()
        local is_planned = C.wn_is_planned(p.handle) == 1
        if is_planned and binding.text(C.wn_recipe(p.handle)) ~= text then open_again(p) end -- made beside other limits
        if C.wn_is_planned(p.handle) == 0 then
            recipe.give(p, recipe.parse(text), p:graph())
            check(C.wn_plan(p.handle))
        end
        return limit and math.max(0, math.max(needed(p)) - limit) or 0
    end)
    local over, rank = 0, 0
    for r = 0, ranks.size - 1 do
        if all[r][1] > over then over, rank = all[r][1], r end
    end
    return over, rank
end

-- Raises on all ranks that one of them is over its limit with the plan of the fewest bytes.
local function refuse(rank, limit, over)
    ranks.call('the plan of the fewest bytes', function()
        if ranks.rank ~= rank then return nil, 0 end
        errors.raise(nil, 'budget', 'a budget of %s bytes cannot be kept: the plan of the fewest bytes takes %s here; '
            .. 'where parameters are sharded all ranks have one plan', bytes.exact(limit), bytes.exact(limit + over))
    end)
end

--- Plans an open program on all ranks by one recipe. Every rank calls it, whether it knows a plan or not.
-- @param p Program
-- @param decide function(p, most) that has its policies decide and chooses a plan; with `most`, one of so many bytes,
-- or the one of the fewest; it returns whether it is that one
-- @raise 'budget' where a rank has no plan within its budget
function share.plan(p, decide)
    if have_one_plan(p) then return end
    local limit, chooser, most, is_least = policies.limit_of(p.policy or p.fallback), 0, nil, false
    while true do
        local text = text_of(chooser, function()
            if C.wn_is_planned(p.handle) == 0 then
                is_least = decide(p, most)
                check(C.wn_plan(p.handle))
            end
            return (is_least and '1' or '0') .. binding.text(C.wn_recipe(p.handle))
        end)
        local over, rank = most_over(p, text:sub(2), limit)
        if over == 0 then return end
        most = p:reserved() - over
        open_again(p)
        if text:sub(1, 1) == '1' then
            if chooser ~= 0 or rank == 0 then refuse(rank, limit, over) end
            chooser, most, is_least = rank, nil, false
        end
    end
end

return share
