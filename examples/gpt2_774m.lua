-- GPT-2 774M under a page's "38 GB to 16 GB": PyTorch's bytes by accounting for four plans (attention with and without
-- flash, everything saved or each block checkpointed), and Wane's own predicted peaks for the same plans. Everything is
-- planned on the device meta: nothing is computed and nothing allocated.
--
--   luajit examples/gpt2_774m.lua [--size 774M] [--batch B] [--t T]
--
-- It printed (any machine, in a second):
--
--   GPT-2 774M, batch 8, T = 1024, bf16, no dropout, AdamW 16 B a parameter, f32 logits; GB = 1e9 bytes
--
--   PyTorch by accounting, and the figures of the catalogue
--   GB                                 printed  as a sum  in the blocks          before  after forward   peak
--   ---------------------------------  -------  --------  -------------  ------  ------  -------------  -----
--   no flash, everything saved              38     38.19          38.81  +1.6 %   12.40          39.90  43.20
--   no flash, each block checkpointed       16     15.79          16.05  +1.6 %   12.40          16.50  19.79
--   flash, everything saved                        26.11          26.41  +1.1 %   12.40          27.85  31.14
--   flash, each block checkpointed                 15.12          15.37  +1.6 %   12.40          16.49  19.79
--
--   What PyTorch keeps of one block, by module, MB
--   module     no flash   flash
--   ---------  --------  ------
--   ln1           21.04   21.04
--   attn.qkv      20.97   20.97
--   attn         398.46   84.54
--   attn.out      20.97
--   ln2           21.04   21.04
--   mlp.up        20.97   20.97
--   mlp.act       83.89   83.89
--   mlp.down      83.89   83.89
--   one block    671.22  336.33
--
--   The same plans in Wane: predicted peaks, GB. Parameters in bf16, and on the right f32 under autocast
--   attention and plan                 PyTorch   Wane           opt:step  PyTorch autocast  Wane opt:step
--   ---------------------------------  -------  -----  -------  --------  ----------------  -------------
--   no flash, everything saved           43.20  37.51  -13.2 %     31.32             70.43          61.66
--   no flash, each block checkpointed    19.79  14.10  -28.7 %      7.91             20.69          13.33
--   flash, everything saved              31.14  25.43  -18.3 %     19.24             34.22          25.42
--   flash, each block checkpointed       19.79  14.10  -28.7 %      7.91             20.69          13.33
--
--   What the columns are, and what differs:
--   - As a sum: 16 B a parameter (bf16 parameter and gradient; f32 copy, m and v), f32 logits, and of each block 32 sbh
--     and 2 B a softmax weight, or the inputs of blocks and one block with a second copy of its softmax weights. In the
--     blocks: the most that PyTorch's accounting has allocated while the backward of the blocks runs, in a script that
--     names the f32 logits and keeps gradients from step to step.
--   - The figures leave out the loss: PyTorch keeps its log-softmax and makes two gradients of that size, so the peak
--     of a step lies there, in every plan.
--   - Under autocast PyTorch keeps f32 softmax and norms and bf16 copies of the weights too: the figures are those of
--     parameters in bf16.
--   - Wane, first column: its backward with every gradient kept, and the same 12 B a parameter held beside it. It runs
--     the loss from the logits (no log-softmax, the gradient in their place) and keeps nothing that is only named.
--   - opt:step: forward, backward and AdamW in one plan, no gradient kept. Here m and v have the parameters' dtype:
--     Wane keeps no f32 copy of bf16 parameters in this version. Its 16 B a parameter are f32 under autocast, on the
--     right.
--   - Flash in PyTorch is the tiled attention of Wane, its default. GELU is the exact one here, the tanh form there.
local root = (arg[0]:match('^(.*)/') or '.') .. '/..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'
local gpt2 = require 'wane.zoo.gpt2'

local text = require 'wane.report.table'

-- Works the catalogue's figures out as a sum of terms, in bytes (GB = 1e9). sbh = positions * batch * width: a bf16
-- value of the stream has 2 sbh bytes.
local function catalogue(size, c)
    local sbh, weights = size.t * size.batch * c.d, 2 * c.heads * size.t ^ 2 * size.batch
    local state, logits = 16 * gpt2.parameters[size.size], 4 * size.batch * size.t * c.vocab
    local all = state + c.layers * 32 * sbh + logits
    local blocks = state + c.layers * 2 * sbh + 32 * sbh + logits
    return {
        ['composed all'] = all + c.layers * weights, ['composed blocks'] = blocks + 2 * weights,
        ['tiled all'] = all, ['tiled blocks'] = blocks,
    }
end

local plans = {
    { key = 'composed all', name = 'no flash, everything saved', printed = '38' },
    { key = 'composed blocks', name = 'no flash, each block checkpointed', printed = '16', region = true },
    { key = 'tiled all', name = 'flash, everything saved', tiled = true },
    { key = 'tiled blocks', name = 'flash, each block checkpointed', tiled = true, region = true },
}

-- Returns a model and the function that records its loss. precision: 'bf16' (everything) or 'autocast' (f32
-- parameters).
local function build(size, plan, precision)
    local model = gpt2.new(size.size, { tiled = plan.tiled or false, region = plan.region,
        dtype = precision == 'bf16' and 'bf16' or 'f32' })
    local ids = wane.randint(model.config.vocab, { size.batch, size.t })
    local labels = wane.randint(model.config.vocab, { size.batch, size.t })
    local function loss()
        return wane.autocast(precision == 'autocast' and 'bf16' or 'f32', gpt2.loss, model, ids, labels)
    end
    return model, loss
end

