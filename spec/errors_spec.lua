-- Checks messages about misuse: every mistake raises at the line of this file that made it, and says what was given and
-- what was expected.
local wane = require 'wane'
local errors = require 'wane.errors'
local nn, optim = wane.nn, wane.optim

local here = debug.getinfo(1, 'S').short_src

-- Calls fn, which must fail on the line it is written on, with every part in the message.
local function fails(fn, ...)
    local ok, e = pcall(fn)
    assert.is_false(ok, 'no error was raised')
    assert.is_true(errors.is(e), 'not an error object: ' .. tostring(e))
    local line = debug.getinfo(fn, 'S').linedefined
    assert.are.equal(here .. ':' .. line, e.where)
    local text = tostring(e)
    assert.are.equal(1, (text:find(here .. ':' .. line .. ': ', 1, true)), text)
    assert.is_nil(text:find('\n', 1, true), 'more than one line: ' .. text)
    for _, part in ipairs { ... } do
        assert.is_truthy(e.message:find(part, 1, true), ("'%s' is not in '%s'"):format(part, e.message))
    end
    return e
end

-- Lua forgets the frame of a function that ends in `return f(...)`, so the mistakes below are no tail calls.

describe('shapes and dtypes', function()
    local a, b = wane.zeros(2, 3), wane.zeros(4, 5)

    it('are named by binary operations', function()
        assert.are.equal('shape', fails(function() local _ = a + b end, 'add', '(2, 3)', '(4, 5)').code)
        fails(function() local _ = a:matmul(b) end, 'matmul', '(2, 3)', '(4, 5)')
        fails(function() local _ = a * wane.zeros(3, { dtype = 'f64' }) end, 'mul', 'f32', 'f64')
        fails(function() local _ = wane.zeros(2, { dtype = 'i32' }):gelu() end, 'gelu', 'i32')
        fails(function() local _ = wane.where(a:gt(0), wane.zeros(3, { dtype = 'i32' }), 0.5) end, 'where', 'i32',
            '0.5', 'integer')
        fails(function() local _ = wane.zeros(2, { dtype = 'i32' }) ^ 2 end, 'pow', 'i32')
        fails(function() local _ = wane.zeros(2, { dtype = 'i32' }) + a end, 'add', '(2)', '(2, 3)')
    end)

    it('are named by shape operations', function()
        fails(function() local _ = a:reshape(4, 2) end, 'reshape', '(2, 3)', '(4, 2)', '6')
        fails(function() local _ = a:reshape(-1, -1) end, 'reshape', '-1')
        fails(function() local _ = a:permute(1) end, 'permute', '(2, 3)')
        fails(function() local _ = a:permute(1, 1) end, 'permute', 'twice')
        fails(function() local _ = a:narrow(2, 2, 3) end, 'narrow', '(2, 3)', '1 to 3')
        fails(function() local _ = a[3] end, 'index 3', '(2, 3)', '1 to 2')
        fails(function() local _ = a[0] end, 'index 0', '(2, 3)')
        fails(function() local _ = a[1.5] end, 'index 1.5')
        fails(function() local _ = a:squeeze(1) end, 'squeeze', '(2, 3)', 'size 2')
        fails(function() local _ = a:expand(2, 4) end, 'expand', '(2, 3)', '(2, 4)')
        fails(function() local _ = wane.cat({ a, b }, 1) end, 'cat', '(2, 3)', '(4, 5)')
        fails(function() local _ = wane.stack { a, b } end, 'stack', '(2, 3)', '(4, 5)')
        fails(function() local _ = wane.cat({}) end, 'cat', 'list')
    end)

    it('are named for dims out of range', function()
        fails(function() local _ = a:sum(3) end, 'sum', 'dim 3', '(2, 3)', '1 to 2')
        fails(function() local _ = a:sum(0) end, 'sum', 'dim 0')
        fails(function() local _ = a:mean(-3) end, 'mean', 'dim -3')
        fails(function() local _ = a:softmax(1.5) end, 'softmax', '1.5')
        fails(function() local _ = a:softmax() end, 'softmax', 'x:softmax(-1)')
        fails(function() local _ = a:transpose(1, 9) end, 'transpose', 'dim 9')
    end)

    it('are named by losses and layers', function()
        fails(function() local _ = nn.mse_loss(a, b) end, 'mse_loss', '(2, 3)', '(4, 5)')
        local labels = wane.zeros(5, { dtype = 'i32' })
        fails(function() local _ = nn.cross_entropy(a, labels) end, 'cross_entropy', '(2, 3)', '(5)')
        fails(function() local _ = nn.cross_entropy(a, wane.zeros(2)) end, 'cross_entropy', 'f32', 'i32')
        local layer = nn.Linear(7, 2)
        fails(function() local _ = layer(a) end, 'linear', '(2, 3)', '(2, 7)')
        local norm = nn.LayerNorm(4)
        fails(function() local _ = norm(a) end, 'layernorm', '(2, 3)', '4')
        local attention = nn.Attention(8, 2)
        fails(function() local _ = attention(a) end, 'attention', '(2, 3)', '8')
    end)
end)

