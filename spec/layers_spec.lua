-- Checks the rules that can be read off the files: who may include or require whom, how long files and functions are,
-- and that every file says in its head what it is for. Reads text only; needs no library.
--
-- The direction is: examples, spec -> lua/wane -> wane.h -> api -> run -> program -> plan -> graph -> ops -> base, with
-- run, memory -> device -> base, link -> base, and kernels -> kernel.h, base. Inside plan it is search -> lower ->
-- recipe -> ir, and search -> chain; inside run it is run -> watch -> issue -> link. To open a way, add it to
-- `may_include` with a reason.
local helper = require 'spec.helper'
local code_shapes = require 'spec.support.code_shapes'
local c_shapes, lua_shapes = code_shapes.c, code_shapes.lua

local LONGEST_FILE, LONGEST_FUNCTION = 500, 60
local LONGEST_MACRO, MOST_PARAMETERS, MOST_FIELDS, MOST_POSITIONAL = 20, 6, 20, 4

-- `may_include` maps a room to the rooms and single files that it may include.
local may_include = {
    -- Conversion between bf16 and f32 is written once, among the formulas.
    base = { 'base', 'kernels/scalar.h' },
    device = { 'device', 'base', 'kernels/kernel.h' },
    -- The functions of the GPU's device are in one library with its kernels.
    ['device/cuda'] = { 'device/cuda', 'device', 'base', 'kernels/cuda/launch.cuh', 'kernels/cuda/cublaslt.h',
        'kernels/cuda/cudnn.h', 'kernels/cuda/opened.h' },
    memory = { 'memory', 'device', 'base' },
    ops = { 'ops', 'base' },
    -- A value that was asked for owns its bytes, so the graph knows the ledger's buffers.
    graph = { 'graph', 'ops', 'base', 'memory' },
    ['plan/ir'] = { 'plan/ir', 'graph', 'base', 'runtime/wane_inspect.h' },
    -- A script gives a recipe in the form of wane.h.
    ['plan/recipe'] = { 'plan/recipe', 'plan/ir', 'base', 'runtime/wane.h' },
    -- The planner of chains knows numbers only, and nothing of graphs.
    ['plan/chain'] = { 'plan/chain', 'base' },
    -- An instruction carries the kernel it will call; nothing in plan calls one.
    ['plan/lower'] = { 'plan/lower', 'plan/recipe', 'plan/ir', 'base', 'kernels/kernel.h', 'runtime/wane_inspect.h' },
    ['plan/search'] = { 'plan/search', 'plan/lower', 'plan/chain', 'plan/recipe', 'plan/ir', 'base',
        'runtime/graph/encode.h' },
    -- Binding asks the device for kernels, and runs none.
    program = { 'program', 'plan/search', 'plan/lower', 'plan/recipe', 'plan/ir', 'graph', 'device', 'base',
        'runtime/wane_inspect.h' },
    ['run/issue'] = { 'run/issue', 'program', 'plan/lower', 'plan/recipe', 'link', 'base' },
    -- A watch may ask where the bytes of a run are, and starts nothing.
    ['run/watch'] = { 'run/watch', 'run/issue', 'plan/recipe', 'plan/ir', 'base' },
    run = { 'run', 'run/watch', 'run/issue', 'program', 'plan/lower', 'plan/ir', 'base' },
    io = { 'io', 'base' },
    ['link/mpi'] = { 'link/mpi' }, -- mpicc compiles it into a library of its own
    link = { 'link', 'link/mpi', 'base' },
    api = { 'api', 'run', 'run/watch', 'run/issue', 'program', 'plan/lower', 'plan/recipe', 'plan/ir', 'graph',
        'memory', 'io', 'link', 'device', 'base', 'wane.h' },
    ['wane.h'] = { 'wane.h', 'runtime/base/desc.h', 'runtime/base/shared.h' },
    kernels = { 'kernels', 'base' },
}

