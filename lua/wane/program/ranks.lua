--- Calls that all ranks of a job make together, and who this process is among them.
--
-- A call is agreed about before it moves anything: where a rank is about to do something else, or has failed, every
-- rank raises the same words, nothing has moved, and the next call works. wane.dist is made of these.
-- @internal wane.program.ranks
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local gc = require 'wane.gc'
local scoped = require 'wane.scoped'
local tensor = require 'wane.tensor'

local C, check, raise = binding.C, binding.check, errors.raise

--- Fields: `rank`, from 0, `size`, `per_node`, how many consecutive ranks share a machine, `is_ghost`, and `has_link`,
-- true where a script says how fast its link is. `next_start`: where the cut of the parameter that is sliced next
-- starts.
local ranks = { rank = 0, size = 1, per_node = 1, is_ghost = false, has_link = false, next_start = 0,
    STRIPE = 4096 } -- elements that no range cuts: WN_STRIPE of runtime/base/ranks.h

local codes = {} -- word of a status -> its number
for code = 1, 31 do codes[binding.text(C.wn_status_name(code)) or code] = code end

local made = 0 -- how many calls this rank had made when the last one that went well had ended

--- Has each rank keep the gradient and the states of a range of a parameter alone. Every rank calls it for the same
-- parameters in the same order, before their first gradients.
-- @param p parameter
-- @return whether it does: not on one rank, and not where it has a gradient
function ranks.slice(p)
    if ranks.size == 1 or tensor.own_grad(p) then return false end
    local out = binding.new 'int32_t[1]'
    check(C.wn_dist_slice(p.id, ranks.next_start, out))
    ranks.next_start = out[0]
    return true
end

--- Returns who this process is: a struct wn_dist.
function ranks.who()
    local who = binding.new 'struct wn_dist'
    check(C.wn_dist_get(who))
    return who
end

--- Takes over who this process is, and returns it: a struct wn_dist.
function ranks.take()
    local who = ranks.who()
    ranks.rank, ranks.size, ranks.per_node, ranks.is_ghost = who.rank, who.size, who.per_node, who.is_ghost ~= 0
    return who
end

--- Makes a call of all ranks.
-- @param said what it does; equal on all ranks
-- @param make function that returns the bytes of this rank and their number; what it raises is raised by all
-- @param most nil: all give as many bytes, and get those of all; else rank 0 alone gets what each has, at most so many
-- @return said with the line of the script, what make raised or false, what it returned
function ranks.call(said, make, most)
    if scoped.micro() then
        raise(nil, 'value', '%s inside of the function of a step, which each rank calls for micro-batches of its own: '
            .. 'call it before the step, or behind it', said)
    end
    local ask, ended = binding.new 'struct wn_dist_call', binding.new 'int32_t[1]'
    local fine, mine, bytes = errors.pcall(make)
    local where = errors.where(2)
    local here, why = where and said .. ' at ' .. where or said, not fine and tostring(mine)
    ask.said, ask.needed = here, said -- a struct holds no text: the locals do, until C has copied it
    if fine then
        ask.mine, ask.bytes, ask.most = mine, bytes, most or 0
    else
        ask.code, ask.words = errors.is(mine) and codes[mine.code] or codes.value, why
    end
    check(C.wn_dist_begin(ask))
    repeat
        check(C.wn_dist_go(1, ended))
        gc.warn()
    until ended[0] ~= 0
    made = ranks.who().calls
    return here, why, mine
end

--- Gathers `bytes` bytes of each rank.
-- @param said as of ranks.call
-- @param make as of ranks.call
-- @param all cdata of as many bytes from all ranks, which is filled in their order
-- @param bytes of all
function ranks.gather(said, make, all, bytes)
    ranks.call(said, make)
    if bytes > 0 then check(C.wn_dist_result(all, bytes)) end
end

--- Gathers numbers of each rank.
-- @param said as of ranks.call
-- @param n how many each rank has
-- @param make function() that returns those of this rank; what it raises is raised by all
-- @return [rank] = list of n numbers
function ranks.numbers(said, n, make)
    local all, out = binding.array('f64', n * ranks.size), {}
    ranks.gather(said, function()
        local mine, given = binding.array('f64', n), { make() }
        for k = 1, n do mine[k - 1] = given[k] end
        return mine, 8 * n
    end, all, 8 * n * ranks.size)
    for r = 0, ranks.size - 1 do
        out[r] = {}
        for k = 1, n do out[r][k] = all[n * r + k - 1] end
    end
    return out
end

--- Has rank 0 get what each rank has.
-- @param said as of ranks.call
-- @param make as of ranks.call; each rank may return another number of bytes
-- @param all cdata of `total` bytes, which is filled on rank 0 in the order of ranks
-- @param total bytes of all ranks
function ranks.collect(said, make, all, total)
    ranks.call(said, make, total)
    if ranks.rank == 0 then check(C.wn_dist_result(all, total)) end
end

--- Calls fn, which has all ranks make a call behind what each of them does by itself. Where it fails before that call,
-- the others are told in the place of it, and raise what fn raises. fn may make several calls: they are told behind
-- the last one that went well.
-- @param said what the call does
-- @param fn function()
function ranks.attempt(said, fn)
    made = ranks.who().calls
    local fine, why = errors.pcall(fn)
    if fine then return end
    if ranks.who().calls == made then ranks.call(said, function() errors.again(why) end) end
    errors.again(why)
end

return ranks
