-- Checks merges of the files of a sweep's shards: that they are what one run gives, and that a merge names what is
-- missing and refuses rows of another script or grid, or with other bits.
local helper = require 'spec.helper'
local errors = require 'wane.errors'
local json = require 'wane.report.json'
local sweeps = require 'spec.support.sweeps'
local system = require 'wane.system'

local read, refusal, rows, said = sweeps.read, sweeps.refusal, sweeps.rows, sweeps.said
local sweep, timeless, write = sweeps.sweep, sweeps.timeless, sweeps.write
local folder

describe('merged shards', function()
    setup(function() folder = sweeps.folder() end)
    teardown(function() os.execute('rm -rf ' .. folder) end)

    -- Runs all shards of a name; returns their files.
    local function run(name, count, t)
        local files = {}
        for k = 1, count do
            local all = { shard = ('%d/%d'):format(k, count), out = ('%s/%s.jsonl'):format(folder, name) }
            for key, value in pairs(t or {}) do all[key] = value end
            local s = sweep(all)
            s:run()
            files[k] = s.out
        end
        return files
    end
    local function path(name) return ('%s/%s.jsonl'):format(folder, name) end

    it('are what one run gives: the same rows in the same order, once', function()
        sweep({ out = path 'whole' }):run()
        local whole = rows(path 'whole')
        for _, count in ipairs { 3, 21 } do
            local name = 'parts' .. count
            local files, s = run(name, count), sweep { out = path('merged' .. count) }
            assert.equal(s, s:merge(files))
            assert.equal(timeless(whole), timeless(s:rows()))
            assert.equal(timeless(whole), timeless(rows(s.out)))
            assert.same({}, s:missing())
            local again = sweep { out = s.out, resume = true }:run() -- nothing is left to run
            assert.equal(timeless(whole), timeless(again:rows()))
            local before = read(s.out)
            sweep({ out = s.out }):merge(('%s/%s.*-of-%d.jsonl'):format(folder, name, count)) -- as often as one likes
            assert.equal(before, read(s.out))
            assert.equal(20, #sweep():merge(files):rows()) -- into no file
        end
        for _, row in ipairs(whole) do
            assert.is_true(row.cores >= 1 and row.load >= 0)
        end
    end)

    it('lack what is named: points, shards, files that are not there; the rest is written and goes on', function()
        local files, s = run('lack', 4), sweep { out = path 'partial' }
        local text = read(files[2])
        write(files[2], text:gsub('^[^\n]*\n', ''))
        local one = s.points[2].label
        os.remove(files[4])
        local words, code = refusal(function() s:merge(files) end)
        assert.equal('value', code)
        assert.matches('there is no file [^\n]*lack%.4%-of%-4%.jsonl\n6 of 20 points have no row\n', words)
        assert.truthy(words:find(('shard 2/4 (%s) lacks 1: %s\n'):format(files[2], one), 1, true), words)
        assert.truthy(words:find(('shard 4/4 (%s) lacks 5: %s; '):format(files[4], s.points[4].label), 1, true), words)
        assert.matches('\nrun each again with resume %(%-%-shard 2/4 %-%-resume%), then merge again$', words)
        assert.equal(14, #rows(s.out))
        assert.equal(6, #s:missing())
        assert.matches('14 measured, 6 not run', tostring(s))
        -- files by other names are not told apart by shards
        os.rename(files[1], path 'first')
        words = refusal(function() sweep():merge { path 'first', files[3] } end)
        assert.truthy(words:find('10 of 20 points have no row\n' .. one .. '; ', 1, true), words)
        os.rename(path 'first', files[1])
        -- the shards go on, or one process does
        run('lack', 4, { resume = true })
        assert.equal(20, #sweep({ out = path 'completed' }):merge(files):rows())
        assert.equal(20, #sweep({ out = s.out, resume = true }):run():rows())
        assert.equal(timeless(rows(path 'completed')), timeless(sweep({ out = s.out }):merge(files):rows()))
    end)

    it('have no more than twenty names in a message', function()
        local many, wide = {}, {}
        for k = 1, 40 do wide[k] = k end
        many.grid = { width = wide }
        many.shard, many.out = '1/2', path 'many'
        local s = sweep(many):run()
        many.shard, many.out = nil, nil
        local words = refusal(function() sweep(many):merge(s.out) end)
        assert.matches('20 of 40 points have no row\nshard 2/2 %(no file of it was given%) lacks 20: width=2; ', words)
        many.grid = { width = wide, k = { 1, 2 } }
        write(s.out, '')
        words = refusal(function() sweep(many):merge(s.out) end)
        assert.matches('; and 20 more\n', words)
    end)

    it('lose no row to a torn line, and say that its point is missing', function()
        local files = run('torn', 2)
        local text = read(files[1])
        write(files[1], text:sub(1, -10))
        local s, words = sweep { out = path 'untorn' }, nil
        local notes = said(function() words = refusal(function() s:merge(files) end) end)
        assert.matches('the last line of [^\n]*torn%.1%-of%-2%.jsonl is torn %(%d+ bytes without an end%)', notes)
        assert.matches('shard 1/2 [^\n]* lacks 1: ', words)
        assert.equal(text:sub(1, -10), read(files[1])) -- a merge changes no shard
        said(function() run('torn', 2, { resume = true }) end)
        assert.equal(20, #s:merge(files):rows())
        assert.equal(20, #rows(s.out))
    end)

    it('take a measurement where another file has a failure, in any order', function()
        local files = run('failed', 2)
        local first = rows(files[1])[1]
        local failed = json.encode { n = 1, point = first.point, script = first.script, status = 'failed',
            code = 'oom', error = 'too large' } .. '\n'
        write(path 'failure', failed)
        for _, list in ipairs { { path 'failure', files[1], files[2] }, { files[1], files[2], path 'failure' } } do
            assert.equal(20, #sweep():merge(list):measured())
        end
        local s = sweep()
        pcall(s.merge, s, { path 'failure', files[2] })
        assert.equal(1, #s:failed())
        -- a failure in the file of an earlier merge gives way too
        write(path 'early', failed)
        assert.equal(20, #sweep({ out = path 'early' }):merge(files):measured())
        assert.equal(20, #rows(path 'early'))
    end)

    it('may have a point twice when its bits and bytes are the same, and are refused when not', function()
        local files = run('twice', 2)
        local text = read(files[1])
        write(path 'copy', text)
        local notes, s = said(function() return sweep():merge { files[1], files[2], path 'copy' } end)
        assert.equal('wane.sweep: 10 rows are of points that an earlier file has, with the same bits and bytes; the '
            .. 'earlier counts\n', notes)
        assert.equal(20, #s:rows())
        local first = rows(files[1])
        for field, value in pairs { digest = 'abc', loss_bits = 'abc', peak = 7, predicted_peak = 7, reserved = 7,
            predicted_reserved = 7, recomputed = 7, kinds = { input = 7 } } do
            local copy = {}
            for name, v in pairs(first[3]) do copy[name] = v end
            copy[field] = value
            write(path 'copy', json.encode(copy) .. '\n')
            s = sweep { out = path('refused_' .. field) }
            local words = refusal(function() s:merge { files[1], files[2], path 'copy' } end)
            local wrong = ('%s is in %s and in %s, and the '):format(s.points[first[3].n].label, files[1], path 'copy')
            assert.truthy(words:find(wrong, 1, true), words)
            assert.matches(' differ: ', words)
            assert.is_false(system.exists(s.out)) -- and nothing is written
        end
    end)

    it('have the same bits under every lossless policy in whichever file, else both files are named', function()
        local files = run('bits', 2) -- the policy is the last axis: each file has one policy
        local wrong = read(files[2]):gsub('"loss_bits":"%x%x%x%x', '"loss_bits":"ffff', 1)
        write(files[2], wrong)
        local words = refusal(function() sweep({ out = path 'wrong' }):merge(files) end)
        assert.matches('the losses of %(width=3 policy=save_all in [^\n]*bits%.1%-of%-2%.jsonl%) and %(width=3 '
            .. 'policy=recompute_all in [^\n]*bits%.2%-of%-2%.jsonl%) differ', words)
        assert.equal(20, #rows(path 'wrong')) -- as one run would have left them
        wrong = read(files[1]):gsub('"peak":%d+', '"peak":1', 1)
        write(files[1], wrong)
        assert.matches('predicted peak %d+ bytes .* this is a defect of Wane', (refusal(function()
            sweep():merge(files)
        end)))
    end)

    it('are of one text of the script and its settings, unless that is forced', function()
        local files = run('script', 2)
        local s = sweep { repeats = 2, out = path 'other' }
        local words = refusal(function() s:merge(files) end)
        assert.matches('script%.1%-of%-2%.jsonl has rows of another text of the script, or of other settings', words)
        assert.is_false(system.exists(s.out))
        assert.equal(20, #sweep({ repeats = 2, out = s.out, resume = 'force' }):merge(files):rows())
    end)

    it('are of one grid, and a file that already holds other rows stays as it is', function()
        local files = run('grid', 2)
        local words = refusal(function()
            sweep({ grid = { width = { 3, 4 }, policy = { 'save_all' } }, out = path 'small' }):merge(files)
        end)
        assert.matches('grid%.1%-of%-2%.jsonl has a row of {.*}, which is no point of this grid', words)
        assert.is_false(system.exists(path 'small'))
        local foreign = sweep { grid = { width = { 90 } }, out = path 'foreign' }
        foreign:run()
        local before = read(foreign.out)
        assert.matches('foreign%.jsonl has a row', (refusal(function() sweep({ out = foreign.out }):merge(files) end)))
        assert.equal(before, read(foreign.out))
        write(path 'prose', 'not a row\n')
        assert.matches('line 1 of [^\n]*prose%.jsonl is no row', (refusal(function()
            sweep({ out = path 'prose' }):merge(files)
        end)))
        assert.equal('not a row\n', read(path 'prose'))
    end)

    it('are files: what is none is refused by name', function()
        for _, bad in ipairs { {}, { 3 }, { '' }, 7, { { 'x' } } } do
            assert.matches('expected', (refusal(function() sweep():merge(bad) end)))
        end
        assert.matches('expected a list of files', (refusal(function() sweep():merge() end)))
        assert.matches('there is no file /nowhere/a, /nowhere/b%*', (refusal(function()
            sweep():merge { '/nowhere/a', '/nowhere/b*' }
        end)))
        assert.matches('cannot be read', (refusal(function() sweep():merge { folder } end)))
        assert.matches('leave out retry_failed', (refusal(function()
            sweep({ retry_failed = true, out = 'x' }):merge { 'y' }
        end)))
        local files = run('nofolder', 2)
        assert.equal(20, #sweep({ out = folder .. '/new/folder/all.jsonl' }):merge(files):rows())
        local busy = sweep { out = path 'busy' }
        local release = assert(system.lock(busy.out))
        assert.matches('is in use', (refusal(function() busy:merge(files) end)))
        release()
        assert.equal(20, #busy:merge(files):rows())
    end)
end)

describe('wane sweep', function()
    setup(function()
        folder = sweeps.folder()
        write(folder .. '/x.lua', [[
local wane = require 'wane'
return wane.main { grid = { depth = { 1, 2, 3 }, policy = { 'save_all', 'recompute_all' } }, build = function(p)
    local w = wane.randn(3, p.depth, { requires_grad = true })
    local x = wane.randn(2, 3):retain()
    return function() return x:matmul(w):gelu():sum() end
end }]])
    end)
    teardown(function() os.execute('rm -rf ' .. folder) end)
    local function command(words)
        return helper.shell(('cd %s && %s/build/wane sweep x.lua --repeats 1 --warmup 0 %s'):format(folder,
            helper.lines('pwd')[1], words))
    end

    it('counts points, runs shards and merges their files, as a shell names them', function()
        assert.equal('6\n', (command '--points'))
        assert.equal('2\n', (command '--points --shard 2/4'))
        assert.equal('12\n', (command '--points --depth 1,2,3,4,5,6 --out untouched.jsonl'))
        assert.is_false(system.exists(folder .. '/untouched.jsonl'))
        for k = 1, 3 do
            local text, code = command(('--shard %d/3 --out rows.jsonl'):format(k))
            assert.equal(0, code, text)
            assert.truthy(text:find(('shard %d/3, 2 points: 2 measured'):format(k), 1, true), text)
        end
        for _, files in ipairs { 'rows.*-of-3.jsonl', "'rows.*-of-3.jsonl'",
            'rows.1-of-3.jsonl,rows.2-of-3.jsonl,rows.3-of-3.jsonl' } do
            local text, code = command(('--merge %s --out all.jsonl --csv all.csv'):format(files))
            assert.equal(0, code, text)
            assert.matches('6 points: 6 measured', text)
            assert.equal(6, #rows(folder .. '/all.jsonl'))
        end
        local text, code = command '--merge rows.1-of-3.jsonl rows.3-of-3.jsonl --out some.jsonl'
        assert.equal(1, code)
        assert.matches('6 points: 4 measured, 2 not run', text)
        assert.matches('wane: sweep:merge: 2 of 6 points have no row\nshard 2/3 %(no file of it was given%) lacks 2: ',
            text)
        text, code = command '--resume --out some.jsonl'
        assert.equal(0, code, text)
        local sorted = rows(folder .. '/some.jsonl')
        table.sort(sorted, function(a, b) return a.n < b.n end)
        assert.equal(timeless(rows(folder .. '/all.jsonl')), timeless(sorted))
        text, code = command '--shard 7/7 --out empty.jsonl'
        assert.equal(0, code, text)
    end)

    it('refuses command lines that make no sense', function()
        for words, told in pairs {
            ['--shard 0/3 --out a.jsonl'] = "shard must be 'I/N'", ['--shard 1/3'] = 'give out = %(%-%-out%)',
            ['--merge rows.jsonl --shard 1/3 --out a'] = 'leave out shard',
            ['--merge nowhere.jsonl'] = 'there is no file',
            ['--merge a.jsonl --retry-failed --out a'] = 'leave out retry_failed',
        } do
            local text, code = command(words)
            assert.matches(told, text)
            assert.not_equal(0, code, words)
            assert.not_matches('traceback', text)
        end
    end)
end)

-- ---- rows that were edited -----------------------------------------------------------------------------------------
-- Checks rows of sweeps that somebody edited: whatever is in a field, the sweep must go on, or say at the user's line
-- which line of the file is wrong and why; so must everything that shows rows.
local HERE = debug.getinfo(1, 'S').short_src
local PATH = os.tmpname()
teardown(function() os.remove(PATH) end)

local function edited(resume)
    return sweep { grid = { width = { 3 }, policy = { 'save_all', 'recompute_all' } }, out = PATH, resume = resume }
end

local VALUES = { 'null', '"x"', '""', '-1', '0.5', '1e300', '9007199254740992', '[]', '[1]', '["x"]', '{}', '{"x":"y"}',
    '{"x":-1}', '{"x":[]}', 'true', 'false' }

local function lines()
    local list = {}
    for line in io.lines(PATH) do list[#list + 1] = line end
    return list
end

local function write_rows(list) write(PATH, table.concat(list, '\n') .. '\n') end

-- The uses of a sweep, each on its own.
local USES = {
    function(s) return s:rows() end, tostring, function(s) return s:csv() end, function(s) return s:report() end,
    function(s) return s:plot() end, function(s) return s:pareto('peak', 'seconds') end,
    function(s) return s:pareto('activation', 'loss') end, function(s) return s:problems() end,
}

-- Runs fn: fine, or an error of Wane's at a line of this file.
local function fine_or_told(what, fn, ...)
    local ok, e = pcall(function(...)
        local result = fn(...)
        return result
    end, ...)
    if ok then return true, e end
    assert.is_true(errors.is(e), what .. ': ' .. tostring(e))
    assert.equal(HERE, (e.where or ''):sub(1, #HERE), what .. ': ' .. tostring(e))
    assert.is_nil(e.message:find 'attempt to', e.message)
    return false, e
end

describe('a row that was edited', function()
    it('is taken, or refused with its line and field', function()
        os.remove(PATH)
        edited():run()
        local good, refused = lines(), 0
        local row = json.decode(good[1])
        row.code, row.error, row.status_ = 'oom', 'words', nil
        for name in pairs(row) do
            for _, value in ipairs(VALUES) do
                local changed = json.decode(good[1])
                changed[name] = nil
                local text = json.encode(changed):gsub('}$', (',%q:%s}'):format(name, value:gsub('%%', '%%%%')))
                write_rows { text, good[2] }
                local what = ('%s = %s'):format(name, value)
                local ok, e = fine_or_told(what, function()
                    local s = edited 'force'
                    s:run()
                    return s
                end)
                if ok then
                    for k, use in ipairs(USES) do fine_or_told(('%s, use %d'):format(what, k), use, e) end
                else
                    refused = refused + 1
                    assert.is_truthy(e.message:find('line 1', 1, true) or e.message:find('predicted', 1, true)
                        or e.message:find('differ', 1, true), what .. ': ' .. e.message)
                end
                if not ok and name == 'kinds' then assert.is_truthy(e.message:find("'kinds'", 1, true), e.message) end
            end
        end
        assert.is_true(refused > 100, refused)
    end)

    it('without a field is refused where the field is needed', function()
        os.remove(PATH)
        edited():run()
        local good = lines()
        for _, name in ipairs { 'status', 'point', 'peak', 'predicted_peak', 'reserved', 'predicted_reserved',
            'seconds', 'recomputed', 'kinds', 'exact', 'lossless' } do
            local changed = json.decode(good[1])
            changed[name] = nil
            write_rows { json.encode(changed), good[2] }
            local ok, e = fine_or_told(name, function() edited('force'):run() end)
            assert.is_false(ok, name)
            assert.is_truthy(e.message:find('line 1', 1, true), e.message)
        end
        for _, line in ipairs { 'null', '3', '"x"', '[]', '[[1]]', 'true', '{}', '{"point":[]}' } do
            write_rows { line, good[2] }
            local ok, e = fine_or_told(line, function() edited('force'):run() end)
            assert.is_false(ok, line)
            assert.is_truthy(e.message:find('line 1', 1, true), e.message)
        end
    end)
end)
