-- The models of examples/zoo on one page: the predicted peaks of a training step of each in Wane, planned on the device
-- meta. state: parameters, m and v, f32 in all columns (bf16 is autocast's). Where weights outweigh activations bf16
-- saves little once blocks are recomputed: the bf16 copies of weights take the bytes that the activations save.
--
--   luajit examples/zoo.lua [--batch B] [--t T]
--
-- It printed (any machine, in two seconds):
--
--   Predicted peaks of a training step, GB = 1e9 bytes: batch 1, T = 1024, AdamW in the same plan
--   model           parameters  state  f32: save_all  blocks recomputed  bf16: save_all  blocks recomputed
--   -----------  -------------  -----  -------------  -----------------  --------------  -----------------
--   GPT-2 124M     124,439,808   1.49           2.47               1.90            2.15               1.84
--   GPT-2 355M     354,823,168   4.26           6.29               4.78            5.48               4.67
--   GPT-2 774M     774,030,080   9.29          12.55              10.01           11.38               9.87
--   GPT-2 1558M  1,557,611,200  18.69          23.99              19.55           22.02              19.50
--   LLaMA 7B     6,738,415,616  80.86          92.72              82.12           88.33              82.23
--   LLaMA 3 8B   8,030,261,248  96.36         111.14              99.59          106.67             100.09
--
--   Models over images, f32, AdamW: GB, batch x pixels a side; PyTorch by its accounting, with gradients kept
--   model       parameters  batch     a page says  PyTorch  Wane: save_all  norms, relu again  blocks again  least
--   ----------  ----------  --------  -----------  -------  --------------  -----------------  ------------  -----
--   ResNet 18   11,689,512  32 x 224                  0.93            0.72               0.54          0.57   0.37
--   ResNet 50   25,557,032  32 x 224                  3.20            2.92               1.94          2.55   0.85
--   ResNet 152  60,192,808  32 x 224  7.2 -> 3.1      6.69            6.27               4.59          4.35   1.27
--   ViT B/16    86,567,656  64 x 224  12.5 -> 5.8     9.13            8.63               8.63          2.17   1.50
--   U-Net 64    31,037,698  4 x 256                   2.03            1.63               1.31          1.24   0.79
--   CNN 100     92,208,120  64 x 28                   2.01            1.51               1.35          1.35   1.34
local root = (arg[0]:match('^(.*)/') or '.') .. '/..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'

local text = require 'wane.report.table'

local models = {
    { 'GPT-2', 'gpt2', '124M' }, { 'GPT-2', 'gpt2', '355M' }, { 'GPT-2', 'gpt2', '774M' },
    { 'GPT-2', 'gpt2', '1558M' }, { 'LLaMA', 'llama', '7B' }, { 'LLaMA 3', 'llama', '8B' },
}

local function gb(bytes) return ('%.2f'):format(bytes / 1e9) end

-- Returns the peaks of opt:step(loss) with everything saved and with each block recomputed, and the bytes of
-- parameters, m and v.
local function plans(zoo, size, precision, batch, t)
    local model = zoo.new(size)
    local opt = wane.optim.AdamW(model:parameters(), { lr = 1e-4 })
    local ids = wane.randint(model.config.vocab, { batch, t })
    local labels = wane.randint(model.config.vocab, { batch, t })
    local peaks, state = {}, nil
    for i, policy in ipairs { 'save_all', 'recompute_all' } do
        local plan = wane.plan(function()
            opt:step(wane.autocast(precision, zoo.loss, model, ids, labels))
        end, { policy = policy })
        peaks[i], state = gb(plan.peak), plan.kinds.parameter + plan.kinds.optimizer
    end
    return model:parameter_count(), state, peaks[1], peaks[2]
end

-- ---- models over images ------------------------------------------------------------------------------------------

-- Lists batch, pixels a side, and what a public page on checkpointing says of two of them: GB without and with
-- checkpoints.
local images = {
    { 'ResNet 18', 'resnet', '18', 32, 224 }, { 'ResNet 50', 'resnet', '50', 32, 224 },
    { 'ResNet 152', 'resnet', '152', 32, 224, '7.2 -> 3.1' }, { 'ViT B/16', 'vit', 'B/16', 64, 224, '12.5 -> 5.8' },
    { 'U-Net 64', 'unet', '64', 4, 256 }, { 'CNN 100', 'cnn100', '320', 64, 28 },
}

-- Saves what convolutions and products compute and makes norms and relu again, which read those values once each.
local cheap = wane.policy.compose(wane.policy.by_type { BatchNorm2d = 'recompute', optional = true },
    wane.policy.by_op { relu = 'recompute', optional = true })

-- Returns the row of a model: parameters, the page's figures, the peak of PyTorch's accounting with Adam's states and
-- gradients kept, and Wane's peaks of opt:step(loss).
local function image_row(m)
    local zoo, batch, size = require('wane.zoo.' .. m[2]), m[4], m[5]
    local model = zoo.new(m[3])
    local opt = wane.optim.AdamW(model:parameters(), { lr = 1e-4 })
    local x = wane.randn(batch, m[2] == 'cnn100' and 1 or 3, size, size)
    local labels = wane.randint(2, m[2] == 'unet' and { batch, size, size } or { batch })
    local function loss() return zoo.loss(model, x, labels) end
    local at = wane.plan(loss):pytorch { state = 8, gradients = 'kept', warm = true }
    local row = { m[1], wane.bytes.exact(model:parameter_count()), ('%d x %d'):format(batch, size), m[6] or '',
        gb(math.max(at.peak_forward, at.peak_backward)) }
    for _, policy in ipairs { 'save_all', cheap, 'recompute_all', 'least' } do
        row[#row + 1] = gb(wane.plan(function() opt:step(loss()) end, { policy = policy }).peak)
    end
    return row
end

local function main()
    local size, rows = dofile(root .. '/examples/options.lua') { batch = 1, t = 1024 }, {}
    wane.set_device 'meta'
    for i, m in ipairs(models) do
        local zoo = require('wane.zoo.' .. m[2])
        local count, state, all, blocks = plans(zoo, m[3], 'f32', size.batch, size.t)
        local _, _, low_all, low_blocks = plans(zoo, m[3], 'bf16', size.batch, size.t)
        rows[i] = { m[1] .. ' ' .. m[3], wane.bytes.exact(count), gb(state), all, blocks, low_all, low_blocks }
    end
    print(('Predicted peaks of a training step, GB = 1e9 bytes: batch %d, T = %d, AdamW in the same plan'):format(
        size.batch, size.t))
    print(text.text({ 'model', 'parameters', 'state', 'f32: save_all', 'blocks recomputed', 'bf16: save_all',
        'blocks recomputed' }, rows))
    local shown = {}
    for i, m in ipairs(images) do shown[i] = image_row(m) end
    print('\nModels over images, f32, AdamW: GB, batch x pixels a side; PyTorch by its accounting, with gradients kept')
    print(text.text({ 'model', 'parameters', 'batch', 'a page says', 'PyTorch', 'Wane: save_all', 'norms, relu again',
        'blocks again', 'least' }, shown))
end

main()
