--- The table `wane`: what a script sees.
--
-- Only names are gathered here. What most scripts need is loaded at once; the rest when its name is first asked for,
-- so that starting stays fast. An unknown name raises with what to write, or with the names near it.
-- @module wane

local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local lazy = require 'wane.lazy'
local tensor = require 'wane.tensor'
local op = require 'wane.tensor.op'
local scoped = require 'wane.scoped'
local arith = require 'wane.tensor.arith'
local shape = require 'wane.tensor.shape'
local create = require 'wane.tensor.create'
require 'wane.tensor.math'
require 'wane.tensor.statistics'
require 'wane.tensor.arrange'
local kin = require 'wane.tensor.kin'
local order = require 'wane.tensor.order'
require 'wane.tensor.resize'
require 'wane.tensor.read'
local planner = require 'wane.program.planner'
local grad = require 'wane.program.grad'

local C = binding.C

local wane = {
    tensor = create.tensor, from = create.from, zeros = create.zeros, ones = create.ones, full = create.full,
    rand = create.rand, randn = create.randn, randint = create.randint, arange = create.arange, eye = create.eye,
    zeros_like = kin.zeros_like, ones_like = kin.ones_like, full_like = kin.full_like, rand_like = kin.rand_like,
    randn_like = kin.randn_like, linspace = kin.linspace, bernoulli = kin.bernoulli,
    multinomial = order.multinomial, randperm = order.randperm,
    where = arith.where, cat = shape.cat, stack = shape.stack,
    eval = grad.eval, backward = grad.backward, grad = grad.grad, no_grad = grad.no_grad,
    KiB = 1024, MiB = 1024 ^ 2, GiB = 1024 ^ 3,
    is_tensor = tensor.is, errors = errors, scoped = scoped,
}

--- Seeds the random numbers of every device and starts their counter again.
-- @param seed integer from 0 to below 2^53
-- @usage
-- wane.manual_seed(1)
-- local first = wane.rand(1):item()
-- wane.manual_seed(1)
-- print(wane.rand(1):item() == first) --> true
function wane.manual_seed(seed)
    op.size(seed, 'wane.manual_seed')
    scoped.sync() -- the counter of a suspended planning must not come back over this
    binding.check(C.wn_seed(seed))
end

--- Sets the device of tensors that are created from now on. Returns the name of the device before.
-- @param name 'cpu', 'cuda', 'meta' (shapes and costs without bytes), or 'auto': a GPU where there is one, else the CPU
-- @raise 'device' for a device that is not here
-- @usage
-- print(wane.set_device 'meta', wane.zeros(2).device) --> cpu	meta
function wane.set_device(name)
    local before = C.wn_device_set(op.device(name, 'wane.set_device'))
    return binding.string(C.wn_device_name(before))
end

--- Lists the names of the devices that are here.
-- @usage print(wane.devices()[1]) --> cpu
function wane.devices()
    return op.device_names()
end

errors.strict(tensor.methods, 't:%s(...)')

-- Elementwise larger, smaller of two tensors, or of a tensor and a number.
wane.maximum, wane.minimum = tensor.methods.maximum, tensor.methods.minimum
wane.allclose = tensor.methods.allclose
wane.isnan, wane.isfinite = tensor.methods.isnan, tensor.methods.isfinite

--- Sets whether nodes get the line of the script that recorded them: reports then name lines, and recording is slower.
-- @function wane.lines
-- @param on true or false; nil changes nothing
-- @return the setting before
-- @usage
-- wane.lines(true)
-- print(wane.lines()) --> true
wane.lines = op.lines

wane.version = binding.string(C.wn_version())

errors.strict(wane, 'wane.%s(...)')

-- name -> { file, field of that file; nil: the file itself }
local PLACES = {
    nn = { 'nn' }, optim = { 'optim' }, policy = { 'policy' }, bytes = { 'report.bytes' },
    plan = { 'plan.step', 'plan' },
    frontier = { 'plan.budget.frontier', 'frontier' }, min_budget = { 'plan.budget.frontier', 'min_budget' },
    memory = { 'plan.measure.memory' },
    targets = { 'plan.costs', 'targets' }, profile = { 'plan.costs', 'profile' }, fit = { 'plan.budget.fit', 'fit' },
    measure = { 'plan.measure', 'measure' }, check = { 'plan.measure', 'check' },
    gradient_error = { 'plan.measure.gradient_error', 'gradient_error' },
    autocast = { 'tensor.autocast', 'autocast' }, tf32 = { 'tensor.tf32' }, anomaly = { 'program.anomaly' },
    checkpoint = { 'program.checkpoint', 'checkpoint' }, checkpoint_with = { 'program.checkpoint', 'checkpoint_with' },
    checkpoint_fn = { 'program.checkpoint', 'checkpoint_fn' },
    checkpoint_sequential = { 'program.checkpoint', 'checkpoint_sequential' },
    chunked = { 'program.chunked' }, accumulate = { 'program.accumulate' }, custom = { 'program.custom' },
    sweep = { 'sweep', 'sweep' }, data = { 'data' }, plot = { 'report.line_plot', 'plot' },
    on_interrupt = { 'program.on_interrupt', 'call' },
    save = { 'io', 'save' }, load = { 'io', 'load' }, inspect = { 'io.inspect', 'inspect' },
    dist = { 'dist' }, main = { 'cli', 'main' }, pytorch = { 'pytorch', 'script' },
}

-- Returns a function of a file that is loaded at its first call.
local function later(file, field)
    local fn
    return function(...)
        fn = fn or require('wane.' .. file)[field]
        return fn(...)
    end
end

-- Hands lower files the functions of upper files that they call, so that no file requires one above it.
op.set_run(later('program', 'run'))
op.set_function_scope(later('module', 'function_scope'))
tensor.Tensor.__tostring = later('tensor.display', 'text')
planner.load_costs = later('plan.costs', 'load')
planner.look_for_launcher = later('dist.launcher', 'warn')
planner.bits = later('plan.costs.tuning', 'bits')
later('plan.costs.tuning', 'start')() -- before the first weight: its layout depends on the library of products
planner.too_large = later('program.too_large', 'error_of')
planner.share = later('plan.budget.share', 'plan')
planner.choose, planner.choose_least = later('plan.budget.choose', 'within'), later('plan.budget.choose', 'smallest')

-- Names that this table does not have, those of former versions among them -> what to write.
local INSTEAD = {
    compile = 'there is nothing to compile; call the function, its steps are planned once and cached',
    zoo = "each model is a module to require, as 'wane.zoo.gpt2' is",
    plan_chain = "tables of stages are no longer planned; plan the step, wane.plan(fn, { budget = '2 GiB' })",
    chain_frontier = 'tables of stages are no longer planned; write wane.frontier(fn) of the step',
    replay_chain = 'schedules of stages are no longer replayed; wane.plan(fn, { policy = p }) has bytes and seconds',
    chain_binomial = "write the policy, 'binomial(3)'",
    within = 'write wane.scoped(kind, value, fn)',
}
INSTEAD.jit = INSTEAD.compile

return lazy('wane', PLACES, wane, function(name)
    if tensor.methods[name] then
        return ("wane has no '%s': it is a method; write t:%s(...) for a tensor t"):format(name, name)
    end
    return INSTEAD[name] and ('wane.%s: %s'):format(name, INSTEAD[name])
end)
