-- Compares what PyTorch keeps of an op for its backward, the rows of lua/wane/pytorch/saves.lua, with what live PyTorch
-- saves (a committed fixture) and with Wane's own gradients; checks that an op without a row is named.
local helper = require 'spec.helper'
local wane = helper.wane
local binding = require 'wane.ffi'
local cases = require 'spec.cases'
local rows = require 'wane.pytorch.ops'
local saves = require 'wane.pytorch.saves'

describe('what an op saves (R3)', function()
    local fixture = dofile(helper.root .. '/spec/fixtures/torch_saved.lua')
    local b, i, o = fixture.b, fixture.i, fixture.o
    local function value(...)
        local n = 1
        for _, d in ipairs { ... } do n = n * d end
        return { numel = n, bytes = 4 * n, needs = true }
    end
    local function parameter(...)
        local v = value(...)
        v.parameter = true
        return v
    end
    local function ids(n) return { numel = n, bytes = 8 * n, needs = false } end
    local x, image = value(b, i), value(2, 8, 8, 8)
    -- Returns the inputs of batch_norm over the image, with statistics of `count` numbers.
    local function norm_inputs(count)
        local statistic = { bytes = 4 * count, needs = false }
        return { image, statistic, statistic, parameter(8), parameter(8) }
    end
    -- op of the fixture -> what Wane records for it: { op, result, inputs }
    local records = {
        linear = { { 'linear', value(b, o), { x, parameter(o, i), parameter(o) } } },
        dropout = { { 'dropout', x, { x } } },
        div = { { 'div', x, { x, value(b, i) } } },
        pow = { { 'pow', x, { x, value(b, i) } } },
        maximum = { { 'maximum', x, { x, value(b, i) } } },
        minimum = { { 'minimum', x, { x, value(b, i) } } },
        where = { { 'where', x, { { numel = b * i, bytes = b * i, needs = false }, x, x } } },
        max = { { 'max', value(b), { x } } },
        min = { { 'min', value(b), { x } } },
        narrow = { { 'narrow', value(b, 8), { x } } },
        expand = { { 'expand', x, { value(i) } } },
        cat = { { 'cat', value(2 * b, i), { x, x } } },
        gather = { { 'gather', value(b, 4), { x, ids(b * 4) } } },
        scatter_add = { { 'scatter_add', x, { x, value(b, 4), ids(b * 4) } } },
        nll = { { 'nll', value(1), { x, ids(b) } } },
        embedding = { { 'embedding', value(b, 4, i), { parameter(50, i), ids(b * 4) } } },
        matmul = { { 'matmul', value(3, b, o), { value(3, b, i), value(3, i, o) } } },
        mul = { { 'mul', x, { x, value(b, i) } } },
        add = { { 'add', x, { x, value(b, i) } } },
        sub = { { 'sub', x, { x, value(b, i) } } },
        layernorm = { { 'layernorm', x, { x, { bytes = 4 * b, needs = false }, { bytes = 4 * b, needs = false },
            parameter(i), parameter(i) } } },
        conv2d = { { 'conv2d', value(2, 4, 6, 6), { image, value(4, 8, 3, 3), parameter(4) } } },
        conv_transpose2d = { { 'conv2d_dx', value(2, 4, 10, 10), { image, value(8, 4, 3, 3) } } },
        max_pool2d = { { 'max_pool2d', value(2, 8, 4, 4), { image, { bytes = 256, needs = false } } } },
        avg_pool2d = { { 'avg_pool2d', value(2, 8, 4, 4), { image } } },
        batch_norm = { { 'batch_norm', image, norm_inputs(8) } },
        group_norm = { { 'batch_norm', image, norm_inputs(4) } },
        upsample2d = { { 'upsample2d', value(2, 8, 16, 16), { image } } },
        -- the result of log_softmax is nll's input: one tensor, counted at log_softmax
        cross_entropy = { { 'log_softmax', x, { x } }, { 'nll', value(1), { { bytes = 0, needs = true }, ids(b) } } },
    }
    -- Returns the bytes that an op's autograd node saves beside parameters, not rounded. n: one application, { numel =,
    -- bytes =, inputs = list of { bytes =, needs =, parameter = } }.
    local function saved_bytes(name, n)
        local row, total = rows[name], 0
        for _, save in ipairs(row.saves) do
            local input = n.inputs[save[1]]
            if rows.is_saved(save, n.inputs, 'needs') and not (input and input.parameter) then
                total = total + (input or n).bytes
            end
        end
        return total + (row.extra and row.extra(n) or 0)
    end
    -- Returns what an op saves of these inputs in the form of the fixture: inputs, 'o' for the result, 'n' for a tensor
    -- that is neither. Wane has the statistics of layer norm as inputs; in PyTorch they are made to be saved.
    local function words(name, inputs)
        local out, row = {}, rows[name]
        for _, save in ipairs(row.saves) do
            local what = save[1]
            if rows.is_saved(save, inputs, 'needs') and not (inputs[what] or {}).parameter then
                local is_made = name:match 'norm$' and (what == 2 or what == 3)
                out[#out + 1] = is_made and 'n' or what == 'y' and 'o' or tostring(what)
            end
        end
        if row.extra then out[#out + 1] = 'n' end
        return table.concat(out, ' ')
    end
    for name, saved in pairs(fixture.saved) do
        it(name .. ' saves the bytes PyTorch ' .. fixture.torch .. ' does', function()
            local total = 0
            for _, r in ipairs(records[name] or { { name, x, { x } } }) do
                total = total + saved_bytes(r[1], { numel = r[2].numel, bytes = r[2].bytes, inputs = r[3] })
            end
            assert.equal(saved.bytes, total)
        end)
        if name ~= 'cross_entropy' then
            it(name .. ' saves the tensors PyTorch does', function()
                local record = records[name] and records[name][1] or { name, nil, { x } }
                assert.equal(saved.what, words(record[1], record[3]))
            end)
        end
    end

    -- family and number of inputs of every op
    local ops, info = {}, binding.new 'struct wn_op_info'
    for name, more in helper.read('runtime/op.def'):gmatch '\nOP%([%u_%d]+, +([%l_%d]+),([^%)]+%))' do
        binding.check(binding.C.wn_op_get(binding.C.wn_op_id(name), info))
        ops[name] = { family = more:match '%d+, +%d+, +(%l+)', most = info.most }
    end
    -- A function that is one op in PyTorch is given its inputs by pytorch/graph.lua.
    local composites = { mse_loss = 2, nll = 4, scatter_add = 3, conv_transpose2d = 3 }
    it('is of an op that the accounting knows, and names no input that it does not have', function()
        local count = 0
        for name, row in pairs(saves) do
            assert(rows[name], name .. ' has a row in lua/wane/pytorch/saves.lua and none in ops.lua')
            local most = composites[name] or assert(ops[name], name .. ' is no op').most
            for _, save in ipairs(row) do
                for _, k in ipairs { save[1] ~= 'y' and save[1] or 1, save.when or 1, save.unless or 1 } do
                    assert(k <= math.max(most, 1), ('%s has %d inputs; input %d is saved'):format(name, most, k))
                end
            end
            count = count + 1
        end
        assert.is_true(count > 35)
    end)
    -- Tells a wrong row of an op that the fixture does not have.
    it('is what the gradient reads, for an elementwise op of one input', function()
        local bad, count = {}, 0
        for name, op in pairs(ops) do
            if op.family == 'unary' and op.most == 1 and rows[name] then
                local case, read = cases.records[name].cases[1], {}
                local p = wane.plan(function()
                    local v = wane.randn(3, 4, { requires_grad = true })
                    return (case.call(wane, v + 1):to 'f32' + 1):sum()
                end)
                for _, r in ipairs(p:residuals()) do
                    read[#read + 1] = r.op == name and 'o' or r.op == 'add' and '1' or nil
                end
                local want, got = table.concat(read, ' '), words(name, { x })
                if got ~= want then
                    bad[#bad + 1] = ("%s: its gradient reads '%s', PyTorch saves '%s'"):format(name, want, got)
                end
                count = count + 1
            end
        end
        assert(#bad == 0, '\n' .. table.concat(bad, '\n'))
        assert.is_true(count > 20)
    end)
    it('is left out of an op that is unknown, which the plan names', function()
        local known = rows.gelu
        local function plan()
            return wane.plan(function()
                local v = wane.randn(1000, { requires_grad = true })
                return (v * 2):gelu():gelu():sum()
            end)
        end
        local at = plan():pytorch()
        assert.same({}, at.unknown)
        rows.gelu = nil
        local fine, less, text = pcall(function() return plan():pytorch(), tostring(plan()) end)
        rows.gelu = known
        assert(fine, less)
        assert.same({ { op = 'gelu', count = 2 } }, less.unknown)
        assert.equal(at.after_forward - 2 * 4096, less.after_forward) -- the two inputs that it saves
        assert.equal(at.before, less.before)
        assert.truthy(text:find('; unknown ops, whose bytes are left out: gelu (2)', 1, true), text)
    end)
    it('saves only what the wanted gradients need', function()
        local frozen = { numel = 4, bytes = 16, needs = false }
        assert.equal(16, saved_bytes('mul', { numel = 4, bytes = 16, inputs = { { numel = 4, bytes = 16,
            needs = true },
            frozen } }))
    end)
end)
