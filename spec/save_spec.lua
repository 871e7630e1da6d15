-- Checks wane.save and wane.load: a run that goes on from a file has the bits of one that never stopped, and a file
-- that does not fit changes nothing. spec/file_spec.lua checks failing writes and broken files.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local wane = require 'wane'
local binding = require 'wane.ffi'
local programs = require 'spec.support.programs'

local nn, optim = wane.nn, wane.optim
local C = binding.C
local PATH = os.tmpname()

-- Returns the state of a run as text: parameters, states of the optimizer, its counters and settings, the random
-- numbers.
local function state_of(model, opt)
    local parts, dict = { programs.bits(model:parameters()) }, opt:state_dict()
    for k = 1, #opt:parameters() do
        for _, name in ipairs(dict.states) do parts[#parts + 1] = programs.bits { dict.cells[name .. '.' .. k] } end
        parts[#parts + 1] = ('%d'):format(dict.count[k])
    end
    local keys = {}
    for key in pairs(dict.settings) do keys[#keys + 1] = key end
    table.sort(keys)
    for _, key in ipairs(keys) do parts[#parts + 1] = key .. tostring(dict.settings[key]) end
    parts[#parts + 1] = tostring(C.wn_here().seed) .. tostring(C.wn_here().counter)
    return table.concat(parts, ' ')
end

local Net = nn.module('Net', function(self, v, d)
    self.embed = nn.Embedding(v, d)
    self.blocks = {}
    for i = 1, 2 do self.blocks[i] = nn.MLP(d, 2 * d, { dropout = 0.2 }) end
    self.norm = nn.LayerNorm(d)
    self.head = nn.Linear(d, v, { bias = false })
    self.head.weight = self.embed.weight -- tied
end)
function Net:forward(ids)
    local x = self.embed(ids)
    for _, block in ipairs(self.blocks) do x = x + block(x) end
    return self.head(self.norm(x))
end

local text_path = files.write(os.tmpname(), ('to be, or not to be: that is the question. '):rep(40))
local text = wane.data.tokens(text_path)

local rate = optim.schedule.cosine(0.02, { steps = 12, warmup = 3 })

-- Returns a run that reads data from a state on: run.steps(n) makes n steps and returns their losses, bit for bit.
local function new_run(make_optimizer, data_state)
    local run = { model = Net(#text.vocab, 8) }
    run.opt = make_optimizer(run.model:parameters())
    run.data = wane.data.batches(text, { batch = 4, length = 12, shuffle = true, seed = 5, state = data_state })
    run.made = 0
    function run.steps(n)
        local losses = {}
        for k = 1, n do
            run.made = run.made + 1
            run.opt.lr = rate(run.made)
            local x, y = run.data:next()
            losses[k] = ('%.17g'):format(run.opt:step(nn.cross_entropy(run.model(x), y)):item())
        end
        return losses
    end
    return run
end

teardown(function()
    os.remove(PATH)
    os.remove(text_path)
end)

describe('a resumed run', function()
    local optimizers = {
        ['AdamW with clipped gradients'] = function(p)
            return optim.AdamW(p, { lr = 0.02, weight_decay = 0.1, clip_norm = 0.7 })
        end,
        ['Adam with betas'] = function(p) return optim.Adam(p, { lr = 0.02, betas = { 0.8, 0.95 }, eps = 1e-6 }) end,
        ['SGD with Nesterov momentum'] = function(p) return optim.SGD(p, { momentum = 0.9, nesterov = true }) end,
        ['plain SGD'] = function(p) return optim.SGD(p, { lr = 0.02 }) end,
        ['RMSprop with momentum'] = function(p) return optim.RMSprop(p, { lr = 0.02, momentum = 0.9 }) end,
        ['centered RMSprop'] = function(p) return optim.RMSprop(p, { lr = 0.02, centered = true }) end,
        Lion = function(p) return optim.Lion(p, { lr = 0.02, weight_decay = 0.1 }) end,
        groups = function(p)
            local first = { params = { table.remove(p) }, weight_decay = 0.5, betas = { 0.5, 0.9 } }
            return optim.AdamW({ first, { params = p } }, { lr = 0.02 })
        end,
    }
    for name, make in pairs(optimizers) do
        it('gives the losses and the state of one that went on: ' .. name, function()
            wane.manual_seed(31)
            local whole = new_run(make)
            whole.steps(5)
            wane.save(PATH, whole.model, { optimizer = whole.opt, step = 5, meta = { data = whole.data:state() } })
            local losses = whole.steps(7)
            local want = state_of(whole.model, whole.opt)

            wane.manual_seed(77) -- other numbers, another beginning, a step of its own
            local info = select(2, wane.load(PATH))
            local again = new_run(make, info.meta.data)
            again.steps(1)
            again.data = wane.data.batches(text, { batch = 4, length = 12, shuffle = true, state = info.meta.data })
            again.made = wane.load(PATH, again.model, { optimizer = again.opt }).step
            assert.are.same(losses, again.steps(7))
            assert.is_true(want == state_of(again.model, again.opt))
            assert.are_not.equal(losses[1], losses[2])
        end)
    end

    it('knows all 64 bits of the random numbers', function()
        local model = nn.Linear(2, 2)
        local opt = optim.SGD(model:parameters(), { lr = 1 })
        C.wn_seed(0xFEDCBA9876543210ULL)
        C.wn_counter_set(0xFFFFFFFFFFFFFFFEULL)
        wane.save(PATH, model, { optimizer = opt })
        wane.manual_seed(0)
        local info = wane.load(PATH, model, { optimizer = opt })
        assert.equal('18364758544493064720', info.seed)
        assert.equal('18446744073709551614', info.next)
        assert.is_true(C.wn_here().seed == 0xFEDCBA9876543210ULL)
        assert.is_true(C.wn_here().counter == 0xFFFFFFFFFFFFFFFEULL)
        wane.manual_seed(8)
    end)

    it('sets the random numbers with an optimizer, or when told to', function()
        local model = nn.Linear(2, 2)
        local opt = optim.SGD(model:parameters(), { lr = 1 })
        wane.manual_seed(5)
        wane.randn(3)
        wane.save(PATH, model, { optimizer = opt })
        local function seed_after(opts)
            wane.manual_seed(6)
            wane.load(PATH, model, opts)
            return tonumber(C.wn_here().seed), tonumber(C.wn_here().counter)
        end
        assert.are.same({ 6, 0 }, { seed_after(nil) })
        assert.are.same({ 5, 1 }, { seed_after { random = true } })
        assert.are.same({ 5, 1 }, { seed_after { optimizer = opt } })
        assert.are.same({ 6, 0 }, { seed_after { optimizer = opt, random = false } })
    end)
end)

describe('wane.save', function()
    after_each(function() collectgarbage 'restart' end)

    it('writes every dtype as it is, and wane.load without a model reads the values back', function()
        local values = {
            f32 = wane.tensor { { 1.5, -2, 1e-42 }, { 0, 3e38, 7 } }, f64 = wane.tensor({ 1 / 3, -1e300 },
                { dtype = 'f64' }), bf16 = wane.tensor({ 1, -2.5, 3.140625 }, { dtype = 'bf16' }),
            i32 = wane.tensor({ -2 ^ 31, 2 ^ 31 - 1 }, { dtype = 'i32' }), u8 = wane.tensor({ { 0 }, { 255 } },
                { dtype = 'u8' }), i8 = wane.tensor({ -128, 127, 3 }, { dtype = 'i8' }), number = wane.tensor(0.25),
            empty = wane.zeros(0, 4), ['later.made'] = wane.arange(5) * 2, ['é "q" \\ \n'] = wane.ones(1),
        }
        local meta = { note = 'a "q"\n\\ é', half = 0.5, third = 1 / 3, big = -1e300 }
        local size = wane.save(PATH, values, { meta = meta })
        assert.equal(size, #files.read(PATH))
        local got, info = wane.load(PATH)
        for name, t in pairs(values) do
            assert.is_truthy(got[name], name)
            local dtype = t.dtype == 'i8' and 'i32' or t.dtype -- signed bytes become i32 as they are read
            assert.are.same({ t.shape, dtype }, { got[name].shape, got[name].dtype })
            assert.are.same(t:totable(), got[name]:totable())
            got[name] = nil
        end
        assert.is_nil(next(got))
        assert.are.same(meta, info.meta)
        assert.equal(wane.version, info.version)
        assert.equal(C.wn_threads(), info.threads)
        assert.is_nil(info.step)
    end)

    it('puts each tensor at a multiple of its element, in the order of the model', function()
        local m = nn.Sequential { nn.Linear(3, 5), nn.Linear(5, 1) }
        wane.save(PATH, { a = wane.ones(3, { dtype = 'u8' }), b = wane.ones(2), c = wane.ones(1, { dtype = 'f64' }),
            d = wane.ones(1, { dtype = 'bf16' }) })
        local head = files.read(PATH)
        local length = head:byte(1) + 256 * head:byte(2)
        assert.equal(0, length % 8)
        for name, at in pairs { c = 0, b = 8, d = 16, a = 18 } do
            local pattern = ('"%s":{"dtype":"%%w+","shape":%%[%%d%%],"data_offsets":%%[%d,'):format(name, at)
            assert.is_truthy(head:find(pattern), name .. head)
        end
        wane.save(PATH, m)
        head = files.read(PATH)
        local last = 0
        for _, name in ipairs { '1.weight', '1.bias', '2.weight', '2.bias' } do
            local at = assert(head:find('"' .. name .. '"', 1, true))
            assert.is_true(at > last)
            last = at
        end
    end)

    it('computes what no program needed yet, as a run would have', function()
        wane.manual_seed(12)
        local a = nn.Linear(4, 4)
        local opt = optim.AdamW(a:parameters(), { lr = 1 })
        wane.save(PATH, a, { optimizer = opt })
        wane.manual_seed(12)
        local b = nn.Linear(4, 4)
        assert.are.same(b.weight:totable(), wane.load(PATH)['weight']:totable())
        assert.are.same(b.weight:totable(), a.weight:totable())
        assert.are.same(wane.zeros(4):totable(), wane.load(PATH)['optimizer.v.bias']:totable())
    end)

    it('takes no memory beside the model, and leaves the random numbers alone', function()
        local m = nn.Linear(2048, 2048)
        wane.eval(m:parameters()[1], m:parameters()[2])
        wane.save(PATH, m)
        for _ = 1, 4 do collectgarbage() end
        wane.memory.reset_peak()
        local before, counter = wane.memory(), tonumber(C.wn_here().counter)
        collectgarbage 'stop'
        local lua = collectgarbage 'count'
        wane.save(PATH, m)
        wane.load(PATH, m)
        lua = collectgarbage 'count' - lua
        collectgarbage 'restart'
        local after = wane.memory()
        assert.equal(before.allocated, after.peak)
        assert.equal(before.reserved, after.peak_reserved)
        assert.is_true(lua < 256, lua .. ' KiB of Lua') -- of 16 MiB
        assert.equal(counter, tonumber(C.wn_here().counter))
        for _ = 1, 4 do collectgarbage() end
        assert.is_true(wane.memory().host <= before.host)
    end)

    it('works on a device whose bytes the host cannot see', function()
        wane.set_device 'mirror'
        local ok, e = pcall(function()
            local a, b = nn.MLP(5, 9), nn.MLP(5, 9)
            wane.save(PATH, a)
            wane.load(PATH, b)
            local got = wane.load(PATH)
            for name, p in a:named_parameters() do
                assert.equal('mirror', got[name].device)
                assert.are.same(p:totable(), got[name]:totable())
            end
            assert.equal(programs.bits(a:parameters()), programs.bits(b:parameters()))
        end)
        wane.set_device(helper.device)
        assert.is_true(ok, tostring(e))
    end)
end)

describe('lists that count from 0', function()
    local fixture = require 'spec.fixtures.torch_file'
    local path = helper.root .. '/spec/fixtures/torch_model.safetensors'
    local Torch = nn.module('Torch', function(self) self.blocks = { nn.Linear(3, 4), nn.Linear(4, 2) } end)
    function Torch:forward(x) return self.blocks[2](self.blocks[1](x):relu()) end

    it('are read from a file of PyTorch, whose numbers come out', function()
        local m = Torch()
        wane.load(path, m, { names = 'torch' })
        local y = m(wane.tensor(fixture.x):reshape(2, 3)):reshape(4):totable()
        for k = 1, 4 do assert.is_true(math.abs(y[k] - fixture.y[k]) < 1e-6) end
        assert.is_truthy(wane.load(path, { names = 'torch' })['blocks.1.weight'])
        assert.is_truthy(wane.load(path)['blocks.0.weight'])
    end)

    it('are advised where they would help', function()
        helper.refused(nil, function() wane.load(path, Torch()) end, "names = 'torch'")
    end)

    it('are written, with the optimizer, and read back', function()
        local m = Torch()
        local opt = optim.Adam(m:parameters(), { lr = 0.1 })
        opt:step(m(wane.ones(1, 3)):sum())
        wane.save(PATH, m, { optimizer = opt, names = 'torch' })
        local got, info = wane.load(PATH)
        assert.is_truthy(got['blocks.0.bias'] and got['optimizer.m.blocks.0.bias'] and not got['blocks.2.bias'])
        assert.equal('pt', info.meta.format)
        assert.equal(1, info.count['blocks.0.bias'])
        local n = Torch()
        local other = optim.Adam(n:parameters(), { lr = 0.3 })
        wane.load(PATH, n, { optimizer = other, names = 'torch' })
        assert.is_true(state_of(m, opt) == state_of(n, other))
    end)
end)

describe('every dtype that PyTorch wrote', function()
    local fixture = require 'spec.fixtures.torch_file'

    local function flat(x, list)
        if type(x) == 'number' then list[#list + 1] = x end
        for _, each in ipairs(type(x) == 'table' and x or {}) do flat(each, list) end
        return list
    end

    it('is read as it is', function()
        local got, info = wane.load(helper.root .. '/spec/fixtures/torch_dtypes.safetensors')
        assert.are.same({ 'u8', 'bf16' }, { got.bool.dtype, got.bf16.dtype })
        for name, want in pairs(fixture.every) do
            local t = assert(got[name], name)
            assert.are.same(want.shape, { unpack(t.shape) })
            local list = flat(t:totable(), {})
            for k = 1, math.max(#list, #want[1]) do assert.equal(want[1][k], list[k], name) end
            got[name] = nil
        end
        assert.is_nil(next(got))
        assert.equal('a "quoted" line\nund äöü \240\159\140\153', info.meta.note)
    end)
end)

-- ---- what does not fit ----------------------------------------------------------------------------------------------

describe('a file that does not fit', function()
    local m, opt, before
    before_each(function()
        wane.manual_seed(4)
        m = nn.Sequential { nn.Linear(3, 4), nn.Linear(4, 2) }
        opt = optim.AdamW(m:parameters(), { lr = 0.1 })
        opt:step(m(wane.ones(1, 3)):sum())
        before = state_of(m, opt)
    end)

    local function refused(code, fn, ...)
        local e = helper.refused(code, fn, ...)
        assert.is_nil(e.message:find '\n')
        assert.is_true(before == state_of(m, opt), 'something changed')
        return e
    end

    local function dict_of(model)
        local dict = {}
        for name, p in model:named_parameters() do dict[name] = p end
        return dict
    end

    it('is told in one error, with everything that does not fit, and changes nothing', function()
        local dict = dict_of(nn.Sequential { nn.Linear(3, 4), nn.Linear(4, 2) })
        dict['1.wieght'], dict['1.weight'] = dict['1.weight'], nil
        dict['2.bias'] = wane.zeros(3)
        dict['2.weight'] = wane.zeros(2, 4, { dtype = 'f64' })
        wane.save(PATH, dict)
        before = state_of(m, opt)
        for _, call in ipairs { function() wane.load(PATH, m) end, function() m:load_state_dict(dict) end } do
            local e = refused('value', call, "missing in the ", "'1.weight' (did you mean '1.wieght'?)",
                "not in the model: '1.wieght' (did you mean '1.weight'", "'2.bias' is (2) f32 in the model, (3) f32 in",
                "'2.weight' is (2, 4) f32 in the model, (2, 4) f64 in")
            assert.are.same({ '1.weight' }, e.missing)
            assert.are.same({ '1.wieght' }, e.unexpected)
            assert.equal(2, #e.wrong)
        end
        refused('shape', function()
            wane.load(PATH, m, { strict = false })
        end, "'2.bias' is (2) f32")
    end)

    it('may lack names on either side when told so, but not all', function()
        local one = nn.Linear(3, 4)
        wane.save(PATH, { ['1.weight'] = one.weight, other = wane.ones(2) })
        local info = wane.load(PATH, m, { strict = false })
        assert.are.same(one.weight:totable(), m:parameters()[1]:totable())
        assert.are.same({ '1.bias', '2.weight', '2.bias' }, info.missing)
        assert.are.same({ 'other' }, info.unexpected)
        before = state_of(m, opt)
        wane.save(PATH, { other = wane.ones(2) })
        refused('value', function() wane.load(PATH, m, { strict = false }) end, 'no name of the model is in the file')
        refused('value', function() m:load_state_dict({ other = wane.ones(2) }, { strict = false }) end, 'no name of')
    end)

    it('tells when long lists are cut', function()
        local layers = {}
        for k = 1, 10 do layers[k] = nn.Linear(1, 1) end
        wane.save(PATH, nn.Sequential(layers))
        before = state_of(m, opt)
        local e = refused('value', function() wane.load(PATH, m) end, 'and 10 more', "'1.weight' is (4, 3) f32")
        assert.equal(16, #e.unexpected)
    end)

    it('holds another optimizer, or none', function()
        wane.save(PATH, m)
        refused('value', function() wane.load(PATH, m, { optimizer = opt }) end, 'no optimizer', 'optim.AdamW')
        local sgd = optim.SGD(m:parameters(), { lr = 1, momentum = 0.5 })
        wane.save(PATH, m, { optimizer = sgd })
        refused('value', function() wane.load(PATH, m, { optimizer = opt }) end, 'optim.SGD', 'optim.AdamW')
        local plain = optim.SGD(m:parameters(), { lr = 1 })
        refused('value', function() wane.load(PATH, m, { optimizer = plain }) end,
            "not in the model: 'optimizer.momentum.1.bias'")
        wane.load(PATH, m) -- without an optimizer, its state is nothing unexpected
    end)

    it('is not written or read half by mistake of the caller', function()
        local other = nn.Linear(3, 3)
        local foreign = optim.SGD(other:parameters(), { lr = 1 })
        local meta = nn.Sequential { nn.Linear(3, 4, { device = 'meta' }), nn.Linear(4, 2) }
        before = state_of(m, opt)
        refused('value', function() wane.save(PATH, m, { optimizer = foreign }) end, 'parameter 1', 'none of the model')
        refused('value', function() wane.save(PATH, m, { optimizer = m }) end, 'expected an optimizer')
        refused('value', function() wane.save(PATH, m, { optimiser = opt }) end, "'optimizer'")
        refused('value', function() wane.save(PATH, m, { step = 1.5 }) end, 'step', '1.5')
        refused('value', function() wane.save(PATH, m, { meta = { a = {} } }) end, 'strings and numbers', "'a'")
        refused('value', function() wane.save(PATH, { a = 3 }) end, "'a'", '3')
        refused('value', function() wane.save(PATH, { wane.ones(1) }) end, 'under names')
        refused('value', function() wane.save(PATH, 7) end, '7')
        refused('value', function() wane.save(PATH, { ['a\255'] = wane.ones(1) }) end, 'UTF-8')
        refused('value', function() wane.save(PATH, { __metadata__ = wane.ones(1) }) end, '__metadata__')
        refused('value', function() wane.save(7, m) end, 'name of a file', '7')
        refused('value', function() wane.save(PATH, m, { names = 'jax' }) end, "'jax'", "'torch'")
        refused('value', function() wane.load(PATH, 7) end, '7')
        refused('value', function() wane.load(PATH, m, { strikt = false }) end, "'strict'")
        refused('value', function() wane.plan(function() wane.save(PATH, m); return m(wane.ones(1, 3)):sum() end) end,
            'planned')
        wane.save(PATH, m)
        refused('device', function() wane.load(PATH, meta) end, 'meta')
        refused('device', function() wane.save(PATH, meta) end, 'meta')
    end)
end)
