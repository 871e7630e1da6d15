-- Checks that weights of other programs load into a model under other names, transposed, in pieces and from several
-- files; that published GPT-2 and LLaMA weights (spec/fixtures/published, written by published.py there) give PyTorch's
-- losses in the zoo; and that whatever does not fit is named, tensor by tensor, and changes nothing.
local helper = require 'spec.helper'
local write = require('spec.support.files').write
local wane = helper.wane
local json = require 'wane.report.json'
local programs = require 'spec.support.programs'

local nn = wane.nn
local zoos = { gpt2 = require 'wane.zoo.gpt2', llama = require 'wane.zoo.llama' }
local fixture = dofile(helper.root .. '/spec/fixtures/published.lua')

local PUBLISHED = helper.root .. '/spec/fixtures/published/'
local FOLDER = helper.lines('mktemp -d')[1]
local PATH = FOLDER .. '/w.safetensors'
teardown(function() helper.lines("rm -rf '" .. FOLDER .. "'") end)

-- Computes the parameters of a model that have no values yet; returns the bits of all.
local function bits(m)
    wane.eval(unpack(m:parameters()))
    return table.concat(programs.bytes(m:parameters()), '|')
end

-- Calls fn, which must fail; returns the error and its message.
local function failure(fn, ...)
    local ok, e = pcall(fn, ...)
    assert.is_false(ok)
    return e, wane.errors.is(e) and e.message or tostring(e)
end

-- ---- published weights ---------------------------------------------------------------------------------------------

local function zoo_of(name) return zoos[name:match '^%a+%d?'] end

