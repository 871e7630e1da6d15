-- Checks the prompt at a terminal: types into a pseudo-terminal and reads it (spec/support/pty.c), once for each line
-- editor there is, and once without one. Escape sequences that a pipe must not show are looked for as well.
local helper = require 'spec.helper'
local native = require 'spec.support.native'

local driver = native.terminal()
local state = os.tmpname()

-- Returns whether there is a line editor of this kind. Asks in a process of its own: a line editor once opened stays,
-- with what it took.
local function has_library(kind)
    local script = "package.path='lua/?.lua;lua/?/init.lua;'..package.path "
        .. "print(require'wane.repl.readline'.open({}, '" .. kind .. "') ~= nil)"
    return helper.shell(('${LUAJIT:-luajit} -e "%s"'):format(script)):match '^true' ~= nil
end

-- Types a script of sends and expectations; returns what the terminal showed, without escape sequences and then with.
local function typed(options, steps)
    -- INPUTRC leads nowhere, so that the settings of whoever runs this do not count.
    local command = ("%s INPUTRC=/nowhere XDG_STATE_HOME=%s LC_ALL=C.UTF-8 TERM=%s WANE_THREADS=2 %s ${LUAJIT:-luajit} "
        .. "-e \"package.path='lua/?.lua;lua/?/init.lua;'..package.path; require'wane.repl'.run{reader=%s,script=%s}\"")
        :format(options.variables or '', options.state or state, options.term or 'xterm', driver,
            options.reader and "'" .. options.reader .. "'" or 'nil',
            options.script and "'" .. options.script .. "'" or 'nil')
    local raw = helper.shell(command, table.concat(steps, '\n') .. '\n')
    local text = raw:gsub('\27%[[%d;?]*%a', ''):gsub('\r', '')
    assert.matches('\npty: exit 0\n$', text)
    return text, raw
end

