--- Launchers and schedulers: reads what they tell a process of the job that it is part of.
--
-- mpirun and srun start every rank with its number and their count in the environment. Which variables they set tells
-- which kind of MPI can join the job, and it must be known before MPI starts: the wrong kind makes n jobs of one rank
-- without a word, or ends the process.
-- @internal wane.dist.launcher

local launcher = {}

local is_asked = false -- somebody of this process knows of the job

--- Returns a variable of the environment as a whole number; nil where it is unset or empty.
-- @param name of the variable
-- @param get function(name)
-- @param wrong function(fmt, ...) that raises
function launcher.number(name, get, wrong)
    local text = get(name)
    if text == nil or text == '' then return nil end
    local n = text:match '^%d+$' and tonumber(text)
    if not n or n > 2 ^ 31 then wrong('%s=%s, which is no whole number from 0', name, text) end
    return n
end

--- Checks a rank and a size; nil where both are.
-- @param rank number, or nil
-- @param size number, or nil
-- @param names { name of the rank's variable, name of the size's }
-- @param wrong function(fmt, ...) that raises
-- @return { rank =, size =, names = }, or nil
function launcher.place(rank, size, names, wrong)
    if rank == nil and size == nil then return nil end
    if rank == nil then wrong('%s=%d without %s', names[2], size, names[1]) end
    if size == nil then wrong('%s=%d without %s', names[1], rank, names[2]) end
    if rank >= size then
        wrong('%s=%d beside %s=%d; ranks go from 0 to the size less 1', names[1], rank, names[2], size)
    end
    return { rank = rank, size = size, names = names }
end

local function pair(names, get, wrong)
    return launcher.place(launcher.number(names[1], get, wrong), launcher.number(names[2], get, wrong), names, wrong)
end

local OPEN, MPICH = { 'OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE' }, { 'PMI_RANK', 'PMI_SIZE' }

--- Returns the rank that a launcher of MPI gave this process; nil where none did. A launcher that started one rank
-- decides nothing where another started several.
-- @param get function(name)
-- @param wrong function(fmt, ...) that raises
-- @return as of launcher.place
function launcher.mpi(get, wrong)
    is_asked = true
    local open, other = pair(OPEN, get, wrong), pair(MPICH, get, wrong)
    if open and other and open.size > 1 and other.size > 1 and (open.rank ~= other.rank or open.size ~= other.size) then
        wrong('two ranks: %s=%d of %d and %s=%d of %d', OPEN[1], open.rank, open.size, MPICH[1], other.rank, other.size)
    end
    if open and other and other.size > open.size then return other end
    return open or other
end

-- Returns a line that starts as many ranks by MPI as another launcher has started processes.
local function line_for(count)
    return ('mpirun -n %d luajit train.lua'):format(count)
end

-- Raises for launchers that start processes without MPI.
local function refuse_others(get, wrong)
    local tasks = get 'SLURM_STEP_ID' and launcher.number('SLURM_NTASKS', get, wrong)
    if tasks and tasks > 1 then
        wrong('SLURM_NTASKS=%d and no plugin of srun: every task would be a job of one rank; write '
            .. 'srun --mpi=pmix (Open MPI) or srun --mpi=pmi2 (MPICH)', tasks)
    end
    local world = get 'TORCHELASTIC_RUN_ID' and launcher.number('WORLD_SIZE', get, wrong)
    if world and world > 1 then
        wrong('WORLD_SIZE=%d of torchrun, which starts no MPI; write %s', world, line_for(world))
    end
end

--- Returns the job that this process was started in; nil where it was started alone.
-- @param get function(name) that returns a variable of the environment
-- @param wrong function(fmt, ...) that raises
-- @return { rank =, size =, kind = 'openmpi' or 'mpich', by = the launcher, in words }
function launcher.job(get, wrong)
    if get 'WANE_SWEEP_POINT' then return nil end -- the process of a point trains by itself
    local found = launcher.mpi(get, wrong)
    if found then
        local is_open = found.names == OPEN
        found.kind = is_open and 'openmpi' or 'mpich'
        found.by = is_open and 'mpirun of Open MPI' or get 'SLURM_STEP_ID' and 'srun --mpi=pmi2' or 'mpirun of MPICH'
        return found
    end
    found = get 'PMIX_RANK' and pair({ 'PMIX_RANK', 'SLURM_NTASKS' }, get, wrong)
    if found then
        found.kind, found.by = 'openmpi', 'srun --mpi=pmix'
        return found
    end
    refuse_others(get, wrong)
end

--- Warns, on the first of several ranks, where a script computes without having joined its job: every rank trains by
-- itself then. The process of a point of a sweep is part of no job.
-- @param get function(name), default os.getenv
function launcher.warn(get)
    get = get or os.getenv
    if is_asked then return end
    local fine, found = pcall(launcher.job, get, error)
    if not fine or not found or found.size < 2 or found.rank > 0 then return end
    io.stderr:write(('wane: %s started %d ranks, and each of them computes by itself; join them with '
        .. 'wane.dist.start {}, before the first value\n'):format(found.by, found.size))
end

return launcher
