-- Checks the prompt: what it shows, what it keeps and what it survives. The first specs feed a session directly; the
-- next drive build/wane through a pipe, as a user's shell would. Then a pseudo-terminal is typed into and read
-- (spec/support/pty.c), once for each line editor there is, and once without one.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local native = require 'spec.support.native'
local cell = require 'wane.repl.cell'

local function session()
    local repl = require 'wane.repl'
    local out = {}
    local s = repl.session(function(text) out[#out + 1] = text end)
    return s, function()
        local text = table.concat(out)
        for i = #out, 1, -1 do out[i] = nil end
        return text
    end
end

describe('repl session', function()
    -- Lines that are fed, one after the other: what each shows (a pattern where it begins with ^), nothing where there
    -- is none; true: more is asked for.
    local SESSIONS = {
        ['prints the values of an expression, and nil when it is the value'] = { { '1 + 2', '3\n' },
            { '1, nil, "x"', '1\tnil\tx\n' }, { 'nil', 'nil\n' }, { '1 -- one', '1\n' } },
        ['prints nothing for a statement or a call without results'] = { { 'x = 1' }, { '(function() end)()' },
            { '   ' }, { '-- a comment' } },
        ['keeps quiet after a semicolon, and still runs the line'] = { { 'x = 0' },
            { '(function() x = x + 1; return x end)();' }, { 'x', '1\n' } },
        ['keeps locals for the lines after, but no loop variables or inner locals'] = { { 'local x, y = 4, 5' },
            { 'x * y', '20\n' }, { 'local function twice(a) return 2 * a end' }, { 'twice(x)', '8\n' }, { 'local x' },
            { 'x', 'nil\n' }, { 'for i = 1, 3 do local inner = i end' }, { 'i, inner', 'nil\tnil\n' } },
        ['asks for more lines until a chunk is whole'] = { { 'for i = 1, 2 do', true }, { 'x = (x or 0) + i', true },
            { 'end' }, { 'x', '3\n' }, { '1 +', true }, { '41', '42\n' }, { 'y = [[two', true }, { 'lines]]' },
            { 'y', 'two\nlines\n' } },
        ['shows a mistake with its line, and goes on'] = { { 'x ) 1', "^error: prompt:1: .*near '%)'\n$" },
            { 'error("bad thing")', 'error: prompt:2: bad thing\n' },
            { 'error(setmetatable({}, { __tostring = function() return "an object" end }))', 'error: an object\n' },
            { 'setmetatable({}, { __tostring = function() error("inside") end })', '^error: .*inside\n$' },
            { 'nothing.here, 1', "error: prompt:5: attempt to index global 'nothing' (a nil value)\n" },
            { '7', '7\n' } },
        ['shows plain tables with their content, nested ones too'] = {
            { '{ 1, "two", x = 3, [10] = {}, deep = { a = { 1, 2 }, ["end"] = "x\\ny" } }',
                '{ 1, "two", [10] = {}, deep = { a = { 1, 2 }, ["end"] = "x\\ny" }, x = 3 }\n' },
            { '(function() local t = {} for i = 1, 30 do t[i] = i end return t end)()',
                '^{\n  1, 2, 3, .*20,%s+%.%.%. 10 more\n}\n$' },
            { 't = { name = ("x"):rep(60), { { { {} } } }, { { { { 1 } } } } }' },
            { 't.inner = { up = t, u = { t } }' },
            { 't', '{\n  { { { {} } } },\n  { { { { ... } } } },\n  inner = { u = { <_ again> }, up = <_ again> },\n'
                .. '  name = "' .. ('x'):rep(60) .. '"\n}\n' },
            { 'a = { {} }; a[1].self = a[1]' }, { 'a', '^.*self = <_%[1%] again>' } },
        ['holds the last value as _, weakly'] = { { '40 + 2;' }, { '_ + 1', '43\n' }, { '{};' }, { '_', 'nil\n' } },
        ['collects after each line, so nil frees'] = {
            { 'seen = setmetatable({}, { __mode = "v" }); a = {}; seen[1] = a;' }, { 'a = nil' },
            { 'seen[1]', 'nil\n' } },
    }
    for name, lines in pairs(SESSIONS) do
        it(name, function()
            local s, shown = session()
            for _, line in ipairs(lines) do
                local want = line[2] ~= true and line[2] or ''
                assert.equal(line[2] == true, s:feed(line[1]), line[1])
                local text = shown()
                if want:find '^%^' then assert.matches(want, text) else assert.equal(want, text) end
            end
        end)
    end

    it('leaves the globals of the process alone', function()
        local s = session()
        s:feed('some_name_of_the_prompt = 1')
        assert.is_nil(rawget(_G, 'some_name_of_the_prompt'))
    end)

    it('never runs a part of an unfinished text: not in a cell, at a prompt or in a pipe', function()
        local source = 'kept, t, f, n = 5, { 1 }, function(...) return ... end, 3; s = { a = f }'
        for _, rest in ipairs { 'kept =', 't[1] =', 'kept, t =', 'print("ran") x = 7 +', 'y = s.', 'y = s:', 'f(kept,',
            'kept = not', 'kept = -', 'local kept =', 'return kept ..', 'kept = kept and', 'n = {', 'n = "a', 'n = [[',
            'for i = 1,', 'kept = #', 'f "a" kept =', 'kept = f(', 'function kept', 'function s.kept',
            'local function', 'local', 'if kept then kept =', 'kept = nil n = 1 +',
            's.', '--[[', 'n =;', 'n = ;' } do
            local shown = {}
            local s = require('wane.repl').session(function(text) shown[#shown + 1] = text end)
            s:feed(source)
            local before = { s.env.kept, s.env.t, s.env.t[1], s.env.n, s.env.s.a }
            local function assert_kept(how)
                assert.are.same(before, { s.env.kept, s.env.t, s.env.t[1], s.env.n, s.env.s.a }, rest .. how)
                local text = table.concat(shown)
                assert.is_nil(text:find('__', 1, true), text)
                assert.is_nil(text:find('ran', 1, true), text)
            end
            local real, ran = print, false
            rawset(_G, 'print', function() ran = true end)
            local chunk, why = cell.compile(s, rest, 'cell 1')
            local more = s:feed(rest)
            assert_kept ' at the prompt'
            if more then s:finish() end
            rawset(_G, 'print', real)
            assert.is_nil(chunk, rest)
            assert.is_nil(why:find('__', 1, true), why)
            assert.is_false(ran, rest)
            assert_kept ' at the end of a pipe'
            assert.equal('error: prompt:2: ', (table.concat(shown):match '^error: prompt:2: '), rest)
        end
    end)

    it('says what is missing when input ends inside a chunk', function()
        local s, shown = session()
        s:feed('if true then')
        s:finish()
        assert.matches("^error: prompt:1: 'end' expected near '<eof>'\n$", shown())
    end)

    it('shows tables as wide as the output', function()
        local out, width = {}, 30
        local s = require('wane.repl').session(function(text) out[#out + 1] = text end, {
            columns = function() return width end })
        s:feed('x = { alpha = "0123456789", beta = "0123456789" }')
        s:feed('x')
        width = 200
        s:feed('x')
        assert.same({ '{\n  alpha = "0123456789",\n  beta = "0123456789"\n}\n',
            '{ alpha = "0123456789", beta = "0123456789" }\n' }, out)
    end)

    it('numbers its lines as those of one file, and shows the frames of an error', function()
        local s, shown = session()
        assert.equal(1, s:number())
        s:feed('function f(t)')
        s:feed('return t.x.y')
        s:feed('end')
        s:feed('')
        s:feed('f{}')
        assert.equal("error: prompt:2: attempt to index field 'x' (a nil value)\n  prompt:2: in function 'f'\n"
            .. '  prompt:5: in main chunk\n', shown())
        s:feed('x )')
        assert.matches('^error: prompt:6: ', shown())
        s:feed('?print')
        s:feed('for i = 1, 2 do')
        s:forget()
        shown()
        s:feed('error "here"')
        assert.equal('error: prompt:9: here\n', shown())
        s:feed('for i = 1, 2 do')
        s:feed('error "there"')
        s:feed('end')
        assert.equal('error: prompt:11: there\n', shown())
        s:feed('wane = require "wane"')
        s:feed('net = wane.nn.Sequential(wane.nn.Linear(2, 3))')
        s:feed('net(wane.zeros(2, 5));')
        assert.matches('^error: prompt:15: .* %[in 1 %(Linear%)%]\n$', shown())
        s:feed('function g() net(wane.zeros(2, 5)); return 1 end')
        s:feed('wane.no_grad(g)')
        assert.matches('%[in 1 %(Linear%)%]\n  prompt:16: in function.-\n  prompt:17: in main chunk\n',
            shown())
        assert.equal(18, s:number())
    end)

    it('lists with who() the tensors, modules and optimizers among the names, and their bytes', function()
        local s, shown = session()
        s:feed('who()')
        assert.equal('no tensors, modules or optimizers among the names\n', shown())
        s:feed('wane = require "wane"; n = 3; s = "x"')
        s:feed('a = wane.tensor{1, 2, 3}; y = a * 2; w = wane.randn(64, 4, { requires_grad = true })')
        s:feed('net = wane.nn.Linear(4, 2); opt = wane.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 })')
        s:feed('for _, r in ipairs(who()) do seen = (seen or "") .. table.concat({ r.name, r.what, '
            .. 'r.shape, r.bytes, r.kind }, " ") .. ";" end')
        s:feed('seen')
        assert.equal('a tensor f32 (3) 256 value;net module Linear 10 elements 0 parameter, gradient;'
            .. 'opt optimizer SGD 2 parameters 0 optimizer;w tensor f32 (64, 4) 0 input;'
            .. 'y tensor f32 (3) 0 recorded;\n', shown())
        s:feed('opt:step(net(wane.ones(1, 4)):sum() + w:sum() + y:sum())')
        s:feed('net(wane.ones(1, 4)):sum():backward()')
        shown()
        s:feed('t = who();')
        s:feed('t[2].name, t[2].bytes, t[3].name, t[3].bytes')
        assert.equal('net\t1024\topt\t512\n', shown())
        s:feed('who()')
        assert.matches('optimizer SGD +2 parameters +512 +optimizer', shown())
    end)
end)

describe('wane repl on a pipe', function()
    -- Input, what is shown (a pattern where it begins with ^), and the exit code where it is not 0.
    for name, row in pairs {
        ['shows values without prompts and ends with its input'] = {
            'local x = 20\nx + 22\nerror("no")\n"still here"\n', '42\nerror: prompt:3: no\nstill here\n' },
        ['has wane, nn, optim and policy as names'] = { 'type(wane), type(nn), type(optim), type(policy)\n',
            'table\ttable\ttable\ttable\n' },
        ['computes'] = { 'local a = wane.tensor{1, 2, 3}\n(a * a):sum():item()\n', '14\n' },
        ['shows an error of an operation and goes on'] = { 'wane.ones(2) + wane.ones(3)\n1\n',
            '^error: .*%(2%).*%(3%).*\n1\n$' },
        ['leaves with the code given to exit'] = { 'exit(3)\n', '', 3 },
    } do
        it(name, function()
            local text, code = helper.shell('build/wane repl', row[1])
            if row[2]:find '^%^' then assert.matches(row[2], text) else assert.equal(row[2], text) end
            assert.equal(row[3] or 0, code)
        end)
    end

    it('says at its end what is unfinished, and has not run it', function()
        for _, rest in ipairs { 'model =', 'model.x', 'y = nn.', 'print("ran") x = 7 +' } do
            local text = helper.shell('build/wane repl', 'model = { x = 3 }\n' .. rest)
            assert.equal(rest == 'model.x' and '3\n' or 'error: prompt:2: ', text:match '^3\n$'
                or text:match '^error: prompt:2: ', rest)
            assert.is_nil(text:find '__capture')
        end
    end)

    it('makes the locals of a script names with -i, of one that fails too, and goes on', function()
        local name = os.tmpname()
        files.write(name, '#!/usr/bin/env luajit\nlocal width = 12\nlocal function area(h) return width * h end\n')
        assert.equal('24\t12\n', (helper.shell('build/wane repl -i ' .. name, 'area(2), width\n')))
        files.write(name, 'local width = 12\nlocal function bad(h)\n  return h.x.y\nend\nfor i = 1, 3 do\n'
            .. '  if i == 2 then bad {} end\nend\nlocal late = 1\n')
        local text, code = helper.shell('build/wane repl -i ' .. name, 'width, i, late\n')
        os.remove(name)
        assert.equal(("error: %s:3: attempt to index field 'x' (a nil value)\n  %s:3: in function 'bad'\n"
            .. '  %s:6: in main chunk\n12\t2\tnil\n'):format(name, name, name), text)
        assert.equal(0, code)
    end)
end)

-- ---- at a terminal -------------------------------------------------------------------------------------------------
local driver = native.terminal()
local state = os.tmpname()

-- Returns whether there is a line editor of this kind. Asks in a process of its own: a line editor once opened stays,
-- with what it took.
local function has_library(kind)
    local script = "package.path='lua/?.lua;lua/?/init.lua;'..package.path "
        .. "print(require'wane.repl.readline'.open({}, '" .. kind .. "') ~= nil)"
    return helper.shell(('${LUAJIT:-luajit} -e "%s"'):format(script)):match '^true' ~= nil
end

-- Types a script of sends and expectations, then ^D; returns what the terminal showed, without escape sequences and
-- then with.
local function typed(options, steps)
    -- INPUTRC leads nowhere, so that the settings of whoever runs this do not count.
    local command = ("%s INPUTRC=/nowhere XDG_STATE_HOME=%s LC_ALL=C.UTF-8 TERM=%s WANE_THREADS=2 %s ${LUAJIT:-luajit} "
        .. "-e \"package.path='lua/?.lua;lua/?/init.lua;'..package.path; require'wane.repl'.run{reader=%s,script=%s}\"")
        :format(options.variables or '', options.state or state, options.term or 'xterm', driver,
            options.reader and "'" .. options.reader .. "'" or 'nil',
            options.script and "'" .. options.script .. "'" or 'nil')
    local raw = helper.shell(command, table.concat(steps, '\n') .. '\npause 100\nsend \\x04\n')
    local text = raw:gsub('\27%[[%d;?]*%a', ''):gsub('\r', '')
    assert.matches('\npty: exit 0\n$', text)
    return text, raw
end

-- Returns the steps that every way of reading lines must pass; `before` are steps of one way only.
local function basics(before)
    local steps = { 'expect > ', unpack(before or {}) }
    for _, step in ipairs {
        'send junk junk', 'pause 100', 'send \\x03', 'expect ^C', 'expect > ',
        'send 40 + 2\\r', 'expect 42\r', 'expect > ',
        'send while true do end\\r', 'pause 300', 'send \\x03', 'expect interrupted', 'expect > ',
        'send while true do pcall(function() while true do end end) end\\r', 'pause 300', 'send \\x03',
        'expect interrupted', 'expect > ',
        'send for i = 1, 2 do\\r', 'expect >> ', 'send print("turn " .. i * 11)\\r', 'expect >> ', 'send end\\r',
        'expect turn 11', 'expect turn 22', 'expect > ',
        'send for i = 1, 2 do\\r', 'expect >> ', 'send \\x03', 'expect > ', 'send 6 * 7 + 1\\r', 'expect 43\r',
        'expect > ', 'send ?zeros\\r', 'expect for example', 'expect > ',
    } do steps[#steps + 1] = step:gsub('\r', '\\r') end
    return steps
end

local completion = { 'send wane.zer', 'pause 100', 'send \\t(2)\\r', 'expect [0., 0.]', 'expect > ' }

describe('the prompt at a terminal', function()
    setup(function()
        os.remove(state)
    end)
    teardown(function()
        helper.lines('rm -r ' .. state)
    end)

    it('edits with the best library there is: none is needed', function()
        local has_editor = has_library 'readline' or has_library 'libedit'
        local text = typed({}, basics(has_editor and completion or nil))
        assert.matches(' live 0 B  peak ', text)
    end)

    it('does the same with libedit, or without it where that is missing', function()
        typed({ reader = 'libedit' }, basics(has_library 'libedit' and completion or nil))
    end)

    it('does the same without a line editor', function()
        local text = typed({ reader = 'plain' }, basics())
        assert.matches(' live 0 B  peak ', text)
    end)

    it('shows time, live and peak dimly after a line that ran, not after help', function()
        local _, raw = typed({}, { 'expect > ', 'send x = 1\\r', 'expect peak', 'expect > ', 'send ?sum\\r',
            'expect > ' })
        local _, count = raw:gsub('\27%[2m[%d.]+ %a+  live [%d.]+ %a+  peak [%d.]+ %a+\27%[0m', '')
        assert.equal(1, count)
    end)

    it('shows no colour where NO_COLOR is set, and numbers the prompts', function()
        local text, raw = typed({ variables = 'NO_COLOR=1', reader = 'plain' }, { 'expect 1> ',
            'send for i = 1, 1 do\\r', 'expect 2>> ', 'send end\\r', 'expect peak', 'expect 3> ' })
        assert.is_nil(raw:find('\27[2m', 1, true))
        assert.matches('\n[%d.]+ %a+  live 0 B  peak ', text)
    end)

    it('stays at the prompt when its script fails, with the locals that existed', function()
        local name = os.tmpname()
        helper.lines("printf 'local width = 12\\nlocal x = nil + 1\\n' > " .. name)
        typed({ script = name }, { 'expect :2: attempt to perform arithmetic', 'expect 1> ', 'send width + 30\\r',
            'expect 42', 'expect 2> ' })
        helper.lines("printf 'local width = 13\\nwhile true do end\\n' > " .. name)
        typed({ script = name }, { 'pause 400', 'send \\x03', 'expect interrupted', 'expect 1> ',
            'send width + 30\\r', 'expect 43', 'expect 2> ' })
        os.remove(name)
    end)

    it('neither colours nor counts in a dumb terminal, and still stops at ^C', function()
        local text, raw = typed({ term = 'dumb' }, basics())
        assert.is_nil(raw:find('\27', 1, true))
        assert.is_nil(text:find('peak', 1, true))
    end)

    it('stops a long run before its first effect, and then goes on', function()
        typed({}, {
            'expect > ', 'send x = wane.ones(600, 600):retain();\\r', 'expect > ', 'send y = x\\r', 'expect > ',
            'send for i = 1, 600 do y = y:matmul(x) * 0.001 end\\r', 'expect peak', 'expect > ',
            'send wane.eval(y)\\r', 'pause 400', 'send \\x03', 'expect interrupted before anything was changed',
            'expect > ', 'send x:sum():item() + 1\\r', 'expect 360001', 'expect > '
        })
    end)

    it('stops a training loop between two steps, and the model goes on', function()
        typed({}, {
            'expect > ', 'send model = nn.Linear(8, 8)\\r', 'expect > ',
            'send opt = optim.SGD(model:parameters(), {lr = 1e-3});\\r', 'expect > ',
            'send while true do opt:step(model(wane.ones(2, 8)):sum()) end\\r', 'pause 400', 'send \\x03',
            'expect interrupted', 'expect > ',
            'send opt:step(model(wane.ones(2, 8)):sum()):item() ~= nil\\r', 'expect true', 'expect > '
        })
    end)

    -- Types a training loop that is stopped; the list it filled, the frontier and the timeline of the step are drawn.
    local function drawn(term)
        return typed({ term = term }, {
            'expect > ', 'send model = nn.Sequential { nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8) };\\r',
            'expect > ',
            'send opt = optim.SGD(model:parameters(), {lr = 1e-3});\\r', 'expect > ',
            'send x = wane.eval(wane.randn(64, 8));\\r', 'expect > ',
            'send loss = function() return (model(x) ^ 2):mean() end\\r', 'expect > ',
            'send losses = {}\\r', 'expect > ',
            'send while true do losses[#losses + 1] = opt:step(loss()):item() end\\r', 'pause 400',
            'send \\x03',
            'expect interrupted', 'expect > ', 'send #losses > 3\\r', 'expect true', 'expect > ',
            'send wane.plot(losses)\\r', 'expect step', 'expect > ',
            'send print("the " .. "frontier")\\r', 'expect the frontier', 'expect > ',
            'send wane.frontier(loss):plot()\\r', 'expect fastest', 'expect > ',
            'send print("the " .. "timeline")\\r', 'expect the timeline', 'expect > ',
            'send wane.plan(loss):plot()\\r', 'expect ^forward', 'expect > '
        })
    end

    it('draws losses, a frontier and a timeline, with finer dots where the terminal has them', function()
        for term, dots in pairs { xterm = '\226[\160-\163][\128-\191]', dumb = '|[^\n]*%.%.%.' } do
            local text = drawn(term)
            local charts = { text:match 'wane%.plot%(losses%)\n(.-)the frontier', text:match
                '\nthe frontier(.-)the timeline', text:match '\nthe timeline(.*)' }
            assert.equal(3, #charts)
            for k, chart in ipairs(charts) do
                assert.is_truthy(chart:find(k == 3 and term == 'dumb' and '|[^\n]*PPP' or dots), k .. chart)
                assert.is_true(select(2, chart:gsub(' |', '')) >= 16, chart)
            end
            assert.equal(term == 'xterm', text:find '\226[\160-\163]' ~= nil)
        end
    end)

    it('remembers lines for the next session, which nobody else may read', function()
        if not (has_library 'readline' or has_library 'libedit') then return end
        local own = state .. '/own'
        typed({ state = own }, { 'expect > ', 'send 1000 + 234\\r', 'expect 1234', 'expect > ' })
        assert.same({ '1000 + 234' }, helper.lines('cat ' .. own .. '/wane/history'))
        assert.matches('^drwx%-%-%-%-%-%-', helper.lines('ls -ld ' .. own .. '/wane')[1])
        typed({ state = own }, { 'expect > ', 'send \\x1b[A\\r', 'expect 1234', 'expect > ' })
    end)

    it('works where no history can be written', function()
        typed({ state = '/proc/none' }, { 'expect > ', 'send 1 + 1\\r', 'expect 2', 'expect > ' })
    end)

    it('runs a pasted block line by line', function()
        local text = typed({}, { 'expect > ',
            'send \\x1b[200~local a = 5\\rfor i = 1, 2 do\\rprint("got " .. a + i)\\rend\\x1b[201~\\r',
            'expect got 6', 'expect got 7', 'expect > ' })
        assert.is_nil(text:find('error', 1, true))
    end)
end)

describe('the prompt on a pipe', function()
    it('shows no prompt, no time and no escape, and leaves no history', function()
        local own = os.tmpname()
        os.remove(own)
        local text = helper.shell('XDG_STATE_HOME=' .. own .. ' build/wane repl',
            'x = 2\nfor i = 1, 1 do\nprint(x)\nend\n')
        assert.equal('2\n', text)
        assert.is_nil(io.open(own .. '/wane/history'))
    end)
end)

describe('completion', function()
    local complete = require 'wane.repl.complete'
    local wane = helper.wane
    local env = { wane = wane, nn = wane.nn, t = wane.ones(2, 3), model = wane.nn.Sequential { wane.nn.Linear(2, 3) } }

    it('knows fields and methods, loaded or not, names of the prompt and keywords, and no others', function()
        for text, words in pairs {
            ['wane.zer'] = { 'wane.zeros', 'wane.zeros_like' }, ['nn.Lin'] = { 'nn.Linear' },
            ['wane.checkp'] = { 'wane.checkpoint', 'wane.checkpoint_fn', 'wane.checkpoint_sequential',
                'wane.checkpoint_with' },
            ['t:su'] = { 't:sub', 't:sum' }, ['t.sh'] = { 't.shape' }, ['t.sum'] = {},
            ['model:paramet'] = { 'model:parameter_count', 'model:parameters' }, ['model:forw'] = { 'model:forward' },
            mode = { 'model' }, funct = { 'function' }, ['nothing.here'] = {}, ['wane.nothing:x'] = {},
        } do assert.same(words, complete.words(env, text), text) end
        assert.same({ 'string.format' }, complete.words(setmetatable({}, { __index = _G }), 'string.form'))
    end)
end)

describe('help', function()
    local wane = helper.wane
    local function ask(query)
        return require('wane.repl.help').text({ wane = wane, t = wane.ones(2), grid = wane.ones(2), n = 3 }, query)
    end

    it('comes from the comment that stands at the name', function()
        assert.matches('^wane.zeros\n  .*wane.zeros%(2, 3', ask 'wane.zeros')
        assert.equal(ask 'wane.zeros', ask ' zeros() ')
        assert.matches('^tensor:sum\n  .*[Ss]um', ask 't:sum')
        assert.matches('^tensor:relu\n', ask 'relu')
        assert.matches('^nn.Linear\n  .*nn.Linear%(', ask 'nn.Linear')
        assert.matches('^nn.ReLU\n.*nn.ReLU%(%)', ask 'nn.ReLU')
        assert.matches('^policy.sqrt\n  .*segments', ask 'policy.sqrt')
        assert.matches('wane.memory%(%)', ask 'wane.memory')
        for name, words in pairs { ['nn.LSTM'] = 'Makes a long short%-term memory', ['wane.policy'] = 'Policies: ',
            ['nn.Buffer'] = 'Makes a buffer', ['wane.nn'] = 'The table wane.nn', view = "under PyTorch's name" } do
            assert.matches('\n  .*' .. words, ask(name):match '^[^\n]*\n[^\n]*')
        end
    end)

    it('answers for every public name, and raises for none', function()
        local names = require 'wane.repl.names'
        local bare = {}
        for _, space in ipairs { 'wane', 'nn', 'optim', 'policy', 'data' } do
            for _, name in ipairs(names.of(space == 'wane' and wane or wane[space])) do
                local text = ask(space .. '.' .. name)
                assert.equal(space .. '.' .. name, text:match '^[^\n]*')
                if text:find('has no comment', 1, true) then bare[#bare + 1] = space .. '.' .. name end
            end
        end
        assert.same({ 'wane.GiB', 'wane.KiB', 'wane.MiB', 'wane.version', 'policy.Policy', 'policy.decisions' }, bare)
    end)

    it('knows with an example every method of plans, optimizers and all other objects of the reference', function()
        local reference = require 'spec.support.reference'
        local lacking, count = {}, 0
        for _, file in ipairs(reference.files()) do
            for _, block in ipairs(file.is_public and file.blocks or {}) do
                local title = reference.title(block)
                local is_method = title and not block.is_internal and title:find '^[%a_]+:[%w_]+$'
                if is_method or title and title:find '%..*%.' then
                    local text = ask(title):match('%f[%w]' .. title .. '\n.*')
                    count = count + 1
                    if not (text and text:find('for example:', 1, true)) then lacking[#lacking + 1] = title end
                end
            end
        end
        assert.same({}, lacking)
        assert.is_true(count > 100, count)
    end)

    it('knows the objects among the names', function()
        local model = wane.nn.Linear(2, 2)
        local function loss() return model(wane.ones(1, 2)):sum() end
        local help, env = require 'wane.repl.help', { p = wane.plan(loss), fr = wane.frontier(loss),
            o = wane.optim.SGD(model:parameters(), { lr = 1 }), wane = wane }
        assert.matches('^plan:explain\n.*for example:', help.text(env, 'p:explain'))
        assert.matches('^frontier:plot\n', help.text(env, 'fr:plot'))
        assert.matches('^optimizer:step\n', help.text(env, 'o:step'))
        assert.matches('^o is one of optimizer: .*optimizer:step', help.text(env, 'o'))
        assert.matches('^wane.memory.limit\n', help.text(env, 'memory.limit'))
        assert.matches('^optim.schedule.cosine\n', help.text(env, 'cosine'))
        assert.matches("did you mean 'explain'", help.text(env, 'explian'))
    end)

    it('names what is near an unknown name, and says what a name of the prompt is', function()
        assert.matches("did you mean 'zeros'", ask 'zeross')
        assert.matches('^grid is a tensor: ', ask 'grid')
        assert.equal('n is a number', ask 'n')
        assert.matches('^%?name tells', ask '')
    end)
end)