-- Returns the steps that every way of reading lines must pass; `before` are steps of one way only.
local function basics(before)
    local steps = { 'expect > ' }
    for _, step in ipairs(before or {}) do steps[#steps + 1] = step end
    for _, step in ipairs {
        'send junk junk', 'pause 100', 'send \\x03', 'expect ^C', 'expect > ',
        'send 40 + 2\\r', 'expect 42\r', 'expect > ',
        'send while true do end\\r', 'pause 300', 'send \\x03', 'expect interrupted', 'expect > ',
        'send while true do pcall(function() while true do end end) end\\r', 'pause 300', 'send \\x03',
        'expect interrupted', 'expect > ',
        'send for i = 1, 2 do\\r', 'expect >> ', 'send print("turn " .. i * 11)\\r', 'expect >> ', 'send end\\r',
        'expect turn 11', 'expect turn 22', 'expect > ',
        'send for i = 1, 2 do\\r', 'expect >> ', 'send \\x03', 'expect > ', 'send 6 * 7 + 1\\r', 'expect 43\r',
        'expect > ', 'send ?zeros\\r', 'expect for example', 'expect > ', 'pause 100',
            'send \\x04',
    } do
        steps[#steps + 1] = step:gsub('\r', '\\r')
    end
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
            'expect > ', 'pause 100',
            'send \\x04' })
        local _, count = raw:gsub('\27%[2m[%d.]+ %a+  live [%d.]+ %a+  peak [%d.]+ %a+\27%[0m', '')
        assert.equal(1, count)
    end)

    it('shows no colour where NO_COLOR is set, and numbers the prompts', function()
        local text, raw = typed({ variables = 'NO_COLOR=1', reader = 'plain' }, { 'expect 1> ',
            'send for i = 1, 1 do\\r', 'expect 2>> ', 'send end\\r', 'expect peak', 'expect 3> ', 'send \\x04' })
        assert.is_nil(raw:find('\27[2m', 1, true))
        assert.matches('\n[%d.]+ %a+  live 0 B  peak ', text)
    end)

    it('stays at the prompt when its script fails, with the locals that existed', function()
        local name = os.tmpname()
        helper.lines("printf 'local width = 12\\nlocal x = nil + 1\\n' > " .. name)
        typed({ script = name }, { 'expect :2: attempt to perform arithmetic', 'expect 1> ', 'send width + 30\\r',
            'expect 42', 'expect 2> ', 'pause 100', 'send \\x04' })
        helper.lines("printf 'local width = 13\\nwhile true do end\\n' > " .. name)
        typed({ script = name }, { 'pause 400', 'send \\x03', 'expect interrupted', 'expect 1> ',
            'send width + 30\\r', 'expect 43', 'expect 2> ', 'pause 100', 'send \\x04' })
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
            'expect > ', 'send x:sum():item() + 1\\r', 'expect 360001', 'expect > ', 'pause 100',
            'send \\x04',
        })
    end)

    it('stops a training loop between two steps, and the model goes on', function()
        typed({}, {
            'expect > ', 'send model = nn.Linear(8, 8)\\r', 'expect > ',
            'send opt = optim.SGD(model:parameters(), {lr = 1e-3});\\r', 'expect > ',
            'send while true do opt:step(model(wane.ones(2, 8)):sum()) end\\r', 'pause 400', 'send \\x03',
            'expect interrupted', 'expect > ',
            'send opt:step(model(wane.ones(2, 8)):sum()):item() ~= nil\\r', 'expect true', 'expect > ', 'pause 100',
            'send \\x04',
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
            'send wane.plan(loss):plot()\\r', 'expect ^forward', 'expect > ', 'pause 100', 'send \\x04',
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

    it('makes locals of a script names, and ^C stops the script', function()
        local name = os.tmpname()
        helper.lines("printf 'local width = 12\\nlocal function area(h) return width * h end\\n' > " .. name)
        typed({ script = name }, { 'expect > ', 'send area(3) + 1\\r', 'expect 37', 'expect > ', 'pause 100',
            'send \\x04' })
        os.remove(name)
    end)

    it('remembers lines for the next session, which nobody else may read', function()
        if not (has_library 'readline' or has_library 'libedit') then return end
        local own = state .. '/own'
        typed({ state = own }, { 'expect > ', 'send 1000 + 234\\r', 'expect 1234', 'expect > ', 'pause 100',
            'send \\x04' })
        assert.same({ '1000 + 234' }, helper.lines('cat ' .. own .. '/wane/history'))
        assert.matches('^drwx%-%-%-%-%-%-', helper.lines('ls -ld ' .. own .. '/wane')[1])
        typed({ state = own }, { 'expect > ', 'send \\x1b[A\\r', 'expect 1234', 'expect > ', 'pause 100',
            'send \\x04' })
    end)

    it('works where no history can be written', function()
        typed({ state = '/proc/none' }, { 'expect > ', 'send 1 + 1\\r', 'expect 2', 'expect > ', 'pause 100',
            'send \\x04' })
    end)

    it('runs a pasted block line by line', function()
        local text = typed({}, { 'expect > ',
            'send \\x1b[200~local a = 5\\rfor i = 1, 2 do\\rprint("got " .. a + i)\\rend\\x1b[201~\\r',
            'expect got 6', 'expect got 7', 'expect > ', 'pause 100',
            'send \\x04' })
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

    it('knows fields of wane, loaded or not', function()
        assert.same({ 'wane.zeros', 'wane.zeros_like' }, complete.words(env, 'wane.zer'))
        assert.same({ 'wane.checkpoint', 'wane.checkpoint_fn', 'wane.checkpoint_sequential', 'wane.checkpoint_with' },
            complete.words(env, 'wane.checkp'))
        assert.same({ 'nn.Linear' }, complete.words(env, 'nn.Lin'))
    end)

    it('knows methods and fields of tensors and modules', function()
        assert.same({ 't:sub', 't:sum' }, complete.words(env, 't:su'))
        assert.same({ 't.shape' }, complete.words(env, 't.sh'))
        assert.same({}, complete.words(env, 't.sum'))
        assert.same({ 'model:parameter_count', 'model:parameters' }, complete.words(env, 'model:paramet'))
        assert.same({ 'model:forward' }, complete.words(env, 'model:forw'))
    end)

    it('knows names of the prompt, globals and keywords, and nothing of the unknown', function()
        assert.same({ 'model' }, complete.words(env, 'mode'))
        assert.same({ 'function' }, complete.words(env, 'funct'))
        assert.same({ 'string.format' }, complete.words(setmetatable({}, { __index = _G }), 'string.form'))
        assert.same({}, complete.words(env, 'nothing.here'))
        assert.same({}, complete.words(env, 'wane.nothing:x'))
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

describe('an error of a line', function()
    it('is on the line of its mistake, with a comment behind it or not', function()
        local out = {}
        local s = require('wane.repl').session(function(text) out[#out + 1] = text end)
        s:feed('_.shape')
        s:feed('nothing.here, 1')
        s:feed('1 -- one')
        assert.same({ "error: prompt:1: attempt to index global '_' (a nil value)\n",
            "error: prompt:2: attempt to index global 'nothing' (a nil value)\n", '1\n' }, out)
    end)
end)
