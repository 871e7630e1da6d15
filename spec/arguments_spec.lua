-- Calls every public function and method with each of a list of values where another kind is meant. Each call must
-- return, or raise an error of Wane's at this file's line, never one of Lua's own ("attempt to index", "bad argument",
-- "cannot convert"). The functions are found in the tables, so a new one is called without a change here.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local ffi = require 'ffi'
local wane = require 'wane'
local binding = require 'wane.ffi'
local errors = require 'wane.errors'
local tensor = require 'wane.tensor'

local C, nn, optim, policy, data = binding.C, wane.nn, wane.optim, wane.policy, wane.data
local HERE = debug.getinfo(1, 'S').short_src
local FOLDER = helper.lines('mktemp -d')[1]
teardown(function() helper.lines("rm -rf '" .. FOLDER .. "'") end)

-- ---- what is given ---------------------------------------------------------------------------------------------

-- Returns the wrong values, a list of { name, value }. Each value is made anew, because a call may free or change it.
-- Names of files lead nowhere.
local function wrong_values()
    return {
        { 'nil', nil }, { 'a string', '/dev/null/x' }, { 'an empty string', '' }, { 'a name', 'f32' }, { 'true', true },
        { 'false', false }, { 'an empty table', {} }, { 'a list of strings', { 'a', 'b' } }, { 'a list', { 1, 2 } },
        { 'a list of negatives', { -1, -2 } }, { 'a nested list', { { 1 }, {} } }, { 'a table', { x = 'y' } },
        { 'a list of NaNs', { 0 / 0, 0 / 0 } }, { 'a list of 100', (function()
            local t = {}
            for k = 1, 100 do t[k] = 1 end
            return t
        end)() }, { 'NaN', 0 / 0 }, { 'inf', 1 / 0 }, { '-inf', -1 / 0 }, { '-1', -1 }, { '0', 0 }, { '1e18', 1e18 },
        { '2^31', 2 ^ 31 }, { '0.5', 0.5 }, { 'an int64', 5LL }, { 'an array', ffi.new 'float[4]' },
        { 'a struct', ffi.new 'struct wn_info' }, { 'a null pointer', ffi.cast('void *', 0) },
        { 'a ctype', ffi.typeof 'int' }, { 'a function', function() end }, { 'a thread', coroutine.create(print) },
        { 'a file', io.stdout }, { 'an i32 tensor', wane.ones(2, 3, { dtype = 'i32' }) },
        { 'an f64 tensor', wane.ones(2, 3, { dtype = 'f64' }) },
        { 'a meta tensor', wane.ones(2, 3, { device = 'meta' }) },
        { 'a 0-d tensor', wane.tensor(1) }, { 'a tensor', wane.ones(2, 3) }, { 'a module', nn.ReLU() },
        { 'a class', nn.Linear }, { 'wane', wane }, { 'a table with a metatable', setmetatable({}, {}) },
        { 'a list of a tensor and nil', { wane.ones(2), false } },
    }
end

local function model() return nn.Sequential { nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2) } end
local function step_of()
    local m = model()
    return function() return m(wane.ones(2, 3)):sum() end
end

