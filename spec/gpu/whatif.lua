-- Predicts what each change of the GPU's kernels and plans leaves of a step of GPT-2, before anybody builds it:
-- `luajit spec/gpu/whatif.lua [FOLDER]`; make gpu-whatif does. Runs no kernel and needs no GPU.
--
-- The ladder begins with the steps that an H100 was measured at (whatif_steps.lua). A rung is a function over the rows
-- of a step: it changes the seconds of some, by bytes or FLOP over the rates below, or leaves them out. The last line
-- is the step as Wane plans it now, by the rates of plan/costs/rates.lua; what was built moves it down the ladder, and
-- a rung that the plan does not reach is one to look at. `make gpu-check` prints the same predictions beside what it
-- measures.
--
-- FOLDER gets whatif.txt, what is printed.
local here = arg[0]:match '^(.*)/[^/]*$' or '.'
local root = here:match '^(.*)/spec/gpu$' or here .. '/../..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local files = require 'spec.support.files'
local networks = require 'spec.gpu.networks'
local predict = require 'spec.gpu.predict'
local steps = require 'spec.gpu.whatif_steps'
local text = require 'wane.report.table'
local wane = require 'wane'

local COPY = 2.7e12        -- bytes a second of a kernel that moves bytes well: 0.9 of the driver's copies
local LAUNCH = 1e-6        -- seconds between two kernels of a captured graph; assumed
local PEAK = 989e12        -- FLOP a second of dense bf16, by the data sheet
local WORDS = 50257

-- Returns the seconds of products of bf16: 688 TF/s at a least side of 768, 724 at 1280 (measured).
local function product(row, least) return row.flops * (1 + 109 / least) / 786e12 + row.calls * LAUNCH end

-- Returns the seconds of moving bytes by so many launches.
local function moving(bytes, launches) return bytes / COPY + launches * LAUNCH end

-- ---- the rows of a step -------------------------------------------------------------------------------------------

-- Returns the rows of a step, copied: { op =, of = its dtype and shape, reads = the first that it reads, calls =, flops
-- =, bytes =, seconds = }.
local function rows_of(step)
    local rows = {}
    for i, row in ipairs(step) do
        local made, from = row[1]:match '^(.-) <%- (.*)$'
        local op, of = (made or row[1]):match '^(%S+) (.*)$'
        rows[i] = { op = op, of = of:gsub('^%[[^%]]*%] ', ''), reads = (from or ''):match '^[^,]*', calls = row[2],
            flops = row[3], bytes = row[4], seconds = row[5] }
    end
    return rows
end

local function has_words(row) return (row.of .. ' ' .. row.reads):find(WORDS, 1, true) ~= nil end

-- Returns what a cast is of: 'logits', 'weights' (and their gradients) or 'stream' (activations).
local function cast_of(row)
    if row.op ~= 'cast' then return nil end
    local dims = row.of:match '%S+$'
    local _, n = dims:gsub('x', '')
    return n == 2 and (has_words(row) and 'logits' or 'stream') or 'weights'
end

