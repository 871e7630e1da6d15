--- The shard of a sweep that one process of several measures: every N-th point, into a file of its own.
--
-- Shard I of N has the points I, I + N, I + 2N, ... of the grid, so every point is in one shard and no file has two
-- writers. A shard is { index = I, count = N }, 1 <= I <= N.
-- @internal wane.sweep.shard
local errors = require 'wane.errors'
local launcher = require 'wane.dist.launcher'
local system = require 'wane.system'

local iterate, raise = errors.iterate, errors.raise

local shard = {}

local MOST = 1e6

-- ---- what schedulers and launchers say ----------------------------------------------------------------------------

-- Raises the error of variables that make no sense, or contradict each other.
local function contradict(fmt, ...)
    raise(nil, 'value', "wane.sweep: shard = 'auto' found " .. fmt .. '; give --shard I/N', ...)
end

local function number(name, get) return launcher.number(name, get, contradict) end

-- Makes a shard of a rank counted from 0; nil of none.
local function of_rank(found)
    return found and { index = found.rank + 1, count = found.size }
end

-- Returns the place of this task in a Slurm array; nil outside an array.
local function slurm_array(get)
    local id = number('SLURM_ARRAY_TASK_ID', get)
    if id == nil then return nil end
    local least, most = number('SLURM_ARRAY_TASK_MIN', get), number('SLURM_ARRAY_TASK_MAX', get)
    local step, told = number('SLURM_ARRAY_TASK_STEP', get) or 1, number('SLURM_ARRAY_TASK_COUNT', get)
    if least == nil or most == nil then
        contradict('SLURM_ARRAY_TASK_ID=%d without SLURM_ARRAY_TASK_%s', id, least == nil and 'MIN' or 'MAX')
    end
    if step < 1 or id < least or id > most or (id - least) % step ~= 0 then
        contradict('SLURM_ARRAY_TASK_ID=%d, which is no task of an array from %d to %d by %d', id, least, most, step)
    end
    local count = math.floor((most - least) / step) + 1
    if told and told ~= count then
        contradict('an array of %d tasks with gaps (from %d to %d by %d would be %d); number the tasks without gaps, '
            .. '--array=1-%d', told, least, most, step, count, told)
    end
    return { index = (id - least) / step + 1, count = count }
end

-- Returns the place of this task in a step of Slurm (srun); nil outside a step and in one of one task. A batch script
-- has SLURM_PROCID=0 and the number of tasks of its job, though it runs once.
local function slurm_step(get)
    local rank, size = number('SLURM_PROCID', get), number('SLURM_STEP_NUM_TASKS', get)
    local is_batch = get 'SLURM_JOB_ID' and not get 'SLURM_STEP_ID'
    if is_batch or size == nil then size = number('SLURM_NTASKS', get) end
    if rank == nil or rank == 0 and size == nil then return nil end
    if is_batch and rank == 0 and size > 1 then
        raise(nil, 'value', "wane.sweep: shard = 'auto' runs once, in the batch script itself, though the job has "
            .. 'SLURM_NTASKS=%d tasks; start it with srun, or give --shard I/N', size)
    end
    return launcher.place(rank, size, { 'SLURM_PROCID', 'SLURM_NTASKS' }, contradict)
end

-- Numbers of array tasks of other schedulers, whose count they do not tell alike, and the value outside an array.
local OTHERS = { PBS_ARRAY_INDEX = '', PBS_ARRAYID = '', SGE_TASK_ID = 'undefined', LSB_JOBINDEX = '0' }

--- Returns the shard that a scheduler or a launcher made this process for.
--
-- A task of a Slurm array is one of the array's tasks; a rank, of mpirun or else of srun, is one of the ranks. A rank
-- within an array task is one of the product: every task is taken to have as many ranks.
-- @param get function(name) that returns a variable of the environment, default os.getenv
-- @return shard; nil for a process that neither started
-- @raise 'value' for numbers that contradict each other, and for arrays of other schedulers
function shard.auto(get)
    get = get or os.getenv
    for name, none in iterate(OTHERS) do
        local text = get(name)
        if text and text ~= '' and text ~= none then
            raise(nil, 'value', "wane.sweep: shard = 'auto' reads arrays of Slurm and ranks of MPI, and found %s=%s; "
                .. 'give --shard "$%s/N", N being the number of tasks', name, text, name)
        end
    end
    local task, rank = slurm_array(get), of_rank(launcher.mpi(get, contradict) or slurm_step(get))
    if task == nil or rank == nil then return task or rank end
    return { index = (task.index - 1) * rank.count + rank.index, count = task.count * rank.count }
end

-- ---- shards ---------------------------------------------------------------------------------------------------------

--- Returns the shard that a setting names.
-- @param given 'I/N', 'auto' or nil
-- @return shard; nil for all points: without a setting, and for 'auto' in a process that nothing started as one of
-- several
-- @raise 'value' for another text, and as shard.auto
function shard.of(given)
    if given == nil then return nil end
    if given == 'auto' then return shard.auto() end
    local index, count = nil, nil
    if type(given) == 'string' then index, count = given:match '^(%d+)/(%d+)$' end
    index, count = tonumber(index), tonumber(count)
    if not index or index < 1 or index > count or count > MOST then
        raise(nil, 'value', "wane.sweep: shard must be 'I/N', I from 1 to N, such as '1/8', or 'auto', got %s",
            errors.describe(given))
    end
    return { index = index, count = count }
end

--- Returns the points of a shard.
-- @param points list of grid.points
-- @param one shard, or nil for all points
-- @return list of points
function shard.points(points, one)
    if one == nil then return points end
    local out = {}
    for k = one.index, #points, one.count do out[#out + 1] = points[k] end
    return out
end

-- Splits the name of a file at its ending: 'runs/a.jsonl' -> 'runs/a', '.jsonl'.
local function split(path)
    local stem, ending = path:match '^(.*[^/])(%.%w+)$'
    return stem or path, ending or ''
end

--- Returns the name of a shard's file: 'runs/a.jsonl' -> 'runs/a.3-of-8.jsonl'.
-- @param out name of the sweep's file
-- @param one shard, or nil for `out` itself
function shard.path(out, one)
    if one == nil then return out end
    local stem, ending = split(out)
    return ('%s.%d-of-%d%s'):format(stem, one.index, one.count, ending)
end

--- Returns the shard that the name of a file tells.
-- @param path as of shard.path
-- @return shard, or nil
function shard.named(path)
    local index, count = split(path):match '%.(%d+)%-of%-(%d+)$'
    index, count = tonumber(index), tonumber(count)
    if not index or index < 1 or index > count or count > MOST then return nil end
    return { index = index, count = count }
end

--- Returns a file beside a shard's that is of another number of shards; nil where there is none, and where there are
-- files of the same number.
-- @param path as of shard.path
-- @param one shard
function shard.other(path, one)
    local stem, ending = split(path)
    local found
    stem = stem:gsub('%.%d+%-of%-%d+$', ''):gsub('[*?%[\\]', '\\%0')
    for _, name in ipairs(system.glob(('%s.*-of-*%s'):format(stem, ending))) do
        local other = shard.named(name)
        if other and other.count == one.count then return nil end
        if other then found = found or name end
    end
    return found
end

return shard