describe('devices', function()
    it('are not mixed', function()
        local here_, meta = wane.zeros(2), wane.zeros(2, { device = 'meta' })
        assert.are.equal('device', fails(function() local _ = here_ + meta end, 'add', 'cpu', 'meta').code)
        fails(function() local _ = meta:to 'cpu' end, 'meta', 'bytes')
        fails(function() local _ = meta:item() end, 'item', '(2)')
        fails(function() local _ = meta:totable() end, 'meta')
    end)

    it('are listed when unknown', function()
        fails(function() wane.set_device 'gpu' end, "'gpu'", 'cpu', 'meta')
        fails(function() local _ = wane.zeros(2, { device = 'cuda:7' }) end, "'cuda:7'", 'cpu')
        fails(function() local _ = wane.zeros(2):to 'f23' end, "'f23'", "'f32'")
    end)
end)

describe('numbers', function()
    it('of a size must be integers that exist', function()
        fails(function() local _ = wane.zeros(-1) end, 'wane.zeros', '-1')
        fails(function() local _ = wane.zeros(1.5) end, 'wane.zeros', '1.5')
        fails(function() local _ = wane.zeros(0 / 0) end, 'wane.zeros', 'nan')
        fails(function() local _ = wane.zeros(math.huge) end, 'wane.zeros', 'inf')
        fails(function() local _ = wane.zeros(2 ^ 53) end, 'wane.zeros', '9007199254740992')
        fails(function() local _ = wane.zeros(2 ^ 40, 2 ^ 40) end, '1099511627776')
        fails(function() local _ = wane.zeros('3') end, 'wane.zeros', "'3'")
        fails(function() local _ = wane.zeros(1, 1, 1, 1, 1, 1, 1, 1, 1) end, 'wane.zeros', '9 dims')
        fails(function() local _ = nn.Linear(0, 3) end, 'nn.Linear', '0')
        fails(function() local _ = nn.Linear(3, 2.5) end, 'nn.Linear', '2.5')
        fails(function() wane.manual_seed(-1) end, 'manual_seed', '-1')
        fails(function() wane.manual_seed(0.5) end, 'manual_seed', '0.5')
    end)

    it('of an operation must make sense', function()
        fails(function() local _ = wane.full({ 2 }, 'x') end, 'wane.full', "'x'")
        fails(function() local _ = wane.arange(0, math.huge) end, 'wane.arange', 'inf')
        fails(function() local _ = wane.arange(0, 1, 0) end, 'wane.arange', 'step')
        fails(function() local _ = wane.randint(5, 5, { 2 }) end, 'wane.randint', '5')
        fails(function() local _ = wane.zeros(2):clamp(2, 1) end, 'clamp', '2', '1')
        fails(function() local _ = wane.zeros(2):clamp(0 / 0, 1) end, 'clamp', 'nan')
        fails(function() local _ = wane.tensor({ 300 }, { dtype = 'u8' }) end, '300', 'u8')
        fails(function() local _ = wane.tensor({ 0.5 }, { dtype = 'i32' }) end, '0.5', 'i32')
        fails(function() local _ = wane.tensor { { 1, 2 }, { 3 } } end, 'ragged', '2')
        fails(function() local _ = wane.tensor { 1, 'b' } end, "'b'")
        fails(function() local _ = nn.Dropout(1.5) end, 'nn.Dropout', '1.5')
        fails(function() local _ = nn.Attention(10, 3) end, 'nn.Attention', '10', '3')
    end)
end)

