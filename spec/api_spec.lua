-- Calls every function of the C API with arguments that make no sense, then with live handles of every kind in the
-- place of every number. Guards against crashes: each call must come back, with a status and a message where its result
-- can tell of a failure, and a training step afterwards must give the same bits as before.
--
-- The functions are those that the library's header declares: a function that this file cannot call fails by its name.
-- `make fuzz` goes further, with random programs under the sanitizers. At the end stands what the text of lua/ may not
-- hold.
local helper = require 'spec.helper'
local wane = require 'wane'
local binding = require 'wane.ffi'

local C = binding.C
local PATH = os.tmpname()
local BAD = { -1, -2147483648, 2147483647, 1000 }
local WIDE = { -1LL, -0x7fffffffffffffffLL - 1, 0x7fffffffffffffffLL, 0x100000000LL }

-- APART lists functions that are not called with numbers at random: they would wait, signal, end or follow processes,
-- change every later run, or read as many bytes as they are told to. Those that can fail in a way of their own are
-- called below by name.
local APART = {
    wn_interrupt = 'the next run would stop', wn_signal_on = 'handles SIGINT', wn_counter_set = 'changes later numbers',
    wn_seed = 'changes later numbers', wn_timing = 'changes later runs',
    wn_digest = 'reads n bytes', wn_json_cost = 'reads n bytes', wn_release = 'cannot fail',
    wn_warning = 'takes a warning',
    wn_cost = 'forgets costs', wn_line = 'takes NULL for no line',
    wn_sequence_enter = 'takes -1 for none',
    wn_anomaly = 'changes later runs', wn_hyper = 'takes nothing and makes a handle, 0 too',
}

-- ANSWERS lists functions that return neither a status nor a handle: a word, a count, or what was set before.
local ANSWERS = {
    wn_start = true, wn_threads = true, wn_interrupted = true, wn_process = true, wn_op_count = true, wn_op_id = true,
    wn_device_count = true, wn_cell_grad = true, wn_cell_state = true, wn_element_bytes = true, wn_element_dtype = true,
    wn_weight_layout = true,
    wn_device_set = true, wn_action_lossy = true, wn_trace = true,
    wn_node_input = true, wn_free = true, wn_device_auto = true, wn_tf32 = true,
}

-- ---- the header ----------------------------------------------------------------------------------------------------

