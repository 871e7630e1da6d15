-- Checks that no list of a script ends in silence: every public function that takes a list refuses a hole, an entry at
-- 0, a name, a fraction and true as keys; and that a module refuses what its walk would not find.
local helper = require 'spec.helper'
local wane = helper.wane
local module = require 'wane.module'
local tensor = require 'wane.tensor'
local nn, optim, policy, data = wane.nn, wane.optim, wane.policy, wane.data

local w = nn.Parameter(wane.ones(2, 3))
local v = nn.Parameter(wane.ones(3))
local u = nn.Parameter(wane.ones(2))
local cube, image = wane.ones(2, 3, 4), wane.ones(1, 2, 6, 6)
local function loss() return (w * 2):sum() end
local function with_gradients()
    for _, p in ipairs { w, v, u } do p.grad = nil end
    wane.backward { w:sum(), v:sum(), u:sum() }
end
local function optimizer() return optim.SGD({ w, v, u }, { lr = 0.1 }) end

-- Each entry: a good list of three entries or two, and what is called with it.
local TAKES = {
    ['wane.tensor'] = { { 1, 2, 3 }, wane.tensor },
    ['wane.tensor, nested'] = { { 1, 2, 3 }, function(list) return wane.tensor { { 1, 2, 3 }, list } end },
    ['wane.zeros'] = { { 2, 3, 4 }, wane.zeros }, ['wane.ones'] = { { 2, 3, 4 }, wane.ones },
    ['wane.rand'] = { { 2, 3, 4 }, wane.rand }, ['wane.randn'] = { { 2, 3, 4 }, wane.randn },
    ['wane.full'] = { { 2, 3, 4 }, function(list) return wane.full(list, 1) end },
    ['wane.randint'] = { { 2, 3, 4 }, function(list) return wane.randint(9, list) end },
    ['wane.from'] = { { 1, 1, 1 }, function(list) return wane.from(require('ffi').new 'float[1]', list) end },
    ['wane.cat'] = { { cube, cube, cube }, wane.cat }, ['wane.stack'] = { { cube, cube, cube }, wane.stack },
    ['wane.backward'] = { function() return { loss(), loss(), loss() } end, wane.backward },
    ['wane.grad'] = { { w, v, u }, function(list) return wane.grad(w:sum() + v:sum() + u:sum(), list) end },
    ['opt:step'] = { function() return { loss(), loss(), loss() } end, function(list)
        return optimizer():step(list)
    end },
    ['optim.SGD'] = { { w, v, u }, function(list) return optim.SGD(list, { lr = 0.1 }) end },
    ['optim.SGD of groups'] = { { { params = { w } }, { params = { v } }, { params = { u } } }, function(list)
        return optim.SGD(list, { lr = 0.1 })
    end },
    ['a group'] = { { w, v, u }, function(list) return optim.SGD({ { params = list } }, { lr = 0.1 }) end },
    ['add_param_group'] = { { v, u }, function(list)
        return optim.SGD({ w }, { lr = 0.1 }):add_param_group { params = list }
    end },
    betas = { { 0.9, 0.99 }, function(list) return optim.AdamW({ w }, { betas = list }) end },
    ['optim.EMA'] = { { w, v, u }, function(list) return optim.EMA(list, { decay = 0.9 }) end },
    ['clip_grad_norm'] = { { w, v, u }, function(list)
        with_gradients()
        return optim.clip_grad_norm(list, 1)
    end },
    ['clip_grad_value'] = { { w, v, u }, function(list)
        with_gradients()
        return optim.clip_grad_value(list, 1)
    end },
    ['schedule.lambda'] = { { 1, 2, 3 }, function(list)
        local groups = { { params = { w } }, { params = { v } }, { params = { u } } }
        return optim.schedule.lambda(optim.SGD(groups, { lr = 0.1 }), list)
    end },
    ['nn.Sequential'] = { { nn.ReLU(), nn.GELU(), nn.Tanh() }, nn.Sequential },
    ['checkpoint_sequential'] = { { nn.ReLU(), nn.GELU(), nn.Tanh() }, function(list)
        return wane.checkpoint_sequential(list, 1, cube)
    end },
    ['policy.by_path'] = { { { 'a', 'save' }, { 'b', 'save' }, { 'c', 'save' } }, policy.by_path },
    ['policy.budget'] = { { 'save', 'offload', 'recompute' }, function(list)
        return policy.budget('1 GiB', { allow = list })
    end },
    ['plan:pytorch, hold'] = { { 'inputs', 'loss', 'output' }, function(list)
        return wane.plan(loss):pytorch { hold = list }
    end },
    ['data.batches'] = { { cube, cube, cube }, function(list) return data.batches(list, { batch = 2 }) end },
    ['wane.plot'] = { { 1, 2, 3 }, wane.plot },
    ['wane.plot, levels'] = { { 1, 2, 3 }, function(list) return wane.plot({ 1, 2 }, { levels = list }) end },
    ['a grid'] = { { 1, 2, 3 }, function(list)
        return wane.sweep { build = function() return loss end, grid = { width = list } }
    end },
    ['the order of a grid'] = { { 'a', 'b', 'c' }, function(list)
        return wane.sweep { build = function() return loss end, grid = { a = { 1 }, b = { 1 }, c = { 1 } },
            order = list }
    end },
    ['t[{ ... }]'] = { { 1, 2, 2 }, function(list) return cube[list] end },
    ['t:index_select'] = { { 1, 2, 2 }, function(list) return cube:index_select(2, list) end },
    ['t:reshape'] = { { 4, 3, 2 }, function(list) return cube:reshape(list) end },
    ['t:view'] = { { 4, 3, 2 }, function(list) return cube:view(list) end },
    ['t:permute'] = { { 3, 1, 2 }, function(list) return cube:permute(list) end },
    ['t:expand'] = { { 2, 3, 4 }, function(list) return cube:expand(list) end },
    ['t:flip'] = { { 1, 2, 3 }, function(list) return cube:flip(list) end },
    ['t:tile'] = { { 2, 1, 2 }, function(list) return cube:tile(list) end },
    ['t:split'] = { { 1, 1, 1 }, function(list) return cube:split(list, 2) end },
    ['t:pad'] = { { 1, 1, 1, 1 }, function(list) return cube:pad(list) end },
    ['t:conv2d, stride'] = { { 1, 1 }, function(list)
        return image:conv2d(wane.ones(1, 2, 3, 3), { stride = list })
    end },
    ['t:max_pool2d'] = { { 2, 2 }, function(list) return image:max_pool2d(list) end },
    ['t:upsample, size'] = { { 3, 3 }, function(list) return image:upsample { size = list } end },
    ['t:upsample, scale'] = { { 2, 2 }, function(list) return image:upsample { scale = list } end },
}
for _, name in ipairs { 'sum', 'mean', 'var', 'std', 'norm', 'logsumexp', 'amax' } do
    if rawget(require('wane.tensor').methods, name) and pcall(function() return cube[name](cube, { 1, 2, 3 }) end) then
        TAKES['t:' .. name] = { { 1, 2, 3 }, function(list) return cube[name](cube, list) end }
    end