-- `may_require` maps a room of lua/wane to the rooms that it may require besides itself and `ground`. A name that
-- wane/init.lua loads (PLACES and `later`) is no require: init stands above all rooms, and hands lower files what they
-- call of upper ones.
local ground = { 'errors', 'ffi', 'scoped', 'gc', 'system', 'utf8', 'iterate', 'lazy', 'tree' }
local may_require = {
    errors = {}, ffi = {}, scoped = {}, gc = {}, system = {}, utf8 = {}, iterate = {}, lazy = {}, tree = {},
    report = { 'tensor' }, -- the plot of lines takes tensors
    tensor = {},
    policy = { 'tensor', 'report' },
    module = { 'tensor', 'policy' },
    program = { 'tensor', 'report', 'policy', 'module' },
    pytorch = { 'tensor', 'program' },
    plan = { 'tensor', 'report', 'policy', 'module', 'program', 'pytorch' },
    nn = { 'tensor', 'module', 'program' }, -- a loss has a gradient of its own
    optim = { 'tensor', 'module', 'program' }, -- an average is of a model
    io = { 'tensor', 'report', 'module', 'program', 'plan' },
    data = { 'tensor', 'report', 'io' },
    repl = { 'tensor', 'report', 'module', 'program', 'wane' },
    notebook = { 'report', 'repl' },
    cli = { 'report', 'policy', 'plan', 'repl', 'notebook', 'wane' },
    dist = { 'tensor', 'report', 'program', 'module', 'plan' }, -- a budget chooses words by plans
    sweep = { 'report', 'policy', 'plan', 'cli', 'repl', 'dist' },
    wane = { 'tensor', 'program' },
}