describe('names', function()
    local a = wane.zeros(2)

    it('unknown to tensors are answered with near ones', function()
        fails(function() local _ = a:relo() end, "'relo'", "'relu'")
        fails(function() local _ = a.shap end, "'shap'", "'shape'")
        fails(function() local _ = a.sum() end, 'sum', 't:sum(', 'colon')
        fails(function() local _ = a.relu() end, 'relu', 't:relu(', 'colon')
        fails(function() local _ = a.item() end, 'item', 't:item(', 'colon')
    end)

    it('unknown to the tables are answered with near ones', function()
        fails(function() local _ = wane.zeroes end, "'zeroes'", "'zeros'")
        fails(function() local _ = nn.Liner end, "'Liner'", "'Linear'")
        fails(function() local _ = nn.BatchNorm3d end, "'BatchNorm3d'", "'BatchNorm2d'")
        fails(function() local _ = optim.AdamV end, "'AdamV'", "'AdamW'")
        fails(function() local _ = nn.init.norml end, "'norml'", "'normal'")
    end)

    it('of functions that other libraries need say that there is nothing to write', function()
        for _, name in ipairs { 'compile', 'jit' } do
            fails(function() return wane[name] end, 'wane.' .. name .. ': there is nothing to compile; call the '
                .. 'function, its steps are planned once and cached')
        end
        fails(function() return wane.zoo end, "each model is a module to require, as 'wane.zoo.gpt2' is")
    end)

    it('of former versions say what to write', function()
        for name, words in pairs { plan_chain = "wane.plan(fn, { budget = '2 GiB' })", within = 'wane.scoped(',
            chain_frontier = 'wane.frontier(fn)', replay_chain = 'wane.plan(fn, { policy = p })',
            chain_binomial = "the policy, 'binomial(3)'" } do
            fails(function() return wane[name](1) end, 'wane.' .. name .. ': ', words)
        end
        local plan = wane.plan(function() return wane.ones(2):sum() end)
        fails(function() plan:verify { step = 1, swap = 2 } end, 'plan:verify: takes nothing', 'edit the recipe')
    end)

    it('are listed once, however often they are candidates', function()
        local near = require('wane.errors').near
        assert.equal("did you mean '--policy'?", near('--polcy', { '--policy', '--out', '--policy' }))
        assert.equal('known: a, b', near('xyz', { 'a', 'b', 'a' }))
    end)

    it('are near within a bound that depends on the length', function()
        local known = { 'lr', 'Linear', 'weight_decay', 'momentum', 'relu', 'cross_entropy' }
        for name, hint in pairs { LR = "'lr'", lin = "'Linear'", decay = "'weight_decay'", rlu = "'relu'",
            momentun = "'momentum'", cross_entorpy = "'cross_entropy'" } do
            assert.equal('did you mean ' .. hint .. '?', errors.near(name, known))
        end
        for _, name in ipairs { 'ls', 'x', 'ear', 'sum', 'plan', 'entropies_of_all' } do
            assert.matches('^known: ', errors.near(name, known))
        end
    end)

    it('that cannot be assigned are refused, where a script may take them for settings', function()
        fails(function() wane.memory.limit = 1000 end, 'call wane.memory.limit(1000)')
        fails(function() wane.memory.limit_disk = '8 GiB' end, "call wane.memory.limit_disk('8 GiB')")
        fails(function() wane.memory.budget = '8 GiB' end, 'wane.memory.budget', 'nothing to assign')
        fails(function() wane.policy.defualt = 'sqrt' end, 'policy.defualt', 'policy.default')
        fails(function() nn.dropout = 0.1 end, 'wane.nn.dropout', 'closed')
        assert.are.equal('function', type(wane.memory.limit))
        assert.is_nil(wane.memory().limit)
    end)

    it('of options are checked', function()
        fails(function() local _ = wane.zeros(2, { dtyp = 'f32' }) end, 'wane.zeros', "'dtyp'", "'dtype'")
        fails(function() local _ = wane.zeros(2, { dtype = 'float' }) end, 'wane.zeros', "'float'", 'f32')
        fails(function() local _ = a:sum(1, { keepdims = true }) end, 'sum', "'keepdims'", "'keepdim'")
        fails(function() local _ = nn.Linear(2, 2, { bia = false }) end, 'nn.Linear', "'bia'", "'bias'")
        fails(function() local _ = nn.MLP(2, 2, { act = 'rulu' }) end, 'nn.MLP', "'rulu'", "'relu'")
        local p = nn.Linear(2, 2):parameters()
        fails(function() local _ = optim.AdamW(p, { learning_rate = 1 }) end, 'optim.AdamW', "'learning_rate'")
        fails(function() local _ = optim.SGD(p, { lr = -1 }) end, 'optim.SGD', 'lr', '-1')
        for _, m in ipairs { nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)) } do -- a module, for its parameters
            fails(function() local _ = optim.SGD(m, { lr = 1 }) end, 'optim.SGD', 'model:parameters()', 'module')
            fails(function() optim.clip_grad_norm(m, 1) end, 'clip_grad_norm', 'model:parameters()', 'module')
        end
        fails(function() local _ = optim.SGD(p, { lr = 0 / 0 }) end, 'optim.SGD', 'lr', 'nan')
        local opt = optim.SGD(p, { lr = 1 })
        fails(function() opt.lrr = 2 end, 'optim.SGD', "'lrr'", "'lr'")
        fails(function() opt.lr = 1 / 0 end, 'optim.SGD', 'lr', 'inf')
    end)