-- RIGHT holds functions that return right arguments, by the name of the function called; a function that it lacks is
-- called with wrong arguments alone.
local RIGHT = {
    ['wane.tensor'] = function() return { { 1, 2 } } end,
    ['wane.from'] = function() return ffi.new 'float[6]', { 2, 3 }, 'f32' end,
    ['wane.zeros'] = function() return 2, 3 end, ['wane.ones'] = function() return { 2, 3 } end,
    ['wane.full'] = function() return { 2, 3 }, 1 end, ['wane.rand'] = function() return 2, 3 end,
    ['wane.randn'] = function() return { 2, 3 } end, ['wane.randint'] = function() return 0, 5, { 3 } end,
    ['wane.arange'] = function() return 0, 5, 1 end, ['wane.eye'] = function() return 3 end,
    ['wane.where'] = function() return wane.ones(2):gt(0), wane.ones(2), wane.ones(2) end,
    ['wane.cat'] = function() return { wane.ones(2), wane.ones(2) }, 1 end,
    ['wane.stack'] = function() return { wane.ones(2), wane.ones(2) }, 1 end,
    ['wane.maximum'] = function() return wane.ones(2), wane.ones(2) end,
    ['wane.backward'] = function() return { step_of()() }, {} end, ['wane.eval'] = function() return wane.ones(2) end,
    ['wane.grad'] = function()
        local w = wane.ones(2, { requires_grad = true })
        return w:sum(), { w }
    end,
    ['wane.no_grad'] = function() return function() end end,
    ['wane.autocast'] = function() return 'bf16', function() end end,
    ['wane.measure'] = function() return step_of(), { steps = 1, warmup = 0 } end,
    ['wane.profile'] = function() return step_of(), { steps = 1, keep = false } end,
    ['wane.fit'] = function() return function() return step_of() end, { budget = '1 GiB', most = 2 } end,
    ['wane.checkpoint'] = function() return function(x) return x end, wane.ones(2) end,
    ['wane.checkpoint_with'] = function() return {}, function(x) return x end, wane.ones(2) end,
    ['wane.checkpoint_fn'] = function() return {} end,
    ['wane.checkpoint_sequential'] = function() return model(), 2, wane.ones(2, 3) end,
    ['wane.chunked'] = function() return function(x) return x * 2 end, wane.ones(4, 2), { dim = 1, size = 2 } end,
    ['wane.accumulate'] = function() return function() return step_of()() end, { micro = 2 } end,
    ['wane.custom'] = function() return function(x) return x * 2 end, function(dy) return dy * 2 end end,
    ['wane.sweep'] = function() return { build = step_of, grid = { a = { 1 } } } end,
    ['wane.save'] = function() return FOLDER .. '/x', { a = wane.ones(2) }, {} end,
    ['wane.load'] = function() return FOLDER .. '/x', nil, {} end,
    ['wane.data.batches'] = function() return wane.ones(4, 2), { batch = 2 } end,
    ['nn.Linear'] = function() return 3, 2, {} end, ['nn.Embedding'] = function() return 3, 2, {} end,
    ['nn.LayerNorm'] = function() return 3, {} end, ['nn.RMSNorm'] = function() return 3, {} end,
    ['nn.Dropout'] = function() return 0.5 end, ['nn.Sequential'] = function() return { nn.ReLU() } end,
    ['nn.Residual'] = function() return nn.ReLU() end, ['nn.MLP'] = function() return 3, 4, {} end,
    ['nn.Conv2d'] = function() return 3, 2, 3, {} end, ['nn.ConvTranspose2d'] = function() return 3, 2, 3, {} end,
    ['nn.MaxPool2d'] = function() return 2, {} end, ['nn.AvgPool2d'] = function() return 2, {} end,
    ['nn.AdaptiveAvgPool2d'] = function() return 2 end, ['nn.Upsample'] = function() return { scale = 2 } end,
    ['nn.GroupNorm'] = function() return 2, 4, {} end,
    ['nn.LSTM'] = function() return 3, 2, {} end, ['nn.GRU'] = function() return 3, 2, {} end,
    ['nn.Attention'] = function() return 8, 2, {} end, ['nn.Softmax'] = function() return -1 end,
    ['nn.mse_loss'] = function() return wane.ones(2, 3), wane.ones(2, 3) end,
    ['nn.Parameter'] = function() return wane.ones(2, 3), 'p' end,
    ['nn.module'] = function() return 'M', function() end end,
    ['optim.EMA'] = function() return model():parameters(), { decay = 0.5 } end,
    ['optim.clip_grad_value'] = function() return model():parameters(), 1 end,
    ['optim.clip_grad_norm'] = function() return model():parameters(), 1 end,
    ['policy.by_type'] = function() return { ReLU = 'save' } end,
    ['policy.by_op'] = function() return { relu = 'save' } end,
    ['policy.by_path'] = function() return { { 'a', 'save' } } end,
    ['policy.compose'] = function() return 'save_all', 'sqrt' end,
    ['policy.budget'] = function() return '1 GiB', {} end,
}
local function give(room, names, fn)
    for _, name in ipairs(names) do RIGHT[room .. name] = fn end