local function without(rows, is_gone)
    local left = {}
    for _, row in ipairs(rows) do
        if not is_gone(row) then left[#left + 1] = row end
    end
    return left
end

-- Sets the seconds of the rows of some ops. of: { op = function(row) that returns seconds, or nil }.
local function set(rows, of)
    for _, row in ipairs(rows) do
        row.seconds = of[row.op] and of[row.op](row) or row.seconds
    end
    return rows
end

-- ---- the ladder -----------------------------------------------------------------------------------------------------
-- Each takes rows and the step that they are of, and returns rows.
local ladder = {
    { 'logits in rows of 50,304', function(rows, step)
        return set(rows, { matmul = function(row) return has_words(row) and product(row, step.d) end })
    end },
    { 'cross entropy over bf16, a row read once', function(rows, step)
        -- 25 and 32 instructions an element at 0.75 of the rate at which they are issued
        local n = step.tokens * WORDS
        return set(without(rows, function(row) return cast_of(row) == 'logits' end), {
            row_stats = function() return n * 1.14e-12 end, row_nll_grad = function() return n * 1.58e-12 end })
    end },
    { 'norms and casts in one pass', function(rows, step)
        -- forward: the norm reads f32 and writes bf16 (6 n bytes), statistics made anew; the stream takes a branch as
        -- it is (10 n); backward: dx 14 n, dw and db 6 n, the stream's gradient as bf16 6 n
        local n = step.tokens * step.d
        local gone = { row_mean = true, row_rstd = true, layernorm_dw = true, layernorm_dx = true }
        rows = without(rows, function(row)
            return gone[row.op] or cast_of(row) == 'stream' or row.op == 'sum' and row.of:find('f32 1x1x', 1, true)
        end)
        return set(rows, { layernorm = function(row) return row.calls * moving(18 * n, 3) end,
            add = function(row) return row.calls * moving(10 * n, 1) end,
            layernorm_dx_add = function(row) return row.calls * moving(14 * n, 1) end })
    end },
    { 'attention by cuDNN', function(rows)
        return set(rows, { attention = function(row) return row.flops / 291e12 + row.calls * LAUNCH end,
            attention_grad = function(row) return row.flops / 204e12 + 2 * row.calls * LAUNCH end })
    end },
    { 'bf16 copies of weights, one update kernel', function(rows)
        rows = without(rows, function(row) return cast_of(row) == 'weights' end)
        local first = true
        return set(rows, { adam = function(row)
            local launches = first and 5 or 0
            first, row.calls = false, launches
            return moving(row.bytes, launches)
        end })
    end },
    { 'sums of columns of bf16', function(rows)
        return set(rows, { sum = function(row) return row.bytes / 2.3e12 + 2 * row.calls * LAUNCH end })
    end },
    { 'GELU by a table', function(rows, step)
        local n = step.tokens * step.d
        return set(rows, { gelu = function(row) return moving(row.bytes, row.calls) end,
            matmul_map = function(row) return product(row, step.d) + row.calls * moving(24 * n, 1) end })
    end },
    { 'two results of a pass', function(rows, step)
        local n = step.tokens * step.d
        return set(rows, { layernorm = function(row) return row.calls * moving(12 * n, 1) end,
            add = function(row) return row.of:find(('x%d'):format(step.d)) and 1e-9 end,
            layernorm_dx_add = function(row) return row.calls * moving(16 * n, 2) end })
    end },
}

-- ---- printing -------------------------------------------------------------------------------------------------------
local function totals(rows)
    local calls, seconds = 0, 0
    for _, row in ipairs(rows) do calls, seconds = calls + row.calls, seconds + row.seconds end
    return calls, seconds
end

local function cells(name, calls, seconds, before, flops)
    return { name, before and ('%.1f'):format((before - seconds) * 1e3) or '', ('%.1f'):format(seconds * 1e3),
        ('%d'):format(calls), ('%.0f %%'):format(100 * flops / seconds / PEAK) }
end

-- Returns the ladder of a step as a table, with the step as it is planned now at its end, and what that is made of.
local function report(size)
    local step = steps[size]
    local rows, lines = rows_of(step), {}
    local calls, seconds = totals(rows)
    lines[1] = cells('as it was measured', calls, seconds, nil, step.flops)
    for _, rung in ipairs(ladder) do
        rows = rung[2](rows, step)
        local before = seconds
        calls, seconds = totals(rows)
        lines[#lines + 1] = cells(rung[1], calls, seconds, before, step.flops)
    end
    local net = networks.gpt(size, 8)
    local now = predict.ops(function() net.optimizer:step(net.loss(), { policy = 'save_all' }) end, 'h100')
    lines[#lines + 1] = cells('as it is planned now', now.calls, now.step, nil, step.flops)
    local ops, names = {}, {}
    for op in pairs(now.by) do names[#names + 1] = op end
    table.sort(names, function(a, b) return now.by[a].seconds > now.by[b].seconds end)
    for k = 1, math.min(14, #names) do
        local row = now.by[names[k]]
        ops[k] = { names[k], ('%d'):format(row.calls), ('%.2f'):format(row.seconds * 1e3) }
    end
    local head = ('GPT-2 %s, B 8, T 1024, bf16, AdamW, save_all, on an H100; peak %.2f GB as measured, %.2f GB now')
        :format(size, step.peak / 1e9, now.peak / 1e9)
    local names_of = { 'rung', 'less ms', 'ms', 'launches', 'of 989 TF/s' }
    return table.concat({ head, text.text(names_of, lines), text.text({ 'op, as planned now', 'calls', 'ms by events' },
        ops) }, '\n\n') .. '\n'
end

wane.set_device 'meta'
local said = table.concat({ report '124M', report '774M', text.text(predict.HEAD, predict.steps()) .. '\n' }, '\n')
io.write(said)
if arg[1] then
    os.execute(("mkdir -p '%s'"):format((arg[1]:gsub("'", "'\\''"))))
    files.write(arg[1] .. '/whatif.txt', said)
end
