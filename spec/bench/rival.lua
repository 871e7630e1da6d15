-- Measures the same steps in Wane and in PyTorch, in turns in one run, so that both meet the same machine. A turn is a
-- pause and then as many steps as 0.2 s take, one at least: training runs step after step, and what sleeping threads
-- and cold caches cost the first one after a pause would be a third of a step of 15 ms. PyTorch runs twice: tuned (huge
-- pages, freed memory is kept by malloc, fused optimizers) and as shipped; all with the same number of threads. Seconds
-- are medians of turns, of whole steps, recording included. Without PyTorch it prints Wane's columns and says so.
--
--   luajit spec/bench/rival.lua [--small] [--turns N] [--rows N,N,...] [--models images] [--out FILE] [--class avx2]
--                                                                                       PYTHON=python3 unless set
--
-- --models images takes the rows of spec/bench/image_steps.lua instead, whose results have the name rival_images; tuned
-- PyTorch has images and weights of convolutions with channels last.
--
-- --class holds Wane, PyTorch and the probe to a class of processors (WANE_KERNELS), and the results to a name of their
-- own, rival_avx2.
--
-- The results go to build/bench/rival.lua too (with --small only where --out says), and spec/bench/publish.lua makes
-- the tables and the picture from that file.
--
-- Bytes. Wane's are the peak of its ledger, which must be the predicted one, or the run ends. PyTorch's are exact too:
-- the most bytes alive at once, from the events of its allocator (torch_steps.py says how, and what is asserted).
--
-- The floor is the least time that the machine's own rates allow a step: the sum over passes of the greater of FLOPs /
-- peak and bytes / bandwidth, with the best of the rates probed between the turns of the row, bandwidth that of the
-- pass's own mix of reads and writes.
--   Linear layers, a pass each: forward 2 B n k FLOPs and W read; backward twice that (once for a first layer whose
--   input needs no gradient), W read and dW written, or, when the update happens there (opt:step(loss)), W and the
--   optimizer's state read and written. A separate update reads W, dW and state, and writes W and state. A region runs
--   its forward again but for its last layer, whose output the backward does not read.
--   GPT blocks, N tokens: 24 N d d FLOPs of products forward, attention 4 T T d a sequence, of which a causal one needs
--   half; backward 2 times the products, 2.5 times attention (the scores are made again); a recomputed block runs its
--   forward again but for the last product. Over the peak (of bf16 under autocast); norms, GELU, dropout and memory are
--   not counted.
local here = arg[0]:match '^(.*)/[^/]*$' or '.'
local common = dofile(here .. '/common.lua')
local ffi = require 'ffi'
local pytorch = require 'spec.bench.pytorch'
local report = require 'spec.bench.report'
local wane = require 'wane'
local C = require('wane.ffi').C
local programs = require 'spec.support.programs'
local scoped = require 'wane.scoped'
local stacks = require 'spec.support.stacks'

local nn, optim = wane.nn, wane.optim
local LUAJIT = arg[-1] or 'luajit'

-- ---- options ------------------------------------------------------------------------------------------------
local function rows_of(text)
    local out = {}
    for n in text:gmatch '%d+' do out[tonumber(n)] = true end
    return out
end

local function models_of(text)
    return text == 'images' and text or error("rival: --models takes images", 0)
end

local chosen = common.options({ turns = 7, out = 'text', rows = rows_of, models = models_of },
    '--small, --turns N, --rows N,N,..., --models images, --out FILE')
local of_images = chosen.models == 'images'
local class = common.named_class()
common.rename('rival' .. (of_images and '_images' or '') .. (class and '_' .. class or ''))
common.out = chosen.out or (not chosen.small and common.out)
local heavy = chosen.small and { 64, 4, 8 } or { 4096, 20, 32 } -- width, depth, batch
local mlp = chosen.small and { 64, 4, 8 } or { 1024, 20, 32 }
local gpt = chosen.small and { 2, 32, 4, 16, 2 } or { 6, 384, 6, 256, 8 } -- blocks, d, heads, T, batch

-- ---- Wane's steps ---------------------------------------------------------------------------------------------
-- Returns a function that builds the heavy network and returns it and its step. Every layer with its ReLU is a unit of
-- the regions. update: the step is opt:step(loss) instead of backward.
local function heavy_step(policy, update)
    return function()
        local layers = {}
        for i = 1, heavy[2] do layers[i] = nn.Sequential { nn.Linear(heavy[1], heavy[1]), nn.ReLU() } end
        local model, x = nn.Sequential(layers), wane.randn(heavy[3], heavy[1], { requires_grad = true })
        local opt = update and optim.SGD(model:parameters(), { lr = 1e-4 })
        return model, function()
            x.grad = nil
            if opt then return opt:step(model(x):sum()) end
            model:zero_grad()
            model(x):sum():backward { policy = policy }
        end
    end
