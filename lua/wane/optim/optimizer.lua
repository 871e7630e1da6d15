--- Optimizers: the methods of all of them, their state cells, and the block of numbers that a step reads.
--
-- `opt.lr` and the other settings can be read and assigned at any time. All state is made when the optimizer is
-- constructed, as creation nodes: it takes storage at the first step. A parameter counts its own steps, so bias
-- corrections are right for one whose first gradient comes late. Parameters that have counted equally share one block
-- of numbers; the block is read when the program runs, so settings may change at every step. Counts move only after the
-- program ran.
-- @module wane.optim.optimizer

local binding = require 'wane.ffi'
local create = require 'wane.tensor.create'
local errors = require 'wane.errors'
local grad = require 'wane.program.grad'
local groups = require 'wane.optim.groups'
local misspelt = require 'wane.module.misspelt'
local op = require 'wane.tensor.op'
local ranks = require 'wane.program.ranks'
local tensor = require 'wane.tensor'
local scoped = require 'wane.scoped'

local C = binding.C
local iterate, raise = errors.iterate, errors.raise
local ipairs, rawget, rawset, setmetatable, tostring, type = ipairs, rawget, rawset, setmetatable, tostring, type

local Optimizer = {}

local STEP_OPTIONS = { 'policy', 'budget', 'scale', 'also' }
local MICRO_OPTIONS = { 'micro', 'partial', 'mean', 'policy', 'budget' }

-- Makes the state cells of parameter k.
local function make_state(self, kind, p, k)
    local cells, _, own = {}, tensor.range(p)
    local dims, layout = own and { own } or p._dims, own and 0 or create.layout(p)
    for _, name in ipairs(kind.states) do
        local init = create.make(self._class.name, op.id.full, dims,
            { dtype = tensor.dtype_name[p._dtype], device = p.device }, { 0, 0, layout = layout })
        cells[name] = create.cell(create.KIND_OPTIMIZER, init, ('%s.%d'):format(name, k))
    end
    self._cells[k] = cells
    self._count[k] = 0
end

-- Adds a group of parameters that was checked.
local function add_group(self, given)
    local own = groups.settings(self._class, given.options, given.what)
    local list = {}
    local group = groups.new(self._class, list, own, self._settings)
    local g = #self.param_groups + 1
    self.param_groups[g] = group
    for i, p in ipairs(given.params) do
        local k = #self._params + 1
        list[i], self._params[k], self._ids[k], self._group[k] = p, p, p.id, g
        if not tensor.range(p) then ranks.slice(p) end
        make_state(self, group._kind, p, k)
    end
end

-- Returns a state with the value of `cell` that lies as parameter p does: on its device, in its dtype and layout.
local function state_like(p, cell, name)
    local layout = tensor.range(p) and 0 or create.layout(p)
    if tensor.typed(cell)._device ~= p._device then
        cell = tensor.wrap(binding.id(C.wn_cell_move(cell.id, p._device, cell._dtype == p._dtype and layout or 0)))
    end
    if tensor.typed(cell)._dtype == p._dtype and create.layout(cell) == layout then return cell end
    return create.cell(create.KIND_OPTIMIZER, create.laid(cell:to(p.dtype):detach(), layout), name)
end

-- Takes the states of each parameter along to where model:to has put it. nn.init gives a parameter another cell too.
local function follow(self)
    for k, p in ipairs(self._params) do
        if self._ids[k] ~= tensor.typed(p).id then
            local cells = {}
            for name, cell in iterate(self._cells[k]) do
                cells[name] = state_like(p, cell, ('%s.%d'):format(name, k))
            end
            self._cells[k], self._ids[k], self._updates[k] = cells, p.id, nil
        end
    end
end

