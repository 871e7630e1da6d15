-- Checks the prompt: what it shows, what it keeps and what it survives. Most specs feed a session directly; the last
-- ones drive build/wane through a pipe, as a user's shell would.
local helper = require 'spec.helper'
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
    it('prints the value of an expression', function()
        local s, shown = session()
        s:feed('1 + 2')
        assert.equal('3\n', shown())
    end)

    it('prints several values, and nil when it is the value', function()
        local s, shown = session()
        s:feed('1, nil, "x"')
        assert.equal('1\tnil\tx\n', shown())
        s:feed('nil')
        assert.equal('nil\n', shown())
    end)

    it('prints nothing for a statement or a call without results', function()
        local s, shown = session()
        s:feed('x = 1')
        s:feed('(function() end)()')
        s:feed('   ')
        s:feed('-- a comment')
        assert.equal('', shown())
    end)

    it('keeps quiet after a semicolon, and still runs the line', function()
        local s, shown = session()
        s:feed('x = 0')
        s:feed('(function() x = x + 1; return x end)();')
        assert.equal('', shown())
        s:feed('x')
        assert.equal('1\n', shown())
    end)

    it('keeps locals for the lines after', function()
        local s, shown = session()
        s:feed('local x, y = 4, 5')
        s:feed('x * y')
        assert.equal('20\n', shown())
        s:feed('local function twice(a) return 2 * a end')
        s:feed('twice(x)')
        assert.equal('8\n', shown())
        s:feed('local x')
        s:feed('x')
        assert.equal('nil\n', shown())
    end)

    it('does not make loop variables or inner locals names', function()
        local s, shown = session()
        s:feed('for i = 1, 3 do local inner = i end')
        s:feed('i, inner')
        assert.equal('nil\tnil\n', shown())
    end)

    it('leaves the globals of the process alone', function()
        local s = session()
        s:feed('some_name_of_the_prompt = 1')
        assert.is_nil(rawget(_G, 'some_name_of_the_prompt'))
    end)

    it('asks for more lines until a chunk is whole', function()
        local s, shown = session()
        assert.is_true(s:feed('for i = 1, 2 do'))
        assert.is_true(s:feed('x = (x or 0) + i'))
        assert.is_false(s:feed('end'))
        s:feed('x')
        assert.equal('3\n', shown())
        assert.is_true(s:feed('1 +'))
        assert.is_false(s:feed('41'))
        assert.equal('42\n', shown())
        assert.is_true(s:feed('y = [[two'))
        assert.is_false(s:feed('lines]]'))
        s:feed('y')
        assert.equal('two\nlines\n', shown())
    end)

    it('shows a mistake in the grammar at once and goes on', function()
        local s, shown = session()
        assert.is_false(s:feed('x ) 1'))
        assert.matches("^error: prompt:1: .*near '%)'\n$", shown())
        s:feed('7')
        assert.equal('7\n', shown())
    end)

    it('shows an error with its line and goes on', function()
        local s, shown = session()
        s:feed('error("bad thing")')
        assert.equal('error: prompt:1: bad thing\n', shown())
        s:feed('error(setmetatable({}, { __tostring = function() return "an object" end }))')
        assert.equal('error: an object\n', shown())
        s:feed('setmetatable({}, { __tostring = function() error("inside") end })')
        assert.matches('^error: .*inside\n$', shown())
        s:feed('1')
        assert.equal('1\n', shown())
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

    it('shows plain tables with their content, nested ones too', function()
        local s, shown = session()
        s:feed('{ 1, "two", x = 3, [10] = {}, deep = { a = { 1, 2 }, ["end"] = "x\\ny" } }')
        assert.equal('{ 1, "two", [10] = {}, deep = { a = { 1, 2 }, ["end"] = "x\\ny" }, x = 3 }\n', shown())
        s:feed('(function() local t = {} for i = 1, 30 do t[i] = i end return t end)()')
        assert.matches('^{\n  1, 2, 3, .*20,\n  %.%.%. 10 more\n}\n$', shown():gsub(', %.%.%.', ',\n  ...'))
        s:feed('t = { name = ("x"):rep(60), { { { {} } } }, { { { { 1 } } } } }')
        s:feed('t.inner = { up = t, u = { t } }')
        s:feed('t')
        assert.equal('{\n  { { { {} } } },\n  { { { { ... } } } },\n  inner = { u = { <_ again> }, up = <_ again> },\n'
            .. '  name = "' .. ('x'):rep(60) .. '"\n}\n', shown())
        s:feed('a = { {} }; a[1].self = a[1]')
        s:feed('a')
        assert.matches('self = <_%[1%] again>', shown())
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

    it('holds the last value as _, weakly', function()
        local s, shown = session()
        s:feed('40 + 2;')
        s:feed('_ + 1')
        assert.equal('43\n', shown())
        s:feed('{};')
        s:feed('_')
        assert.equal('nil\n', shown())
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

    it('collects after each line, so nil frees', function()
        local s, shown = session()
        s:feed('seen = setmetatable({}, { __mode = "v" }); a = {}; seen[1] = a;')
        s:feed('a = nil')
        s:feed('seen[1]')
        assert.equal('nil\n', shown())
    end)
end)

describe('wane repl on a pipe', function()
    it('shows values without prompts and ends with its input', function()
        local text, code = helper.shell('build/wane repl', 'local x = 20\nx + 22\nerror("no")\n"still here"\n')
        assert.equal('42\nerror: prompt:3: no\nstill here\n', text)
        assert.equal(0, code)
    end)

    it('says at its end what is unfinished, and has not run it', function()
        for _, rest in ipairs { 'model =', 'model.x', 'y = nn.', 'print("ran") x = 7 +' } do
            local text = helper.shell('build/wane repl', 'model = { x = 3 }\n' .. rest)
            assert.equal(rest == 'model.x' and '3\n' or 'error: prompt:2: ', text:match '^3\n$'
                or text:match '^error: prompt:2: ', rest)
            assert.is_nil(text:find '__capture')
        end
    end)

    it('has wane, nn, optim and policy as names', function()
        local text = helper.shell('build/wane repl', 'type(wane), type(nn), type(optim), type(policy)\n')
        assert.equal('table\ttable\ttable\ttable\n', text)
    end)

    it('computes', function()
        local text = helper.shell('build/wane repl', 'local a = wane.tensor{1, 2, 3}\n(a * a):sum():item()\n')
        assert.equal('14\n', text)
    end)

    it('shows an error of an operation and goes on', function()
        local text = helper.shell('build/wane repl', 'wane.ones(2) + wane.ones(3)\n1\n')
        assert.matches('^error: .*%(2%).*%(3%).*\n1\n$', text)
    end)

    it('makes the locals of a script names with -i', function()
        local name = os.tmpname()
        local file = assert(io.open(name, 'w'))
        file:write('#!/usr/bin/env luajit\nlocal width = 12\nlocal function area(h) return width * h end\n')
        file:close()
        local text = helper.shell('build/wane repl -i ' .. name, 'area(2), width\n')
        os.remove(name)
        assert.equal('24\t12\n', text)
    end)

    it('keeps the locals of a script that fails, and goes on', function()
        local name = os.tmpname()
        local file = assert(io.open(name, 'w'))
        file:write('local width = 12\nlocal function bad(h)\n  return h.x.y\nend\nfor i = 1, 3 do\n'
            .. '  if i == 2 then bad {} end\nend\nlocal late = 1\n')
        file:close()
        local text, code = helper.shell('build/wane repl -i ' .. name, 'width, i, late\n')
        os.remove(name)
        assert.equal(("error: %s:3: attempt to index field 'x' (a nil value)\n  %s:3: in function 'bad'\n"
            .. '  %s:6: in main chunk\n12\t2\tnil\n'):format(name, name, name), text)
        assert.equal(0, code)
    end)

    it('leaves with the code given to exit', function()
        local _, code = helper.shell('build/wane repl', 'exit(3)\n')
        assert.equal(3, code)
    end)
end)