end

-- Ways to spoil a list of n entries.
local SPOILS = {
    ['a hole'] = function(list) list[#list - 1] = nil end,
    ['a hole at the front'] = function(list) list[1] = nil end,
    ['an entry at 0'] = function(list) list[0] = list[1] end,
    ['a name'] = function(list) list.scale = 0.5 end,
    ['a fraction'] = function(list) list[1.5] = list[1] end,
    ['true'] = function(list) list[true] = list[1] end,
    ['an entry below 0'] = function(list) list[-1] = list[1] end,
}

local function copy_of(given)
    if type(given) == 'function' then return given() end
    local list = {}
    for k, x in ipairs(given) do list[k] = x end
    return list
end

describe('a list', function()
    for name, case in pairs(TAKES) do
        it('of ' .. name .. ' has the keys 1 to n and no other', function()
            local fine, why = pcall(case[2], copy_of(case[1]))
            assert(fine, name .. ': the good list fails: ' .. tostring(why))
            for spoil, change in pairs(SPOILS) do
                local list = copy_of(case[1])
                change(list)
                fine, why = pcall(case[2], list)
                local what = ('%s with %s: %s'):format(name, spoil, tostring(why))
                assert(not fine, what)
                assert(type(why) == 'table' and why.code == 'value', what)
                assert(tostring(why):find('lists_spec.lua', 1, true), what)
            end
        end)
    end

    it('may be another class of tables, as a shape is', function()
        local List = {}
        List.__index = List
        assert.equal('(2, 3, 4)', tostring(wane.zeros(cube.shape).shape))
        assert.equal('(4, 3, 2)', tostring(cube:permute(setmetatable({ 3, 2, 1 }, List)).shape))
        assert.equal(2, #optim.SGD(setmetatable({ w, v }, List), { lr = 1 }):parameters())
    end)

    it('says nothing of a colon where an entry is no tensor', function()
        for _, name in ipairs { 'backward', 'eval', 'grad' } do
            local why = helper.refused(nil, function() wane[name](name == 'backward' and { print } or print) end)
            assert.is_nil(why.message:find('colon', 1, true), why.message)
            assert.matches('tensor, got a function', why.message)
        end
    end)

    it('of numbers says that it got a tensor, whatever its dims are', function()
        for _, t in ipairs { wane.ones(2, 3), wane.ones(1), w:sum() } do
            helper.refused('value', function() wane.tensor({ t, t }) end,
                'expected numbers in a table nested 1 deep, got a tensor')
        end
    end)

    it('says where an option belongs that stands among its entries', function()
        helper.refused('value', function() return optimizer():step { loss(), loss(), scale = 0.5 } end,
            "'scale' is no entry of a list", '{ scale = ... }')
        helper.refused('value', function() return wane.zeros { 2, 3, dtyp = 'f64' } end, "did you mean 'dtype'")
        helper.refused('value', function() return nn.Sequential { nn.ReLU(), nil, nn.GELU() } end,
            'entry 2 of the list of modules is nil')
    end)

    it('that is written as arguments has no hole either', function()
        for name, call in pairs {
            flip = function() return cube:flip(1, nil, 2) end,
            expand = function() return wane.ones(1, 1):expand(2, nil, 3) end,
            reshape = function() return cube:reshape(6, nil, 4) end,
            view = function() return cube:view(24, nil) end,
            permute = function() return cube:permute(1, nil, 2) end,
            tile = function() return cube:tile(2, nil, 1) end,
            zeros = function() return wane.zeros(2, nil, 3) end,
            sequential = function() return nn.Sequential(nn.ReLU(), nil, nn.GELU()) end,
            compose = function() return policy.compose('save_all', nil, 'sqrt') end,
            eval = function() return wane.eval(cube, nil, cube) end,
            beside = function() return cube:reshape({ 24 }, 1) end,
        } do
            local fine, why = pcall(call)
            assert(not fine and why.code == 'value' or why.code == 'shape', name .. ': ' .. tostring(why))
        end
    end)
end)

describe('a module', function()
    local Net = nn.module('Net', function(self, fill) fill(self) end)
    function Net:forward(x) return x * 2 end

    local function assert_refused(key, fill)
        for _, use in ipairs { function(m) return m:parameters() end, function(m) return m(cube) end,
            function(m) return m:state_dict() end } do
            helper.refused('value', function() use(Net(fill)) end, key)
        end
    end

    it('refuses a module or a state where its walk does not look', function()
        local layer = function() return nn.Linear(2, 2) end
        assert_refused('Net.blocks[0]', function(self)
            self.blocks = {}
            for i = 0, 2 do self.blocks[i] = layer() end
        end)
        assert_refused('Net.blocks[3]', function(self) self.blocks = { layer(), nil, layer() } end)
        assert_refused('Net.blocks[true]', function(self) self.blocks = { [true] = layer() } end)
        assert_refused('Net.blocks[2.5]', function(self) self.blocks = { layer(), [2.5] = { { layer() } } } end)
        assert_refused('Net.deep.list[-1]', function(self)
            self.deep = { list = { [-1] = nn.Parameter(wane.ones(2)) } }
        end)
        assert_refused('Net.list[1]', function(self) self.list = setmetatable({ layer() }, { __index = table }) end)
        assert_refused('Net.object[net]', function(self) self.object = setmetatable({ net = layer() }, {}) end)
        assert_refused('Net.buffers_of[0]', function(self) self.buffers_of = { [0] = nn.Buffer(wane.ones(2)) } end)
    end)

    it('takes tables of anything else, and objects that hold what is listed anyway', function()
        local own = nn.Linear(2, 2)
        local m = Net(function(self)
            self.layer, self.settings = own, { [0] = 'a', [true] = 3, [2.5] = {}, names = { 'x', nil, 'y' } }
            self.trainer = setmetatable({ model = own, root = self }, {})
            self.cache = setmetatable({ [own] = nn.Linear(3, 3) }, { __mode = 'k' })
        end)
        assert.equal(2, #m:parameters())
        m(cube)
        local average = optim.EMA(nn.Linear(2, 2), { decay = 0.5 })
        assert.equal(2, #Net(function(self) self.layer, self.ema = own, average end):parameters())
    end)

    it('refuses a plain tensor in the place of a parameter or a buffer, at its next call', function()
        local function refused(m, key, use) return helper.refused('value', function() use(m) end, key) end
        local function called(m) return m(wane.ones(2, 2)) end
        for _, use in ipairs { called, function(m) return m:parameters() end, function(m) return m:state_dict() end } do
            local lin = nn.Linear(2, 2)
            local opt = optim.SGD(lin:parameters(), { lr = 0.1 })
            lin(wane.ones(2, 2))
            lin.weight = lin.weight * 2
            refused(lin, 'Linear.weight', use)
            refused(nn.Sequential { lin }, 'weight:assign', use)
            assert.equal(2, #opt:parameters())
            lin.weight = nn.Parameter(wane.ones(2, 2))
            called(lin)
            local norm = nn.BatchNorm2d(2)
            norm:buffers()
            norm.running_mean = wane.zeros(2)
            refused(norm, 'nn.Buffer', use == called and function(m) return m(image) end or use)
        end
        local held = Net(function(self) self.list = { nn.Parameter(wane.ones(2)) } end)
        held:parameters()
        held.list[1] = held.list[1] * 2
        refused(held, 'Net.list.1', function(m) return m:parameters() end)
    end)
end)

describe('a call with an argument too many', function()
    local function refused(words, fn, ...)
        local fine, why = pcall(fn, ...)
        assert(not fine and type(why) == 'table' and why.code == 'value', words .. ': ' .. tostring(why))
        assert(tostring(why):find(words, 1, true) and tostring(why):find('lists_spec.lua', 1, true), tostring(why))
    end

    it('is refused by methods and functions that take a fixed number', function()
        local methods, tried = require('wane.tensor').methods, 0
        for name, fn in pairs(methods) do
            local info = debug.getinfo(wane.errors.inner(fn), 'u')
            if not info.isvararg then
                local args = { cube }
                for k = 2, info.nparams do args[k] = k end
                args[info.nparams + 1] = 'further'
                refused(("t:%s(...) takes %d argument"):format(name, info.nparams - 1), fn,
                    unpack(args, 1, info.nparams + 1))
                tried = tried + 1
            end
        end
        assert(tried > 90, tried)
        refused("got one more: 3", cube.squeeze, cube, 1, 3)
        refused('wane.full(...) takes 3 arguments', wane.full, { 2 }, 1, {}, 4)
        refused('wane.stack(...) takes 2', wane.stack, { cube }, 1, 2)
        refused('optim.clip_grad_norm(...) takes 2', optim.clip_grad_norm, { w }, 1, 2)
        refused('nn.cross_entropy(...) takes 3', nn.cross_entropy, cube, cube, {}, 1)
        refused('m:train(...) takes 1', function() nn.Linear(2, 2):train(true, 1) end)
        refused('opt:zero_grad(...) takes 0', function() optimizer():zero_grad(true) end)
        assert.equal('(2, 3, 4)', tostring(cube:narrow(1, 1, 2, nil).shape))
    end)

    it('and one with a dot for a colon, of modules and optimizers, are refused by name', function()
        refused('opt:zero_grad(...)', function() optimizer().zero_grad() end)
        refused('opt:step(...)', function() optimizer().step(loss()) end)
        refused('m:parameters(...)', function() nn.Linear(2, 2).parameters() end)
        refused('m:train(...)', function() nn.Linear(2, 2).train(true) end)
    end)
end)

describe('a walk over a table', function()
    local iterate = require 'wane.iterate'

    it('keeps all entries where LuaJIT gives up compiling it', function()
        local inner = { 1, 2, 3, 4, 5 }
        local outer, short = { a = inner, b = inner, c = inner, d = inner, e = inner }, 0
        local function leave() for _ = 1, 100 do end end -- compiled code ends here
        for _ = 1, 60000 do
            leave()
            local count = 0
            for _, list in iterate(outer) do
                for _ in iterate(list) do end
                count = count + 1
            end
            if count ~= 5 then short = short + 1 end
        end
        assert.equal(0, short) -- with pairs it is one entry from about the 38,000th time on
    end)
end)

-- ---- fields of modules ---------------------------------------------------------------------------------------------
-- Checks what a field of a module may hold: parameters and buffers are found wherever they lie and whenever they came,
-- a leaf that no optimizer would see is refused; and what fields and types may be called. Then what the call of a
-- module leaves: the scope of what is recorded after an error that a forward caught, and as many results as there are.
describe('a tensor in a field of a module', function()
    local Holder = nn.module('Holder', function(self) self.bias = false end)

    local function refused(fn, ...) return helper.refused('value', fn, ...) end

    it('is refused when it is a leaf with requires_grad, wherever it lies and whenever it became one', function()
        local m = Holder()
        refused(function() m.w = wane.zeros(2, { requires_grad = true }) end, 'Holder.w', 'nn.Parameter(t)')
        assert.is_nil(rawget(m, 'w'))
        m.list = { deep = { wane.zeros(2, { requires_grad = true }) } }
        for _, ask in ipairs { 'parameters', 'state_dict', 'buffers' } do
            refused(function() m[ask](m) end, 'Holder.list.deep.1')
        end
        m.list.deep[1].requires_grad = false
        assert.equal(0, #m:parameters())
        m.bias = wane.zeros(2, { requires_grad = true })
        refused(function() Holder.parameters(m) end, 'Holder.bias')
        m.bias = nn.Parameter(m.bias)
        assert.equal(1, #m:parameters())
    end)

    it('may be a constant, a result that needs a gradient, a gradient, or freed', function()
        local m, p = Holder(), nn.Parameter(wane.ones(2))
        local y = p * 2
        y:sum():backward()
        m.constant, m.result, m.gradient, m.gone = wane.ones(2), y, p.grad, wane.ones(2):retain()
        m.gone:free()
        assert.equal(0, #m:parameters())
        m.result = p
        assert.equal(p, m:parameters()[1])
    end)

    it('is a parameter also where the field first held something else', function()
        local m = Holder()
        m.gain = nn.Parameter(wane.ones(2))
        m.bias = nn.Parameter(wane.zeros(2))
        m.gain = nn.Linear(2, 3)
        local names = {}
        for name in m:named_parameters() do names[#names + 1] = name end
        assert.same({ 'bias', 'gain.weight', 'gain.bias' }, names)
    end)
end)

describe('a name of a module, whatever its length,', function()
    it('works, or is refused where it is given', function()
        for _, n in ipairs { 1, 300, 400, 401, 480, 481, 10000 } do
            local long = ('n'):rep(n)
            local made, Long = pcall(nn.module, long, function(self) self.inner = nn.Linear(2, 2) end)
            assert.equal(n <= 400, made)
            if made then
                function Long:forward(x) return self.inner(x) end
                local a, b, x = Long(), Long(), wane.ones(1, 2) -- the second is called NAME_2
                assert.equal(2, #(a(x) + b(x)):totable()[1])
            else
                assert.matches('nn.module: a type name of ' .. n .. ' letters %(nnn', Long.message)
            end
            local holder = nn.Sequential { nn.ReLU() }
            local kept, why = pcall(function() holder[long] = { nn.Linear(2, 2) } end)
            assert.equal(n <= 400, kept)
            if kept then assert.equal(2, #holder:parameters())
            else assert.matches('Sequential: a field of ' .. n .. ' letters', why.message) end
        end
    end)
end)

describe('a forward', function()
    -- Returns a chain of n modules, each in the one before as `inner`. at: depth -> function(module, x) in its forward.
    local function nested(n, at)
        local Level = nn.module('Level', function(self, k) self.k = k end)
        function Level:forward(x)
            if at[self.k] then return at[self.k](self, x) end
            return self.inner(x) + 1
        end
        local first = Level(1)
        local last = first
        for k = 2, n do
            last.inner = Level(k)
            last = last.inner
        end
        return first
    end

    local function scope_of(t)
        local info = module.of_scope(tensor.info(t).scope)
        return info and info.path
    end

    local CAUSES = {
        { 'an error of Wane', function(x) return x:matmul(wane.ones(5, 5)) end },
        { 'a text', function() error 'stop' end },
        { 'a text without a place', function() error('stop', 0) end },
        { 'an object', function() error { code = 'mine' } end },
        { 'a fault of Lua', function(x) return x + x.missing.field end },
    }
    local CATCHERS = {
        { 'pcall', function(m, x) return pcall(m, x) end },
        { 'xpcall', function(m, x) return xpcall(function() return m(x) end, function(e) return e end) end },
        { 'a coroutine', function(m, x) return coroutine.resume(coroutine.create(function() return m(x) end)) end },
    }

    for _, cause in ipairs(CAUSES) do
        for _, catcher in ipairs(CATCHERS) do
            it(('records in the module that caught %s by %s, at any depth'):format(cause[1], catcher[1]), function()
                local N, x, scopes = 4, wane.ones(2, 3), {}
                for depth = 1, N - 1 do
                    local at = { [N] = function(_, value) return cause[2](value) end }
                    at[depth] = function(self, value)
                        local ok, e = catcher[2](self.inner, value)
                        assert.is_false(ok)
                        scopes.message = tostring(e)
                        scopes.after = scope_of(value + 1)
                        at[N] = function(_, last) return last * 2 end
                        local y = self.inner(value)
                        scopes.inner = depth == N - 1 and scope_of(y) or nil
                        return y - 1
                    end
                    local model, path = nested(N, at), ('.inner'):rep(depth - 1):sub(2)
                    wane.eval(x + 0) -- the next model is the first of its program, whose path is ''
                    for _ = 1, 70 do -- so that LuaJIT compiles some of it
                        at[N] = function(_, value) return cause[2](value) end
                        local y = model(x)
                        assert.equal(path, scopes.after)
                        if depth == N - 1 then assert.equal('inner.inner.inner', scopes.inner) end
                        if cause[1] == 'a text' then
                            assert.is_truthy(scopes.message:find('[in inner.inner.inner (Level)]', 1, true),
                                scopes.message)
                        end
                        assert.is_nil(scope_of(x + 1))
                        assert.same({ 2, 3 }, { unpack(y.shape) })
                    end
                end
            end)
        end
    end

    it('returns what a forward returns, as many results as it does, compiled or not', function()
        local Gives = nn.module 'Gives'
        function Gives.forward(_, n, ...)
            if n == 0 then return end
            return select(-n, ...)
        end
        local Around = nn.module('Around', function(self) self.inner = Gives() end)
        function Around:forward(...) return self.inner(...) end
        local model = Around()
        for turn = 1, 300 do
            for n = 0, 6 do
                assert.equal(n, select('#', model(n, 1, nil, 3, turn, nil, nil)))
                local got = { model(n, 1, nil, 3, turn, nil, nil) }
                local want = { 1, nil, 3, turn, nil, nil }
                for k = 1, n do assert.equal(want[6 - n + k], got[k]) end
            end
        end
    end)
end)
