--- Ranks: one script in many processes, started by mpirun or srun.
--
-- Every rank runs the same script. `wane.dist.start {}`, before the first value is computed, joins the job; without it
-- nothing of MPI is opened. Calls that all ranks make together, such as `gather`, are agreed about first: where a rank
-- is about to do something else, or has failed, every rank raises the same words, nothing has changed, and the next
-- call works.
-- @module wane.dist

local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local launcher = require 'wane.dist.launcher'
local link = require 'wane.program.link'
local place = require 'wane.dist.place'
local planner = require 'wane.program.planner'
local program = require 'wane.program'
local ranks = require 'wane.program.ranks'
local read = require 'wane.tensor.read'
local tensor = require 'wane.tensor'

local C, check, raise = binding.C, binding.check, errors.raise

--- Fields: `rank`, from 0; `size`, the number of ranks; `is_first`, true on rank 0. They are 0, 1 and true until
-- `start`. `gpus`, behind `start` of ranks with GPUs: how these exchange, 'NCCL 2.21.5', say, or 'pinned memory: ' and
-- why.
local dist = { rank = 0, size = 1, is_first = true }

-- ---- joining --------------------------------------------------------------------------------------------------------

-- Takes over who this process is.
local function take()
    local who = ranks.take()
    dist.rank, dist.size, dist.is_first = who.rank, who.size, who.rank == 0
end

-- Raises unless a job may be joined now.
local function need_early(what)
    local who = ranks.who()
    if who.is_open ~= 0 then
        raise(nil, 'value', '%s: this process is rank %d of %d already; a job is joined once', what, who.rank, who.size)
    end
    if program.runs() > 0 then
        raise(nil, 'value', '%s: values have been computed already; call it before the first of them', what)
    end
end

--- Joins the job that mpirun or srun started this process in. Alone, in a process that no launcher started, it does
-- nothing: the script trains by itself.
-- @param opts { timeout = 600: seconds after which waiting for another rank is an error; per_node: so many consecutive
-- ranks are taken to share a machine, instead of what MPI finds }
-- @return rank, from 0, and the number of ranks
-- @raise 'value' for a second start, one behind the first run, variables of launchers that contradict each other or
-- start no MPI, and ranks of other versions, kernels, tunables, numbers of threads or kinds of GPUs; 'io' without a
-- library for the launcher's kind of MPI, and where ranks do not come
-- @usage
-- -- wane.dist.start {}, the first line behind local wane = require 'wane'
-- print(wane.dist.rank, wane.dist.size) --> 0	1
function dist.start(opts)
    local what = 'wane.dist.start'
    opts = errors.check_options(opts, { 'timeout', 'per_node' }, what)
    local timeout = opts.timeout == nil and 600 or opts.timeout
    if type(timeout) ~= 'number' or not (timeout > 0 and timeout < 1e9) then
        raise(nil, 'value', '%s: timeout must be seconds, above 0, got %s', what, errors.describe(timeout))
    end
    local per_node = opts.per_node == nil and 0 or errors.count(opts.per_node, what .. ': per_node', 1, 65536)
    need_early(what)
    local job = launcher.job(os.getenv, function(fmt, ...) raise(nil, 'value', what .. ' found ' .. fmt, ...) end)
    if job then
        local code = C.wn_dist_start(job.kind, job.rank, job.size, per_node, timeout)
        if code ~= 0 then
            raise(nil, binding.text(C.wn_status_name(code)), '%s: %s started this process as rank %d of %d, but %s',
                what, job.by, job.rank, job.size, binding.text(C.wn_message()))
        end
        take()
        -- The bits of a rank depend on these, and on its GPU, which they compare, too.
        local mine, all = binding.array('u8', C.WN_DIST_GPU), binding.array('u8', C.WN_DIST_GPU * dist.size)
        ranks.gather(('%s: wane %s, kernels %s, %d threads, %d ranks on each machine, %s'):format(what,
            binding.text(C.wn_version()), binding.text(C.wn_kernels()), C.wn_threads(), ranks.per_node,
            planner.bits()), function()
                check(C.wn_dist_gpu(mine))
                return mine, C.WN_DIST_GPU
            end, all, C.WN_DIST_GPU * dist.size)
        check(C.wn_dist_gpus(all, C.WN_DIST_GPU * dist.size))
        dist.gpus = binding.text(ranks.who().gpu_link)
    end
    return dist.rank, dist.size
end