end)

describe('values', function()
    local a, b = wane.zeros(2), wane.zeros(2)

    it('have no order, no remainder and no in-place form', function()
        fails(function() local _ = a < b end, 'a:lt(b)', '(2) f32')
        fails(function() local _ = a <= b end, 'a:lt(b)')
        fails(function() local _ = a:add_(b) end, 'add_', 'immutable', 'x = x + b')
        fails(function() local _ = a:relu_() end, 'relu_', 'immutable', 'x = x:relu(')
        fails(function() a[1] = 3 end, 'immutable')
        fails(function() a.shape = {} end, "'shape'")
        fails(function() local _ = a + {} end, 'add', 'a table')
        fails(function() local _ = a + 'x' end, 'add', "'x'")
        fails(function() local _ = a + nil end, 'add', 'nil')
    end)

    it('refuse gradients that make no sense', function()
        local w = wane.ones(2, 2, { requires_grad = true })
        fails(function() (w * 2):backward() end, 'backward', '(2, 2)', 'sum')
        fails(function() a:sum():backward() end, 'backward', 'needs a gradient')
        fails(function() (w * 2).requires_grad = false end, 'requires_grad', 'detach')
        fails(function() (w * 2):detach().requires_grad = true end, 'requires_grad', 'nn.Parameter')
        assert.is_true(wane.nn.Parameter(w * 2).requires_grad)
        fails(function() local _ = wane.zeros(2, { dtype = 'i32', requires_grad = true }) end, 'i32')
        local other = wane.ones(2, { requires_grad = true })
        fails(function() local _ = wane.grad(w:sum(), { w, other }) end, 'wane.grad', 'entry 2', '(2) f32')
        fails(function() local _ = w:item() end, 'item', '(2, 2)')
        for _, scale in ipairs { 'x', true, {}, 0 / 0, 1 / 0 } do
            fails(function() w:sum():backward { scale = scale } end, 'the scale', 'finite number')
            fails(function() wane.optim.SGD({ w }, { lr = 1 }):step(w:sum(), { scale = scale }) end, 'finite number')
        end
    end)

    it('refuse a second backward', function()
        local w = wane.ones(2, { requires_grad = true })
        local loss = (w * w):sum()
        loss:backward()
        assert.are.equal('twice', fails(function() loss:backward() end, 'again').code)
        local kept = (w * w):sum()
        kept:backward { again = true }
        kept:backward()
    end)
end)