end

local function mlp_step(fused)
    return function()
        local widths = stacks.equal(mlp[2], mlp[1])
        widths[#widths] = 10
        local model = stacks.linear(widths, function(i) return i < mlp[2] and nn.ReLU() or nil end)
        local x, labels = wane.randn(mlp[3], mlp[1]):retain(), wane.randint(10, { mlp[3] }):retain()
        local opt = optim.Adam(model:parameters(), { lr = 1e-3 })
        return model, function()
            local loss = nn.cross_entropy(model(x), labels)
            if fused then return opt:step(loss) end
            opt:zero_grad()
            loss:backward()
            opt:step()
        end
    end
end

local function gpt_step(policy, dtype)
    return function()
        local blocks = stacks.blocks(gpt[1], gpt[2], gpt[3], { weights = 0.1, attention = 0.1, mlp = 0.1 })
        local model, x = nn.Sequential(blocks), wane.randn(gpt[5], gpt[4], gpt[2]):retain()
        local function loss() return (model(x) ^ 2):mean() end
        return model, function()
            model:zero_grad()
            wane.autocast(dtype or 'f32', loss):backward { policy = policy }
        end
    end
end

-- ---- floors -----------------------------------------------------------------------------------------------------
-- Mixes of a pass: { streams read, streams written, 1 where what is written was read }. A stream is an array of the
-- layer that has as many elements as W.
local READ, GRADIENT = { 1, 0, 0 }, { 1, 1, 0 }
local APART = { [0] = { 2, 1, 1 }, [2] = { 4, 3, 1 } } -- by the optimizer's numbers for a parameter
local WITHIN = { [0] = { 1, 1, 1 }, [2] = { 3, 3, 1 } }

-- Returns a list of passes { FLOPs, bytes, mix }. what: input_grad, region (layers), update ('apart' or 'within'),
-- state (numbers an optimizer keeps for a parameter).
local function layers_floor(size, outputs, what)
    local out, width, depth, batch = {}, size[1], size[2], size[3]
    local state = what.state or 0
    local function pass(flops, bytes, mix) out[#out + 1] = { flops, bytes * (mix[1] + mix[2]), mix } end
    for i = 1, depth do
        local n = i == depth and outputs or width
        local flops, bytes = 2 * batch * n * width, 4 * n * width
        local last_of_region = not what.region or i % what.region == 0 or i == depth
        for _ = 1, last_of_region and 1 or 2 do pass(flops, bytes, READ) end
        pass((i > 1 or what.input_grad) and 2 * flops or flops, bytes,
            what.update == 'within' and WITHIN[state] or GRADIENT)
        if what.update == 'apart' then pass(0, bytes, APART[state]) end
    end
    return out
end

local function gpt_floor(recomputed)
    local blocks, d, _, t, batch = unpack(gpt)
    local products, attention, down = 24 * batch * t * d * d, 2 * batch * t * t * d, 8 * batch * t * d * d
    local flops = 3 * products + 3.5 * attention + (recomputed and products + attention - down or 0)
    return { { blocks * flops, 0, READ } }
end

-- Returns the seconds of the floor, and GB/s of what its passes move. best: gflops, and a rate for each mix.
local function floor_of(row, best)
    local seconds, bytes, moving = 0, 0, 0
    for _, pass in ipairs(row.floor) do
        local compute, move = pass[1] / (best.gflops * 1e9), pass[2] / (best[pass[3]] * 1e9)
        seconds, bytes, moving = seconds + math.max(compute, move), bytes + pass[2], moving + move
    end
    return seconds, bytes > 0 and bytes / moving * 1e-9 or nil
end

-- ---- rows -------------------------------------------------------------------------------------------------------
local function words(name, ...)
    return name .. ' ' .. table.concat({ ... }, ' ')
end

local heavy_name = ('%d x (Linear %d, ReLU), batch %d'):format(heavy[2], heavy[1], heavy[3])
local mlp_name = ('%d x (Linear %d, ReLU), batch %d, Adam'):format(mlp[2], mlp[1], mlp[3])
local gpt_name = ('%d GPT blocks, d %d, T %d, batch %d'):format(gpt[1], gpt[2], gpt[4], gpt[5])
local function heavy_words(...) return words('heavy', heavy[1], heavy[2], heavy[3], ...) end
local function gpt_words(...) return words('gpt', gpt[1], gpt[2], gpt[3], gpt[4], gpt[5], ...) end

-- aims: time and bytes over PyTorch's, floor over Wane's time. The short names stand below the bars of the picture.
local rows = {
    { name = heavy_name, short = 'heavy', step = heavy_step(), torch = heavy_words(0, 0),
        floor = layers_floor(heavy, heavy[1], { input_grad = true }),
        aims = { time = 0.5, floor = 0.8, bytes = 1 } },
    { name = heavy_name .. ', regions of 4', short = 'heavy, regions', step = heavy_step 'every(4)',
        torch = heavy_words(4, 0), floor = layers_floor(heavy, heavy[1], { input_grad = true, region = 4 }),
        aims = { time = 0.5, floor = 0.8, bytes = 1 } },
    { name = heavy_name .. ', SGD, `opt:step(loss)`', short = 'heavy, SGD', step = heavy_step(nil, true),
        torch = heavy_words(0, 1), floor = layers_floor(heavy, heavy[1], { input_grad = true, update = 'within' }),
        aims = { bytes = 0.55 } },
    { name = mlp_name .. ', three lines', short = 'Adam, 3 lines', step = mlp_step(false),
        torch = words('mlp', unpack(mlp)), floor = layers_floor(mlp, 10, { update = 'apart', state = 2 }),
        aims = { bytes = 1 } },
    { name = mlp_name .. ', `opt:step(loss)`', short = 'Adam, one plan', step = mlp_step(true),
        torch = words('mlp', unpack(mlp)), floor = layers_floor(mlp, 10, { update = 'within', state = 2 }),
        aims = { time = 0.4, floor = 0.8, bytes = 0.8 } },
    { name = gpt_name, short = 'GPT', step = gpt_step(), torch = gpt_words(0, 0), floor = gpt_floor(false),
        aims = { time = 0.7, floor = 0.75, bytes = 0.8 } },
    { name = gpt_name .. ', each recomputed', short = 'GPT, recomputed', step = gpt_step 'every(1)',
        torch = gpt_words(1, 0), floor = gpt_floor(true), aims = { time = 0.6, floor = 0.75, bytes = 1 } },
    { name = gpt_name .. ', bf16', short = 'GPT, bf16', step = gpt_step(nil, 'bf16'), torch = gpt_words(0, 1),
        floor = gpt_floor(false), bf16 = true, aims = { time = 0.7, floor = 0.75, bytes = 0.8 } },
    { name = gpt_name .. ', bf16, each recomputed', short = 'bf16, recomputed', step = gpt_step('every(1)', 'bf16'),
        torch = gpt_words(1, 1), floor = gpt_floor(true), bf16 = true,
        aims = { time = 0.6, floor = 0.75, bytes = 1 } },
}

if of_images then rows = assert(loadfile(here .. '/image_steps.lua'))(chosen.small) end

-- ---- processes ------------------------------------------------------------------------------------------------
local function rival(settings)
    return pytorch.start(here .. '/torch_steps.py', (class and pytorch.HELD[class] .. ' ' or '') .. settings)
end

local function live_bytes(row)
    local one = rival 'FUSED=1'
    local bytes = one:ask('live ' .. row.torch)
    one:close()
    return bytes
end

-- ---- taking turns ---------------------------------------------------------------------------------------------
-- A pause lets threads that spin after a step go to sleep before the other's turn.
local TURN = chosen.small and 0 or 0.2 -- seconds at least; torch_steps.py takes its own turn so

local function timed_wane(step)
    common.rest()
    local start, steps = C.wn_now(), 0
    repeat
        step()
        steps = steps + 1
    until C.wn_now() - start >= TURN
    return (C.wn_now() - start) / steps
end

local function timed_rival(one)
    common.rest()
    return one:ask('turn ' .. TURN)
end

-- Returns the peak of a step, which is the greatest of its programs'. Predicted and measured are one number or the run
-- ends.
local function peak_of(row, step)
    local peak = 0
    scoped('listen', function(p)
        local r = programs.read(p)
        if r.predicted.peak ~= r.measured.peak then
            error(('%s: predicted %.0f bytes, measured %.0f'):format(row.name, r.predicted.peak, r.measured.peak), 0)
        end
        peak = math.max(peak, r.measured.peak)
    end, step)
    return peak
end

local function median(list) return list and #list > 0 and common.median(list) or nil end

-- Probes once more and keeps the best rates so far: GFLOP/s of the row's dtype, and GB/s of each mix of its passes,
-- with ordinary stores or past the caches, whichever is faster.
local function probe_again(probe, row, best)
    local threads, bytes = C.wn_threads(), chosen.small and 2 ^ 24 or 2 ^ 28
    common.rest()
    local peak = row.bf16 and probe.gflops_bf16(threads) or 0
    if peak == 0 then peak = probe.gflops(threads) end -- products of bf16 are then those of f32
    best.gflops = math.max(best.gflops, peak)
    local probed = {}
    for _, pass in ipairs(row.floor) do
        local mix = pass[3]
        for past_caches = probed[mix] and 2 or 0, 1 do
            best[mix] = math.max(best[mix] or 0, probe.mix(threads, mix[1], mix[2], mix[3], past_caches, bytes))
        end
        probed[mix] = true
    end
end

-- Checks that Wane and PyTorch built the same network, which shows in the number of parameters.
local function check_size(row, model, theirs)
    local ours = 0
    for _, p in ipairs(model:parameters()) do ours = ours + p:numel() end
    if ours ~= theirs then error(('%s: Wane has %d parameters, PyTorch %d'):format(row.name, ours, theirs), 0) end
end

-- Returns what a row is to reach: with --class avx2 each the same.
local function aims_of(row)
    if common.named_class() ~= 'avx2' then return row.aims end
    return { time = 0.7, floor = 0.75, bytes = row.aims.bytes }
end

local function run(row, rivals, probe, where)
    local model, step = row.step()
    local times, best = { {}, {}, {} }, { gflops = 0 }
    for _, one in ipairs(rivals) do check_size(row, model, one:ask('build ' .. row.torch)) end
    for turn = 1, 2 + chosen.turns do -- two to warm up
        common.progress(('%s, turn %d of %d: %s'):format(where, turn, 2 + chosen.turns, row.name))
        probe_again(probe, row, best)
        local seconds = { timed_wane(step) }
        for i, one in ipairs(rivals) do seconds[1 + i] = timed_rival(one) end
        for i, s in ipairs(turn > 2 and seconds or {}) do table.insert(times[i], s) end
    end
    local floor, bandwidth
    if best.gflops > 0 then floor, bandwidth = floor_of(row, best) end
    return { name = row.name, short = row.short, aims = aims_of(row), wane = median(times[1]),
        least = math.min(unpack(times[1])), tuned = median(times[2]), shipped = median(times[3]),
        peak = peak_of(row, step), gflops = best.gflops, bandwidth = bandwidth, floor = floor }
end

-- ---- report ---------------------------------------------------------------------------------------------------
local function wane_start()
    local start = C.wn_now()
    local root = common.root
    assert(os.execute(([["%s" -e 'package.path = "%s/lua/?.lua;%s/lua/?/init.lua;" .. package.path; ]]
        .. [[require("wane").tensor { 1, 2, 3 }']]):format(LUAJIT, root, root)) == 0, 'Wane did not start')
    return C.wn_now() - start
end

local function measure(data, rivals)
    local probe, picked = common.probe(), {}
    for i, row in ipairs(rows) do
        if not chosen.rows or chosen.rows[i] then picked[#picked + 1] = row end
    end
    data.partial = #picked < #rows
    for i, row in ipairs(picked) do
        data.rows[i] = run(row, rivals, probe, ('rival %d of %d'):format(i, #picked))
        collectgarbage()
        collectgarbage()
        wane.memory.trim()
    end
    for _, one in ipairs(rivals) do one:close() end
    for i, row in ipairs(rivals[1] and picked or {}) do -- last: these processes have the memory for themselves
        common.progress(('rival, live bytes %d of %d: %s'):format(i, #picked, row.name))
        data.rows[i].live = live_bytes(row)
    end
    common.progress()
end

local function main()
    local rivals = pytorch.is_installed() and { rival(pytorch.TUNED), rival '' } or {}
    local data = common.data
    data.rows, data.turns, data.threads, data.small = {}, chosen.turns, C.wn_threads(), chosen.small
    data.kernels = ffi.string(C.wn_kernels())
    data.starts = { wane = wane_start() }
    if rivals[1] then
        data.torch = rivals[1]:described()
        data.starts.tuned, data.starts.shipped = rivals[1].started, rivals[2].started
    end
    measure(data, rivals)
    common.save()
    io.write(report.rival(data))
    if not data.torch then
        print(pytorch.python .. ' has no PyTorch: the columns PyTorch tuned, Wane / tuned, as shipped, its bytes and '
            .. 'the ratio of bytes are absent')
    end
end

main()
