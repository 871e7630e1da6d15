-- A small convolutional network learns handwritten digits, once with everything saved and once with everything computed
-- again, to the same weights.
--
--   luajit examples/digits.lua [--epochs N] [--images FILE --labels FILE]
--
-- The images are 1,797 of 8 x 8 pixels (examples/digits/: source and licence); every fifth is held out. MNIST's
-- files do as well, unpacked: --images train-images-idx3-ubyte --labels train-labels-idx1-ubyte.
--
-- It printed (2 cores of a shared machine):
--
--   1436 images to train on, 359 held out, batches of 32, 30 epochs of AdamW
--
--   policy         peak of a step, bytes     s  last loss  right, %  held out, %
--   -------------  ---------------------  ----  ---------  --------  -----------
--   save_all                   2,246,912  10.7     0.0004    100.00        98.89
--   recompute_all              2,246,912  15.7     0.0004    100.00        98.89
--   all weights, biases and running statistics: equal, every bit
local root = arg[0]:match('^(.*)/examples/[^/]*$') or (arg[0]:match('^examples/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'

local nn, optim, data = wane.nn, wane.optim, wane.data
local progress = require 'wane.report.progress'
local text = require 'wane.report.table'

local BATCH, CLASSES = 32, 10

-- Returns images (N, 1, H, W) from 0 to 1 and labels (N), those to train on and those held out: every fifth, so that
-- every writer is in both. Up to four images at the end are left out.
local function read(o)
    local images, labels = data.idx(o.images), data.idx(o.labels)
    local n, h, w = unpack(images.shape)
    local fifth = math.floor(n / 5)
    local most = images:to 'f32':max():item()
    images = (images:to 'f32' * (1 / most)):narrow(1, 1, 5 * fifth):reshape(fifth, 5, 1, h, w)
    labels = labels:to 'i32':narrow(1, 1, 5 * fifth):reshape(fifth, 5)
    local function part(from, count)
        return { n = fifth * count, images = images:narrow(2, from, count):reshape(fifth * count, 1, h, w):retain(),
            labels = labels:narrow(2, from, count):reshape(fifth * count):retain() }
    end
    return part(1, 4), part(5, 1)
end

local function network(size)
    local side = math.min(4, math.floor(size / 2))
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, { padding = 1, bias = false }), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 32, 3, { padding = 1, bias = false }), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, { padding = 1, bias = false }), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(side),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * side * side, CLASSES))
end

-- Returns the share of images that the model names right.
local function right(model, set)
    model:eval()
    local found = model(set.images):argmax(2):eq(set.labels):mean():item()
    model:train()
    return found
end

-- Returns the bytes of all states as one text.
local function text_of(model)
    local out = {}
    for name, t in pairs(model:state_dict()) do
        out[#out + 1] = name .. ' ' .. table.concat(t:reshape(t:numel()):totable(), ' ')
    end
    table.sort(out)
    return table.concat(out, '\n')
end

-- Trains from the same first weights under a policy. Returns a row of the table, and all states.
local function train(policy, training, held_out, epochs)
    wane.manual_seed(7)
    local model = network(training.images.shape[3])
    local opt = optim.AdamW(model:parameters(), { lr = 2e-3, weight_decay = 0.05 })
    local batches = data.batches({ training.images, training.labels }, { batch = BATCH, shuffle = true, seed = 7 })
    local steps = epochs * batches.count
    local rate = optim.schedule.cosine(2e-3, { steps = steps })
    local bar, last = progress.new(steps), nil
    for step = 1, steps do
        local images, labels = batches:next()
        opt.lr = rate(step)
        local loss = nn.cross_entropy(model(images), labels)
        opt:step(loss, { policy = policy })
        last = loss
        bar:at(policy, step)
    end
    bar:finish()
    local seconds = bar:seconds()
    local images, labels = training.images:narrow(1, 1, BATCH), training.labels:narrow(1, 1, BATCH)
    local states, loss = text_of(model), last:item()
    local plan = wane.plan(function() opt:step(nn.cross_entropy(model(images), labels)) end, { policy = policy })
    return { policy, wane.bytes.exact(plan.peak), ('%.1f'):format(seconds), ('%.4f'):format(loss),
        ('%.2f'):format(100 * right(model, training)), ('%.2f'):format(100 * right(model, held_out)) }, states
end

local function main()
    local o = dofile(root .. '/examples/options.lua') { epochs = 30,
        images = root .. '/examples/digits/images.idx', labels = root .. '/examples/digits/labels.idx' }
    local training, held_out = read(o)
    print(('%d images to train on, %d held out, batches of %d, %d epochs of AdamW'):format(training.n, held_out.n,
        BATCH, o.epochs))
    print()
    local rows, states = {}, {}
    for k, policy in ipairs { 'save_all', 'recompute_all' } do
        rows[k], states[k] = train(policy, training, held_out, o.epochs)
    end
    print(text.text({ 'policy', 'peak of a step, bytes', 's', 'last loss', 'right, %', 'held out, %' }, rows))
    print(('all weights, biases and running statistics: %s'):format(states[1] == states[2] and 'equal, every bit'
        or 'DIFFERENT'))
end

main()