end
give('wane.', { 'plan', 'frontier', 'min_budget', 'check', 'gradient_error', 'plot' }, function()
    return step_of(), {}
end)
give('nn.', { 'l1_loss', 'smooth_l1_loss', 'bce', 'bce_with_logits', 'kl_div' }, function()
    return wane.ones(2, 3), wane.ones(2, 3), {}
end)
give('nn.', { 'cross_entropy', 'nll_loss' }, function()
    return wane.ones(2, 3), wane.zeros(2, { dtype = 'i32' }), {}
end)
give('optim.', { 'SGD', 'Adam', 'AdamW', 'RMSprop', 'Lion' }, function() return model():parameters(), { lr = 0.1 } end)
give('nn.init.', { 'normal', 'uniform', 'constant', 'zeros', 'ones', 'kaiming_uniform', 'xavier_uniform' }, function()
    return nn.Parameter(wane.ones(2, 3)), 0.5, 1
end)
RIGHT['nn.init.kaiming_normal'] = function() return nn.Parameter(wane.ones(2, 3)), {} end
RIGHT['wane.minimum'] = RIGHT['wane.maximum']

-- NOT_CALLED lists functions that are not called: main ends the process, pytorch acts out a script of PyTorch's.
local NOT_CALLED = { ['wane.main'] = true, ['wane.pytorch'] = true }

-- ---- what is called --------------------------------------------------------------------------------------------

-- Returns whether x is a function or a table that can be called.
local function is_callable(x)
    local mt = type(x) == 'table' and getmetatable(x)
    return type(x) == 'function' or type(mt) == 'table' and rawget(mt, '__call') ~= nil
end

