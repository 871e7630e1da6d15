--- Plans of a job by a process that is none of it: the options ranks, rank, link and place of whatever plans a step.
-- Meanwhile the process is a ghost of that job (wane.dist.ghost), and the parameters of the step's optimizers are in
-- ranges as those of its ranks are; then all is as before.
-- @internal wane.program.job
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local link = require 'wane.program.link'
local placing = require 'wane.program.placing'
local ranks = require 'wane.program.ranks'
local scoped = require 'wane.scoped'
local tensor = require 'wane.tensor'

local C, check, raise = binding.C, binding.check, errors.raise

--- Fields: `options`, the names of those options.
local job = { options = { 'ranks', 'rank', 'link', 'place' } }

-- Returns the rank that has the most bytes of what is in ranges: of those with as many, the first.
local function largest(optimizers, size)
    local best, most = 0, -1
    for r = 0, size - 1 do
        local own = 0
        for _, opt in ipairs(optimizers) do
            for _, p in ipairs(opt:parameters()) do
                local _, count = tensor.range(p, r)
                own = own + (count or 0) * binding.element_bytes[p.dtype]
            end
        end
        if own > most then best, most = r, own end
    end
    return best
end

-- Raises unless this process may be a ghost for a while, and returns what is asked for.
local function read(opts, what)
    if ranks.size > 1 then
        raise(nil, 'value', '%s: this process is rank %d of %d; leave ranks and link out for plans of that job, and '
            .. 'plan another one in a script without wane.dist.start', what, ranks.rank, ranks.size)
    end
    local size = errors.count(opts.ranks, what .. ': ranks', 2, 65536)
    local rank = opts.rank ~= nil and errors.count(opts.rank, what .. ': rank', 0, size - 1) or nil
    local word = opts.place == nil and 'slice' or opts.place
    local known = {}
    for _, each in ipairs(placing.WORDS) do known[each] = true end
    if not known[word] then
        raise(nil, 'value', "%s: place must be 'slice', 'keep' or 'shard', got %s", what, errors.describe(word))
    end
    return size, rank, word, link.of(opts.link, size, what)
end

--- Calls fn as a rank of the job that options describe; without the option `ranks` as what this process is.
-- @param opts { ranks = number, rank = (the one that needs most unless given), link = as of wane.dist.ghost, place =
-- 'slice' }
-- @param what opens messages
-- @param find function() that returns the optimizers of the step, which it plans, and why they cannot be placed, or nil
-- @param fn function()
-- @return what fn returns, at most two values
-- @raise 'value' for wrong options, in a process that has joined a job, and for an optimizer that has made steps
function job.as(opts, what, find, fn)
    if opts.ranks == nil then
        for _, name in ipairs { 'rank', 'link', 'place' } do
            if opts[name] ~= nil then
                raise(nil, 'value', '%s: %s is of a job; give ranks, their number, too', what, name)
            end
        end
        return fn()
    end
    local size, rank, word, per_node, rates = read(opts, what)
    local before = binding.new 'struct wn_link_rates'
    check(C.wn_link_get(before))
    local function enter(r)
        check(C.wn_dist_ghost(r, size, per_node))
        ranks.take()
    end
    local function leave()
        check(C.wn_dist_alone())
        ranks.take()
    end
    local function under(r, optimizers, work)
        enter(r)
        return scoped.always(leave, function()
            local first, second
            placing.try(optimizers, function() first, second = work() end, { word })
            return first, second
        end)
    end
    return scoped.always(function()
        check(C.wn_link(before))
        ranks.has_link = false
    end, function()
        if rates then check(C.wn_link(rates)) end
        ranks.has_link = rates ~= nil
        enter(rank or 0)
        local optimizers, why = scoped.always(leave, find)
        if why then raise(nil, 'value', '%s: a job is planned before the first step: %s', what, why) end
        rank = rank or under(0, optimizers, function() return largest(optimizers, size) end)
        return under(rank, optimizers, fn)
    end)
end

return job