-- Returns the ids and the labels of the fixture's batch.
local function batch()
    local x, y = {}, {}
    for b, row in ipairs(fixture.ids) do
        x[b], y[b] = { unpack(row, 1, #row - 1) }, { unpack(row, 2) }
    end
    return wane.tensor(x, { dtype = 'i32' }), wane.tensor(y, { dtype = 'i32' })
end

-- Copies a published folder, with other fields in config.json; 'absent' takes a field away. Returns the new folder.
local function copy(name, fields)
    local to = FOLDER .. '/copy'
    helper.lines(("rm -rf '%s' && cp -r '%s%s' '%s'"):format(to, PUBLISHED, name, to))
    local config = json.decode(helper.read('spec/fixtures/published/' .. name .. '/config.json'))
    for key, value in pairs(fields or {}) do
        if value == 'absent' then config[key] = nil else config[key] = value end
    end
    write(to .. '/config.json', json.encode(config))
    return to
end

-- Rewrites the only file of a copied folder: edit(tensors by name).
local function rewrite(folder, edit)
    local path, tensors = folder .. '/model.safetensors', {}
    for name, t in pairs(wane.load(path)) do tensors[name] = t end
    edit(tensors)
    wane.save(path, tensors)
end

describe('published weights', function()
    for _, name in ipairs { 'gpt2', 'gpt2_bare', 'llama', 'llama_tied' } do
        it('give the losses of PyTorch, before and after a step: ' .. name, function()
            local zoo, x, y = zoo_of(name), batch()
            local wide = zoo.load(PUBLISHED .. name, { dtype = 'f64' })
            local opt = wane.optim.SGD(wide:parameters(), { lr = 0.5 })
            assert.near(fixture[name].loss, opt:step(zoo.loss(wide, x, y)):item(), 1e-14 * 4)
            assert.near(fixture[name].after, zoo.loss(wide, x, y):item(), 1e-14 * 4)
            local single = zoo.load(PUBLISHED .. name)
            assert.near(fixture[name].f32, zoo.loss(single, x, y):item(), 2e-6)
            local low = zoo.load(PUBLISHED .. name, { dtype = 'bf16', tiled = false })
            assert.equal('bf16', low:parameters()[1].dtype)
            assert.near(fixture[name].loss, zoo.loss(low, x, y):item(), 0.05)
        end)
    end

    it('keep as many bytes for the backward as a model with the exact GELU', function()
        local x, y = batch()
        local function kept(act)
            local model = zoos.gpt2.new { vocab = 13, context = 8, layers = 2, heads = 2, d = 8, act = act }
            return wane.plan(function() return zoos.gpt2.loss(model, x, y) end).at.after_forward
        end
        assert.equal(2 * 256, kept 'gelu_tanh' - kept 'gelu') -- the numbers of its formula
    end)

    it('load from a folder, a file, an index, and into a model that is given', function()
        local gpt2, llama = zoos.gpt2, zoos.llama
        local whole = bits(gpt2.load(PUBLISHED .. 'gpt2/'))
        assert.equal(whole, bits(gpt2.load(PUBLISHED .. 'gpt2/model.safetensors')))
        local model = gpt2.load(PUBLISHED .. 'gpt2')
        nn.init.zeros(model.wte.weight)
        assert.equal(model, gpt2.load(PUBLISHED .. 'gpt2', { model = model }))
        assert.equal(whole, bits(model))
        assert.equal(bits(llama.load(PUBLISHED .. 'llama')),
            bits(llama.load(PUBLISHED .. 'llama/model.safetensors.index.json')))
    end)

    it('are told from their dropout, which the model has when it is asked for', function()
        local script = ([[package.path = 'lua/?.lua;lua/?/init.lua;' .. package.path
            local model = require('wane.zoo.gpt2').load('%s'%s)
            print(model.drop.p, model.blocks[1].drop.p)]])
        local function run(folder, options)
            return (helper.shell("${LUAJIT:-luajit} -", script:format(folder, options)))
        end
        local folder = copy('gpt2', { resid_pdrop = 0.1, embd_pdrop = 0.05 })
        assert.equal('wane: gpt2.load: config.json trains with dropout 0.1, the model has 0; { dropout = 0.1 } gives '
            .. 'it to the model, { dropout = 0 } ends this line\n0\t0\n', run(folder, ''))
        assert.equal('0\t0\n', run(folder, ', { dropout = 0 }'))
        assert.equal('0.2\t0.2\n', run(folder, ', { dropout = 0.2 }'))
        assert.equal('0\t0\n', run(copy 'gpt2', ''))
    end)

    it('have a size by their shapes where there is no config.json, if it is a published one', function()
        local folder, gpt2 = copy 'gpt2', zoos.gpt2
        os.remove(folder .. '/config.json')
        local _, message = failure(gpt2.load, folder)
        assert.matches("no config.json beside '.*give {config =", message)
        gpt2.configs.tiny = { vocab = 99, context = 99, layers = 2, heads = 2, d = 8 }
        local model = gpt2.load(folder)
        gpt2.configs.tiny = nil
        local x, y = batch()
        assert.near(fixture.gpt2.f32, gpt2.loss(model, x, y):item(), 2e-6)
        model = gpt2.load(folder, { config = { vocab = 13, context = 8, layers = 2, heads = 2, d = 8,
            act = 'gelu_tanh' } })
        assert.near(fixture.gpt2.f32, gpt2.loss(model, x, y):item(), 2e-6)
    end)

    it('leave out the copy of a tied head, and read a head of its own', function()
        local x, y = batch()
        local gpt2, folder = zoos.gpt2, copy 'gpt2'
        rewrite(folder, function(t) t['lm_head.weight'] = wane.zeros(13, 8) end)
        assert.near(fixture.gpt2.f32, gpt2.loss(gpt2.load(folder), x, y):item(), 2e-6)
        local other = copy('gpt2', { tie_word_embeddings = false })
        local _, message = failure(gpt2.load, other)
        assert.matches("missing in the file: 'lm_head.weight'", message)
        rewrite(other, function(t) t['lm_head.weight'] = wane.zeros(13, 8) end)
        assert.near(math.log(13), gpt2.loss(gpt2.load(other), x, y):item(), 1e-6)
    end)
end)

describe('published weights that do not fit', function()
    it('are named one by one, at the line of the script, and change nothing', function()
        local gpt2, folder = zoos.gpt2, copy 'gpt2'
        local model = gpt2.load(PUBLISHED .. 'gpt2')
        local before = bits(model)
        rewrite(folder, function(t)
            t['transformer.h.0.attn.c_proj.weight'] = nil
            t['transformer.h.1.mlp.c_fc.weight'] = wane.zeros(32, 8)
            t['transformer.h.2.ln_1.bias'] = wane.zeros(8)
            t['transformer.ln_f.bias'] = wane.zeros(9)
        end)
        for _, opts in ipairs { { model = model }, {} } do
            local line = debug.getinfo(1, 'l').currentline + 1
            local e = helper.refused(nil, function() return (gpt2.load(folder, opts)) end,
                "missing in the file: 'transformer.h.0.attn.c_proj.weight'",
                "not in the model: 'transformer.h.2.ln_1.bias'")
            assert.is_truthy(e.message:find("'transformer.h.1.mlp.c_fc.weight' is (32, 8) f32 in the model, "
                .. '(32, 8) f32, to be transposed, in the file', 1, true), e.message)
            assert.is_truthy(e.message:find("'transformer.ln_f.bias' is (8) f32 in the model, (9) f32 in the file", 1,
                true), e.message)
            assert.matches('weights_spec.lua:' .. line .. '$', e.where)
            assert.equal(before, bits(model))
        end
        gpt2.load(PUBLISHED .. 'gpt2', { model = model })
        assert.equal(before, bits(model))
    end)

    it('are refused where queries, keys and values have other shares of the same rows', function()
        local folder = copy('llama_tied')
        rewrite(folder, function(t)
            t['model.layers.0.self_attn.q_proj.weight'] = wane.zeros(8, 16)
            t['model.layers.0.self_attn.k_proj.weight'] = wane.zeros(24, 16)
        end)
        local _, message = failure(zoos.llama.load, folder)
        assert.is_truthy(message:find("q_proj.weight' is (16, 16) f32 in the model, (8, 16) f32 in the file", 1, true),
            message)
        assert.is_truthy(message:find("k_proj.weight' is (16, 16) f32 in the model, (24, 16) f32 in the file", 1, true))
    end)

    it('are refused where config.json asks for what is not computed', function()
        for _, row in ipairs {
            { 'gpt2', { model_type = 'gpt_neo' }, 'model_type = gpt_neo is not computed here; known: gpt2' },
            { 'gpt2', { activation_function = 'relu' }, 'activation_function = relu' },
            { 'gpt2', { scale_attn_by_inverse_layer_idx = true }, 'scale_attn_by_inverse_layer_idx = true' },
            { 'gpt2', { n_head = 'two' }, 'n_head = two; a number above 0 expected' },
            { 'gpt2', { n_embd = 'absent' }, 'n_embd = nil; a number above 0 expected' },
            { 'llama', { model_type = 'mistral' }, 'model_type = mistral' },
            { 'llama', { rope_scaling = { factor = 8 } }, 'rope_scaling = a table' },
            { 'llama', { rope_parameters = { rope_type = 'llama3', rope_theta = 5 } }, 'rope_type = llama3' },
            { 'llama', { attention_bias = true }, 'attention_bias = true' },
            { 'llama', { head_dim = 8 }, 'head_dim = 8 is not computed here; known: 4' },
            { 'llama', { hidden_act = 'gelu' }, 'hidden_act = gelu' },
        } do
            local e, message = failure(zoo_of(row[1]).load, copy(row[1], row[2]))
            assert.is_truthy(message:find(row[3], 1, true), message)
            assert.matches('weights_spec.lua:%d+$', e.where)
        end
        local folder = copy 'gpt2'
        write(folder .. '/config.json', '{"model_type": ')
        assert.matches("config.json': ", select(2, failure(zoos.gpt2.load, folder)))
    end)

    it('are refused where the model that is given is another one', function()
        local model = zoos.gpt2.new { vocab = 13, context = 8, layers = 2, heads = 4, d = 8, act = 'gelu_tanh' }
        local gpt2 = PUBLISHED .. 'gpt2'
        for words, given in pairs {
            ['the model has heads = 4, config.json says 2'] = { gpt2, { model = model } },
            ['dtype is an option of a new model'] = { gpt2, { model = model, dtype = 'f64' } },
            ["unknown option 'droput'"] = { gpt2, { droput = 0.1 } }, ['No such file'] = { FOLDER .. '/nowhere' },
            ['^gpt2.load: config has no %a+$'] = { gpt2, { config = { heads = 2 } } },
            ['model = 3; expected a model of the zoo'] = { gpt2, { model = 3 } },
            ['options must be a table, got f32'] = { gpt2, 'f32' },
            ['expected the name of a file or folder, got nil'] = {},
        } do assert.matches(words, select(2, failure(zoos.gpt2.load, unpack(given)))) end
        assert.matches("missing in the file: .*'wte.weight'",
            select(2, failure(zoos.gpt2.load, PUBLISHED .. 'llama', { config = 'small' })))
    end)
end)

-- ---- names, transposed matrices, pieces ----------------------------------------------------------------------------

-- Loads a file of one tensor, kept as (columns, rows), into a weight (rows, columns).
local function check_turned(rows, columns, dtype, kind)
    local linear = nn.Linear(columns, rows, { bias = false, dtype = dtype })
    local there = wane.eval(wane.randn(columns, rows, { dtype = kind }))
    wane.save(PATH, { w = there })
    local rule = { name = 'w', transpose = true } -- stays as it is: a script may return one table for several states
    for _ = 1, 2 do wane.load(PATH, linear, { cast = true, names = function() return rule end }) end
    local want = there:transpose(1, 2):to(dtype)
    assert.equal(0, (linear.weight - want):abs():max():item(), ('%d x %d'):format(rows, columns))
end

describe('names = a function', function()
    it('transposes a matrix of any size, dtype and layout', function()
        for _, size in ipairs { { 1, 1 }, { 1, 9 }, { 9, 1 }, { 3, 5 }, { 48, 33 }, { 96, 130 } } do
            for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do check_turned(size[1], size[2], dtype, 'f32') end
            check_turned(size[1], size[2], 'f32', 'f64')
        end
        check_turned(5000, 3, 'f32', 'f32')     -- more rows than are converted at a time
        check_turned(1040, 600, 'f32', 'bf16')  -- several strips, in panels
        check_turned(2, 262150, 'f32', 'f32')   -- rows longer than a strip
    end)

    it('puts tensors together along their first dim, some of them transposed', function()
        local list = { a = wane.randn(2, 4), b = wane.randn(4, 3), c = wane.randn(1, 4) }
        wane.eval(list.a, list.b, list.c)
        wane.save(PATH, list)
        local linear = nn.Linear(4, 6, { bias = false })
        wane.load(PATH, linear, { names = function()
            return { 'a', { name = 'b', transpose = true, rows = 3 }, { name = 'c' } }
        end })
        local want = wane.cat({ list.a, list.b:transpose(1, 2), list.c }, 1)
        assert.equal(0, (linear.weight - want):abs():max():item())
    end)

    it('names what does not fit, and changes nothing', function()
        wane.save(PATH, { a = wane.zeros(2, 4), b = wane.zeros(3, 4), mask = wane.zeros(1) })
        local linear = nn.Linear(4, 6)
        local before = bits(linear)
        local function refused(rule, words, opts)
            opts = opts or {}
            opts.names = function(name) return name == 'bias' and 'bias' or rule end
            local e, message = failure(wane.load, PATH, linear, opts)
            assert.is_truthy(message:find(words, 1, true), message)
            assert.equal(before, bits(linear))
            return e
        end
        local e = refused({ 'a', 'b' }, "'a + b' is (6, 4) f32 in the model, (2, 4) f32 + (3, 4) f32 in the file")
        assert.same({ 'bias' }, e.missing)
        assert.same({ 'mask' }, e.unexpected)
        refused({ 'a', 'none' }, "missing in the file: 'none'")
        refused({ 'a', { name = 'b', rows = 4 } }, "'b' is (4, 4) f32 in the model, (3, 4) f32 in the file")
        refused({ name = 'a', transpose = true }, "'a' is (6, 4) f32 in the model, (2, 4) f32, to be transposed, in")
        refused('a', "'a' is (6, 4) f32 in the model, (2, 4) f32 in the file")
        refused({ name = 'mask', transpose = true }, '(1) f32, to be transposed, in the file')
        refused(7, "names('weight') returned 7; expected the name of a tensor in the file")
        refused({ name = 'a', turn = true }, "returned turn = true; expected")
        refused({ 'a', true }, 'returned true; expected')
        refused({ name = 'a', rows = -1 }, 'returned rows = -1; expected')
        refused({}, 'a table without name')
        refused('a', "ignore: expected a list of Lua patterns", { ignore = 'mask' })
        refused('a', 'ignore: entry 1 must be a Lua pattern', { ignore = { '[' } })
    end)

    it('gives one tensor to two states, and names it once where it is missing', function()
        local model = nn.Sequential { nn.Linear(2, 2, { bias = false }), nn.Linear(2, 2, { bias = false }) }
        wane.save(PATH, { w = wane.ones(2, 2) })
        wane.load(PATH, model, { names = function() return 'w' end })
        assert.equal(8, (model[1].weight + model[2].weight):sum():item())
        assert.same({ 'v' }, failure(wane.load, PATH, model, { names = function() return 'v' end }).missing)
    end)

    it('leaves a state as it is where it returns nil, and tells so', function()
        local linear = nn.Linear(4, 6)
        local bias = linear.bias:totable()
        wane.save(PATH, { a = wane.ones(6, 4), ['h.mask'] = wane.zeros(1) })
        local info = wane.load(PATH, linear, { ignore = { '%.mask$' },
            names = function(name) return name == 'weight' and 'a' or nil end })
        assert.same({ {}, {}, { 'h.mask' }, { 'bias' } }, { info.missing, info.unexpected, info.ignored, info.kept })
        assert.same(bias, linear.bias:totable())
        assert.equal(24, linear.weight:sum():item())
    end)

    it('loads all of a state or nothing of it with strict = false', function()
        local linear = nn.Linear(4, 6, { bias = false })
        local before = bits(linear)
        wane.save(PATH, { a = wane.ones(2, 4), other = wane.ones(3) })
        local info = wane.load(PATH, nn.Sequential { linear, nn.Linear(3, 1, { bias = false }) }, { strict = false,
            names = function(name)
                return name == '1.weight' and { { name = 'a', rows = 2 }, { name = 'b', rows = 4 } } or 'c'
            end })
        assert.same({ 'b', 'c' }, info.missing)
        assert.equal(before, bits(linear))
    end)

    it('goes with a model, and with no optimizer', function()
        local linear = nn.Linear(2, 2)
        wane.save(PATH, linear)
        local function same(name) return name end
        assert.matches('no model is given', select(2, failure(wane.load, PATH, { names = same })))
        assert.matches('an optimizer is given', select(2, failure(wane.load, PATH, linear,
            { names = same, optimizer = wane.optim.SGD(linear:parameters(), { lr = 1 }) })))
        assert.matches("there are 'wane' .* and 'torch'", select(2, failure(wane.save, PATH, linear, { names = same })))
        local e = failure(wane.load, PATH, linear, { names = function() error 'the script\'s own' end })
        assert.matches("the script's own", tostring(e))
    end)
end)

describe('pieces of a state that leave a hole, overlap or end elsewhere', function()
    it('are refused before anything is written', function()
        local file, linear = require 'wane.io.file', nn.Linear(2, 3, { bias = false })
        local before = bits(linear)
        write(PATH, ('\0'):rep(24))
        for _, pieces in ipairs { { { 0, 5 } }, { { 1, 6 } }, { { 0, 2 }, { 3, 3 } }, { { 0, 2 }, { 3, 4 } },
            { { 0, 4 }, { 3, 3 } }, { { 0, 7 } }, { { 0, -1 }, { -1, 7 } }, { { 0, 6, 4 } },
            { { 0, 6, -2 } }, { { 0, 2 ^ 53 } } } do
            local e = failure(file.read, PATH, 'spec', function(f)
                local list = {}
                for k, p in ipairs(pieces) do
                    list[k] = { entry = { file = f, at = 0, kind = 'F32', name = 'p' }, cell = linear.weight,
                        first = p[1], count = p[2], columns = p[3] or 0 }
                end
                file.load(list)
            end)
            assert.equal('value', e.code)
            assert.equal(before, bits(linear))
        end
    end)
end)

-- ---- several files ------------------------------------------------------------------------------------------------

describe('an index of several files', function()
    it('gives a table of all tensors, or loads into a model', function()
        local all, info = wane.load(PUBLISHED .. 'llama')
        local count = 0
        for _ in pairs(all) do count = count + 1 end
        assert.same({ 23, 0 }, { count, #info.unreadable })
        wane.save(FOLDER .. '/one.safetensors', { a = wane.ones(2, 2) })
        wane.save(FOLDER .. '/two.safetensors', { weight = wane.ones(1, 2), bias = wane.full({ 3 }, 7) })
        write(FOLDER .. '/m.index.json', '{"weight_map": {"a": "one.safetensors", "weight": "two.safetensors"}}')
        local linear = nn.Linear(2, 3)
        wane.load(FOLDER .. '/m.index.json', linear, { names = function(name)
            return name == 'weight' and { 'weight', 'a' } or name
        end })
        assert.same({ 6, 21 }, { linear.weight:sum():item(), linear.bias:sum():item() })
    end)

    it('says what is wrong with it', function()
        wane.save(FOLDER .. '/one.safetensors', { a = wane.ones(2) })
        wane.save(FOLDER .. '/two.safetensors', { a = wane.ones(2), b = wane.ones(2) })
        for text, words in pairs {
            ['{"weight_map": {"a": "three.safetensors"}}'] = 'No such file',
            ['{"weight_map": {"c": "one.safetensors"}}'] = "weight_map: 'c' is not in '.*/one.safetensors'",
            ['{"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}'] = "'a' is in '.*one.* and in '.*two",
            ['{"weight_map": {"a": "../one.safetensors"}}'] = 'a file in the folder of the index expected',
            ['{"weight_map": {"a": 3}}'] = "'a' is in 3; a file in the folder",
            ['{"weight_map": {}}'] = 'no weight_map', ['[]'] = 'no weight_map', ['3'] = 'no weight_map',
            ['{"weight_map": '] = 'at byte %d+ the index is no JSON', [''] = 'the index is no JSON',
        } do
            write(FOLDER .. '/m.index.json', text)
            local e, message = failure(wane.load, FOLDER .. '/m.index.json')
            assert.equal('io', e.code)
            assert.matches(words, message)
        end
    end)
end)

describe('wane.inspect', function()
    it('lists tensors by name without reading them', function()
        local list = wane.inspect(PUBLISHED .. 'gpt2_bare')
        local function find(name)
            for _, t in ipairs(list) do
                if t.name == name then return t end
            end
        end
        assert.same({ { 8, 24 }, 'F16', 'f32', 384 }, { find('h.0.attn.c_attn.weight').shape,
            find('h.0.attn.c_attn.weight').kind, find('h.0.attn.c_attn.weight').dtype,
            find('h.0.attn.c_attn.weight').bytes })
        local text = tostring(list)
        assert.matches('^17 tensors, 2.19 KiB\nname ', text)
        assert.matches('\nh.0.attn.c_attn.weight +%(8, 24%) +F16 +384\n', text)
        assert.equal('io', failure(wane.inspect, FOLDER .. '/nowhere').code)
    end)
end)
