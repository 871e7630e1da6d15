--- Rates of classes of applications on GPUs that were measured, by the name of the GPU.
--
-- A class is what C.wn_rate_class_step names: an op, its dtypes, and what its rate depends on beside them. Numbers are
-- a second: bytes, or FLOP with `half`, the least side of a product that runs at half of the rate; launch is in
-- seconds. A class that is not here has the roofline of its target.
--
-- Made of what `make gpu-check` measured (spec/bench/results_gpu.lua), steps of GPT-2 124M and 774M and its rows of
-- single kernels. Events around each instruction make it EVENT seconds longer than in a step: 3.0 ms of 907
-- instructions, 8.7 of 2,659. spec/rates_spec.lua holds the rates to what was measured: each op above 2 % of a step
-- within 15 %, the sum within 5 %, and the factors that one size of GPT-2 shows to the other.
-- @internal wane.plan.costs.rates
local iterate = require 'wane.iterate'

local G, T, US = 1e9, 1e12, 1e-6

local rates = {}

--- Seconds by which events around an instruction lengthen it, on an H100.
rates.EVENT = 3.3 * US

local LAUNCH = 1 * US -- between two kernels of a captured graph; assumed

-- Returns the rate of a class that moves bytes. launch: more than LAUNCH, or nil.
local function moves(bytes, launch) return { launch = launch or LAUNCH, bytes = bytes } end

-- Returns the rate of a class that computes.
local function computes(flops, half) return { launch = LAUNCH, flops = flops, half = half or 0 } end

local product = computes(786 * T, 109)
rates.h100 = {
    gpu = '^NVIDIA H100 .*HBM3$', -- a pattern of the name that its driver gives; a slice of one has another
    source = 'measured on one, 2026-11-26, of newer kernels predicted',
    classes = {
        ['linear bf16'] = product, ['matmul bf16'] = product,
        ['linear bf16 unaligned'] = computes(183 * T, 250), ['matmul bf16 unaligned'] = computes(183 * T, 250),
        ['matmul+gelu_grad bf16'] = computes(990 * T, 1819),
        ['linear f32'] = computes(50.8 * T), ['matmul f32'] = computes(50.8 * T),
        ['matmul f32 few terms'] = computes(10.9 * T), ['sgd f32'] = moves(2600 * G),
        ['attention bf16 heads of 64'] = computes(175 * T), ['attention_grad bf16 heads of 64'] = computes(124.7 * T),
        ['attention bf16 heads of 128'] = computes(224 * T), ['attention_grad bf16 heads of 128'] = computes(140 * T),
        ['cast f32 to bf16'] = moves(3270 * G), ['cast bf16 to f32'] = moves(3270 * G),
        ['adam f32'] = moves(3000 * G), ['add f32'] = moves(2630 * G), ['add bf16'] = moves(2620 * G),
        ['gelu f32'] = moves(2590 * G),
        ['sum f32 columns'] = moves(2900 * G, 11.5 * US),
        ['sum f32 rows'] = moves(2770 * G), ['sum bf16 rows'] = moves(1920 * G),
        ['row_mean f32'] = moves(2600 * G), ['row_rstd f32'] = moves(2600 * G), ['layernorm f32'] = moves(2600 * G),
        ['layernorm_dw f32'] = moves(2600 * G), ['layernorm_dx f32'] = moves(2080 * G),
        ['layernorm_dx_add f32'] = moves(2080 * G),
        ['row_stats f32 long'] = moves(1290 * G), ['row_nll_grad f32 long'] = moves(990 * G),
        ['permute f32'] = moves(1875 * G),
        ['conv2d f32'] = computes(13 * T), ['conv2d_dx f32'] = computes(13 * T), ['conv2d_dw f32'] = computes(6.5 * T),
        ['conv2d bf16'] = computes(75 * T), ['conv2d_dx bf16'] = computes(75 * T),
        ['conv2d_dw bf16'] = computes(55 * T),
    },
    -- of kernels that no GPU has run yet
    predicted = {
        ['sum bf16 columns'] = moves(2400 * G, 1.5 * US), ['sum f32 columns few'] = moves(2900 * G, 4 * US),
        ['gelu bf16'] = moves(2550 * G), ['softmax f32'] = moves(2250 * G), ['softmax bf16'] = moves(2250 * G),
        ['embedding f32'] = moves(2400 * G), ['permute bf16'] = moves(2100 * G),
        ['linear f32 few rows'] = moves(2030 * G), ['linear+relu f32 few rows'] = moves(2030 * G),
        ['matmul f32 few rows'] = moves(2030 * G), ['matmul+relu_grad f32 few rows'] = moves(2000 * G),
        ['matmul+sgd f32 few terms'] = moves(2600 * G),
        ['row_stats bf16 to f32 long'] = moves(1750 * G), ['row_nll_grad f32 to bf16 long'] = moves(2530 * G),
        ['layernorm f32 to bf16'] = moves(2600 * G), ['layernorm bf16 to f32'] = moves(2600 * G),
        ['layernorm_dx_add bf16 to f32'] = moves(2080 * G), ['layernorm_dx bf16 to f32'] = moves(2080 * G),
        ['layernorm_dw bf16 to f32'] = moves(2600 * G), ['row_mean bf16 to f32'] = moves(2600 * G),
        ['row_rstd bf16 to f32'] = moves(2600 * G), ['adam bf16 to f32'] = moves(3000 * G),
        ['add bf16 to f32'] = moves(2630 * G), ['sum bf16 to f32 columns'] = moves(2400 * G, 1.5 * US),
    },
}

--- Calls fn(class, rate) for each class of a GPU, those that were measured and those that are predicted.
function rates.each(gpu, fn)
    for _, list in ipairs { gpu.classes, gpu.predicted } do
        for class, rate in iterate(list) do fn(class, rate) end
    end
end

-- An H200 has an H100's multiprocessors and a faster memory, by its data sheet.
local FASTER = 4800 / 3350
local h200 = {}
rates.each(rates.h100, function(class, rate)
    h200[class] = { launch = rate.launch, bytes = rate.bytes and FASTER * rate.bytes, flops = rate.flops,
        half = rate.half }
end)
rates.h200 = { gpu = '^NVIDIA H200$', classes = {}, predicted = h200, source = "predicted from an H100's" }

return rates