describe('modules', function()
    it('say what they lack', function()
        local Empty = nn.module('Empty')
        local m = Empty()
        fails(function() local _ = m(wane.zeros(1)) end, 'Empty', 'forward')
        fails(function() local _ = nn.Sequential { nn.ReLU(), 3 } end, 'nn.Sequential', 'entry 2', '3')
        fails(function() m.train = nn.ReLU() end, "'train'", 'method')
        fails(function() local _ = nn.Parameter(3) end, 'nn.Parameter', '3')
    end)

    it('check what they load', function()
        local m = nn.Linear(2, 3)
        fails(function() m:load_state_dict { weight = wane.zeros(3, 2) } end, "'bias'", 'missing')
        local extra = { weight = wane.zeros(3, 2), bias = wane.zeros(3), biass = wane.zeros(1) }
        fails(function() m:load_state_dict(extra) end, "'biass'", "'bias'")
        local wrong = { weight = wane.zeros(2, 3), bias = wane.zeros(3) }
        fails(function() m:load_state_dict(wrong) end, "'weight'", '(3, 2)', '(2, 3)')
    end)
end)

describe('error objects', function()
    it('point at the model\'s own line when its forward is wrong', function()
        local Bad = nn.module('Bad')
        local line
        function Bad:forward(x) -- luacheck: no self
            line = debug.getinfo(1, 'l').currentline + 1
            return x + wane.zeros(9)
        end
        local ok, e = pcall(Bad(), wane.zeros(2))
        assert.is_false(ok)
        assert.are.equal(here .. ':' .. line, e.where)
        assert.are.equal('shape', e.code)
        local a = wane.zeros(2)
        assert.are.same({ 0, 0 }, (a + 0):totable())
    end)
end)

