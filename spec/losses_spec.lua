-- Compares losses and their gradients with numbers that PyTorch printed (spec/fixtures/torch_losses.lua), and checks
-- large logits, dtypes and misuse; spec/ways_spec.lua has their plans.
local helper = require 'spec.helper'
local wane = require 'wane'
local gradcheck = require 'spec.support.gradcheck'
local nn = wane.nn

local fixture = require 'spec.fixtures.torch_losses'

local near, flat = gradcheck.near, gradcheck.values

-- Checks a loss and the gradient of sum(c * loss) with respect to x, where c counts from 1.
local function check(row, loss, x, tolerance, what)
    near(row.loss, flat(loss), tolerance, what)
    local c, dims = wane.arange(1, loss:numel() + 1, 1, { dtype = loss.dtype }), {}
    for k, v in ipairs(loss.shape) do dims[k] = v end
    local total = (c:reshape(dims) * loss):sum()
    total:backward()
    near(row.gradient, flat(x.grad), tolerance, what .. ', gradient')
end

local TOLERANCE = { f64 = 1e-11, f32 = 2e-5 }

describe('losses of classes', function()
    for dtype, tolerance in pairs(TOLERANCE) do
        it('are those of PyTorch in every combination of options, ' .. dtype, function()
            assert.equal(24, #fixture.classes)
            for k, row in ipairs(fixture.classes) do
                local list = {}
                for i, v in ipairs(fixture.labels) do list[i] = v < 0 and row.ignore == 1 and 1 or v end
                local labels = wane.tensor(list, { dtype = 'i32' })
                local opts = { reduction = row.reduction, ignore_index = row.ignore, label_smoothing = row.smoothing,
                    weight = row.weighted and wane.tensor(fixture.weight) or nil }
                local x = wane.tensor(fixture.logits, { dtype = dtype, requires_grad = true })
                check(row, nn.cross_entropy(x, labels, opts), x, tolerance, 'row ' .. k)
                opts.label_smoothing = nil
                if row.smoothing == 0 then
                    near(row.loss, flat(nn.nll_loss(x:log_softmax(-1), labels, opts)), tolerance, 'nll ' .. k)
                end
            end
        end)
    end

    it('take any leading dims and labels of bytes', function()
        local x, y = wane.randn(2, 3, 4), wane.randint(4, { 2, 3 })
        local rows = nn.cross_entropy(x, y, { reduction = 'none' })
        assert.same({ 2, 3 }, { rows.shape[1], rows.shape[2] })
        near({ nn.cross_entropy(x, y):item() }, { rows:mean():item() }, 1e-6, 'mean')
        near({ nn.cross_entropy(x, y):item() }, { nn.cross_entropy(x, y:to 'u8'):item() }, 0, 'bytes')
        local one = nn.cross_entropy(x[1][1], y[1][1], { reduction = 'sum' })
        assert.equal(0, one:dim())
    end)

    it('are summed in one order, whatever the form', function()
        for _, dtype in ipairs { 'f32', 'f64', 'bf16' } do
            local x, y = wane.randn(1100, 30, { dtype = dtype }):retain(), wane.randint(30, { 1100 }):retain()
            local weight = wane.rand(30):retain()
            for _, opts in ipairs { {}, { label_smoothing = 0.1 }, { weight = weight }, { ignore_index = 7 } } do
                local wide = x:to(dtype == 'f64' and 'f64' or 'f32')
                local function loss(t, way)
                    opts.reduction = way
                    return nn.cross_entropy(t, y, opts)
                end
                local sum, count = loss(wide, 'none'):sum(), opts.weight and weight:index_select(1, y):sum()
                    or y:ne(opts.ignore_index or -100):sum()
                assert.equal(sum:to(dtype):item(), loss(x, 'sum'):item())
                if not opts.weight then
                    assert.equal((sum / count:to(wide.dtype)):to(dtype):item(), loss(x, 'mean'):item())
                end
            end
        end
    end)

    it('are 0 in the sum and NaN in the mean where no label counts, as in PyTorch', function()
        local x, y = wane.ones(2, 3, { requires_grad = true }), wane.full({ 2 }, -100, { dtype = 'i32' })
        assert.equal(0, nn.cross_entropy(x, y, { reduction = 'sum' }):item())
        local loss = nn.cross_entropy(x, y, { weight = wane.ones(3) })
        assert(loss:item() ~= loss:item())
        for _, opts in ipairs { { reduction = 'sum', label_smoothing = 0.5 }, {} } do
            nn.cross_entropy(x, y, opts):backward()
            assert.equal(0, x.grad:abs():max():item())
        end
    end)
end)

-- A step of a linear layer whose scores outweigh all else, 96 x 600, in every form of the loss.
describe('a loss of classes', function()
    local forms = { mean = {} }
    for _, way in ipairs { 'mean', 'sum', 'none' } do
        for _, smoothing in ipairs { 0, 0.2 } do
            for _, weighted in ipairs { false, true } do
                forms[('%s, %g, %s'):format(way, smoothing, tostring(weighted))] = { reduction = way,
                    label_smoothing = smoothing, ignore_index = 7, weight = weighted or nil }
            end
        end
    end
    local SCORES = 96 * 600 * 4
    local head, x, y = nn.Linear(8, 600), wane.randn(96, 8):retain(), wane.randint(600, { 96 }):retain()
    local weight, tokens = wane.rand(600):retain(), wane.rand(96):retain()

    local function loss_of(opts, each)
        local own = {}
        for key, value in pairs(opts) do own[key] = value end
        own.weight = opts.weight and weight
        local loss = nn.cross_entropy(head(x), y, own)
        if opts.reduction == 'none' then loss = (each and loss * tokens or loss):sum() end
        return loss
    end

    it('keeps one copy of the scores in every form, as predicted to the byte', function()
        local least = wane.measure(function() loss_of(forms.mean):backward() end, { steps = 1, warmup = 0 }).peak
        for name, opts in pairs(forms) do
            for _, each in ipairs { false, true } do
                local m = wane.measure(function() loss_of(opts, each):backward() end, { steps = 1, warmup = 0 })
                assert.equal(m.predicted_peak, m.peak, name)
                assert(m.peak < least + SCORES / 8, ('%s: %d bytes, the mean %d'):format(name, m.peak, least))
            end
        end
    end)

    it('is the composed one, with its gradients, first and second, scores frozen or not, and in bf16', function()
        local function composed(z, opts)
            local logp, counts = z:log_softmax(-1), y:ne(opts.ignore_index or -100):to(z.dtype)
            local hot = wane.zeros(96, 600, { dtype = z.dtype }):scatter_add(2, y:reshape(96, 1),
                wane.ones(96, 1, { dtype = z.dtype }))
            local w = opts.weight and weight:to(z.dtype) or wane.ones(600, { dtype = z.dtype })
            local s = opts.label_smoothing or 0
            local rows = -(logp * w * (hot * (1 - s) + s / 600)):sum(2) * counts
            if opts.reduction == 'none' then return (rows * tokens:to(z.dtype)):sum() end
            return opts.reduction == 'sum' and rows:sum() or rows:sum() / ((hot * w):sum(2) * counts):sum()
        end
        local z = wane.randn(96, 600, { dtype = 'f64' }):retain()
        local v = wane.randn(96, 600, { dtype = 'f64' }):retain()
        for name, opts in pairs(forms) do
            local own = {}
            for key, value in pairs(opts) do own[key] = value end
            own.weight = opts.weight and weight:to 'f64'
            local function ours(t)
                local loss = nn.cross_entropy(t, y, own)
                return opts.reduction == 'none' and (loss * tokens:to 'f64'):sum() or loss
            end
            local grads = {}
            for k, fn in ipairs { ours, function(t) return composed(t, opts) end } do
                local t = wane.tensor(z:totable(), { dtype = 'f64', requires_grad = true })
                local loss = fn(t)
                local g = wane.grad(loss, t)
                local gg = wane.grad((g * v):sum(), t)
                wane.eval(loss, g, gg)
                grads[k] = { loss, g, gg }
            end
            for k = 1, 3 do near(flat(grads[2][k]), flat(grads[1][k]), 1e-10, name .. ' ' .. k) end
            near({ grads[1][1]:item() }, { ours(z):item() }, 1e-12, name .. ', frozen')
            local half = z:to 'bf16'
            local low = wane.autocast('bf16', nn.cross_entropy, half, y, opts.weight and {} or opts)
            assert.equal('f32', low.dtype)
        end
        assert.equal('bf16', nn.cross_entropy(z:to 'bf16', y, { reduction = 'none' }).dtype)
    end)

    it('gives no gradient to the weights of classes, and says so', function()
        helper.refused(nil, function()
            nn.cross_entropy(head(x), y, { weight = nn.Parameter(wane.ones(600)) })
        end, 'weight:detach')
    end)
end)

describe('losses of elements', function()
    local FORMS = { log_target = { log_target = true }, beta = { beta = 0.3 }, none = { beta = 0 } }

    local function options(row)
        local opts = { reduction = row.reduction }
        for key, value in pairs(FORMS[row.form] or {}) do opts[key] = value end
        if row.form == 'weights' then
            opts.weight = wane.tensor(fixture.w)
            local w = fixture.w
            if row.name == 'bce_with_logits' then opts.pos_weight = wane.tensor { w[4], w[3], w[2], w[1] } end
        end
        return opts
    end

    for dtype, tolerance in pairs(TOLERANCE) do
        it('are those of PyTorch in every form and reduction, ' .. dtype, function()
            assert.equal(39, #fixture.elements)
            for k, row in ipairs(fixture.elements) do
                local is_p = row.name == 'bce' or row.form == 'raw'
                local x = wane.tensor(is_p and fixture.p or fixture.a, { dtype = dtype, requires_grad = true })
                local y, input = wane.tensor(fixture.b, { dtype = dtype }), x
                if row.name == 'kl_div' and row.form ~= 'raw' then
                    input = x:log_softmax(-1)
                    y = row.form == 'log_target' and y:log_softmax(-1) or y:softmax(-1)
                end
                -- The least p (1 - p) of PyTorch's gradient is 1e-12 as a float of 32 bits.
                local least = row.name == 'bce' and 1e-8 or 0
                check(row, nn[row.name](input, y, options(row)), x, math.max(tolerance, least), row.name .. ' ' .. k)
            end
        end)
    end

    it('compute bf16 in f32 and round once, also inside wane.autocast', function()
        local a, b = wane.randn(4, 8):to('bf16'):retain(), wane.rand(4, 8):to('bf16'):retain()
        for _, name in ipairs { 'l1_loss', 'smooth_l1_loss', 'bce_with_logits', 'mse_loss' } do
            local opts = { reduction = 'none' }
            local low, wide = nn[name](a, b, opts), nn[name](a:to 'f32', b:to 'f32', opts)
            assert.equal('bf16', low.dtype)
            near(flat(wide:to 'bf16'), flat(low), 0, name)
            local cast = wane.autocast('bf16', nn[name], a, b, opts)
            assert.equal('f32', cast.dtype)
            near(flat(wide), flat(cast), 0, name)
        end
    end)
end)

describe('losses', function()
    it('name the label that is outside, and the classes, with every option and however they run', function()
        local weight = nn.Parameter(wane.ones(3))
        local x, labels = wane.eval(wane.ones(2, 3)), wane.tensor({ 1, 5 }, { dtype = 'i32' })
        local opt = wane.optim.SGD({ weight }, { lr = 1 })
        for _, smoothing in ipairs { 0, 0.1 } do
            for _, reduction in ipairs { 'mean', 'sum', 'none' } do
                for _, weighted in ipairs { false, true } do
                    for _, run in ipairs { wane.eval, wane.backward, function(t) opt:step(t):item() end } do
                        local ok, e = pcall(function()
                            local loss = nn.cross_entropy(x * weight, labels, { label_smoothing = smoothing,
                                reduction = reduction, weight = weighted and wane.ones(3) or nil })
                            run(reduction == 'none' and loss:sum() or loss)
                        end)
                        assert.is_false(ok)
                        assert.equal('cross_entropy: label 5 at element 1 is outside 0..2 and is not ignore_index '
                            .. '(-100); labels are 0-based', e.message)
                    end
                end
            end
        end
    end)

    it('refuse what does not fit, at the line of the call', function()
        local x, y = wane.ones(2, 3), wane.zeros(2, { dtype = 'i32' })
        for _, case in ipairs {
            { 'value', "'weigth'", function() nn.cross_entropy(x, y, { weigth = x }) end },
            { 'shape', 'weight must be', function() nn.cross_entropy(x, y, { weight = wane.ones(4) }) end },
            { 'value', 'weight must be', function() nn.cross_entropy(x, y, { weight = { 1, 2, 3 } }) end },
            { 'value', 'label_smoothing', function() nn.cross_entropy(x, y, { label_smoothing = 1.5 }) end },
            { 'value', 'label_smoothing', function() nn.nll_loss(x, y, { label_smoothing = 0.5 }) end },
            { 'value', "'summ'", function() nn.cross_entropy(x, y, { reduction = 'summ' }) end },
            { 'value', "'batchmean'", function() nn.mse_loss(x, x, { reduction = 'batchmean' }) end },
            { 'value', 'beta', function() nn.smooth_l1_loss(x, x, { beta = -1 }) end },
            { 'shape', 'pos_weight', function() nn.bce_with_logits(x, x, { pos_weight = wane.ones(2) }) end },
            { 'shape', 'does not broadcast', function() nn.l1_loss(x, wane.ones(3)) end },
            { 'dtype', "t:to 'f32'", function() nn.bce(x, wane.ones(2, 3, { dtype = 'i32' })) end },
            { 'value', 'log_target', function() nn.kl_div(x, x, { log_target = 1 }) end },
            { 'shape', 'batchmean', function() nn.kl_div(wane.ones(), wane.ones(), { reduction = 'batchmean' }) end },
        } do
            local e = helper.refused(case[1], case[3], case[2])
            assert.is_truthy(tostring(e.where):find('losses_spec', 1, true), e.where)
        end
    end)
end)

describe('a gradient of logits', function()
    -- Has the type of the statistics of its rows where there are two classes, and that of the weights of classes where
    -- there is one row. It must lie over neither, since a row is written while others still read them.
    it('is right whatever it may overwrite: few classes, several losses over one set of logits', function()
        local function grads(dtype, seed)
            wane.manual_seed(seed)
            local roll = helper.dice(seed)
            local classes, rows = roll(4), roll(5)
            local shape = roll(3) == 1 and { classes } or { rows, classes }
            local w = nn.Parameter(wane.eval(wane.randn(shape):to(dtype)))
            local labels = wane.eval(wane.randint(classes, #shape == 1 and {} or { rows }))
            local weight = wane.eval(wane.rand(classes):to(dtype))
            local f, loss = w * 1, 0
            for _ = 1, roll(3) do
                local options = { label_smoothing = (roll(3) - 1) / 2,
                    weight = roll(2) == 1 and weight * 1 or nil, reduction = roll(2) == 1 and 'sum' or nil }
                loss = loss + nn.cross_entropy(f, labels, options)
            end
            if roll(2) == 1 then loss = loss + f:sum() end
            loss:backward()
            return w.grad:reshape(w.grad:numel()):totable()
        end
        for seed = 1, 150 do
            local want, have = grads('f64', seed), grads('f32', seed)
            for i, x in ipairs(want) do
                assert.is_true(math.abs(x - have[i]) < 2e-6 * math.max(1, math.abs(x)),
                    ('seed %d, element %d: %.9g, and %.9g in f64'):format(seed, i, have[i], x))
            end
        end
    end)
end)
