--- Gradients of a batch that comes in parts, with one part in memory at a time.
--
-- fn(i) records micro-batch i and returns its loss. The sum of gradients has one order, which belongs to the script:
--
--     S_b = ((g_1 + g_2) + ...) + g_m        micro-batches (b - 1) m + 1 .. b m
--     G   = ((S_1 + S_2) + ...) + S_(n/m)
--
-- m is `partial`. A partial sum S_b is one program: its micro-batches run one after the other, and its sum is added
-- into the cells. Each gradient is scaled by 1/n, so with m = 1 opt:step() after it has the bits of opt:step({l1, ...,
-- ln}, {scale = 1/n}).
-- @module wane.program.accumulate

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local op = require 'wane.tensor.op'
local grad = require 'wane.program.grad'
local program = require 'wane.program'
local ranks = require 'wane.program.ranks'
local tensor = require 'wane.tensor'
local scoped = require 'wane.scoped'

local C, raise = binding.C, errors.raise
local what = 'wane.accumulate'

local function add(total, loss)
    return total == nil and loss or total + loss
end

-- Records micro-batch i and returns its loss; notes its weight. Either all of them have one, or none.
local function loss_of(fn, run, i)
    local loss, weight
    if ranks.size == 1 then loss, weight = fn(i) else loss, weight = scoped('micro', ranks.size, fn, i) end
    if not tensor.is(loss) then
        raise(nil, 'value', '%s: the function must return the loss of micro-batch %d, got %s', what, i,
            errors.describe(loss))
    end
    grad.check_root(loss, what)
    if weight ~= nil and not (type(weight) == 'number' and weight >= 0 and weight < math.huge) then
        raise(nil, 'value', '%s: the weight of micro-batch %d must be a number, 0 or more, got %s', what, i,
            errors.describe(weight))
    end
    if run.is_weighted == nil then run.is_weighted = weight ~= nil end
    if run.is_weighted ~= (weight ~= nil) then
        raise(nil, 'value', '%s: micro-batch %d has %s weight, and others have %s', what, i, weight and 'a' or 'no',
            weight and 'none' or 'one')
    end
    run.weights[i] = weight
    return loss
end
jit.off(loss_of) -- as the function below

-- Runs the backward of a partial sum. The first one tells which states get gradients, where that is asked for later.
local function backward(run, roots, request)
    request.mode, request.roots, request.policy = 'backward', roots, run.policy
    request.scale = not run.is_weighted and run.scale or nil
    if run.is_begun or not run.is_weighted and ranks.size == 1 then return op.run(request) end
    run.is_begun, request.is_fresh = true, run.is_weighted
    request.look = function(p) run.cells = p:cells() end
    op.run(request)
end

