-- Checks wane.sweep: the order of points, what a row holds, that a failing point ends no other, that rows outlive the
-- process that wrote them, and that results which must be equal are compared. Scripts try points in processes of their
-- own.
local helper = require 'spec.helper'
local native = require 'spec.support.native'
local sweeps = require 'spec.support.sweeps'
local wane = helper.wane
local assert_once, rows_of, refusal = sweeps.assert_once, sweeps.rows, sweeps.refusal
local read, write = sweeps.read, sweeps.write
local nn = wane.nn

local folder

-- Returns the loss of a network whose activations outweigh its parameters, with dropout, and the network: the body of
-- a function of p.
local BUILD = [[
    local layers = {}
    for i = 1, p.depth or 4 do layers[i] = nn.Sequential { nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.2) } end
    local model = nn.Sequential(layers)
    local x = wane.randn(64, 16):retain()
    return function() return model(x):sum() end, model
]]
local build = assert(loadstring('local wane, nn = ... return function(p) ' .. BUILD .. ' end'))(wane, nn)

local function sweep(t)
    t.build, t.repeats, t.isolate = t.build or build, t.repeats or 1, false
    return wane.sweep(t)
end

-- Returns a script that sweeps the network above: `body` is put first into build, `options` into the call of
-- wane.sweep.
local function script(name, body, options, rest)
    return write(folder .. '/' .. name, ([[
local wane = require 'wane'
local nn = wane.nn
local function build(p)
    %s
%send
local resume = (...) == 'resume' or (...) == 'force' and 'force' or nil
local s = wane.sweep { build = build, repeats = 1, resume = resume, %s }
s:run()
%s]]):format(body, BUILD, options, rest or ''))
end

local function run(path, arguments)
    return helper.shell(('build/wane run %s %s'):format(path, arguments or ''))
end

