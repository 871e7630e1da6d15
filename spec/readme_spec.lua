-- Checks the pages against the code. Every ```lua block runs, in a process of its own, and prints the ```text block
-- that follows it; every policy and every call in the tables runs; the environment table is what the sources read.
-- ```sh from='words' lines=n is the command of an example: so many lines of what it prints stand below it.
-- A word after ```lua says how a block runs: none, after the three usual names; `file=x`, it is that file; `continues`,
-- after the first script; `names`, it defines what the calls of the table below it use.
-- Seconds, and digits of a loss after the third, are masked: a page cannot promise them. Blocks run with two threads,
-- because the number of threads is part of a plan.
local helper = require 'spec.helper'

local readme = require 'spec.support.readme'

-- `texts` and `blocks` hold the text and the blocks of each page by its path.
local texts, blocks = {}, {}
for _, path in ipairs(readme.PAGES) do
    texts[path] = helper.read(path)
    blocks[path] = readme.blocks_of(texts[path])
end
local POLICIES, PROMPT = 'lua/wane/policy/README.md', 'lua/wane/repl/README.md'
local COMMANDS, FOREIGN = 'lua/wane/cli/README.md', 'lua/wane/pytorch/README.md'

local function block_of(path, info)
    for _, block in ipairs(blocks[path]) do
        if block.info == info then return block end
    end
    error(path .. ' has no block ' .. info)
end

local run, run_file, PREAMBLE = readme.run, readme.run_file, readme.PREAMBLE
local root = helper.lines('pwd -P')[1]

local function masked(out)
    return (out:gsub('%d[%d.e+-]* s a step, %d[%d.e+-]* s in', 'T s a step, T s in')
        :gsub('%d[%d.e+-]* s a step', 'T s a step'):gsub('(loss %d%.%d%d%d)%d*', '%1')
        :gsub('%d[%d.e+-]* s %(roofline', 'T s (roofline')
        :gsub('[+-][%d.]+ %% over saving', 'T %% over saving')
        :gsub('\n[noisy: ]*quartiles %d[^\n]*', '\nquartiles'))
end