-- Lists the gradients that the backwards have made.
local function gradients(run)
    local list = {}
    for _, c in ipairs(run.cells or {}) do list[#list + 1] = tensor.own_grad(c) end
    return list
end

-- Returns the sum of the losses as their mean. The gradients of weighted losses, which are sums, become those of their
-- mean.
local function mean_of(run, total)
    local by = run.scale
    if by and run.is_weighted then
        local sum = 0
        for i = 1, run.n do sum = sum + run.weights[i] end
        if sum == 0 and not program.is_planning() then
            raise(nil, 'value', '%s: the weights of all micro-batches are 0', what)
        end
        by = 1 / math.max(sum, 2 ^ -1022)
        local grads, roots = gradients(run), {}
        for k, g in ipairs(grads) do roots[k] = (tensor.widened(g) * by):to(g.dtype) end
        if #grads > 0 then op.run { mode = 'assign', roots = roots, cells = grads } end
    end
    return by and scoped('grad', 0, add, nil, total * by) or total
end

-- Runs partial sum after partial sum. Returns the sum of the losses.
local function alone(fn, run)
    local total
    for b = 0, run.n / run.m - 1 do
        local roots = {}
        for k = 1, run.m do roots[k] = loss_of(fn, run, b * run.m + k) end
        backward(run, roots, {})
        for _, loss in ipairs(roots) do total = scoped('grad', 0, add, total, loss) end
    end
    return total
end

-- ---- among ranks ----------------------------------------------------------------------------------------------------

local has_warned = false -- of ranks that have nothing to compute
local stride = 0 -- how many random numbers one micro-batch took the last time

-- Fills in who makes the partial sums of a run: `makers` in each of its `rounds`, one sum each, of `share` ranks, which
-- take the micro-batches of it in turn, `each` of them as many.
--
--     partial = 2      partial sum 1    2               by machines of 2    1            2
--                      rank 0: 1, 2     rank 1: 3, 4                        rank 0: 1    rank 2: 3
--                                                                           rank 1: 2    rank 3: 4
local function find_makers(run)
    local L = ranks.per_node
    run.is_shared = L > 1 and L < ranks.size and run.m % L == 0
    run.share = run.is_shared and L or 1
    run.makers = ranks.size / run.share
    run.each = run.m / run.share
    run.rounds = math.ceil(run.n / run.m / run.makers)
end

-- Returns the rank that makes micro-batch i, from 1, and its number, from 0, among those of that rank.
local function maker_of(run, i)
    local b, k = math.floor((i - 1) / run.m), (i - 1) % run.m
    return b % run.makers * run.share + k % run.share,
        math.floor(b / run.makers) * run.each + math.floor(k / run.share)
end

-- Lists the micro-batches of this rank in partial sum b, from 0.
local function own_of(run, b)
    local list = {}
    for k = 1, run.each do list[k] = b * run.m + (k - 1) * run.share + ranks.rank % run.share + 1 end
    return list
end

-- Records micro-batches, each as one process would that has recorded those before it: it begins at the random number
-- that stands `stride` behind the beginning of the one before. Where another count is drawn than the last time, all are
-- recorded once more.
local function record_at(fn, run, list)
    for attempt = 1, 2 do
        local roots, is_right = {}, true
        for k, i in ipairs(list) do
            local from = run.first + (i - 1) * stride
            C.wn_counter_set(from)
            roots[k] = loss_of(fn, run, i)
            local took = tonumber(C.wn_here().counter) - from
            if took ~= stride and (attempt == 2 or k > 1) then
                raise(nil, 'value', '%s: the function draws %g random numbers for micro-batch %d, and %g for another',
                    what, took, i, stride)
            end
            is_right = is_right and (took == stride or i == 1)
            stride = took
            if not is_right then break end
        end
        if is_right then return roots end
    end
end

-- Gathers the losses and weights of all ranks. mine: list of the losses of this rank. Returns the numbers of all, and
-- how many those of one rank are: a loss, its weight, the next loss.
local function gather_losses(run, mine)
    local each = 2 * run.rounds * run.each
    local all = binding.array('f64', each * ranks.size)
    local function give()
        local list = binding.array('f64', each)
        for k, of in ipairs(mine) do
            list[2 * k - 2], list[2 * k - 1] = of.loss:item(), run.weights[of.micro] or 0
        end
        return list, 8 * each
    end
    if not program.is_planning() then
        local place = tonumber(C.wn_here().batches)
        local said = 'the losses of %s, whose random numbers begin at %.0f, and batches at %.0f of seed %.0f'
        ranks.gather(said:format(what, run.first, place % 2 ^ 32, math.floor(place / 2 ^ 32)), give, all,
            8 * each * ranks.size)
    end
    return all, each
end

-- Returns the sum of the losses of all ranks, in the order of micro-batches, made of numbers of the host; takes the
-- weights of all.
local function total_of(run, all, each)
    local v, total = binding.array('f64', 1), nil
    for i = 1, run.n do
        local rank, k = maker_of(run, i)
        local at = rank * each + 2 * k
        v[0] = ranks.is_ghost and 0 / 0 or all[at] -- of others than this one nothing is known
        if run.is_weighted then run.weights[i] = all[at + 1] end
        total = scoped('grad', 0, add, total, tensor.wrap(binding.id(C.wn_const(v, 0, run.dtype))))
    end
    return total
end

-- Runs round `round` of partial sums. A rank without one in the last round records one that it does not compute, for
-- the gradients that it helps to add.
local function run_round(fn, run, round, mine)
    local base, place = round * run.makers, math.floor(ranks.rank / run.share)
    local given = math.min(run.makers, run.n / run.m - base)
    local is_idle = place >= given
    local list = own_of(run, is_idle and base or base + place)
    local roots = record_at(fn, run, list)
    run.dtype = tensor.dtype_id[roots[1].dtype]
    backward(run, roots, { given = given, is_shared = run.is_shared, is_idle = is_idle,
        is_last = round == run.rounds - 1 })
    if is_idle then mine.of_none = roots end -- which are computed where other ranks gather states from this one
    for k, i in ipairs(is_idle and {} or list) do mine[#mine + 1] = { loss = roots[k], micro = i } end
end

-- Runs the partial sums in rounds; each rank goes on with the sum of its own range. Returns the mean of the losses.
local function among_ranks(fn, run)
    local mine, mean = {}, nil
    local attempt = program.is_planning() and function(_, do_) do_() end or ranks.attempt
    run.first = tonumber(C.wn_here().counter)
    find_makers(run)
    if run.n / run.m < run.makers and ranks.rank == 0 and not has_warned then
        has_warned = true
        io.stderr:write(('wane: %s: %d partial sums for %d %s: %d of them have nothing to compute\n'):format(what,
            run.n / run.m, run.makers, run.is_shared and 'machines' or 'ranks', run.makers - run.n / run.m))
    end
    for round = 0, run.rounds - 1 do
        attempt('a backward', function() run_round(fn, run, round, mine) end)
    end
    C.wn_counter_set(run.first + run.n * stride)
    local all, each = gather_losses(run, mine)
    attempt('what follows the losses', function()
        local total = total_of(run, all, each)
        rawset(total, '_losses', mine) -- as where one rank adds its own: no collector decides when their bytes go
        mean = mean_of(run, total)
    end)
    return mean
end

--- Runs forward and backward of n micro-batches, one after the other. A run point.
-- Gradients are added to those that the cells hold already (opt:zero_grad() clears them). When fn or a run fails, the
-- gradients of the micro-batches before it stay, and the error goes on; a run that fails while it adds to gradients (a
-- disk that fails under an offloaded value) drops them, and the error says so. With weights, and on several ranks, they
-- are no gradients yet, and every failure drops them.
--
-- fn may return a weight beside the loss, such as the tokens of a micro-batch whose loss is a sum over them: losses and
-- gradients are divided by the sum of the weights then, and no gradient may be there before.
--
-- On n ranks (wane.dist) rank r records partial sums r, r + n, r + 2 n, ... alone, counted from 0, and each rank adds
-- its own range of every gradient, so that the bits are those of one process. On K machines of L ranks each, where L
-- divides m, machine k records partial sums k, k + K, ..., and its ranks the micro-batches of each in turn: gradients
-- are summed inside of the machine first, and only sums move between machines.
-- @function wane.accumulate
-- @param fn function(i), i from 1 to n, that records a micro-batch and returns its loss, a tensor of one element, and
-- its weight, a number, or nothing
-- @param opts {micro = n, partial = 1: how many micro-batches make a partial sum of gradients, which divides n; mean =
-- true: losses and gradients are divided by n; policy =, budget =: of each partial sum}
-- @return the mean of the losses (their sum with mean = false): a tensor, computed when it is read
-- @usage
-- local inputs, labels = wane.randn(8, 8), wane.randint(4, { 8 })
-- local mean = wane.accumulate(function(i)
--     return nn.cross_entropy(model(inputs:narrow(1, 2 * i - 1, 2)), labels:narrow(1, 2 * i - 1, 2))
-- end, { micro = 4 })
-- opt:step()
-- print(mean:item() > 0) --> true
local function accumulate(fn, opts)
    if type(fn) ~= 'function' then
        raise(nil, 'value', '%s: expected a function(i) that returns a loss, got %s', what, errors.describe(fn))
    end
    opts = errors.check_options(opts, { 'micro', 'partial', 'mean', 'policy', 'budget' }, what)
    local n = errors.count(opts.micro, what .. ': micro', 1, 65536)
    errors.check_flags(opts, { 'mean' }, what)
    local scale = opts.mean ~= false and 1 / n or nil
    local m = opts.partial == nil and 1 or errors.count(opts.partial, what .. ': partial', 1, n)
    if n % m ~= 0 then
        raise(nil, 'value', '%s: partial = %d does not divide micro = %d: every partial sum has as many micro-batches',
            what, m, n)
    end
    local run = { n = n, m = m, scale = scale, policy = grad.policy(opts), weights = {} }
    local fine, result = errors.pcall(function()
        if ranks.size > 1 then return among_ranks(fn, run) end
        return mean_of(run, alone(fn, run))
    end)
    if fine then return result end
    if run.first then C.wn_counter_set(run.first) end -- that of all ranks
    for _, c in ipairs(run.cells or {}) do binding.check(C.wn_cell_drop_grad(c.id)) end
    errors.again(result)
end
-- Compiled code holds the first closures that it was made for, and the batches that they name, for as long as it lives.
-- So no function of the library that calls one of the script's again and again is compiled.
jit.off(accumulate)
return accumulate