local function files(pattern, ...)
    local list = helper.lines('find ' .. table.concat({ ... }, ' ') .. ' -type f | sort')
    local out = {}
    for _, path in ipairs(list) do
        if path:match(pattern) then out[#out + 1] = path end
    end
    return out
end

local function c_files()
    local list = files('%.[ch]$', 'runtime', 'kernels')
    for _, path in ipairs(files('%.cuh?$', 'runtime', 'kernels')) do list[#list + 1] = path end
    for _, path in ipairs(files('%.inc$', 'runtime', 'kernels')) do list[#list + 1] = path end
    return list
end

-- Returns the files of C, CUDA and Lua.
local function source_files()
    local list = c_files()
    for _, path in ipairs(files('%.lua$', 'lua', 'spec', 'examples')) do list[#list + 1] = path end
    for _, path in ipairs(files('%.[ch]u?h?$', 'spec', 'examples')) do list[#list + 1] = path end
    return list
end

local lines_of = code_shapes.lines_of

local function room_of(path)
    if path:match('^runtime/wane[%w_]*%.h$') then return 'wane.h' end
    if path:match('^kernels/') then return 'kernels' end
    return path:match('^runtime/(.*)/')
end

-- Returns a path without . and .. in it: 'a/b/../c.h' -> 'a/c.h'.
local function normal(path)
    local parts = {}
    for part in path:gmatch('[^/]+') do
        if part == '..' then table.remove(parts) elseif part ~= '.' then parts[#parts + 1] = part end
    end
    return table.concat(parts, '/')
end

local function includes(path, text)
    local out = {}
    local folder = path:match('^(.*)/')
    for name in ('\n' .. text):gmatch('\n%s*#%s*include%s+"([^"]+)"') do
        out[#out + 1] = normal(folder .. '/' .. name)
    end
    return out
end

local function is_allowed(path, target)
    -- A table of rows belongs to whoever reads it.
    if target:match('%.def$') then return true end
    local list = may_include[path] or may_include[room_of(path)]
    for _, allowed in ipairs(list or {}) do
        if allowed == target or allowed == room_of(target) then return true end
    end
    return false
end

local module_of, requires, cycles = lua_shapes.module_of, lua_shapes.requires, lua_shapes.cycles

-- Returns a map: module -> list of the modules of lua/ that it requires.
local function lua_graph()
    local graph = {}
    for _, path in ipairs(files('%.lua$', 'lua')) do graph[module_of(path)] = requires(helper.read(path)) end
    return graph
end

local function lua_room(name)
    return name:match('^wane%.([^.]+)') or name
end

local function may_load(name, target)
    local room, other = lua_room(name), lua_room(target)
    if room == other then return true end
    for _, list in ipairs { ground, may_require[room] or {} } do
        for _, allowed in ipairs(list) do
            if allowed == other then return true end
        end
    end
    return false
end

local function show(list)
    return '\n    ' .. table.concat(list, '\n    ')
end

local function assert_none(bad)
    assert(#bad == 0, show(bad))
end

-- Fails with all that look(path, text, add) adds, called with each file of a list.
local function assert_clean(list, look)
    local bad = {}
    local function add(line) bad[#bad + 1] = line end
    for _, path in ipairs(list) do look(path, helper.read(path), add) end
    assert_none(bad)
end

-- Returns a line for each function of more lines than `limit`. shapes: those of the language of the text.
local function long_functions(path, text, limit, shapes)
    local bad = {}
    for _, f in ipairs(shapes.functions(text)) do
        if f.lines > limit then
            bad[#bad + 1] = ('%s:%d: %d lines, at most %d: %s'):format(path, f.line, f.lines, limit, f.name)
        end
    end
    return bad
end

-- Returns a function of a text that lists the shapes whose `size` is above `limit`, with `what` they have too much of.
local function broken_by(shapes_of, size, limit, what)
    return function(text)
        local broken = {}
        for _, shape in ipairs(shapes_of(text)) do
            shape.what = (what .. ', at most %d'):format(shape[size], limit)
            if shape[size] > limit then broken[#broken + 1] = shape end
        end
        return broken
    end
end
local broken_macros = broken_by(c_shapes.macros, 'lines', LONGEST_MACRO, 'is a macro of %d lines')
local broken_parameters = broken_by(c_shapes.parameters, 'n', MOST_PARAMETERS, 'has %d parameters')
local broken_initializers = broken_by(c_shapes.positional, 'n', MOST_POSITIONAL, 'has %d fields by position')
local broken_structs = broken_by(c_shapes.structs, 'n', MOST_FIELDS, 'has %d fields')

-- Fails with what breaks a rule in the files of C below a folder, all of them without one.
local function assert_unbroken(broken_of, folder)
    assert_clean(c_files(), function(path, text, add)
        local is_in = folder == nil or path:sub(1, #folder) == folder
        for _, row in ipairs(is_in and broken_of(text) or {}) do
            add(('%s: %s %s'):format(path, row.name, row.what))
        end
    end)
end

-- Returns the number of lines of the comment that a file opens with (after a #! line), 0 when it opens with something
-- else.
local function head_lines(path, text)
    local list = lines_of(text)
    local i = 1
    if list[1] and list[1]:match('^#!') then i = 2 end
    local first = i
    if path:match('%.lua$') then
        while list[i] and list[i]:match('^%-%-') do i = i + 1 end
        return i - first
    end
    if not (list[i] or ''):match('^/%*') then return 0 end
    while list[i] and not list[i]:match('%*/') do i = i + 1 end
    return i - first + 1
end

describe('the rules themselves', function()
    it('see a forbidden include, and let an allowed one pass', function()
        assert.is_false(is_allowed('runtime/plan/lower/place.c', 'runtime/device/device.h'))
        assert.is_false(is_allowed('runtime/plan/recipe/recipe.c', 'runtime/plan/lower/schedule.h'))
        assert.is_false(is_allowed('runtime/program/plan.c', 'runtime/run/run.h'))
        assert.is_false(is_allowed('runtime/ops/unary.c', 'runtime/graph/graph.h'))
        assert.is_false(is_allowed('kernels/cpu/element/unary.c', 'runtime/device/device.h'))
        assert.is_false(is_allowed('runtime/base/type.c', 'runtime/wane.h'))
        assert.is_false(is_allowed('runtime/run/issue/direct.c', 'runtime/run/watch/watch.h'))
        assert.is_true(is_allowed('runtime/run/run.c', 'runtime/run/watch/watch.h'))
        assert.same({ 'runtime/base/type.h', 'kernels/kernel.h' },
            includes('runtime/ops/op.h', '#include "../base/type.h"\n  # include "../../kernels/kernel.h"\n'))
    end)

    it('see a cycle of requires, and a require of a higher room', function()
        assert.same({ 'a -> b -> c -> a' }, cycles { a = { 'b' }, b = { 'c', 'x' }, c = { 'a' }, d = { 'a' } })
        assert.same({ 'a -> a' }, cycles { a = { 'a' } })
        assert.same({}, cycles { a = { 'b', 'c' }, b = { 'c' }, c = {} })
        local text = "    require('wane.b').f()\n-- require 'wane.c'\nrequire 'wane.a'\nrequire('wane.' .. x)"
        assert.same({ 'wane.b', 'wane.a' }, requires(text))
        assert.is_false(may_load('wane.tensor.read', 'wane.program'))
        assert.is_false(may_load('wane.policy', 'wane.module'))
        assert.is_false(may_load('wane.policy.decide', 'wane.module'))
        assert.is_true(may_load('wane.plan.costs', 'wane.program.sequence'))
    end)

    it('see a long function, a missing head and a comment head', function()
        local body = ('int f(void)\n{\n%s}\n'):format(('    g();\n'):rep(59))
        assert.equal(1, #long_functions('x.c', body, 60, c_shapes))
        assert.equal(0, #long_functions('x.c', body, 61, c_shapes))
        assert.equal(0, head_lines('x.c', '#include <stdio.h>\n'))
        assert.equal(2, head_lines('x.c', '/* one\n * two */\nint x;\n'))
        assert.equal(2, head_lines('x.lua', '#!/usr/bin/env luajit\n-- one\n-- two\nreturn 1\n'))
    end)

    it('see a function with too many parameters, in a macro too', function()
        local text = '/* f(a, b) */\nstatic int f(int a, void (*g)(int, int), char c[2],\n    int d, int e, '
            .. 'int h, int i)\n{\n    if (a, b)\n    {\n    }\n}\n'
        assert.same({ { name = 'f', n = 7 } }, c_shapes.parameters(text))
        assert.equal('has 7 parameters, at most 6', broken_parameters(text)[1].what)
        assert.equal(0, #broken_parameters((text:gsub(', int i%)', ')'))))
        assert.same({ { name = 'g', n = 0 } }, c_shapes.parameters('__attribute__((cold)) void g(void)\n{\n}\n'))
        local macro = '#define F(S)  \\\n    static void f_##S(int a, int b)  \\\n    {   \\\n    }\n'
        assert.same({ { name = 'f_##S', n = 2 } }, c_shapes.parameters(macro))
        assert.same({ { name = 'f', n = 2 } }, c_shapes.parameters 'static void FN(f)(int a, int b)\n{\n}\n')
    end)

    it('see a struct with too many fields', function()
        local text = 'struct s { /* a, b; */\n    int32_t a, b[2];\n    struct {\n        int c, d;\n    } *e;\n'
            .. '    void (*f)(int, int);\n};\nstruct s g = {1, 2, 3};\n'
        assert.same({ { name = 's', n = 4 }, { name = '', n = 2 } }, c_shapes.structs(text))
        local many = 'struct t {\n' .. ('    int a, b;\n'):rep(10) .. '    int c;\n};\n'
        assert.equal('has 21 fields, at most 20', broken_structs(many)[1].what)
        assert.equal(0, #broken_structs((many:gsub('    int c;\n', ''))))
    end)

    it('see a function of Lua with too many parameters', function()
        local text = '-- function(a, b)\nlocal function f(a, b, ...) end\nfunction t.x:g() return function(a,\n'
            .. '    b, c) end end'
        assert.same({ { name = 'f', line = 2, n = 2 }, { name = 't.x:g', line = 3, n = 0 },
            { name = 'function', line = 3, n = 3 } }, lua_shapes.parameters(text))
    end)

    it('see a long function of Lua, inside another one too', function()
        local text = 'local function f()\n    return function()\n' .. ('        g()\n'):rep(59) .. '    end\nend\n'
        assert.same({ 'x.lua:1: 63 lines, at most 60: local function f()',
            'x.lua:2: 61 lines, at most 60: return function()' }, long_functions('x.lua', text, 60, lua_shapes))
        assert.equal(0, #long_functions('x.lua', text, 63, lua_shapes))
    end)

    it('see a long macro, and fields by position', function()
        local macro = '#define F(S) \\\n' .. ('    g(S); \\\n'):rep(19) .. '    h(S)\nint x;\n'
        assert.same({ { name = 'F', line = 1, lines = 21 } }, c_shapes.macros(macro))
        assert.equal('is a macro of 21 lines, at most 20', broken_macros(macro)[1].what)
        assert.equal(0, #broken_macros((macro:gsub('    g', '    h(S)\n    g', 1))))
        local rows = 'static const struct s rows[] = {\n    {1, 2, 3, 4, 5},\n};\n'
        for _, text in ipairs { 'struct s x = {1, f(2, 3), {4}, 5, 6};', 'g((struct s){1, 2, 3, 4, 5});', rows } do
            assert.equal('has 5 fields by position, at most 4', broken_initializers(text)[1].what)
        end
        for _, text in ipairs { 'struct s x = {.a = 1, 2, 3, 4, .e = {1, 2, 3, 4, 5}};', 'int y[] = {1, 2, 3, 4, 5};',
            '/* {a, b, c, d, e} */\n' .. rows } do assert.same({}, broken_initializers(text)) end
    end)
end)

describe('layers', function()
    it('follow the direction of includes, in rooms that the rules know', function()
        assert_clean(c_files(), function(path, text, add)
            if may_include[room_of(path)] == nil then add(path .. ' is in no room') end
            for _, target in ipairs(includes(path, text)) do
                if not is_allowed(path, target) then add(path .. ' may not include ' .. target) end
            end
        end)
    end)

    it('require ffi in one file only', function()
        local found = {}
        for _, path in ipairs(files('%.lua$', 'lua', 'examples')) do
            if helper.read(path):match('require%s*%(?%s*[\'"]ffi[\'"]') then found[#found + 1] = path end
        end
        assert.same({ 'lua/wane/ffi.lua' }, found)
    end)

    it('require nothing but Wane and LuaJIT in Lua', function()
        local ours = { 'wane', 'wane%..*', 'jit', 'jit%..*', 'bit', 'table%.%a+', 'string%.buffer', 'ffi' }
        assert_clean(files('%.lua$', 'lua', 'examples'), function(path, text, add)
            for name in text:gmatch('require%s*%(?%s*[\'"]([^\'"]+)[\'"]') do
                local known = false
                for _, pattern in ipairs(ours) do known = known or name:match('^' .. pattern .. '$') ~= nil end
                if path:match('^examples/') then -- its models, too, which lua/wane/zoo leads to
                    known = name:match('^wane') ~= nil and name ~= 'wane.ffi'
                end
                if not known then add(path .. " may not require '" .. name .. "'") end
            end
        end)
    end)

    it('have no cycle of requires in Lua, in functions too', function()
        assert_none(cycles(lua_graph()))
    end)

    it('require only rooms below in Lua', function()
        local bad = {}
        for name, targets in pairs(lua_graph()) do
            if not may_require[lua_room(name)] then bad[#bad + 1] = name .. ' is in no room' end
            for _, target in ipairs(targets) do
                if not may_load(name, target) then bad[#bad + 1] = name .. ' may not require ' .. target end
            end
        end
        table.sort(bad)
        assert_none(bad)
    end)

    it('call no Lua, print nothing and leave nothing from C', function()
        assert_clean(c_files(), function(path, text, add)
            for i, line in ipairs(lines_of(text)) do
                for _, call in ipairs { 'printf', 'puts', 'putchar', 'exit', '_exit', 'abort', 'longjmp', 'fork' } do
                    if line:match('^[^/"]*%f[%w_]' .. call .. '%s*%(') and not line:match('^%s*%*') then
                        add(('%s:%d: %s'):format(path, i, call))
                    end
                end
            end
        end)
    end)
end)

describe('sizes', function()
    it('keep files short', function()
        assert_clean(source_files(), function(path, text, add)
            local n = #lines_of(text)
            if n > LONGEST_FILE then add(('%s: %d lines, at most %d'):format(path, n, LONGEST_FILE)) end
        end)
    end)

    it('keep functions of C, and of Lua, short', function()
        for shapes, list in pairs { [c_shapes] = c_files(), [lua_shapes] = files('%.lua$', 'lua', 'examples') } do
            assert_clean(list, function(path, text, add)
                for _, line in ipairs(long_functions(path, text, LONGEST_FUNCTION, shapes)) do add(line) end
            end)
        end
    end)

    it('keep lists of parameters short, in Lua too', function()
        assert_unbroken(broken_parameters)
        assert_clean(files('%.lua$', 'lua', 'spec', 'examples'), function(path, text, add)
            for _, f in ipairs(lua_shapes.parameters(text)) do
                if f.n > MOST_PARAMETERS then
                    add(('%s:%d: %s has %d parameters, at most %d; take a table of named fields'):format(path, f.line,
                        f.name, f.n, MOST_PARAMETERS))
                end
            end
        end)
    end)

    it('keep macros short, and name the fields of initializers of more than four', function()
        assert_unbroken(broken_macros)
        assert_unbroken(broken_initializers)
    end)

    it('keep the structs of a program and of its run small', function()
        assert_unbroken(broken_structs, 'runtime/program/')
        assert_unbroken(broken_structs, 'runtime/run/')
    end)
end)

-- Returns the declarations of a public header that have no comment right above, and lines with two declarations.
local function undocumented(path, text)
    local bad, list = {}, lines_of(text)
    for i, line in ipairs(list) do
        local name = line:match('^WN_API .-(wn_[%w_]+)%(') or line:match('^struct (wn_[%w_]+) {$')
        if name and not (list[i - 1] or ''):match('%*/$') then bad[#bad + 1] = ('%s:%d: %s'):format(path, i, name) end
        if line:match('WN_API.*WN_API') then bad[#bad + 1] = ('%s:%d: two on one line'):format(path, i) end
    end
    return bad
end

describe('the public headers', function()
    it('are read by declaration and comment', function()
        assert.same({}, undocumented('x.h', '/* Returns\n * one. */\nWN_API int32_t wn_one(void);\n'))
        assert.same({ 'x.h:1: wn_one', 'x.h:3: wn_two' },
            undocumented('x.h', 'WN_API const char *wn_one(void); /* one */\n\nstruct wn_two {\n'))
    end)

    it('say of each declaration what it does', function()
        assert_clean(files('^runtime/wane[%w_]*%.h$', 'runtime'), function(path, text, add)
            for _, line in ipairs(undocumented(path, text)) do add(line) end
        end)
    end)
end)

-- Returns the assignments of a status to the field `code` of a struct that would overwrite a failure before it.
local function overwriting(path, text)
    local bad = {}
    for at in text:gmatch '()[%w_]+%-?[>.]code =%s+[%l_][%w_]*%(' do
        bad[#bad + 1] = ('%s:%d: write WN_KEEP'):format(path, #lines_of(text:sub(1, at)))
    end
    return bad
end

describe('the passes', function()
    it('keep the first failure of several', function()
        assert.same({ 'x.c:2: write WN_KEEP', 'x.c:4: write WN_KEEP' },
            overwriting('x.c', '\n    x->code = f(1);\n    code = f(1), WN_KEEP(x->code, f(1));\n  x.code =\n g(1);'))
        assert_clean(files('^runtime/.*%.c$', 'runtime'), function(path, text, add)
            for _, line in ipairs(overwriting(path, text)) do add(line) end
        end)
    end)
end)

describe('every file', function()
    it('opens by saying what it is for', function()
        assert_clean(source_files(), function(path, text, add)
            local n, least = head_lines(path, text), not path:match('^spec/') and #lines_of(text) > 100 and 2 or 1
            if n < least then add(('%s: a head of %d lines, at least %d'):format(path, n, least)) end
        end)
    end)

    it('has no mark of unfinished work', function()
        local list = files('.', 'runtime', 'kernels', 'lua', 'spec', 'examples', 'Makefile', '.ci')
        assert_clean(list, function(path, text, add)
            for _, mark in ipairs { 'TO' .. 'DO', 'FIX' .. 'ME', 'XX' .. 'X' } do
                if text:match('%f[%w]' .. mark .. '%f[%W]') then add(path .. ': ' .. mark) end
            end
        end)
    end)
end)
