-- A character GPT on this project's own pages and sources: the zoo's small GPT-2, trained on the CPU from nothing to
-- less than half of the entropy of single characters, then asked for text. It has all parts of a training: a held-out
-- tail, AdamW with clipped gradients, a warmup and a cosine, a step under any policy or budget, progress, a
-- curve of the losses, and a checkpoint from which it goes on with the same bits, after ^C too.
--
--   luajit examples/chargpt.lua [--size tiny|small|medium] [--steps N | --minutes M] [--policy P] [--budget B]
--                               [--sample N] [--temperature T] [--top-k K] [--prompt TEXT] [--seed S] [--stop N]
--                               [--resume] [--out FOLDER]
--
-- --resume goes on with the run of the checkpoint; a finished run only reports and samples again. --stop ends after a
-- step as ^C would. --minutes times a few steps and takes as many as fit. The text of a run is kept beside its
-- checkpoint, so that sources may change in between: chargpt.txt, .safetensors and .svg in examples/out, or --out.
--
-- It printed (2 cores of an AMD EPYC, nothing else running; long lines are cut):
--
--   422 files of this project
--   text: 3,265,205 characters, 3,101,944 to train on, a tail of 163,261 held out
--   entropy of single characters: 3.3532 nats, of the tail alone 3.3186
--   model: GPT-2 with d 128, 4 layers, 4 heads, 128 characters of context: 842,496 parameters; 2 threads
--   forward and backward: 39,759,360 bytes predicted at the peak, 39,759,360 measured; 39,909,376 reserved; 0 of 332
--   steps: 4000 of 8 windows
--
--       step  training  held out  of entropy  seconds
--          0              5.4600       1.645      0.2
--        200    2.6297    2.7280       0.822      5.1
--        400    2.4755    2.4382       0.735      9.1
--        600    2.1421    2.1926       0.661     13.3
--        800    2.0233    2.0273       0.611     17.4
--       1000    1.8443    1.8787       0.566     21.6
--       1200    1.7858    1.7756       0.535     25.8
--       1400    1.7054    1.6650       0.502     30.3
--       1600    1.6157    1.6050       0.484     34.7
--       1800    1.5325    1.5658       0.472     38.8
--       2000    1.4918    1.4937       0.450     42.8
--       2200    1.4596    1.4763       0.445     46.8
--       2400    1.3843    1.3953       0.420     50.9
--       2600    1.3803    1.3630       0.411     55.2
--       2800    1.3373    1.3196       0.398     59.3
--       3000    1.3048    1.2884       0.388     63.6
--       3200    1.2306    1.2623       0.380     68.3
--       3400    1.2184    1.2511       0.377     72.5
--       3600    1.1842    1.2238       0.369     76.6
--       3800    1.1747    1.2074       0.364     80.7
--       4000    1.1582    1.2009       0.362     84.7
--
--   4000 steps in 84.7 s
--
--   a character GPT: d 128, 4 layers, 128 characters of context
--   nats a character
--        5.9 |
--            |o
--            |
--            |
--            |.
--            |.
--            |----------------------------------------------------------------
--            | .
--            | ..o.
--            |------o--o------------------------------------------------------
--            |         ...o..o.....
--            |                   o..o..o..o..o..o... .
--            |                                    . o..o..o..o..o..o...o..o..o
--            |
--            |
--          0 |
--            +----------------------------------------------------------------
--             0                                                           4000  step
--     .  training
--     o  held out
--     -  entropy of single characters: 3.319
--     -  0.65 of it: 2.157
--
--   all of the held-out text: 1.1860 nats a character, 0.357 of the entropy of its single characters
--
--   local function struct wn__walk_buffers *b)
--   {
--       int64_t b = scale_time, recipe_offseet, b)
--       for (int32_t i = 0; i < 0; k++)
--           if (wn__form_init(c, i, k, n)) return 0;
--       if (k->at != wn__yepps != WN_OP_ACK, &t->key) return WN_OK;
--       int64_t return WN_OK) {
--       for (int64_t k = 0; k < w->n_slab = n->in[i], i = WN_WORES; row, rows = 2 / what one its of the in and what b
--
--   memory of cpu, bytes (no limit)
--   kind               now  at the peak
--   ----------  ----------  -----------
--   parameter    3,369,984    3,369,984
--   gradient     3,369,984            0
--   optimizer    6,739,968    6,739,968
--   input        3,524,864    3,437,312
--   result         176,128            0
--   activation           0   36,381,184
--   allocated   17,180,928   49,928,448
--   reserved    53,712,128   53,798,656
local root = arg[0]:match('^(.*)/examples/[^/]*$') or (arg[0]:match('^examples/') and '.') or '..'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. package.path
local wane = require 'wane'
local gpt2 = require 'wane.zoo.gpt2'
local measure, system = require 'wane.plan.measure', require 'wane.system'
local read, refuse = dofile(root .. '/examples/options.lua')
local new_progress = require('wane.report.progress').new
local optim, exact = wane.optim, wane.bytes.exact

-- Sizes by name. lr: the highest rate; points: the number of times that the held-out text is measured.
local sizes = {
    tiny = { layers = 1, heads = 2, d = 32, context = 32, batch = 4, lr = 1e-2, steps = 120, points = 6 },
    small = { layers = 3, heads = 4, d = 96, context = 64, batch = 16, lr = 5e-3, steps = 3000, points = 20 },
    medium = { layers = 4, heads = 4, d = 128, context = 128, batch = 8, lr = 4e-3, steps = 4000, points = 20 },
}
local WARMUP, LEAST_RATE, CLIP, DECAY = 0.05, 0.1, 1, 0.1 -- WARMUP and LEAST_RATE are shares of steps and lr
local USED = 0.85 -- share of --minutes for steps; the rest is for points and the end
local HELD_OUT, LOOKED_AT = 0.05, 0.2 -- share of the text in the tail; share of the tail that a point measures

-- ---- the text -----------------------------------------------------------------------------------------------------
-- Returns the project's own pages and sources, one after the other. Their order follows from their names alone and has
-- no other meaning, so the tail holds a few whole files of every kind.
local function write_text(path)
    local list = {}
    local find = io.popen('cd "' .. root .. [[" && find . \( -name build -o -name '.*' ! -name . -o -path ./runs -o ]]
        .. [[-path ./examples/out \) -prune -o -type f \( -name '*.md' -o -name '*.lua' -o -name '*.[ch]' \) -print]])
    for name in find:lines() do list[#list + 1] = { name = name, key = measure.fingerprint { name } } end
    find:close()
    if #list == 0 then error('no *.md, *.lua, *.c, *.h below ' .. root, 0) end
    table.sort(list, function(a, b) return a.key < b.key end)
    local file = assert(io.open(path, 'wb'))
    for _, each in ipairs(list) do file:write((assert(system.read(root .. '/' .. each.name)))) end
    file:close()
    return #list
end

local function read_text(path)
    if not system.read(path) then error(path .. ' is not there: it is written when a training begins', 0) end
    local text = wane.data.tokens(path, { vocab = 'byte' })
    local train, held = text:split(1 - HELD_OUT)
    return { whole = text, train = train, held = held, some = (held:split(LOOKED_AT)) }
end

-- ---- a run --------------------------------------------------------------------------------------------------------
-- A run: the numbers of a checkpoint beside its tensors. trained: the mean loss of every hundredth of the steps; held:
-- the loss of the held-out text at each point; sum, count: of the losses since the last entry of `trained`.
local function new_run(options)
    local name = options.size or 'medium'
    local size = sizes[name] or refuse("no size '%s'; there are tiny, small, medium", name)
    local run = { step = 0, sum = 0, count = 0, trained = { x = {}, y = {} }, held = { x = {}, y = {} },
        steps = options.steps or size.steps }
    for key, value in pairs(size) do run[key] = run[key] or value end
    return run
end

local function build(run)
    run.model = gpt2.new { vocab = 256, context = run.context, layers = run.layers, heads = run.heads, d = run.d }
    run.opt = optim.AdamW(run.model:parameters(), { lr = run.lr, betas = { 0.9, 0.95 }, weight_decay = DECAY,
        clip_norm = CLIP })
    return run
end

local KEPT = { 'layers', 'heads', 'd', 'context', 'batch', 'lr', 'steps', 'points', 'sum', 'count', 'data' }

local function note(curve, step, loss)
    table.insert(curve.x, step)
    table.insert(curve.y, loss)
end

local function save(run)
    local meta = {}
    for _, key in ipairs(KEPT) do meta[key] = run[key] end
    for _, key in ipairs { 'trained', 'held' } do
        local points = {}
        for k, step in ipairs(run[key].x) do points[k] = ('%d %.17g'):format(step, run[key].y[k]) end
        meta[key] = table.concat(points, ', ')
    end
    wane.save(run.file, run.model, { optimizer = run.opt, step = run.step, meta = meta })
end

local function resume(file)
    local _, info = wane.load(file)
    local run = { step = info.step }
    for _, key in ipairs(KEPT) do run[key] = info.meta[key] end
    for _, key in ipairs { 'trained', 'held' } do
        run[key] = { x = {}, y = {} }
        for step, loss in info.meta[key]:gmatch '(%d+) ([^,]+)' do note(run[key], tonumber(step), tonumber(loss)) end
    end
    build(run)
    wane.load(file, run.model, { optimizer = run.opt })
    return run
end

-- ---- measuring ----------------------------------------------------------------------------------------------------
-- Returns the mean loss of the model on all windows of a text, a number.
local function new_examiner(run)
    return function(text)
        local sum, count = 0, 0
        for x, y in wane.data.batches(text, { batch = run.batch, length = run.context, buffers = 1 }) do
            sum, count = sum + wane.no_grad(gpt2.loss, run.model, x, y):item(), count + 1
        end
        return sum / count
    end
end

-- Runs one backward that changes nothing. Returns its measured and its predicted bytes, and its seconds.
local function look_at_a_step(run, text, decided)
    local x, y = wane.data.batches(text.held, { batch = run.batch, length = run.context }):next()
    local function loss() return gpt2.loss(run.model, x, y) end
    local m = wane.measure(loss, { steps = 3, policy = decided.policy, budget = decided.budget })
    local plan = wane.plan(loss, decided)
    if not m.exact then error 'the bytes measured are not those predicted' end
    print(('forward and backward: %s bytes predicted at the peak, %s measured; %s reserved; %d of %d nodes recomputed')
        :format(exact(m.predicted_peak), exact(m.peak), exact(m.reserved), plan.recomputed, plan.nodes))
    return m.seconds
end

-- ---- training -----------------------------------------------------------------------------------------------------
local ROW = '%8s  %8s  %8s  %10s  %7s'

local function look_at_held_out(run, text, examine, progress)
    progress:at('held-out text', run.step)
    local loss = examine(text.some)
    note(run.held, run.step, loss)
    progress:finish()
    local trained = run.trained.y[#run.trained.y]
    print(ROW:format(run.step, trained and ('%.4f'):format(trained) or '', ('%.4f'):format(loss),
        ('%.3f'):format(loss / text.held.entropy), ('%.1f'):format(progress:seconds())))
    save(run)
end

local function note_loss(run, loss)
    run.step, run.sum, run.count = run.step + 1, run.sum + loss, run.count + 1
    if run.step % math.max(1, math.floor(run.steps / 100)) ~= 0 then return end
    note(run.trained, run.step, run.sum / run.count)
    run.sum, run.count = 0, 0
end

-- Steps until `stop`. A step changes `run` and the model as a whole: after an error, such as ^C, both are as they were
-- before the step.
local function make_steps(run, text, decided, stop, progress)
    local batches = wane.data.batches(text.train, { batch = run.batch, length = run.context, shuffle = true, seed = 1,
        buffers = 1, state = run.data })
    local rate = optim.schedule.cosine(run.lr, { steps = run.steps, warmup = math.floor(WARMUP * run.steps),
        least = LEAST_RATE * run.lr })
    local examine, every = new_examiner(run), math.max(1, math.floor(run.steps / run.points))
    run.data = run.data or batches:state()
    while true do
        local is_point = run.step == run.steps or run.step % every == 0 and run.steps - run.step > every / 2
        if is_point and run.held.x[#run.held.x] ~= run.step then look_at_held_out(run, text, examine, progress) end
        if run.step >= stop then return end
        run.opt.lr = rate(run.step + 1)
        local loss = run.opt:step(gpt2.loss(run.model, batches:next()), decided):item()
        run.data = batches:state()
        note_loss(run, loss)
        progress:at(('loss %.4f'):format(loss), run.step)
    end
end

-- Trains and saves. Returns whether it came to the end, and its seconds.
local function train(run, text, decided, stop)
    local progress = new_progress(run.steps, false, run.step)
    print(ROW:format('step', 'training', 'held out', 'of entropy', 'seconds'))
    wane.on_interrupt(function() progress:finish() end, function()
        make_steps(run, text, decided, stop, progress)
        progress:finish()
    end)
    save(run)
    return run.step == run.steps, progress:seconds()
end

-- ---- sampling -----------------------------------------------------------------------------------------------------
-- Draws one of the k most likely bytes, by its share among them.
local function draw(logits, temperature, k)
    local order, weights, sum = {}, {}, 0
    for id = 1, #logits do order[id] = id end
    table.sort(order, function(a, b) return logits[a] > logits[b] or logits[a] == logits[b] and a < b end)
    for i = 1, k do
        weights[i] = math.exp((logits[order[i]] - logits[order[1]]) / temperature)
        sum = sum + weights[i]
    end
    local at = math.random() * sum
    for i = 1, k do
        at = at - weights[i]
        if at < 0 then return order[i] - 1 end
    end
    return order[1] - 1
end

-- Returns text that goes on from a prompt. The window has one shape for every byte, so that one plan serves all: it is
-- filled with zeros behind the text, which no position before them sees, and a product picks a row of the logits.
local function sample(run, options)
    local window = run.context
    local function logits_of(ids, at)
        local row = wane.arange(0, window):eq(at):to('f32'):reshape(1, window)
        return row:matmul(run.model(ids):reshape(window, 256)):reshape(256)
    end
    math.randomseed(options.seed)
    local text = options.prompt
    for _ = 1, options.sample do
        local seen, ids = text:sub(-window), {}
        for k = 1, window do ids[k] = seen:byte(k) or 0 end
        local logits = wane.no_grad(logits_of, wane.tensor({ ids }, { dtype = 'i32' }), #seen - 1):totable()
        text = text .. string.char(draw(logits, options.temperature, math.min(options['top-k'], 256)))
    end
    return (text:gsub('[^\n\t\32-\126]', '?'))
end

-- ---- reports ------------------------------------------------------------------------------------------------------
local function report_curve(run, text, out)
    local entropy = text.held.entropy
    local chart = wane.plot({ training = run.trained, ['held out'] = run.held }, { y = 'nats a character',
        title = ('a character GPT: d %d, %d layers, %d characters of context'):format(run.d, run.layers, run.context),
        levels = { { y = entropy, name = 'entropy of single characters' },
            { y = 0.65 * entropy, name = '0.65 of it' } } })
    print()
    print(chart)
    chart:svg(out .. '/chargpt.svg')
end

local function report_text(text)
    print(('text: %s characters, %s to train on, a tail of %s held out'):format(exact(text.whole.length),
        exact(text.train.length), exact(text.held.length)))
    print(('entropy of single characters: %.4f nats, of the tail alone %.4f'):format(text.whole.entropy,
        text.held.entropy))
end

-- ---- starting -----------------------------------------------------------------------------------------------------
local function options_of()
    local out = read({ sample = 400, temperature = 0.8, ['top-k'] = 40, prompt = 'local function ', seed = 1,
        resume = false, out = root .. '/examples/out' }, { size = '', steps = 1, stop = 1, minutes = 1, policy = '',
        budget = '' })
    for _, name in ipairs { 'steps', 'stop', 'sample', 'top-k', 'seed' } do
        if out[name] and (out[name] % 1 ~= 0 or out[name] < (name == 'sample' and 0 or 1)) then
            refuse('--%s takes a whole number, got %g', name, out[name])
        end
    end
    for _, name in ipairs { 'minutes', 'temperature' } do
        if out[name] and not (out[name] > 0) then refuse('--%s must be above 0', name) end
    end
    for _, name in ipairs { 'size', 'steps', 'minutes' } do
        if out.resume and out[name] then
            refuse('--%s: a run that is resumed keeps what it began with', name)
        end
    end
    if out.prompt == '' then refuse '--prompt takes a character at least' end
    return out
end

-- Returns the command that goes on with a run.
local function way_on(options)
    local words = { 'luajit', arg[0], '--resume' }
    for _, name in ipairs { 'out', 'policy', 'budget' } do
        if options[name] and options[name] ~= root .. '/examples/out' then
            words[#words + 1], words[#words + 2] = '--' .. name, options[name]
        end
    end
    return system.quoted(words)
end

local function main()
    io.stdout:setvbuf 'line' -- so that a pipe shows each row at once
    local options = options_of()
    local text_file, file = options.out .. '/chargpt.txt', options.out .. '/chargpt.safetensors'
    local decided = { policy = options.policy, budget = options.budget }
    local run
    system.make_folders(file)
    if options.resume then
        run = resume(file)
    else
        print(write_text(text_file) .. ' files of this project')
        wane.manual_seed(options.seed)
        run = build(new_run(options))
    end
    run.file = file
    local text = read_text(text_file)
    report_text(text)
    print(('model: GPT-2 with d %d, %d layers, %d heads, %d characters of context: %s parameters; %d threads'):format(
        run.d, run.layers, run.heads, run.context, exact(run.model:parameter_count()), measure.threads()))
    local seconds = look_at_a_step(run, text, decided)
    wane.memory.reset_peak()
    if options.minutes and not options.resume then
        run.steps = math.max(20, math.floor(60 * USED * options.minutes / seconds))
    end
    print(('steps: %d of %d windows\n'):format(run.steps, run.batch))
    local before = run.step
    local is_done, took = train(run, text, decided, math.min(options.stop or run.steps, run.steps))
    print(('\n%d steps in %.1f s'):format(run.step - before, took))
    if not is_done then
        print(('stopped after step %d of %d; this goes on: %s'):format(run.step, run.steps, way_on(options)))
        os.exit(options.stop and 0 or 130, true)
    end
    local held = new_examiner(run)(text.held)
    report_curve(run, text, options.out)
    print(('\nall of the held-out text: %.4f nats a character, %.3f of the entropy of its single characters')
        :format(held, held / text.held.entropy))
    print('\n' .. sample(run, options) .. '\n')
    print(wane.memory())
end

main()