describe('wane.sweep', function()
    setup(function() folder = sweeps.folder() end)
    teardown(function() os.execute('rm -rf ' .. folder) end)

    describe('orders its points', function()
        local function labels(t)
            t.build = build
            local out = {}
            for i, q in ipairs(wane.sweep(t).points) do
                assert.equal(i, q.number)
                out[i] = q.label
            end
            return out
        end

        it('by name, the last key fastest', function()
            assert.same({ 'depth=2 policy=save_all', 'depth=2 policy=sqrt', 'depth=1 policy=save_all',
                'depth=1 policy=sqrt' }, labels { grid = { policy = { 'save_all', 'sqrt' }, depth = { 2, 1 } } })
        end)

        it('as order= says', function()
            assert.same({ 'policy=save_all depth=2', 'policy=save_all depth=1', 'policy=sqrt depth=2',
                'policy=sqrt depth=1' }, labels { grid = { policy = { 'save_all', 'sqrt' }, depth = { 2, 1 } },
                order = { 'policy', 'depth' } })
        end)

        it('budgets after policies, one axis', function()
            assert.same({ 'policy=sqrt', 'policy=budget(2 GiB)', 'policy=budget(4096)' },
                labels { grid = { budget = { '2 GiB', 4096 }, policy = { 'sqrt' } } })
        end)

        it('and gives names to those without a text of their own', function()
            local mine = function() return 'save' end
            assert.same({ 'act=relu policy=by_op{gelu=recompute}', 'act=relu policy=mine' }, labels { grid = {
                act = { { name = 'relu', value = nn.ReLU } },
                policy = { wane.policy.by_op { gelu = 'recompute' }, { name = 'mine', value = mine } } } })
        end)
    end)

    describe('measures', function()
        it('bytes as predicted, equal bits under every policy, and leaves the random numbers alone', function()
            local C = require('wane.ffi').C
            wane.manual_seed(77)
            wane.eval(wane.randn(3))
            local counter, seed = C.wn_here().counter, C.wn_here().seed
            local s = sweep { grid = { depth = { 3, 5 }, policy = { 'save_all', 'sqrt', 'recompute_all' } } }:run()
            assert.is_true(counter == C.wn_here().counter and seed == C.wn_here().seed)
            local rows = s:rows()
            assert_once(rows, 6)
            for i, row in ipairs(rows) do
                assert.equal('ok', row.status, row.error)
                assert.equal(row.predicted_peak, row.peak)
                assert.equal(row.predicted_reserved, row.reserved)
                assert.same(row.predicted_kinds, row.kinds)
                assert.is_true(row.seconds > 0 and row.lossless and row.exact and #row.times == 1)
                assert.equal(i <= 3 and 3 or 5, row.point.depth)
                assert.equal(rows[i <= 3 and 1 or 4].digest, row.digest)
                assert.equal(rows[i <= 3 and 1 or 4].loss_bits, row.loss_bits)
                assert.matches('^%x+$', row.digest)
                assert.equal(16, #row.digest)
            end
            assert.is_true(rows[1].digest ~= rows[4].digest)
            assert.equal(0, rows[1].recomputed)
            assert.is_true(rows[3].recomputed > 0 and rows[3].peak < rows[1].peak)
            local fn, model = build { depth = 3 }
            wane.measure(fn, { steps = 1 })
            local state = 0
            for _, p in ipairs(model:parameters()) do state = state + math.ceil(p:numel() * 4 / 256) * 256 end
            assert.equal(state, rows[1].state)
        end)

        it('the same bits wherever a point runs', function()
            local path = script('bits.lua', '', "grid = { policy = { 'save_all', 'sqrt' } }, out = arg[1]")
            local out, code = run(path, folder .. '/bits.jsonl')
            assert.equal('', out)
            assert.equal(0, code)
            local here = sweep { grid = { policy = { 'save_all', 'sqrt' } } }:run():rows()
            for i, row in ipairs(rows_of(folder .. '/bits.jsonl')) do
                assert.equal(here[i].digest, row.digest)
                assert.equal(here[i].loss_bits, row.loss_bits)
                assert.equal(here[i].peak, row.peak)
            end
        end)

        it('a step with its optimizer, in three lines and in one plan', function()
            local function training(p)
                local fn, model = build(p)
                return fn, model, wane.optim.Adam(model:parameters(), { lr = 0.01 })
            end
            local grid = { policy = { 'save_all', 'sqrt' } }
            local apart = sweep { build = training, grid = grid, lines = true }:run():rows()
            local fused = sweep { build = training, grid = grid }:run():rows()
            assert.is_true(apart[1].trained and fused[1].trained and fused[1].exact)
            assert.is_true(fused[1].kinds.optimizer > 0)
            assert.equal(apart[1].digest, fused[1].digest)
            assert.equal('gradients', fused[1].digest_of)
            assert.is_true(apart[1].kinds.optimizer > 0)
            assert.equal(apart[2].loss_bits, fused[2].loss_bits)
        end)

        it('a function that steps by itself: the parameters after it are compared', function()
            local function own(p)
                local fn, model = build(p)
                local opt = wane.optim.SGD(model:parameters(), { lr = 0.01 })
                return function() return opt:step(fn()) end, model, opt
            end
            local rows = sweep { build = own, grid = { policy = { 'save_all', 'recompute_all' } } }:run():rows()
            assert.equal('parameters', rows[1].digest_of)
            assert.equal(rows[1].digest, rows[2].digest)
            assert.is_true(rows[2].recomputed > 0 and rows[2].peak < rows[1].peak)
        end)

        it('and says which points no other beats', function()
            local policies = { 'save_all', 'sqrt', 'recompute_all', 'every(2)', 'every(3)' }
            local s = sweep { grid = { policy = policies } }:run()
            local numbers = { { 10, 1 }, { 5, 2 }, { 6, 2 }, { 5, 2 }, { 1, 9 } }
            for i, row in ipairs(s:rows()) do row.peak, row.seconds = numbers[i][1], numbers[i][2] end
            local names = {}
            for i, row in ipairs(s:pareto('peak', 'seconds')) do names[i] = row.point.policy end
            assert.same({ 'every(3)', 'sqrt', 'every(2)', 'save_all' }, names)
            assert.matches("no number 'secons'; did you mean 'seconds'", (refusal(s.pareto, s, 'peak', 'secons')))
        end)
    end)

    describe('compares', function()
        it('gradients: a difference names the two points', function()
            local turn = 0
            local function lossy(p)
                turn = turn + 1
                local fn, model = build(p)
                return turn == 3 and function() return fn() * (1 + 2 ^ -23) end or fn, model
            end
            local policies = { 'sqrt', 'save_all', 'recompute_all' }
            local s = sweep { grid = { depth = { 2 }, policy = policies }, build = lossy }
            local message = refusal(s.run, s)
            assert.matches('gradients of %(depth=2 policy=save_all%) and %(depth=2 policy=recompute_all%) differ',
                message)
            assert.is_nil(message:find('policy=sqrt', 1, true))
            assert.equal(3, #s:rows()) -- what was measured is there
        end)
    end)

    describe('keeps points apart', function()
        it('one that raises, ends by a signal, by its own will or for want of memory is a row', function()
            local out = folder .. '/apart.jsonl'
            local path = script('apart.lua', [[
    local ends = { raise = function() error('nothing to build') end, kill = function() os.execute 'kill -9 $PPID' end,
        leave = function() print 'leaving' os.exit(3) end, oom = function() wane.memory.limit '4 KiB' end }
    if ends[p.way] then ends[p.way]() end]],
                ("grid = { way = { 'fine', 'raise', 'kill', 'leave', 'oom', 'well' } }, out = '%s'"):format(out),
                "print(#s:rows(), #s:measured())")
            local text, code = run(path)
            assert.equal('6\t2\n', text) -- nothing of the other processes is shown
            assert.equal(0, code)
            local rows = rows_of(out)
            assert_once(rows, 6)
            local seen = {}
            for i, row in ipairs(rows) do seen[i] = row.code or row.status end
            assert.same({ 'ok', 'error', 'signal', 'exit', 'oom', 'ok' }, seen)
            assert.matches('nothing to build', rows[2].error)
            assert.equal(9, rows[3].signal)
            assert.matches('SIGKILL', rows[3].error)
            assert.matches('code 3: leaving', rows[4].error)
            assert.is_true(rows[5].limit == 4096 and rows[5].needs > 4096)
            assert.equal(rows[1].digest, rows[6].digest)
        end)

        it('in a process each, which the parent outlives and none of which goes on after its point', function()
            local out = folder .. '/pids.jsonl'
            local path = script('pids.lua', ([[
    local file = io.open('%s/pids', 'a') file:write(require('wane.ffi').C.wn_process(), '\n') file:close()]])
                :format(folder), ("grid = { policy = { 'save_all', 'sqrt', 'every(2)' } }, out = '%s'"):format(out),
                ("io.open('%s/pids', 'a'):write('end ', require('wane.ffi').C.wn_process(), '\\n')"):format(folder))
            assert.equal('', (run(path)))
            local seen, lines = {}, {}
            for line in read(folder .. '/pids'):gmatch '[^\n]+' do
                lines[#lines + 1] = line
                local pid = line:match '%d+'
                assert.is_nil(seen[pid])
                seen[pid] = true
            end
            assert.equal(4, #lines)
            assert.matches('^end', lines[4])
        end)

        it('in time: a limit ends one from outside', function()
            local out = folder .. '/limit.jsonl'
            local path = script('limit.lua', "if p.depth == 2 then os.execute 'sleep 20' end",
                ("grid = { depth = { 1, 2, 3 } }, limit = 1, out = '%s'"):format(out))
            local text, code = run(path)
            assert.equal(0, code, text)
            local rows = rows_of(out)
            assert.same({ 'ok', 'failed', 'ok' }, { rows[1].status, rows[2].status, rows[3].status })
            assert.equal('limit', rows[2].code)
        end)

        it('when the script comes through standard input, in that one process', function()
            local path = script('stdin.lua', '', "grid = { policy = { 'save_all', 'sqrt' } }", 'print(#s:measured())')
            local text = helper.shell("LUA_PATH='lua/?.lua;lua/?/init.lua' ${LUAJIT:-luajit} -", read(path))
            assert.equal('2\n', text)
        end)

        it('at a prompt, in that one process', function()
            local out = helper.shell('build/wane repl', "function build() local m, x = nn.Linear(4, 4), "
                .. "wane.randn(2, 4):retain(); n = (n or 0) + 1; return function() return m(x):sum() end end\n"
                .. "s = wane.sweep { build = build, grid = { policy = { 'save_all', 'sqrt' } } }\n"
                .. '#s:run():measured()\nn\n')
            assert.equal('2\n2\n', out)
        end)

        it('of two sweeps in a script', function()
            local first, second = folder .. '/first.jsonl', folder .. '/second.jsonl'
            local path = script('two.lua', '', ("grid = { depth = { 1, 2 } }, out = '%s'"):format(first), ([[
local t = wane.sweep { build = build, repeats = 1, grid = { depth = { 3, s:rows()[2].point.depth } }, out = '%s' }:run()
print(#s:measured(), #t:measured())]]):format(second))
            assert.equal('2\t2\n', (run(path)))
            assert_once(rows_of(first), 2)
            assert_once(rows_of(second), 2)
        end)

        it('and refuses a script that makes another grid the second time', function()
            local path = script('chance.lua', '', "grid = { depth = { require('wane.ffi').C.wn_process() } }",
                'print(s:rows()[1].error)')
            assert.matches('made another grid', (run(path)))
        end)
    end)

    describe('goes on', function()
        -- Starts a script of five points a third of a second each, ends it after two rows by `signal`.
        local function cut_short(name, signal)
            local out = folder .. '/' .. name .. '.jsonl'
            local path = script(name .. '.lua',
                ("os.execute 'sleep 0.3' local f = io.open('%s.done', 'a') f:write '.' f:close()"):format(out),
                ("grid = { depth = { 1, 2, 3, 4, 5 } }, out = '%s'"):format(out))
            local text = helper.shell(([[
build/wane run %s > %s.said 2>&1 & pid=$!
n=0; while [ "$(wc -l < %s 2>/dev/null || echo 0)" -lt 2 ] && [ $n -lt 300 ]; do sleep 0.05; n=$((n+1)); done
kill -%s $pid; wait $pid; echo "ended $?"; wc -l < %s; sleep 1; wc -l < %s]])
                :format(path, out, out, signal, out, out))
            local code, now, later = text:match 'ended (%d+)\n%s*(%d+)\n%s*(%d+)\n'
            return path, out, tonumber(code), tonumber(now), tonumber(later)
        end

        it('after its process was killed: every point once, and no process is left behind', function()
            local path, out, code, now, later = cut_short('killed', 'KILL')
            assert.equal(137, code)
            assert.is_true(now >= 2 and now < 5)
            assert.equal(now, later)
            assert.equal(now, #read(out .. '.done')) -- the point under way died with its parent
            local before = read(out)
            local text
            text, code = run(path)
            assert.equal(1, code)
            assert.matches('is there already, with %d rows; resume = true', text)
            assert.equal(before, read(out))
            text, code = run(path, 'resume')
            assert.equal(0, code, text)
            assert.equal(before, read(out):sub(1, #before))
            assert_once(rows_of(out), 5)
            text, code = run(path, 'resume') -- and has nothing left to do
            assert.equal(0, code, text)
            assert_once(rows_of(out), 5)
        end)

        it('after ^C, which keeps what was written and says how', function()
            local path, out, code, now, later = cut_short('stopped', 'INT')
            assert.equal(130, code)
            assert.equal(now, later)
            assert.matches(('interrupted after %d of 5 points; the rows are in [^\n]*, and resume = true'):format(now),
                read(out .. '.said'))
            assert.equal(0, select(2, run(path, 'resume')))
            assert_once(rows_of(out), 5)
        end)

        it('with a grid that grew, the new points alone', function()
            local out, turns = folder .. '/grown.jsonl', 0
            local function counting(p)
                turns = turns + 1
                return build(p)
            end
            sweep { build = counting, grid = { depth = { 1, 3 } }, out = out }:run()
            local s = sweep { build = counting, grid = { depth = { 1, 2, 3 } }, out = out, resume = true }:run()
            assert.equal(3, turns)
            local depths = {}
            for i, row in ipairs(s:rows()) do depths[i] = row.point.depth end
            assert.same({ 1, 2, 3 }, depths)
        end)
    end)

    it('says nothing in a pipe, a line a point where asked to', function()
        local path = script('quiet.lua', '', "grid = { depth = { 1, 2 } }, verbose = arg[1] == 'verbose'")
        assert.equal('', (run(path)))
        local text = run(path, 'verbose')
        assert.matches('^1/2  depth=1: peak [%d.]+ KiB, [^\n]+ s\n2/2  depth=2: [^\n]+ s\n$', text)
    end)

    it('rewrites one line at a terminal, and prints plain ones at a dumb one', function()
        local driver = native.terminal()
        local path = script('seen.lua', '', 'grid = { depth = { 1, 2 } }', "print 'over'")
        local text = helper.shell(('TERM=xterm %s build/wane run %s'):format(driver, path), 'expect over\n')
        assert.matches('\r\27%[K0/2  depth=1', text)
        assert.matches('\r\27%[K1/2  [%d.]+ a second, %d+ s left  depth=2\r\27%[Kover\r\n\npty: exit 0\n$', text)
        text = helper.shell(('TERM=dumb %s build/wane run %s'):format(driver, path), 'expect over\n')
        assert.matches('^1/2  depth=1: [^\r]+\r\n2/2  depth=2: [^\r]+\r\nover\r\n', text)
        assert.is_nil(text:find('\27', 1, true))
    end)

    it('refuses what makes no sense', function()
        local grid = { depth = { 1 } }
        local cases = {
            { {}, 'expected build' }, { { build = build }, 'expected grid' },
            { { build = build, grid = {} }, 'expected grid' },
            { { build = build, grid = { depth = {} } }, 'grid.depth: expected a list of values, got an empty one' },
            { { build = build, grid = { depth = 3 } }, 'grid.depth: expected a list of values' },
            { { build = build, grid = { depth = { 3, 3 } } }, "holds '3' twice" },
            { { build = build, grid = { depth = { build } } }, 'grid.depth holds a function' },
            { { build = build, grid = { policy = { 'sqr' } } }, "did you mean 'sqrt'" },
            { { build = build, grid = { policy = { function() end } } }, 'grid.policy holds a function' },
            { { build = build, grid = { budget = { '2 QB' } } }, 'not a size' },
            { { build = build, grid = grid, order = { 'dpeth' } }, "did you mean 'depth'" },
            { { build = build, grid = { a = { 1 }, b = { 2 } }, order = { 'a' } }, 'must name every key' },
            { { build = build, grid = grid, repeat_ = 3 }, "unknown option 'repeat_'" },
            { { build = build, grid = grid, repeats = 0 }, 'whole number from 1' },
            { { build = build, grid = grid, resume = true }, 'resume needs the file' },
            { { build = build, grid = grid, out = 'x', resume = 'yes' }, "true, false or 'force'" },
            { { build = build, grid = grid, limit = 0 }, 'seconds above 0' },
        }
        for i, case in ipairs(cases) do
            local message, code = refusal(wane.sweep, case[1])
            assert.is_truthy(message:find(case[2], 1, true), ('case %d: %s'):format(i, message))
            assert.equal('value', code)
        end
        local s = sweep { grid = grid, limit = 3 }
        assert.matches('points need processes of their own', (refusal(s.run, s)))
        s = sweep { grid = grid, build = function() return 3 end }
        assert.matches('build must return a function', s:run():rows()[1].error)
        s = sweep { grid = grid, lines = true }
        assert.matches('build must return one third', s:run():rows()[1].error)
    end)
end)
