--- Predicts seconds of training steps: wane's own plan for the target h200, on the device meta, gives each instruction
-- the seconds of a roofline with the data sheet's rates; each is divided by the share that the model gives its kernel.
local binding = require 'wane.ffi'
local machine = require 'spec.gpu.report.machine'
local networks = require 'spec.gpu.networks'
local tensor = require 'wane.tensor'
local wane = require 'wane'

local C = binding.C
local steps = {}
local gpu, assumed = machine.h200, machine.assumed

-- Returns the row of the report for an op, by name, or nil.
local function row_of(rows, name)
    for _, row in ipairs(rows) do if row.name == name then return row end end
end

local function by_op(rows, op)
    for _, row in ipairs(rows) do
        for _, known in ipairs(row.ops or {}) do if known == op then return row end end
    end
end

-- Returns the row for a product of `flops` whose result is `type`, as gemm.cu and gemm_mma.cu choose.
local function product_row(rows, type_, flops)
    local numel, n = 1, tonumber(type_.dim[type_.ndim - 1])
    for d = 0, type_.ndim - 1 do numel = numel * tonumber(type_.dim[d]) end
    local m = numel / n
    local tiles = function(size) return math.ceil(m / size) * math.ceil(n / size) end
    if tensor.dtype_name[type_.dtype] == 'bf16' then
        local is_small = m <= 64 or n <= 64 or tiles(128) < 128
        return row_of(rows, is_small and 'product of bf16, small' or 'product of bf16'), true
    end
    local is_small = m <= 32 or n <= 32 or tiles(64) < 64
    return row_of(rows, is_small and 'product of f32, few rows' or 'product of f32'), false
end

-- Returns the product that a fused instruction computes first: the node itself, or one that it reads at most `depth`
-- away.
local function find_product(program, node, depth)
    local info = binding.new 'struct wn_node_info'
    binding.check(C.wn_node(program, node, info))
    local op = binding.text(info.op)
    if op == 'matmul' or op == 'linear' then return info end
    for i = 0, depth > 0 and info.n_in - 1 or -1 do
        local input = C.wn_node_input(program, node, i)
        local found = input >= 0 and find_product(program, input, depth - 1)
        if found then return found end
    end
end

-- Returns the predicted seconds of a product, with own kernels and with the library's, which does no updates.
local function product_seconds(rows, op, roofline, info)
    local row, is_bf16 = row_of(rows, 'product and update of f32'), false
    local is_update = op:find '%+sgd' or op:find '%+momentum' or op:find '%+adam'
    if not is_update then row, is_bf16 = product_row(rows, info.type, info.flops) end
    local arithmetic = info.flops / (is_bf16 and gpu.tensor or gpu.f32)
    -- Where memory bounds the roofline, the bytes take what they take beside the arithmetic.
    local bytes = roofline > arithmetic * 1.01 and roofline * gpu.sheet_bytes / gpu.copy / assumed.overlap or 0
    local own = math.max(arithmetic / row.share, bytes) + assumed.launch
    if is_update then return own, own end
    local library = is_bf16 and info.flops / gpu.library_bf16 or arithmetic / assumed.overlap
    return own, math.max(library, bytes) + assumed.launch
end

-- Returns the predicted seconds of an instruction, with own kernels and with the library's products; and whether
-- the model knows its kernel.
local function seconds_of(rows, program, step)
    local op, roofline = binding.text(step.op), math.max(0, step.seconds - assumed.launch)
    if op:find '^matmul' or op:find '^linear' then
        local _, more = op:gsub('%+', '')
        local info = find_product(program, step.node, more)
        if info then
            local own, library = product_seconds(rows, op, roofline, info)
            return own, library, true
        end
    end
    local row = by_op(rows, op) or by_op(rows, op:match '^[^+]*')
    local is_known = row ~= nil
    row = row or row_of(rows, 'elementwise ops in one, bf16')
    local seconds = roofline * (row.class == 'bytes' and gpu.sheet_bytes / gpu.copy or 1) / row.share + assumed.launch
    return seconds, seconds, is_known
end

-- Predicts one step; plan: of the step for the target h200.
local function predict(rows, name, plan, flops)
    local step, program = binding.new 'struct wn_step', plan.parts[1].program.handle
    local own, library, roofline, unknown = 0, 0, 0, 0
    for i = 0, C.wn_step_count(program) - 1 do
        binding.check(C.wn_step(program, i, step))
        if binding.text(step.what) == 'run' then
            local a, b, is_known = seconds_of(rows, program, step)
            own, library, roofline = own + a, library + b, roofline + step.seconds
            if not is_known then unknown = unknown + step.seconds end
        end
    end
    return { name = name, ms = own * 1e3, library_ms = library * 1e3, roofline_ms = plan.seconds * 1e3,
        peak = plan.peak, unknown = unknown / roofline, flops = flops }
end

local function gpt(rows, size, out)
    local net = networks.gpt(size, 8)
    local c = net.config
    local flops = net.tokens * (6 * net.model:parameter_count() + 6 * c.layers * c.d * c.context)
    local function add(what, policy)
        local plan = wane.plan(function() net.optimizer:step(net.loss(), { policy = policy }) end, { target = 'h200' })
        out[#out + 1] = predict(rows, ('GPT-2 %s, %s'):format(size, what), plan, flops)
        return plan.peak
    end
    local most = add('save_all', 'save_all')
    add('elementwise recomputed', networks.elementwise)
    local least = add('every block recomputed', 'every(1)')
    add('a budget halfway', wane.policy.budget(math.floor((most + least) / 2)))
end

local function heavy(rows, size, out)
    local depth, width, batch = unpack(size)
    local net = networks.heavy(depth, width, batch)
    for _, policy in ipairs { 'save_all', 'every(4)' } do
        local plan = wane.plan(function() net.optimizer:step(net.loss(), { policy = policy }) end, { target = 'h200' })
        out[#out + 1] = predict(rows, ('heavy layers %d x %d, batch %d, %s, one program'):format(depth, width, batch,
            policy), plan, 6 * depth * width * width * batch)
    end
end

--- Predicts the steps that the checks of a GPU measure.
-- @param rows of model.lua
-- @return list of { name, ms = with own kernels, library_ms = with cuBLASLt's products, roofline_ms, peak,
-- unknown = share of the roofline's seconds whose kernel the model does not know, flops = that the step counts for }
function steps.predict(rows)
    local before = wane.set_device 'meta'
    local out = {}
    for _, size in ipairs { '124M', '774M' } do gpt(rows, size, out) end
    for _, size in ipairs { { 20, 4096, 32 }, { 40, 4096, 64 } } do heavy(rows, size, out) end
    wane.set_device(before)
    return out
end

return steps
