-- A classifier, written from the guide alone: points of three spirals, a step within a budget whose batch is added up
-- from smaller ones, products in bf16, a checkpoint that goes on with the same bits, and a sweep over sizes and
-- policies.
--
--   luajit examples/projects/classifier.lua [--out FOLDER of the checkpoint]
--
-- It printed (2 cores, about a second; long lines are cut):
--
--   a step reserves 1481472 bytes, 1465088 within a budget of 1.4 MiB: 45 values are computed again
--   loss after 40 steps: 0.0256; right: 100.0 %
--   stopped after step 15 and resumed: the same loss, to the bit: true
--   depth 2 save_all      predicted  148736 measured  148736
--   depth 2 sqrt          predicted  128768 measured  128768
--   depth 2 recompute_all predicted  128256 measured  128256
--   depth 4 save_all      predicted  264448 measured  264448
--   depth 4 sqrt          predicted  228608 measured  228608
--   depth 4 recompute_all predicted  195840 measured  195840
local root = (arg[0]:match('^(.*)/') or '.') .. '/../..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'
local nn, optim = wane.nn, wane.optim

local STEPS, MICRO, BATCH, CLASSES = 40, 4, 128, 3
local BUDGET = '1.4 MiB'

-- Makes n points (n, 2) on three spirals, and the class of each, 0 to 2.
local function spirals(n)
    local points, classes = {}, {}
    for k = 1, n do
        local class, r = k % CLASSES, (k * 0.618034) % 1
        local angle = 4 * r + 2 * math.pi * class / CLASSES
        points[k], classes[k] = { r * math.cos(angle), r * math.sin(angle) }, class
    end
    return wane.tensor(points), wane.tensor(classes, { dtype = 'i32' })
end

local function network(width, depth)
    local layers = { nn.Linear(2, width) }
    for _ = 1, depth do layers[#layers + 1] = nn.Residual(nn.MLP(width, 2 * width, { dropout = 0.05 })) end
    layers[#layers + 1] = nn.Linear(width, CLASSES)
    return nn.Sequential(layers)
end

local function loss_of(model, x, y)
    return wane.autocast('bf16', function() return nn.cross_entropy(model(x):to 'f32', y) end)
end

-- Trains from the step of the checkpoint to `stop`; returns the last loss, a number, and the model.
local function train(path, stop, is_resumed)
    wane.manual_seed(3)
    local model, at = network(64, 4), { step = 0, meta = {} }
    local opt = optim.AdamW(model:parameters(), { weight_decay = 0.01 })
    if is_resumed then at = wane.load(path, model, { optimizer = opt }) end
    local points, classes = spirals(900)
    local batches = wane.data.batches({ points, classes }, { batch = BATCH, shuffle = true, state = at.meta.data,
        buffers = MICRO })
    local rate, loss = optim.schedule.cosine(1e-2, { steps = STEPS, warmup = 5 }), nil
    for step = at.step + 1, stop do
        opt.lr = rate(step)
        local losses = {}
        for k = 1, MICRO do
            local x, y = batches:next()
            losses[k] = loss_of(model, x, y) / MICRO
        end
        loss = 0
        for _, part in ipairs(opt:step(losses, { budget = BUDGET })) do loss = loss + part:item() end
    end
    wane.save(path, model, { optimizer = opt, step = stop, meta = { data = batches:state() } })
    return loss, model
end

local function accuracy(model)
    local points, classes = spirals(300)
    model:eval()
    local right = wane.no_grad(function() return model(points):argmax(2):eq(classes):mean() end):item()
    model:train()
    return right
end

-- Measures the step of smaller and deeper networks under three policies, in this process.
local function sweep()
    local points, classes = spirals(BATCH)
    wane.eval(points, classes)
    return wane.sweep {
        build = function(p)
            local model = network(32, p.depth)
            return function() return loss_of(model, points, classes) end, model
        end,
        grid = { depth = { 2, 4 }, policy = { 'save_all', 'sqrt', 'recompute_all' } }, isolate = false,
    }:run()
end

local function main()
    local folder = dofile(root .. '/examples/options.lua')({ out = root .. '/examples/out' }).out
    require('wane.system').make_folders(folder .. '/x')
    local whole, half = folder .. '/classifier.safetensors', folder .. '/classifier_half.safetensors'

    wane.manual_seed(3)
    local model, losses = network(64, 4), {}
    local opt = optim.AdamW(model:parameters(), { lr = 1e-2 })
    local points, classes = spirals(BATCH)
    for k = 1, MICRO do losses[k] = loss_of(model, points, classes) / MICRO end
    local function step() opt:step(losses) end
    local free, tight = wane.plan(step), wane.plan(step, { budget = BUDGET })
    print(('a step reserves %d bytes, %d within a budget of %s: %d values are computed again'):format(free.reserved,
        tight.reserved, BUDGET, tight.recomputed))

    local loss, trained = train(whole, STEPS, false)
    print(('loss after %d steps: %.4f; right: %.1f %%'):format(STEPS, loss, 100 * accuracy(trained)))
    train(half, 15, false)
    local resumed = train(half, STEPS, true)
    print('stopped after step 15 and resumed: the same loss, to the bit: ' .. tostring(resumed == loss))

    for _, row in ipairs(sweep():rows()) do
        print(('depth %d %-13s predicted %7d measured %7d'):format(row.point.depth, row.point.policy,
            row.predicted_peak, row.peak))
    end
end

main()