-- Returns PyTorch's bytes for a plan; blocks: the most while the backward of the blocks runs.
local function pytorch(plan, state)
    local at = plan:pytorch { state = state, gradients = 'kept', warm = true }
    at.blocks, at.kept = 0, {}
    for _, part in ipairs(at.parts) do
        local number, path = part.path:match '^blocks%.(%d+)%.?(.*)$'
        if number then
            at.blocks = math.max(at.blocks, part.peak_backward)
            if number == '1' and part.saved > 0 then at.kept[#at.kept + 1] = { path, part.saved } end
        end
    end
    return at
end

local function gb(bytes) return ('%.2f'):format(bytes / 1e9) end
local function percent(ours, theirs) return ('%+.1f %%'):format(100 * (ours / theirs - 1)) end

-- ---- tables -------------------------------------------------------------------------------------------------------
local function account(size)
    local sums, rows, kept = nil, {}, {}
    for i, plan in ipairs(plans) do
        local model, loss = build(size, plan, 'bf16')
        sums = sums or catalogue(size, model.config)
        local at = pytorch(wane.plan(loss), 12)
        local sum = sums[plan.key]
        plan.torch = math.max(at.peak_forward, at.peak_backward)
        rows[i] = { plan.name, size.is_catalogue and plan.printed or '', gb(sum), gb(at.blocks),
            percent(at.blocks, sum), gb(at.before), gb(at.after_forward), gb(plan.torch) }
        if not plan.region then kept[#kept + 1] = at.kept end
    end
    print(text.text({ 'GB', 'printed', 'as a sum', 'in the blocks', '', 'before', 'after forward', 'peak' }, rows))
    return kept
end

local function keeps(kept)
    local rows, order, total = {}, {}, { 0, 0 }
    for column, list in ipairs(kept) do
        for _, item in ipairs(list) do
            local row = rows[item[1]]
            if not row then
                row = { item[1] == '' and '(the block)' or item[1], '', '' }
                rows[item[1]], order[#order + 1] = row, row
            end
            row[column + 1] = ('%.2f'):format(item[2] / 1e6)
            total[column] = total[column] + item[2]
        end
    end
    order[#order + 1] = { 'one block', ('%.2f'):format(total[1] / 1e6), ('%.2f'):format(total[2] / 1e6) }
    print('\nWhat PyTorch keeps of one block, by module, MB\n'
        .. text.text({ 'module', 'no flash', 'flash' }, order))
end

local function wanes(size)
    local rows = {}
    for i, plan in ipairs(plans) do
        local model, loss = build(size, plan, 'bf16')
        local parameters = model:parameter_count()
        local backward = wane.plan(function() loss():backward() end).peak + 12 * parameters
        local opt = wane.optim.AdamW(model:parameters(), { lr = 1e-4 })
        local step = wane.plan(function() opt:step(loss()) end)
        local wide, wide_loss = build(size, plan, 'autocast')
        local wide_opt = wane.optim.AdamW(wide:parameters(), { lr = 1e-4 })
        local mixed = wane.plan(function() wide_opt:step(wide_loss()) end)
        local theirs = pytorch(wane.plan(wide_loss), 8)
        rows[i] = { plan.name, gb(plan.torch), gb(backward), percent(backward, plan.torch), gb(step.peak),
            gb(math.max(theirs.peak_forward, theirs.peak_backward)), gb(mixed.peak) }
    end
    print('\nThe same plans in Wane: predicted peaks, GB. Parameters in bf16, and on the right f32 under autocast\n'
        .. text.text({ 'attention and plan', 'PyTorch', 'Wane', '', 'opt:step', 'PyTorch autocast', 'Wane opt:step' },
        rows))
end

local notes = [[

What the columns are, and what differs:
- As a sum: 16 B a parameter (bf16 parameter and gradient; f32 copy, m and v), f32 logits, and of each block 32 sbh
  and 2 B a softmax weight, or the inputs of blocks and one block with a second copy of its softmax weights. In the
  blocks: the most that PyTorch's accounting has allocated while the backward of the blocks runs, in a script that
  names the f32 logits and keeps gradients from step to step.
- The figures leave out the loss: PyTorch keeps its log-softmax and makes two gradients of that size, so the peak
  of a step lies there, in every plan.
- Under autocast PyTorch keeps f32 softmax and norms and bf16 copies of the weights too: the figures are those of
  parameters in bf16.
- Wane, first column: its backward with every gradient kept, and the same 12 B a parameter held beside it. It runs
  the loss from the logits (no log-softmax, the gradient in their place) and keeps nothing that is only named.
- opt:step: forward, backward and AdamW in one plan, no gradient kept. Here m and v have the parameters' dtype:
  Wane keeps no f32 copy of bf16 parameters in this version. Its 16 B a parameter are f32 under autocast, on the
  right.
- Flash in PyTorch is the tiled attention of Wane, its default. GELU is the exact one here, the tanh form there.]]

local read, refuse = dofile(root .. '/examples/options.lua')

local function options()
    local out = read { size = '774M', batch = 8, t = 1024 }
    if not gpt2.parameters[out.size] then refuse '--size takes 124M, 355M, 774M or 1558M' end
    out.is_catalogue = out.size == '774M' and out.batch == 8 and out.t == 1024
    return out
end

local function main()
    local size = options()
    wane.set_device 'meta'
    print(('GPT-2 %s, batch %d, T = %d, bf16, no dropout, AdamW 16 B a parameter, f32 logits; GB = 1e9 bytes')
        :format(size.size, size.batch, size.t))
    print('\nPyTorch by accounting, and the figures of the catalogue')
    local kept = account(size)
    keeps(kept)
    wanes(size)
    print(notes)
end

main()