local function names_in(file)
    local names = {}
    local text = helper.read(file):match 'local PLACES = (%b{})'
    for name in text:gmatch '([%w_]+) = {' do names[#names + 1] = name end
    for name in text:gmatch "([%w_]+) = '" do names[#names + 1] = name end
    return names
end

-- Returns the public functions, sorted by name: a list of { name =, fn =, right = function or nil }.
local function public_functions()
    local list = {}
    local function add(room, name, fn)
        local full = room .. '.' .. name
        if is_callable(fn) and not NOT_CALLED[full] then
            list[#list + 1] = { name = full, fn = fn, right = RIGHT[full] }
        end
    end
    for _, name in ipairs(names_in 'lua/wane/init.lua') do add('wane', name, wane[name]) end
    for name, fn in pairs(wane) do
        if name ~= 'within' then add('wane', name, fn) end
    end
    for _, name in ipairs(names_in 'lua/wane/nn/init.lua') do add('nn', name, nn[name]) end
    for name, fn in pairs(nn) do add('nn', name, fn) end
    for name, fn in pairs(nn.init) do add('nn.init', name, fn) end
    for _, name in ipairs(names_in 'lua/wane/optim/init.lua') do add('optim', name, optim[name]) end
    for name, fn in pairs(optim.schedule) do add('optim.schedule', name, fn) end
    for _, name in ipairs { 'save_all', 'recompute_all', 'segments', 'every', 'sqrt', 'binomial', 'keep_last', 'budget',
        'by_type', 'by_op', 'by_name', 'by_path', 'recipe', 'compose', 'of', 'is' } do
        add('policy', name, policy[name])
    end
    for _, name in ipairs { 'batches', 'idx', 'npy', 'tokens' } do add('wane.data', name, data[name]) end
    for _, name in ipairs { 'limit', 'limit_disk', 'reset_peak', 'trim' } do
        add('wane.memory', name, wane.memory[name])
    end
    local seen, out = {}, {}
    for _, row in ipairs(list) do
        if not seen[row.name] then
            seen[row.name] = true
            out[#out + 1] = row
        end
    end
    table.sort(out, function(a, b) return a.name < b.name end)
    return out
end

-- ---- calling ---------------------------------------------------------------------------------------------------
local problems, seen_problems

-- Notes what is wrong, once for each function and place.
local function note(name, what, text)
    local key = name .. (text:match '^[^:]*:%d+:' or text)
    if not seen_problems[key] then problems[#problems + 1] = ('%s with %s: %s'):format(name, what, text) end
    seen_problems[key] = true
end

local function call(name, fn, what, n, args)
    local ok, e = pcall(function()
        local result = fn(unpack(args, 1, n))
        return result
    end)
    C.wn_memory_limit(0, 0, 0)
    C.wn_memory_limit(0, 1, 0)
    C.wn_device_set(0)
    if ok then return end
    local is_ours = errors.is(e)
    if not is_ours then
        note(name, what, tostring(e):match '^[^\n]*')
    elseif not e.where or e.where:sub(1, #HERE) ~= HERE then
        note(name, what, ('at %s: %s'):format(tostring(e.where), e.message))
    elseif e.message:find 'attempt to' or e.message:find 'bad argument' or e.message:find 'cannot convert' then
        note(name, what, e.message)
    end
end

-- WRITES holds patterns of the names of functions that write a file of any name. For them the value that is a name,
-- which would become a file, is replaced by a path that leads nowhere.
local WRITES = { '^wane%.save', '^wane%.plot', '^plan:', '^frontier:', '^sweep:', '^measure trace' }

local function values_for(name)
    local list = wrong_values()
    for _, pattern in ipairs(WRITES) do
        if name:find(pattern) then list[4][2] = '/dev/null/f32' end
    end
    return list
end

-- Calls fn, where right arguments are known, with each wrong value in place of each argument and behind the last. Then
-- calls fn with the wrong value alone, 1 to 3 times where no right arguments are known, else once.
local function attack(name, fn, right)
    local values = values_for(name)
    local count = right and select('#', right()) or 0
    for k = 1, #values do
        local what = values[k][1]
        for at = 1, count + 1 do
            if right then
                local args = { right() }
                args[at] = values_for(name)[k][2]
                call(name, fn, ('%s as argument %d'):format(what, at), math.max(count, at), args)
            end
        end
        for n = 1, right and 1 or 3 do
            local args = {}
            for i = 1, n do args[i] = values_for(name)[k][2] end
            call(name, fn, ('%s, %d times'):format(what, n), n, args)
        end
    end
end

local function finish()
    collectgarbage()
    local shown = {}
    for k = 1, math.min(#problems, 40) do shown[k] = problems[k] end
    assert(#problems == 0, ('%d of them:\n    %s'):format(#problems, table.concat(shown, '\n    ')))
end

describe('wrong arguments', function()
    local before
    setup(function()
        wane.save(FOLDER .. '/x', { a = wane.ones(2) })
        before = policy.default
    end)
    before_each(function() problems, seen_problems = {}, {} end)
    after_each(function() policy.default = before end)

    for _, room in ipairs { 'wane', 'wane.data', 'wane.memory', 'nn', 'nn.init', 'optim', 'optim.schedule',
        'policy' } do
        it('to the functions of ' .. room, function()
            for _, row in ipairs(public_functions()) do
                if row.name:match '^(.*)%.[^.]*$' == room then attack(row.name, row.fn, row.right) end
            end
            finish()
        end)
    end

    it('to the methods of tensors', function()
        local second = { matmul = function() return wane.ones(3, 2) end, gather = function() return 1 end }
        for name, fn in pairs(tensor.methods) do
            attack('t:' .. name, fn, function() return wane.ones(2, 3) end)
            attack('t:' .. name, fn, function() return wane.ones(2, 3), second[name] and second[name]() or 1 end)
            attack('t:' .. name, fn, function() return wane.ones(2, 3), 1, 1 end)
        end
        finish()
    end)

    it('to the operators and fields of tensors', function()
        local x, T = wane.ones(2, 3), tensor.Tensor
        for _, name in ipairs { '__add', '__sub', '__mul', '__div', '__pow', '__mod', '__lt', '__le' } do
            attack(name, function(v) return T[name](x, v) end, function() return nil end)
            attack(name, function(v) return T[name](v, x) end, function() return nil end)
        end
        attack('t[v]', function(v) return x[v] end, function() return nil end)
        attack('t[v] = 1', function(v) x[v] = 1 end, function() return nil end)
        for field in pairs(tensor.setfields) do
            attack('t.' .. field, function(v)
                local t = wane.ones(2, { requires_grad = true })
                t[field] = v
            end, function() return nil end)
        end
        finish()
    end)

    it('to the methods of modules and optimizers', function()
        local m = model()
        for _, name in ipairs { 'parameters', 'named_parameters', 'children', 'modules', 'named_modules', 'apply',
            'train', 'eval', 'zero_grad', 'requires_grad', 'state_dict', 'load_state_dict', 'to', 'parameter_count',
            'checkpoint', 'add' } do
            attack('m:' .. name, function(...) return model()[name](model(), ...) end, function() return nil end)
        end
        for _, layer in ipairs { nn.Linear(3, 2), nn.Embedding(3, 2), nn.LayerNorm(3), nn.RMSNorm(3), nn.Dropout(0.5),
            nn.Residual(nn.ReLU()), nn.MLP(3, 4), nn.Attention(8, 2), nn.ReLU(), nn.Softmax(-1), nn.Flatten(), m,
            nn.Conv2d(3, 2, 1), nn.ConvTranspose2d(3, 2, 1), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1),
            nn.Upsample { scale = 2 }, nn.GroupNorm(1, 3) } do
            attack(tostring(layer):match '^[^\n]*' .. '()', layer, function() return wane.ones(2, 3) end)
        end
        local function optimizer() return optim.Adam(model():parameters(), { lr = 0.1 }) end
        for _, name in ipairs { 'step', 'zero_grad', 'parameters', 'state_dict', 'load_state_dict' } do
            attack('opt:' .. name, function(...)
                local o = optimizer()
                return o[name](o, ...)
            end, function() return nil end)
        end
        for _, field in ipairs { 'lr', 'weight_decay', 'betas', 'eps' } do
            attack('opt.' .. field, function(v) optimizer()[field] = v end, function() return nil end)
        end
        finish()
    end)

    it('to the methods of data, sweeps and what is made', function()
        local path = files.write(FOLDER .. '/text', ('hello '):rep(20))
        local function attack_methods(what, object, names)
            for _, name in ipairs(names) do
                attack(what .. ':' .. name, function(...) return object[name](object, ...) end,
                    function() return nil end)
            end
        end
        attack_methods('tokens', data.tokens(path), { 'encode', 'decode', 'split' })
        attack_methods('batches', data.batches(wane.ones(4, 2), { batch = 2 }), { 'state', 'next' })
        attack('tokens', data.tokens, function() return path, {} end)
        attack('batches of tokens', data.batches, function() return data.tokens(path), { batch = 2, length = 3 } end)
        local sweep = wane.sweep { build = step_of, grid = { policy = { 'save_all' } }, isolate = false, repeats = 1 }
        sweep:run()
        attack_methods('sweep', sweep, { 'rows', 'measured', 'problems', 'pareto', 'fronts', 'csv', 'plot', 'report' })
        attack('checkpointed', wane.checkpoint_fn {}, function() return function(x) return x end, wane.ones(2) end)
        attack('customed', wane.custom(function(x) return wane.is_tensor(x) and x * 2 or wane.ones(1) end,
            function(_, dy) return dy * 2 end), function() return wane.ones(2) end)
        for name, make in pairs(optim.schedule) do
            local opts = name == 'constant' and {} or name == 'lambda' and math.sqrt or { steps = 10 }
            attack('schedule ' .. name, make(0.1, opts), function() return 1 end)
            attack('schedule ' .. name .. ' of groups', make(optim.SGD(model():parameters(), { lr = 0.1 }), opts),
                function() return 1 end)
        end
        for _, option in ipairs { 'batch', 'shuffle', 'seed', 'drop_last', 'state', 'buffers', 'length' } do
            attack('batches ' .. option, function(v)
                return data.batches(wane.ones(4, 2), { batch = 2, [option] = v }):next()
            end, function() return nil end)
        end
        for _, option in ipairs { 'dtype', 'device', 'requires_grad', 'name' } do
            attack('zeros ' .. option, function(v) return wane.zeros(2, { [option] = v }) end,
                function() return nil end)
        end
        for _, option in ipairs { 'steps', 'warmup', 'policy', 'budget', 'optimizer', 'lines', 'trace' } do
            attack('measure ' .. option, function(v)
                if v == 2 ^ 31 or v == 1e18 then v = nil end -- said no to elsewhere
                return wane.measure(step_of(), { steps = 1, warmup = 0, [option] = v })
            end, function() return nil end)
        end
        for _, option in ipairs { 'policy', 'budget', 'target', 'optimizer', 'lines' } do
            attack('plan ' .. option, function(v) return (wane.plan(step_of(), { [option] = v })) end,
                function() return nil end)
        end
        finish()
    end)

    it('to the methods of plans', function()
        local plan = wane.plan(step_of())
        local frontier = wane.frontier(step_of())
        for _, name in ipairs { 'residuals', 'schedule', 'kinds_over_time', 'explain', 'verify', 'recipe', 'lua',
            'diff', 'timeline', 'plot', 'trace', 'pytorch' } do
            attack('plan:' .. name, function(...) return plan[name](plan, ...) end, function() return nil end)
        end
        attack('frontier:plot', function(...) return frontier:plot(...) end, function() return nil end)
        finish()
    end)

    it('leave no file where they were given', function() assert.is_nil(io.open 'f32') end)
end)