--- Becomes one rank of a job whose other ranks are copies of it, for the bytes and seconds of a job that is not here.
-- Nothing is sent, and no result means anything.
-- @param opts { ranks = their number, rank = 0: this one, link = { { 8, 370e9 }, { 1024, 50e9 } }: bytes a second among
-- 8 ranks of a machine, and among all; one pair where all ranks are on one machine; without it the rates of this one }
-- @raise 'value' for a job that is joined already, and numbers that make no job
-- @usage
-- -- wane.dist.ghost { ranks = 1024, rank = 700 }
function dist.ghost(opts)
    local what = 'wane.dist.ghost'
    opts = errors.check_options(opts, { 'ranks', 'rank', 'link' }, what)
    local size = errors.count(opts.ranks, what .. ': ranks', 1, 65536)
    local rank = opts.rank == nil and 0 or errors.count(opts.rank, what .. ': rank', 0, size - 1)
    local per_node, rates = link.of(opts.link, size, what)
    need_early(what)
    check(C.wn_dist_ghost(rank, size, per_node))
    if rates then check(C.wn_link(rates)) end
    ranks.has_link = rates ~= nil
    take()
end

-- ---- calls that all ranks make ------------------------------------------------------------------------------------

--- Returns the values of all ranks, in their order. A run point; every rank calls it.
-- @param t tensor, of the same shape, dtype and device on every rank
-- @return tensor of one more dim, the first one: the ranks
-- @raise as the rank that failed; 'value' where ranks call different things; 'io' once a rank has left
-- @usage print(wane.dist.gather(wane.ones(2)):sum()) --> tensor () f32 2.
function dist.gather(t)
    local what = 'wane.dist.gather'
    local is_tensor = tensor.is(t)
    local function make()
        if not is_tensor then raise(nil, 'value', '%s: expected a tensor, got %s', what, errors.describe(t)) end
        return read.raw(read.run(t))
    end
    if dist.size == 1 then
        if not is_tensor then make() end
        return t:reshape(1, unpack(t._dims))
    end
    local n = is_tensor and tensor.count(t._dims) * dist.size or 0
    local all = binding.array(is_tensor and t.dtype or 'f32', math.max(1, n))
    ranks.gather('gather ' .. (is_tensor and tensor.describe(t) or errors.describe(t)), make, all,
        is_tensor and n * binding.element_bytes[t.dtype] or 0)
    return create.data({ dist.size, unpack(t._dims) }, t.dtype, t._device, all)
end

--- Returns the sum of the values of all ranks, added in the order of ranks, so that every run has the same bits. A run
-- point; every rank calls it.
-- @param t as of wane.dist.gather
-- @usage print(wane.dist.sum(wane.ones(2)):sum()) --> tensor () f32 2.
function dist.sum(t)
    local all = dist.gather(t)
    local total = all[1]
    for r = 2, dist.size do total = total + all[r] end
    return total
end

--- Says how ranks have the states of parameters. Every rank calls it, before the first step.
--
-- With 'slice', as it is without this, each rank has the gradient and the states of the optimizer for a range of a
-- parameter, and updates that: n ranks need 1 / n of these bytes each. With 'keep' every rank has all of it, so that
-- p.grad can be read and changed. With 'shard' a rank has its range of the value alone, too, for good: programs gather
-- the parameters that they read, and all ranks run them. The bits of a training are the same.
-- With { budget =, step = } the word is chosen: of those under which the step keeps the budget, on the rank that needs
-- most, the one of the fewest seconds by the plan. Nothing runs. A parameter that is sharded and has a value stays so;
-- until then any word can follow any other.
-- @param model a module
-- @param opt the optimizer of its parameters
-- @param word 'slice', 'keep' or 'shard'; or a table { [path] = word }: a path names a parameter or the module around
-- some, and the longest that fits decides; or { budget = bytes or text, step = function() that runs a step of opt,
-- target = name of a machine, as of wane.plan }
-- @return the word that was given or chosen, and, where a budget chose it, the plan of the step on this rank
-- @raise 'value' for a path that names no parameter, a parameter that has a gradient or is sharded already, and an
-- optimizer that has made steps; 'budget' for one that no word keeps, with min_budget: nothing has changed
-- @usage
-- local model = nn.Linear(8, 4)
-- local opt = optim.SGD(model:parameters(), { lr = 0.1 })
-- wane.dist.place(model, opt, { bias = 'keep' })
-- local function step()
--     opt:step(function(i) return model(wane.ones(i, 8)):sum() end, { micro = 4, budget = '1 MiB' })
-- end
-- local word, plan = wane.dist.place(model, opt, { budget = '1 MiB', step = step })
-- print(word, plan.reserved <= wane.MiB)
function dist.place(model, opt, word)
    return place(model, opt, word)
end

--- Waits until every rank has come here.
-- @usage wane.dist.barrier()
function dist.barrier()
    if dist.size > 1 then ranks.call('barrier', function() return nil, 0 end) end
end

return dist