-- Returns the functions that the library's header declares, each { name =, result =, inside = its parameters as text }.
local function declared()
    local text = binding.string(C.wn_cdef()):gsub('struct%s+wn_[%w_]+%s*(%b{})%s*;', ''):gsub('enum%s*(%b{})%s*;', '')
    text = text:gsub('typedef[^;]*;', '')
    local list = {}
    for statement in text:gmatch '([^;]+);' do
        local result, name, inside = statement:match '^%s*(.-)%s*(wn_[%w_]+)%s*(%b())%s*$'
        assert(name, 'not understood: ' .. statement)
        list[#list + 1] = { name = name, result = result, inside = inside:sub(2, -2) }
    end
    return list
end

-- Returns the argument of turn k: a number that makes no sense, or no address.
local function argument(of, k)
    if of:find '%*' or of:find '^wn_look' then return nil end -- no address, nothing to call
    if of:find '^double' then return k % 2 == 0 and 0 / 0 or -1 / 0 end
    if of:find '^u?int64_t' then return WIDE[(k - 1) % #WIDE + 1] end
    if of:find '^int32_t' then return BAD[(k - 1) % #BAD + 1] end
    error('an argument of a kind that the walk does not know: ' .. of)
end

local function call(f, k)
    local args, n = {}, 0
    if f.inside ~= 'void' then
        for of in (f.inside .. ','):gmatch '%s*(.-)%s*,' do
            n = n + 1
            args[n] = argument(of, k + n - 1)
        end
    end
    return C[f.name](unpack(args, 1, n))
end

-- ---- a step --------------------------------------------------------------------------------------------------------

-- Trains a small model for one step; returns the loss and every element of the parameters, each as text.
local function train()
    wane.manual_seed(7)
    local model = wane.nn.Linear(4, 3)
    local opt = wane.optim.SGD(model:parameters(), { lr = 0.1 })
    local loss = (model(wane.ones(2, 4)):tanh()):sum()
    opt:step(loss)
    local seen = { ('%.17g'):format(loss:item()) }
    local function add(v)
        if type(v) == 'number' then seen[#seen + 1] = ('%.17g'):format(v) end
        for _, inner in ipairs(type(v) == 'table' and v or {}) do add(inner) end
    end
    for _, p in ipairs(model:parameters()) do add(p:totable()) end
    return seen
end

local function refused(code, what)
    code = tonumber(code)
    assert.is_true(code ~= 0, what .. ' was taken')
    local word = binding.string(C.wn_status_name(math.abs(code)))
    assert.is_truthy(#word > 0 and #binding.string(C.wn_message()) > 0, what .. ' says nothing')
end

local function f32(...)
    local t = binding.new 'struct wn_type'
    t.ndim = select('#', ...)
    for i = 1, t.ndim do t.dim[i - 1] = select(i, ...) end
    return t
end

local function record(name, inputs, attrs)
    return C.wn_record(C.wn_op_id(name), #inputs, binding.new('int32_t[?]', #inputs, inputs), attrs, 0)
end

local before, held -- what a step gives, and a value, before any call

setup(function()
    before = train()
    held = C.wn_data(f32(2), 0, binding.new('float[2]', 1, 2))
end)
teardown(function() C.wn_release(held) end)

describe('the C API', function()
    after_each(function() assert.are.same(before, train()) end)

    it('is declared in words that the walk reads', function()
        local list = declared()
        assert.is_true(#list > 100)
        for _, f in ipairs(list) do
            local is_known = f.result == 'void' or f.result == 'double' or f.result:find 'char' or f.result:find '64_t'
                or f.result == 'int32_t' or f.result == 'struct wn_context *'
            assert.is_truthy(is_known, f.name .. ' returns ' .. f.result)
        end
        for name in pairs(APART) do assert.is_truthy(C[name], name) end
        for name in pairs(ANSWERS) do assert.is_truthy(C[name], name) end
    end)

    it('refuses ids, counts and sizes that are none and NULL pointers, in every function', function()
        local taken = {}
        for _, f in ipairs(declared()) do
            if not APART[f.name] then
                for k = 1, 4 do
                    local result = call(f, k)
                    if f.result == 'int32_t' and not ANSWERS[f.name] then
                        if result == 0 then taken[#taken + 1] = f.name .. ' ' .. k else refused(result, f.name) end
                    end
                end
            end
        end
        assert.are.same({}, taken)
    end)
end)

-- ---- live handles in every place ----------------------------------------

-- NEVER lists functions that are not called with live handles either: they end processes, or wait for them.
local NEVER = { wn_spawn = true, wn_wait = true, wn_kill = true, wn_exit_with_parent = true, wn_interrupt = true,
    wn_signal_on = true }

local function handles()
    local cell = C.wn_cell(0, held, 'w')
    C.wn_cell_need_grad(cell, 1)
    local sum = record('sum', { cell })
    local r, made = binding.new 'struct wn_request', {}
    r.scale, r.n_roots, r.roots = 1, 1, binding.new('int32_t[1]', sum)
    for i = 1, 3 do made[i] = C.wn_open(r) end -- open, planned, run
    for i = 2, 3 do assert.are.equal(0, C.wn_plan(made[i])) end
    assert.are.equal(0, C.wn_run(made[3]))
    local kept = binding.new 'int32_t[1]'
    for _, id in ipairs { cell, sum, C.wn_hyper(), C.wn_file_create(PATH), C.wn_lock(PATH, kept),
        C.wn_file_open(debug.getinfo(1, 'S').source:sub(2)), C.wn_data(f32(2, 2), 1, nil) } do made[#made + 1] = id end
    for _, id in ipairs(made) do assert.is_true(id >= 0, binding.string(C.wn_message())) end
    return made
end

-- Calls f with one handle in place `at` and small numbers elsewhere, addresses of zeros for pointers.
local function call_with(f, at, handle, room, turn)
    local args, n = {}, 0
    for of in (f.inside .. ','):gmatch '%s*(.-)%s*,' do
        n = n + 1
        local is_text = of:find 'char%s*%*' and not of:find '%*%s*const'
        if n == at and of:find '^int32_t' and not of:find '%*' then args[n] = handle
        elseif is_text then args[n] = PATH
        elseif of:find '^wn_look' then args[n] = nil
        elseif of:find '%*' then args[n] = require('ffi').cast('void *', room)
        else args[n] = (turn + n) % 3 end
    end
    return C[f.name](unpack(args, 1, n))
end

describe('the C API with live handles', function()
    teardown(function()
        os.remove(PATH)
        os.remove(PATH .. '.lock')
    end)

    local function put_back()
        for device = 0, C.wn_device_count() do
            for is_disk = 0, 1 do C.wn_memory_limit(device, is_disk, 0) end
        end
        C.wn_anomaly(0)
        C.wn_device_set(0)
        C.wn_timing(0)
        C.wn_cost(nil, 0)
    end

    it('answers to a handle of every kind in the place of every number', function()
        for _, f in ipairs(declared()) do
            local _, places = (f.inside .. ','):gsub(',', '')
            local has_number = f.inside:find 'int32_t%s+[%w_]+' and not NEVER[f.name]
            local made = has_number and handles() or {}
            for k, handle in ipairs(made) do
                for at = 1, places do
                    local room = binding.new('uint8_t[65536]')
                    local result = call_with(f, at, handle, room, k)
                    if f.result == 'int32_t' and result < 0 and not ANSWERS[f.name] and not APART[f.name] then
                        refused(result, f.name)
                    end
                end
            end
            for _, id in ipairs(made) do C.wn_release(id) end
            C.wn_free(-1)
            put_back()
            if has_number then assert.are.same(before, train(), f.name) end
        end
    end)
end)

describe('a door of the C API', function()
    after_each(function() assert.are.same(before, train()) end)

    it('refuses a vector of host numbers and no kind of state as a cell', function()
        local vector = C.wn_const(binding.new('double[2]', 1, 2), 2, 0)
        refused(C.wn_cell(0, vector, 'w'), 'a CONST vector')
        for _, kind in ipairs { 1, 5, 8, 9, 1000, -1 } do refused(C.wn_cell(kind, held, 'w'), 'kind ' .. kind) end
        C.wn_release(vector)
    end)

    it('refuses effects and leaves that are recorded as values', function()
        local cell = C.wn_cell(0, held, 'w')
        for _, op in ipairs { 'sgd', 'momentum', 'adam', 'assign', 'data', 'const', 'cell' } do
            for n = 0, 4 do
                local inputs = {}
                for i = 1, n do inputs[i] = i == 1 and cell or held end
                if C.wn_op_id(op) >= 0 then refused(record(op, inputs), op .. ' of ' .. n) end
            end
        end
        C.wn_release(cell)
    end)

    it('refuses attributes outside their ranges, with every op', function()
        for op = 0, C.wn_op_count() - 1 do
            local info = binding.new 'struct wn_op_info'
            C.wn_op_get(op, info)
            local inputs = binding.new('int32_t[16]', held)
            for _, field in ipairs { 'n', 'dtype', 'layout' } do
                for _, value in ipairs { -1, 9, 1000, 32767 } do
                    local attrs = binding.new 'struct wn_attrs'
                    attrs[field] = value
                    refused(C.wn_record(op, info.least, inputs, attrs, 0), ('op %d, %s %d'):format(op, field, value))
                end
            end
        end
    end)

    it('answers for the widest places and dims that an op may be given', function()
        for op = 0, C.wn_op_count() - 1 do
            local info = binding.new 'struct wn_op_info'
            C.wn_op_get(op, info)
            local inputs, said = binding.new('int32_t[16]', held), binding.new 'struct wn_attrs'
            for _, value in ipairs(WIDE) do
                said.n = 1
                for i = 0, 7 do said.i[i] = value end
                local id = C.wn_record(op, info.least, inputs, said, 0)
                if id >= 0 then C.wn_release(id) else refused(id, 'op ' .. op) end
            end
        end
        local attrs = binding.new 'struct wn_attrs'
        attrs.n, attrs.i[0] = 1, 0x7fffffffffffffffLL
        refused(record('softmax', { held }, attrs), 'a dim beyond all')
        assert.is_nil(binding.string(C.wn_message()):find 'dim %-')
        attrs.n, attrs.i[0], attrs.i[1] = 3, 0, 0x7fffffffffffffffLL
        refused(record('narrow', { held }, attrs), 'a start beyond all')
        assert.is_nil(binding.string(C.wn_message()):find 'from %-')
    end)

    it('refuses types of no dtype, of too many dims and of dims below 0', function()
        for field, values in pairs { dtype = { -1, 99, 2147483647 }, ndim = { -1, 9, 32767 }, layout = { -1, 99 } } do
            for _, value in ipairs(values) do
                local t = f32(2)
                t[field] = value
                refused(C.wn_data(t, 0, nil), field .. ' ' .. value)
            end
        end
        refused(C.wn_data(f32(-1), 0, nil), 'a dim below 0')
        refused(C.wn_data(f32(0x7fffffffffffffffLL), 0, nil), 'a dim beyond all memory')
        for _, dtype in ipairs { -1, 99 } do
            refused(C.wn_const(binding.new('double[1]'), 0, dtype), 'dtype ' .. dtype)
        end
        refused(C.wn_const(binding.new('double[9]'), 9, 0), 'nine numbers')
    end)

    it('refuses an update that is none and requests whose counts disagree', function()
        local cell, hyper = C.wn_cell(0, held, 'w'), C.wn_hyper()
        local loss = record('sum', { cell })
        local roots, update = binding.new('int32_t[1]', loss), binding.new 'struct wn_update[1]'
        local function request(fields)
            local r = binding.new 'struct wn_request'
            r.scale, r.n_roots, r.roots = 1, 1, roots
            for k, v in pairs(fields) do r[k] = v end
            return C.wn_open(r)
        end
        for _, op in ipairs { C.wn_op_id 'add', -1, 1000, 2147483647 } do
            update[0].op, update[0].cell[0], update[0].cell[1], update[0].cell[2] = op, cell, -1, -1
            update[0].hyper = hyper
            refused(request { mode = 2, n_updates = 1, updates = update }, 'update ' .. op)
        end
        for what, fields in pairs {
            mode = { mode = 5 }, roots = { n_roots = -1 }, none = { n_roots = 0 }, updates = { n_updates = 1 },
            cells = { n_cells = 1 }, scale = { scale = 0 / 0 }, clip = { clip = 1 }, assign = { mode = 4 },
        } do
            refused(request(fields), what)
        end
        for _, id in ipairs { cell, hyper, loss } do C.wn_release(id) end
    end)

    it('refuses to wait for no number of seconds', function()
        local ended = binding.new 'struct wn_ended'
        refused(C.wn_wait(C.wn_process(), 0 / 0, ended), 'NaN seconds')
        refused(C.wn_wait(-1, 0, ended), 'every process')
    end)

    it('clips the gradients of losses that share one backward pass, as of those with a pass each', function()
        for joint = 0, 1 do
            local cell, hyper = C.wn_cell(0, held, 'w'), C.wn_hyper()
            C.wn_cell_need_grad(cell, 1)
            C.wn_hyper_set(hyper, 0, 1)
            local r, update = binding.new 'struct wn_request', binding.new 'struct wn_update[1]'
            update[0].op, update[0].hyper = C.wn_op_id 'sgd', hyper
            update[0].cell[0], update[0].cell[1], update[0].cell[2] = cell, -1, -1
            local roots = { record('sum', { record('mul', { cell, cell }) }), record('sum', { cell }) }
            r.mode, r.scale, r.clip, r.joint, r.n_roots, r.n_updates = 2, 1, 0.5, joint, 2, 1
            r.roots, r.updates = binding.new('int32_t[2]', roots), update
            local program, got = C.wn_open(r), binding.new 'float[2]'
            assert.is_true(program >= 0)
            assert.are.equal(0, C.wn_plan(program), binding.string(C.wn_message()))
            assert.are.equal(0, C.wn_run(program), binding.string(C.wn_message()))
            assert.are.equal(0, C.wn_read(cell, got, 8))
            local factor = 0.5 / math.sqrt(34) -- w = { 1, 2 }, its gradient 2 w + 1 = { 3, 5 }
            assert.is_true(math.abs(got[0] - (1 - 3 * factor)) < 1e-6, got[0])
            assert.is_true(math.abs(got[1] - (2 - 5 * factor)) < 1e-6, got[1])
            for _, id in ipairs { program, cell, hyper, roots[1], roots[2] } do C.wn_release(id) end
        end
    end)

    it('sums the bytes that a plan moves without overflow, however large its values are', function()
        local huge, r = C.wn_data(f32(2 ^ 29, 2 ^ 30), 1, nil), binding.new 'struct wn_request'
        assert.is_true(huge >= 0, binding.string(C.wn_message()))
        local v = huge
        local dim = binding.new 'struct wn_attrs'
        dim.n, dim.i[0] = 1, 1
        for _ = 1, 3 do v = record('softmax', { v }, dim) end
        r.scale, r.n_roots, r.roots = 1, 1, binding.new('int32_t[1]', v)
        local program, s = C.wn_open(r), binding.new 'struct wn_summary'
        if program >= 0 and C.wn_plan(program) == 0 then
            assert.are.equal(0, C.wn_summary(program, s))
            assert.is_true(s.moved > 0)
        end
        for _, id in ipairs { huge, v, program } do C.wn_release(id) end
    end)

    it('gives back what a value held when a second program computes it again', function()
        local memory = binding.new 'struct wn_memory'
        local function live()
            C.wn_free(-1) -- lets go of what was released
            C.wn_memory_get(0, memory)
            return tonumber(memory.kinds[5])
        end
        local start = live()
        local double = record('add', { held, held })
        local r, programs = binding.new 'struct wn_request', {}
        r.scale, r.n_roots, r.roots = 1, 2, binding.new('int32_t[2]', double, double)
        for i = 1, 2 do programs[i] = C.wn_open(r) end
        for i = 1, 2 do
            assert.is_true(programs[i] >= 0)
            assert.are.equal(0, C.wn_plan(programs[i]))
            C.wn_run(programs[i])
        end
        local got = binding.new 'float[2]'
        assert.are.equal(0, C.wn_read(double, got, 8))
        assert.are.equal(4, got[1])
        for i = 1, 2 do C.wn_release(programs[i]) end
        C.wn_release(double)
        assert.are.equal(start, live())
    end)
end)

-- ---- the text of lua/ ----------------------------------------------------------------------------------------------
-- Reads the text of lua/. Arrays of LuaJIT's ffi check no index, so only ffi.lua makes and fills those of a length
-- found at run time. WRITERS maps a file that writes elements of arrays one by one, each array's length being what
-- bounds the loop, to the number of calls of binding.array and binding.list in it. A new file is looked at before it is
-- listed here.
local WRITERS = {
    ['data/batches.lua'] = 1, ['data/order.lua'] = 1, ['data/tokens.lua'] = 4, ['dist/init.lua'] = 3,
    ['program/accumulate.lua'] = 3,
    ['io/file.lua'] = 2, ['io/init.lua'] = 2, ['io/ranges.lua'] = 1, ['nn/attention.lua'] = 3,
    ['optim/squares.lua'] = 3, ['plan/budget/share.lua'] = 2, ['plan/costs/ranks.lua'] = 2, ['plan/init.lua'] = 1,
    ['program/ranks.lua'] = 2,
    ['plan/measure/init.lua'] = 1, ['policy/candidates.lua'] = 4, ['policy/recipe.lua'] = 4, ['program/init.lua'] = 2,
    ['repl/readline.lua'] = 1, ['sweep/process.lua'] = 1, ['system.lua'] = 1,
    ['tensor/create.lua'] = 2, ['tensor/read.lua'] = 2,
}

local function count_of(text, pattern) return select(2, text:gsub(pattern, '')) end

describe('the text of lua/', function()
    local texts = {}
    for _, path in ipairs(helper.lines "find lua/wane -name '*.lua'") do
        local name = path:gsub('^lua/wane/', '')
        texts[name] = helper.read(path):gsub('%-%-[^\n]*', '')
    end

    -- Checks that a pattern stands in no file but those named.
    local function assert_absent(pattern, but)
        for name, text in pairs(texts) do
            assert(name == but or not text:find(pattern), name .. ' has ' .. pattern)
        end
    end

    it('makes no array of a length found at run time outside ffi.lua', function() assert_absent('%[%?]', 'ffi.lua') end)

    it('writes dims and attributes outside ffi.lua at places that are numbers of the text alone', function()
        for name, text in pairs(texts) do
            for of, field, place in text:gmatch '(%w+)%.(%a+)%[([^%]]*)%][^=~<>\n]*=%f[^=]' do
                local is_attribute = of ~= 'node' and (field == 'dim' or field == 'i' or field == 'f') -- node: a table
                local is_fixed = place:find '^%d$' or place == 'KEEPDIM' or name == 'ffi.lua'
                if is_attribute then assert.is_truthy(is_fixed, ('%s: %s.%s[%s]'):format(name, of, field, place)) end
            end
        end
    end)

    it('makes arrays that are filled element by element in the files listed here', function()
        local found = {}
        for name, text in pairs(texts) do
            local n = count_of(text, 'binding%.array%(') + count_of(text, 'binding%.list%(')
            if n > 0 and name ~= 'ffi.lua' then found[name] = n end
        end
        assert.are.same(WRITERS, found)
    end)

    it('walks tables through iterate, which LuaJIT compiles rightly', function()
        assert_absent 'in pairs%('
        assert_absent 'in next,'
    end)

    -- error(e, 0) of an error that was caught would show the frames of where it is raised again.
    it('raises errors again by errors.again alone', function()
        for name, text in pairs(texts) do
            for what in text:gmatch '[^%w_.:]error%(%(?([%w_.]+)%)?, 0%)' do
                assert(what == 'message' or name == 'errors.lua', name .. ': error(' .. what .. ', 0)')
            end
        end
    end)

    it('names no temporary file, which a kill would leave', function() assert_absent 'tmpname' end)
end)
