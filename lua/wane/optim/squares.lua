--- Sums of squares of gradients of which each rank has a range alone, by which all ranks find one norm, the one that a
-- process alone finds.
--
-- The op `squares` sums those of each stripe of 4,096 elements, which no range cuts. Ranks gather these, and each adds
-- them in the order in which one process does.
-- @internal wane.optim.squares
local binding = require 'wane.ffi'
local iterate = require 'wane.iterate'
local program = require 'wane.program'
local ranks = require 'wane.program.ranks'
local read = require 'wane.tensor.read'
local tensor = require 'wane.tensor'

local C = binding.C
local STRIPE = ranks.STRIPE

local squares = {}

--- Adds n numbers, from x[0] on, in the order in which the op `sum` adds those of a tensor (kernels/reduction.h).
function squares.sum(x, n)
    local chunks, total = math.max(1, math.min(64, math.floor(n / 16384))), 0
    for c = 0, chunks - 1 do
        local first, last, row = math.floor(n * c / chunks), math.floor(n * (c + 1) / chunks) - 1, 0
        for j = first, math.min(first + 15, last) do
            local lane = 0
            for i = j, last, 16 do lane = lane + x[i] end
            row = row + lane
        end
        total = total + row
    end
    return total
end

--- Puts in the place of the squares of each gradient whose ranges the ranks have, those of this rank, what the squares
-- of all ranks add up to.
-- @param list of tensors, one a gradient, which it changes
-- @param of list of their parameters
function squares.gather(list, of)
    local mine, own, each = {}, {}, 0 -- mine: of those in ranges, by number, their place among the numbers of a rank
    for k, p in ipairs(of) do
        if tensor.range(p) then
            mine[k], own[#own + 1] = each, list[k]
            each = each + math.ceil(math.ceil(tensor.count(p._dims) / STRIPE) / ranks.size)
        end
    end
    if each == 0 then return end
    local all, whole = binding.array('f64', each * ranks.size), binding.array('f64', each * ranks.size)
    program.run { mode = 'eval', roots = own, is_part = true }
    local function give()
        local numbers = binding.array('f64', each)
        for k, at in iterate(mine) do
            local raw, bytes = read.raw(list[k])
            binding.copy(numbers + at, raw, bytes)
        end
        return numbers, 8 * each
    end
    if not program.is_planning() then
        ranks.gather('the norm of gradients', give, all, 8 * each * ranks.size)
    end
    for k, at in iterate(mine) do
        for r = 0, ranks.size - 1 do
            local first, count = tensor.range(of[k], r)
            for i = 0, math.ceil(count / STRIPE) - 1 do whole[first / STRIPE + i] = all[r * each + at + i] end
        end
        whole[0] = squares.sum(whole, math.ceil(tensor.count(of[k]._dims) / STRIPE))
        list[k] = tensor.wrap(binding.id(C.wn_const(whole, 0, tensor.dtype_id.f64)))
    end
end

return squares