--- Makes the constructor of a class of optimizers.
-- @within Internal
-- @param class { name =, op = of one update, states = names of the state cells, allowed = names of options, defaults =,
-- limits =, check = function(opts) that raises (may be nil), prepare = function(settings) -> { op =, states = } (may be
-- nil), numbers = function(settings, t) -> list of the numbers of step t }
function Optimizer.class(class)
    class.defaults.clip_norm, class.defaults.initial_lr, class.limits.initial_lr = false, false, { 0 }
    local mt = {}
    local methods = setmetatable({}, { __index = Optimizer })
    mt.__index = function(self, key)
        local settings = rawget(self, '_settings')
        if key == 'last_norm' then return rawget(self, '_norm') end
        if settings and settings[key] ~= nil then return settings[key] end
        return methods[key]
    end
    mt.__newindex = function(self, key, value)
        if class.defaults[key] == nil then
            raise(nil, 'value', "%s has no setting '%s'; %s", class.name, tostring(key),
                errors.near(key, class.defaults))
        end
        groups.check_change(class, self._settings, key, value)
        self._settings[key] = value
        if key == 'lr' then self._settings.initial_lr = false end
    end
    mt.__tostring = function(self)
        local parts = {}
        for key, value in iterate(self._settings) do
            if value ~= false then parts[#parts + 1] = key .. ' = ' .. tostring(value) end
        end
        table.sort(parts)
        local n = #self.param_groups
        return class.name .. '(' .. #self._params .. ' parameters, ' .. (n > 1 and n .. ' groups, ' or '')
            .. table.concat(parts, ', ') .. ')'
    end
    mt.__describe = function() return 'an optimizer ' .. class.name end
    return function(params, opts)
        local given = groups.split(params, class.name, {})
        opts = groups.options(class, opts, class.allowed, class.name)
        local settings = {}
        for key, default in iterate(class.defaults) do
            local value = opts[key]
            if value == nil then value = default end
            groups.check_setting(class, key, value)
            settings[key] = value
        end
        local self = setmetatable({
            _class = class, _params = {}, _settings = settings, _cells = {}, _count = {}, _blocks = {}, _updates = {},
            _versions = {}, _ids = {}, _group = {}, param_groups = {},
        }, mt)
        for _, group in ipairs(given) do add_group(self, group) end
        return self
    end
end

-- Returns the block of numbers for the parameters of group g whose t-th step comes now, filled.
local function block(self, g, t, blocks)
    blocks[g] = blocks[g] or {}
    local b = blocks[g][t]
    if b then return b end
    -- Blocks are reused by how many steps a parameter is behind, so a program meets the same blocks at every step.
    local late = self._steps_now - t
    self._blocks[g] = self._blocks[g] or {}
    b = self._blocks[g][late]
    if b == nil then
        local id = binding.id(C.wn_hyper())
        b = { id = id, ref = binding.Ref(id) }
        self._blocks[g][late] = b
    end
    for i, v in ipairs(self._class.numbers(self.param_groups[g]._settings, t)) do
        binding.check(C.wn_hyper_set(b.id, i - 1, v))
    end
    blocks[g][t] = b
    return b
end

-- Lists the updates of a step, one for each parameter that may take part, and the parameters' numbers in _params; sets
-- the numbers of the step. needs_value: only parameters that have a value.
local function updates(self, needs_value)
    local list, who, blocks = {}, {}, {}
    follow(self)
    local most = 0
    for _, n in ipairs(self._count) do most = math.max(most, n) end
    rawset(self, '_steps_now', most + 1)
    for k, p in ipairs(self._params) do
        local state, version = C.wn_cell_state(p.id), C.wn_cell_version(p.id)
        if state == 3 or (state == 1 and not needs_value) then
            local update = self._updates[k]
            if update == nil then
                local kind = self.param_groups[self._group[k]]._kind
                update = { op = kind.op, cells = { p.id } }
                for i, name in ipairs(kind.states) do update.cells[i + 1] = self._cells[k][name].id end
                self._updates[k] = update
            end
            update.hyper = block(self, self._group[k], self._count[k] + 1, blocks).id
            list[#list + 1] = update
            who[#who + 1] = k
            self._versions[k] = version
        end
    end
    return list, who
end

-- Counts the step of the parameters that the program wrote: a parameter that the loss does not reach is not written,
-- and planning writes none.
local function commit(self, who)
    for _, k in ipairs(who) do
        if C.wn_cell_version(self._params[k].id) ~= self._versions[k] then self._count[k] = self._count[k] + 1 end
    end
end

local function run(self, request, who)
    request.optimizer = self
    op.run(request)
    commit(self, who)
    if not require('wane.program').is_planning() then rawset(self, '_norm', request.norm) end
end

-- Returns the versions of all gradients as text. It tells gradients that a step clipped before its update failed.
local function gradient_versions(self)
    local versions = {}
    for k, p in ipairs(self._params) do
        local g = tensor.own_grad(p)
        versions[k] = g and C.wn_cell_version(g.id) or 0
    end
    return table.concat(versions, ' ')
end

-- Clips the gradients unless they are clipped already. Returns the norm that they had.
local function clip(self)
    if rawget(self, '_clipped') == gradient_versions(self) then return rawget(self, '_norm') end
    local norm = require('wane.optim.clip').norm(self._params, self.clip_norm)
    if require('wane.program').is_planning() then return nil end
    rawset(self, '_clipped', gradient_versions(self))
    rawset(self, '_norm', norm)
    return norm
end

-- Steps with the gradients that the cells hold.
local function update(self, opts)
    if opts.policy ~= nil or opts.budget ~= nil or opts.scale ~= nil or opts.also ~= nil then
        raise(nil, 'value', '%s: step() takes no options without a loss; give them to loss:backward', self._class.name)
    end
    local list, who = updates(self, true)
    local norm = self.clip_norm and clip(self) or nil
    if #list == 0 then
        raise(nil, 'value', '%s: step: no parameter has a gradient; call loss:backward() first, or opt:step(loss)',
            self._class.name)
    end
    local all = ranks.size > 1 and ranks.size or nil
    run(self, { mode = 'update', roots = {}, updates = list, norm = norm, given = all }, who)
    rawset(self, '_clipped', nil)
end

-- Does so on all ranks, or on none.
local function update_all(self, opts)
    if ranks.size == 1 or require('wane.program').is_planning() then return update(self, opts) end
    ranks.attempt('an update', function() update(self, opts) end)
end

-- Computes all gradients once and undoes it under wane.anomaly, so that a value that is not finite is met before a
-- parameter changes.
local function try_gradients(request)
    local program = require 'wane.program'
    if program.is_planning() then return end
    require('wane.program.sequence').run(function()
        program.run { mode = 'backward', roots = request.roots, scale = request.scale, policy = request.policy,
            again = true }
    end, 'step', { undone = true }, function() end)
end

-- Checks the values that a step computes beside its loss, and returns them.
local function also_of(self, also, losses)
    local what = self._class.name .. ': step: also'
    if also == nil then return nil end
    if losses > 1 then
        raise(nil, 'value', '%s: of %d losses each is a pass of its own, and it is not known beside which one to '
            .. 'compute; give one loss, or wane.eval the values before', what, losses)
    end
    for k = 1, errors.list(also, what, 'tensors, as in {also = {h, c}}', 0) do tensor.id(also[k], what) end
    return also
end

-- Runs forward, backward and update of the losses `roots` as one program.
local function fused(self, roots, opts)
    for _, t in ipairs(roots) do grad.check_root(t, 'step') end
    local policy = grad.policy(opts)
    local list, who = updates(self, false)
    if #list == 0 then raise(nil, 'value', '%s: step: all parameters are frozen', self._class.name) end
    local request = { mode = 'step', roots = roots, also = also_of(self, opts.also, #roots), updates = list,
        scale = opts.scale, policy = policy, clip = self.clip_norm or nil }
    if C.wn_anomaly(-1) ~= 0 then try_gradients(request) end
    run(self, request, who)
end

-- Steps with the gradients of the micro-batches that fn records, which it drops again. Returns the mean of the losses.
local function accumulated(self, fn, opts)
    for k, p in ipairs(self._params) do
        if tensor.own_grad(p) then
            raise(nil, 'value', '%s: step: parameter %d, %s, has a gradient already, and a step of micro-batches makes '
                .. 'its own; call zero_grad(), or wane.accumulate, which adds to it, and step()', self._class.name, k,
                tensor.describe(p))
        end
    end
    local loss = require('wane.program.accumulate')(fn, opts)
    local fine, why = errors.pcall(update_all, self, {})
    self:zero_grad()
    if not fine then errors.again(why) end
    return loss
end

--- Updates the parameters. A run point.
-- opt:step() takes the gradients that loss:backward() left. opt:step(loss) runs forward, backward and update as one
-- program, which needs fewer bytes. opt:step{ l1, l2 } does so for micro-batches, one after the other, whose gradients
-- are added. opt:step(fn, {micro = n}) has fn(i) record the loss of micro-batch i, runs one after the other as
-- wane.accumulate does, and updates: on several ranks it is the one way to step, and its bits are those of one.
-- @param what nil, a loss (a tensor of one element), a list of losses, or function(i) as of wane.accumulate
-- @param opts {policy =, budget = bytes or text such as '2GiB', scale = factor of the gradients, also = list of values
-- that are computed in the step, beside one loss, and can be read after it: states, hits}; only with a loss. With a
-- function those of wane.accumulate: {micro =, partial =, mean =, policy =, budget =}
-- @return the argument `what`, or of a function the mean of its losses; with clip_norm, opt.last_norm has the norm of
-- the gradients before they were clipped, a 0-d tensor whose reading runs nothing, else nil
-- @raise 'value' without a gradient or with all parameters frozen, and for an entry of `also` that is the loss, given
-- twice, or made of nothing that the step computes; 'shape' for a loss of more elements; 'device' for an entry that
-- lies elsewhere
-- @usage
-- loss:backward()
-- opt:step()
-- opt:zero_grad()
-- print(opt:step(nn.cross_entropy(model(x), y), { policy = 'sqrt' }):item() > 0) --> true
function Optimizer:step(what, opts)
    if type(what) == 'function' then
        return accumulated(self, what, errors.check_options(opts, MICRO_OPTIONS, self._class.name .. ': step'))
    end
    opts = errors.check_options(opts, STEP_OPTIONS, self._class.name .. ': step')
    scoped.sync()
    if what == nil then return update_all(self, opts) end
    if tensor.is(what) then
        fused(self, { what }, opts)
    else
        for k = 1, errors.list(what, self._class.name .. ': step', 'losses, or a loss', 1, STEP_OPTIONS) do
            if not tensor.is(what[k]) then
                raise(nil, 'value', '%s: step: loss %d must be a tensor, got %s', self._class.name, k,
                    errors.describe(what[k]))
            end
        end
        fused(self, what, opts)
    end
    return what
end

--- Drops the gradients of all its parameters; their bytes are given back at once.
-- @usage
-- loss:backward()
-- opt:zero_grad()
-- print(model[1].weight.grad) --> nil
function Optimizer:zero_grad()
    scoped.sync() -- not the gradients of a suspended planning
    for _, p in ipairs(self._params) do binding.check(C.wn_cell_drop_grad(p.id)) end
end

--- Lists the parameters that it trains.
-- @usage print(#opt:parameters()) --> 4
function Optimizer:parameters()
    local list = {}
    for k, p in ipairs(self._params) do list[k] = p end
    return list
end

-- Returns the names of the state cells of all groups, each once.
local function states_of(self)
    local list, seen = {}, {}
    for _, group in ipairs(self.param_groups) do
        for _, name in ipairs(group._kind.states) do
            if not seen[name] then list[#list + 1] = name end
            seen[name] = true
        end
    end
    return list
end

--- Adds a group of parameters with settings of its own, for instance of layers that are trained from now on.
-- @param group {params = list of parameters, lr =, ...}: settings that it does not give are the optimizer's
-- @raise 'value' for a parameter that the optimizer has already, and for unknown settings
-- @usage
-- local head = nn.Linear(4, 2)
-- opt:add_param_group { params = head:parameters(), lr = 0.1 }
-- print(#opt.param_groups, opt.param_groups[2].lr, opt.lr) --> 2	0.1	0.01
function Optimizer:add_param_group(group)
    local what, seen = self._class.name .. ': add_param_group', {}
    for _, p in ipairs(self._params) do seen[p.id] = true end
    if type(group) ~= 'table' or tensor.is(group) or group.params == nil then
        raise(nil, 'value', '%s: expected {params = list of parameters, ...}, got %s', what, errors.describe(group))
    end
    add_group(self, groups.split(group, what, seen)[1])
end

--- Makes the states of parameter k anew, as ranks have them now (wane.dist.place); it has made no step.
-- @within Internal
function Optimizer:remake(k)
    make_state(self, self.param_groups[self._group[k]]._kind, self._params[k], k)
    self._updates[k] = nil
end

--- Returns the state for checkpoints. The tensors are the optimizer's own, not copies; on several
-- ranks they are ranges, which wane.save writes whole.
-- @return { kind = 'optim.AdamW', states = names of the state cells, cells = { ['m.1'] = tensor, ... }, count = { steps
-- of each parameter }, settings = { lr =, ... } }
-- @usage print(opt:state_dict().cells['m.1'].shape, opt:state_dict().settings.lr) --> (16, 8)	0.01
function Optimizer:state_dict()
    follow(self)
    local dict = { kind = self._class.name, states = states_of(self), cells = {}, count = {} }
    for k, cells in ipairs(self._cells) do
        for name, cell in iterate(cells) do dict.cells[('%s.%d'):format(name, k)] = cell end
        dict.count[k] = self._count[k]
    end
    dict.settings = groups.flatten(self.param_groups, self._settings)
    return dict
end

--- Raises 'value' for counts and settings that set_progress could not take. Changes nothing.
-- @within Internal
function Optimizer:check_progress(count, settings)
    local class = self._class
    for k = 1, #self._count do
        if type(count[k]) ~= 'number' or count[k] < 0 or count[k] % 1 ~= 0 then
            raise(nil, 'value', '%s: the count of steps of parameter %d is %s', class.name, k,
                errors.describe(count[k]))
        end
    end
    return groups.unflatten(class, settings, #self.param_groups)
end

--- Sets the count of steps of each parameter, and settings by name, as a saved run left them.
-- @within Internal
function Optimizer:set_progress(count, settings)
    local all, own = self:check_progress(count, settings)
    for k = 1, #self._count do self._count[k] = count[k] end
    local base = groups.keep_bases(self, all, own)
    for key, value in iterate(all) do self[key] = value end
    self._settings.initial_lr = base
    for g, group in ipairs(self.param_groups) do
        for key in iterate(self._class.defaults) do rawset(group._settings, key, own[g][key]) end
    end
end

--- Takes a state back. A run point. Everything is checked before anything is changed.
-- @param dict the state_dict of an equal optimizer
-- @raise 'shape' for a state that does not fit; 'value' for counts or settings that do not
-- @usage
-- opt:step(loss)
-- local other = optim.AdamW(model:parameters())
-- other:load_state_dict(opt:state_dict())
-- print(other.lr) --> 0.01
function Optimizer:load_state_dict(dict)
    local roots, targets = {}, {}
    if type(dict) ~= 'table' or type(dict.cells) ~= 'table' or type(dict.count) ~= 'table' then
        raise(nil, 'value', '%s: load_state_dict: expected {cells =, count =, settings =}, got %s', self._class.name,
            errors.describe(dict))
    end
    follow(self)
    for k, cells in ipairs(self._cells) do
        for name, cell in iterate(cells) do
            local key = ('%s.%d'):format(name, k)
            local value = dict.cells[key]
            if not tensor.is(value) or tensor.describe(value) ~= tensor.describe(cell) then
                raise(nil, 'shape', '%s: load_state_dict: %s must be %s, got %s', self._class.name, key,
                    tensor.describe(cell), errors.describe(value))
            end
            roots[#roots + 1], targets[#targets + 1] = value, cell
        end
    end
    self:check_progress(dict.count, dict.settings or {})
    if #roots > 0 then require('wane.program').run { mode = 'assign', roots = roots, cells = targets } end
    self:set_progress(dict.count, dict.settings or {})
end

local class = Optimizer.class -- no method
errors.strict(Optimizer, 'opt:%s(...)', groups.is_optimizer)
Optimizer.class = class
setmetatable(Optimizer, { __index = misspelt.index(Optimizer, function(o) return o._class.name end, 3) })

return Optimizer