-- Returns the rows of the table below a heading of a page: lists of cells, without the head.
local function rows_below(path, heading)
    local text = texts[path]
    local at = assert(text:find('\n## ' .. heading .. '\n', 1, true), heading)
    local finish = text:find('\n## ', at + 4, true) or #text
    local rows = {}
    for line in text:sub(at, finish):gmatch '\n(|[^\n]*|)' do
        local cells = {}
        for cell in line:sub(2):gmatch '%s*(.-)%s*|' do cells[#cells + 1] = cell end
        rows[#rows + 1] = cells
    end
    table.remove(rows, 1)
    table.remove(rows, 1)
    assert(#rows > 2, 'the table of ' .. heading)
    return rows
end

local function code_in(cell)
    return cell:match '^`(.*)`$'
end

describe('README.md', function()
    local first = block_of('README.md', 'lua file=examples/first.lua')

    it('shows the first script as it is, and what it prints', function()
        assert.equal(helper.read 'examples/first.lua', first.body)
        local out, code = run_file(root .. '/examples/first.lua', root)
        assert.equal(0, code)
        assert.equal(first.expected, out)
    end)

    it('has its first command, then the clone, then two', function()
        local lines = {}
        for line in block_of('README.md', 'sh').body:gmatch '[^\n]+' do lines[#lines + 1] = line end
        assert.equal('sudo apt install -y git make', lines[1])
        assert.truthy(lines[2]:match '^git clone ')
        assert.same({ 'make demo', 'make test' }, { lines[3], lines[4] })
        assert.equal(4, #lines)
    end)
end)

describe('the pages', function()
    local first = block_of('README.md', 'lua file=examples/first.lua')
    local snippets, examples = {}, {}

    for _, path in ipairs(readme.PAGES) do
        for i, block in ipairs(blocks[path]) do
            if block.info == 'lua' or block.info == 'lua continues' then
                snippets[path] = (snippets[path] or 0) + 1
                it(('run snippet %d of %s, which prints what stands below it'):format(snippets[path], path), function()
                    local before = block.info == 'lua continues' and first.expected or ''
                    local out, code = run(readme.source(block, first))
                    assert.equal(0, code, out)
                    assert.equal(before, out:sub(1, #before))
                    assert.is_string(block.expected, 'block ' .. i .. ' has no output below it')
                    assert.equal(masked(block.expected), masked(out:sub(#before + 1)))
                end)
            elseif readme.is_example(block) then
                examples[path] = (examples[path] or 0) + 1
                it(('show %s from "%s"'):format(block.body:gsub('\n', ''), block.info:match "'(.-)'"), function()
                    local out, code = readme.run_example(block)
                    assert.equal(0, code, out)
                    assert.equal(block.expected, out)
                    assert.equal(tonumber(block.info:match '%d+$'), select(2, out:gsub('\n', '')))
                end)
            end
        end
    end

    it('show so many snippets and pieces of examples', function()
        local sums = {}
        for _, count in pairs(snippets) do sums.snippets = (sums.snippets or 0) + count end
        for _, count in pairs(examples) do sums.examples = (sums.examples or 0) + count end
        assert.same({ snippets = 40, examples = 4 }, sums)
    end)

    it('show a session at the prompt as it goes', function()
        local input, shown = {}, {}
        for line in block_of(PROMPT, 'text repl').body:gmatch '[^\n]+' do
            local typed = line:match '^%d+>>? (.*)$'
            if typed then input[#input + 1] = typed elseif #input > 0 then shown[#shown + 1] = line end
        end
        assert.truthy(#input > 5)
        local out, code = helper.shell('WANE_THREADS=2 build/wane repl', table.concat(input, '\n') .. '\n')
        assert.equal(0, code)
        assert.equal(table.concat(shown, '\n') .. '\n', out)
    end)
end)

describe('the table of policies', function()
    local rows = rows_below(POLICIES, 'Policies')
    local wane = helper.wane

    local function model_and_loss()
        local nn = wane.nn
        wane.manual_seed(7)
        local layers = {}
        for i = 1, 3 do
            layers[i] = nn.Sequential { nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.MLP(16, 64) }
        end
        local model = nn.Sequential(layers)
        local x = wane.randn(64, 16):retain()
        local function loss() return model(x:named 'hidden' * 2):named('hidden'):sum() end
        return model, loss
    end

    local function bits(p)
        local model, loss = model_and_loss()
        if p then p = p(loss) end
        local result = wane.measure(loss, { steps = 1, policy = p })
        assert.equal(result.predicted_peak, result.peak)
        local is_keeping = p == nil or tostring(p) == 'save_all'
        assert.equal(is_keeping, wane.plan(loss, { policy = p }).recomputed == 0)
        loss():backward { policy = p }
        local grads = {}
        for i, w in ipairs(model:parameters()) do grads[i] = w.grad end
        return require('wane.plan.measure').fingerprint(grads)
    end

    -- Returns a function(loss) that gives the value of an expression in which `loss` is the model's.
    local function value_of(source)
        return function(loss)
            local chunk = assert(loadstring('local wane, policy, loss = ...; return ' .. source))
            return chunk(wane, wane.policy, loss)
        end
    end

    local plain
    before_each(function() plain = plain or bits() end)

    for _, row in ipairs(rows) do
        local string_form, constructor = code_in(row[1]), code_in(row[2])
        it(constructor:match '^[%w_.]+' .. ' works and leaves the gradients as they are', function()
            assert.equal(plain, bits(value_of(constructor)))
        end)
        if string_form then
            it(string_form .. ' is ' .. constructor, function()
                local p = value_of(string_form)()
                assert.equal('string', type(p))
                assert.equal(tostring(wane.policy.of(p)), tostring(value_of(constructor)()))
                assert.equal(plain, bits(function() return p end))
            end)
        end
    end

    it('names every policy there is, and the page every word', function()
        local listed = {}
        for _, row in ipairs(rows) do
            local name = row[2]:match '^`policy%.([%w_]+)'
            if name then listed[name] = true end
        end
        local helpers = { is = true, of = true, check_decision = true, key = true, decide = true, within_budget = true,
            decision_name = true, anew = true, limit_of = true, within = true }
        for name, value in pairs(wane.policy) do
            if type(value) == 'function' and not helpers[name] then
                assert.is_true(listed[name], name)
                listed[name] = nil
            end
        end
        assert.same({}, listed)
        for word in pairs(wane.policy.decisions) do
            assert.is_truthy(texts[POLICIES]:find('[`\']' .. word:gsub('%p', '%%%0') .. '[`\']'), word)
        end
    end)
end)

describe('the table for those who come from elsewhere', function()
    local names = block_of(FOREIGN, 'lua names').body
    local run_rows = 0

    for _, row in ipairs(rows_below(FOREIGN, 'Coming from elsewhere')) do
        local code = code_in(row[2])
        it((row[1]:gsub('`', '')) .. (code and ' has a call that runs' or ' is not in this version'), function()
            if not code then
                assert.equal('not in this version', row[2])
                return
            end
            run_rows = run_rows + 1
            local out, rc = run(PREAMBLE .. names .. 'local y, value, bytes\n' .. code .. [[

                if y and y.requires_grad then y:sum():backward { again = true } elseif y then wane.eval(y) end
                if value then value:item() end
                assert(bytes == nil or bytes > 0)]])
            assert.equal('', out)
            assert.equal(0, rc)
        end)
    end

    it('has no row that is not in this version', function()
        assert.equal(#rows_below(FOREIGN, 'Coming from elsewhere'), run_rows)
    end)
end)

describe('the table of the environment', function()
    it('is what the code reads', function()
        local listed, read = {}, {}
        for _, row in ipairs(rows_below(COMMANDS, 'Environment')) do listed[code_in(row[1])] = true end
        local sources = "find runtime kernels lua -name '*.[ch]' -o -name '*.cu' -o -name '*.lua'"
        for _, path in ipairs(helper.lines(sources)) do
            local source = helper.read(path)
            for name in source:gmatch '"(WANE_[A-Z_]+)"' do read[name] = true end
            for name in source:gmatch '"(G?OMP_[A-Z_]+)"' do read[name] = true end
            for name in source:gmatch "getenv%s*%(?%s*'([%w_]+)'" do read[name] = true end
            for name in source:gmatch "variable%s*%(?%s*'(WANE_[%w_]+)'" do read[name] = true end
        end
        assert.same(read, listed)
        assert.truthy(next(read))
    end)
end)

describe('the table of commands', function()
    it('has every target a user types and every command, and no other', function()
        local listed = { make = {}, wane = {} }
        for _, row in ipairs(rows_below(COMMANDS, 'Commands')) do
            for target in row[1]:gmatch '`make ([%w-]+)' do listed.make[target] = true end
            local command = row[1]:match '`build/wane (%w+)'
            if command then listed.wane[command] = true end
        end
        local targets, commands = {}, {}
        local known = helper.read('Makefile'):match '\n%.PHONY: (all[^\n]+)\n'
        for name in known:gmatch '[%w-]+' do targets[name] = true end
        targets.all, targets.found, targets.library = nil, nil, nil -- `make` alone, and its parts
        for _, command in ipairs(require 'wane.cli.commands') do commands[command.name] = true end
        assert.same(targets, listed.make)
        assert.same(commands, listed.wane)
    end)
end)