describe('an error in a forward', function()
    local Up = nn.module('Up', function(self) self.up = nn.Linear(7, 2) end)
    function Up:forward(x, fn) return (fn and fn(self, x) or self.up(x)) end
    local Net = nn.module('Net', function(self)
        self.first, self.blocks = Up(), { Up(), { inner = nn.Sequential(nn.ReLU(), Up()) } }
        self.shared = self.blocks[1]
    end)
    function Net:forward(x, fn) return (fn(self, x)) end
    local net, x = Net(), wane.zeros(2, 3)

    -- Returns the error of a call of the net, which ends in fn(net, x).
    local function failure(fn)
        local ok, e = xpcall(function() local _ = net(x, fn) end, errors.handler)
        assert.is_false(ok)
        return e
    end

    it('names the innermost module once, by its path, however it was reached', function()
        for path, fn in pairs {
            ['first.up'] = function(n) return (n.first(x)) end,
            ['blocks.1.up'] = function(n) return (n.shared(x)) end,
            ['blocks.2.inner.2.up'] = function(n) return (n.blocks[2].inner(x)) end,
            ['blocks.2.inner.1'] = function(n) return (n.blocks[2].inner[1]('x')) end,
        } do
            local kind = path:find 'up$' and 'Linear' or 'ReLU'
            for _, way in ipairs { fn, function(n) return (wane.checkpoint(fn, n)) end,
                function(n) return wane.no_grad(fn, n) end,
                function(n) return assert(coroutine.wrap(function() return (fn(n)) end)()) end } do
                local e = failure(way)
                assert.is_true(errors.is(e), tostring(e))
                local place = (' [in %s (%s)]'):format(path, kind)
                assert.equal(place, e.message:sub(-#place))
                assert.equal(1, select(2, e.message:gsub('%[in ', '')))
                assert.same({ path, kind }, { e.path, e.module })
                assert.equal(here .. ':', e.where:sub(1, #here + 1))
            end
        end
    end)

    it('keeps its kind: a text with a position is longer, all else is what was raised', function()
        local mine = { code = 'mine' }
        assert.equal(mine, failure(function() error(mine) end))
        assert.same({ code = 'mine' }, mine)
        assert.equal('stop', failure(function() error('stop', 0) end))
        assert.matches(':%d+: bad %[in Net%]$', failure(function() error 'bad' end))
        assert.matches(':%d+: attempt to .- %[in first %(Up%)%]$', failure(function(n)
            return (n.first(x, function() return (nil)[1] end))
        end))
        local ok, e = pcall(function() return (x + wane.zeros(9)) end)
        assert.is_false(ok)
        assert.is_nil(e.path)
    end)

    it('has a traceback in which a function that calls itself is one line', function()
        local function deep(n) if n == 0 then error 'bottom' end local r = deep(n - 1) return r end
        local trace = errors.traceback_of(failure(function() deep(3000) end))
        assert.matches("in function 'deep', %d+ times\n\t%.%.%. %(%d+ frames%)\n", trace)
        assert.is_true(#trace < 8000)
        trace = errors.traceback_of(failure(function() local _ = x + wane.zeros(9) end))
        assert.matches('\n\t%(%d+ frames? of Wane left out%)$', trace)
    end)
end)

-- Calls a function that is loaded late, once package.path names another folder of Wane first, and asks for a module
-- that is there alone. Arguments: the two folders.
local LATE = [[
local function search(folder) package.path = folder .. '/?.lua;' .. folder .. '/?/init.lua;' .. package.path end
search(arg[1])
local wane = require 'wane'
search(arg[2])
local _, place = pcall(wane.dist.place, 1)
local _, extra = pcall(function() return (require 'wane.extra') end)
print(place)
print(debug.getinfo(require 'wane.dist.place', 'S').source)
print((tostring(extra):match '^[^\n]*'))
]]

describe('modules of Wane', function()
    it('come from one folder, whatever package.path says later', function()
        local helper = require 'spec.helper'
        local folder, lua = os.tmpname(), helper.shell(('cd %s && pwd -P'):format(helper.root)):match '[^\n]*' .. '/lua'
        os.remove(folder)
        helper.shell(('mkdir -p %s/other %s/share/lua; cp -r %s/wane %s/other; cp -r %s/wane %s/share/lua; '
            .. 'ln -s %s %s/link'):format(folder, folder, lua, folder, lua, folder, lua, folder))
        local script = folder .. '/late.lua'
        for path, text in pairs { [script] = LATE, [folder .. '/other/wane/extra.lua'] = 'return {}',
            [folder .. '/other/wane/dist/place.lua'] = 'return function() error "of another version" end' } do
            local file = assert(io.open(path, 'w'))
            file:write(text)
            file:close()
        end
        local run = 'cd ' .. helper.root .. ' && WANE_LIB=build luajit '
        for _, way in ipairs { { run, lua, './lua' }, { run, lua, folder .. '/other' }, { run, folder .. '/link', lua },
            { run, folder .. '/share/lua', lua }, { run, './lua', folder .. '/other' },
            { 'cd ' .. helper.root .. ' && build/wane run ', './lua', folder .. '/other', lua } } do
            local text = helper.shell(('%s %s %s %s'):format(way[1], script, way[2], way[3]))
            local place, source, extra = text:match '^([^\n]*)\n([^\n]*)\n([^\n]*)'
            assert.equal(1, (place:find(script .. ':5: wane.dist.place: expected a model, got 1', 1, true)), text)
            assert.equal(('@%s/wane/dist/place.lua'):format(way[4] or way[2]), source)
            assert.equal(1, (extra:find(script .. ":6: module 'wane.extra' not found: modules of Wane come from", 1,
                true)), text)
        end
        helper.shell('rm -r ' .. folder)
    end)
end)
