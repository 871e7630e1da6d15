-- Runs the examples and projects small, from any folder, and checks what they claim: gradients have the same bits in
-- every arm, the peak is the predicted one, budgets are kept, a resumed run ends in the same bits, the pictures are in
-- the folder that was given, and misuse is answered with a word. The bench against PyTorch must run
-- without PyTorch and name the columns that are absent.
local files = require 'spec.support.files'
local helper = require 'spec.helper'
local native = require 'spec.support.native'

-- `long_it` is `it` in the long form, for examples that plan for tens of seconds on a busy machine.
local long_it = helper.is_long and it or function() end
local LUAJIT = os.getenv 'LUAJIT' or 'luajit'

-- Returns what an example prints; one without options runs once.
local printed = {}
local function example(name, options)
    if options ~= '' then return files.example(name, options) end
    printed[name] = printed[name] or files.example(name, '')
    return printed[name]
end

-- Makes a fresh folder and returns its name; the folder is removed after the spec.
local function folder()
    local name = files.folder()
    finally(function() os.execute('rm -rf "' .. name .. '"') end)
    return name
end

-- Checks that the file holds an svg element that is closed, with at least `least` texts and neither nan nor inf.
local function assert_picture(path, least)
    local svg = files.read(path)
    assert.truthy(svg:match '^<svg ' and svg:match '</svg>%s*$')
    assert.is_nil(svg:match 'nan' or svg:match 'inf')
    assert.is_true(select(2, svg:gsub('<text', '')) >= least)
end

-- Returns the rows of the text table whose head starts with `first`: lists of the cells of the columns, cut at two
-- spaces.
local function rows_of(text, first)
    local rows, inside = {}, false
    for line in (text .. '\n'):gmatch '(.-)\n' do
        if line:sub(1, #first) == first then
            inside = true
        elseif inside and line == '' then
            if #rows > 0 then break end
        elseif inside and not line:match '^%-%-' then
            local cells = {}
            for cell in (line .. '  '):gmatch '(.-)%s%s+' do cells[#cells + 1] = cell end
            rows[#rows + 1] = cells
        end
    end
    return rows
end

-- Checks that the head of an example holds its output, blanks at the ends of lines aside.
local function assert_shown(name)
    local head = helper.read('examples/' .. name .. '.lua'):match '^(.-)\nlocal root'
    local shown = head:gsub('\n%-%-([^\n]*)', function(line) return '\n' .. line:gsub('^   ', '') end)
    local out = example(name, ''):gsub(' +\n', '\n'):gsub('%s+$', '')
    assert.truthy(shown:find(out, 1, true), out)
end

local function bytes(cell) return (tonumber((cell:gsub(',', '')))) end

describe('examples/catalogue.lua', function()
    long_it('finds its claims', function()
        local out = example('catalogue', '')
        assert.is_nil(out:match 'DOES NOT HOLD', out)
        assert.equal(13, select(2, out:gsub('\n  holds  ', '')))
        assert.truthy(out:match 'every fourth single Linear as a region saves 0 of')
    end)
end)

describe('examples/chargpt.lua', function()
    it('learns, draws its losses, and says text that looks like what it read', function()
        local to = folder()
        local out = example('chargpt', '--size tiny --steps 1500 --sample 200 --out "' .. to .. '"')
        local predicted, measured = out:match '([%d,]+) bytes predicted at the peak, ([%d,]+) measured'
        assert.equal(predicted, measured)
        local rows = rows_of(out, '    step  training')
        assert.same({ '', '0' }, { rows[1][1], rows[1][2] })
        assert.equal('1500', rows[#rows][2])
        assert.is_true(tonumber(rows[1][4]) > 1.3) -- about ln 256 over the entropy: it knows nothing
        -- A model of single characters stays at 1 or above; 0.76 was measured.
        local ratio = out:match 'held%-out text: [%d.]+ nats a character, ([%d.]+) of the entropy'
        assert.is_true(tonumber(ratio) < 0.85, out)
        assert.equal(16, select(2, out:match('\nnats a character\n(.-)\n +%+%-%-'):gsub(' |', '')))
        assert.is_nil(out:find '[\r\27]')
        assert_picture(to .. '/chargpt.svg', 10)
        local said = out:match '\n\nlocal function (.-)\n\nmemory of cpu'
        assert.equal(200, #said)
        assert.is_true(select(2, said:gsub('[%s]', '')) > 10)
    end)

    -- Trains a model that is too small for a second thread, which would wait all the time.
    local function tiny(options) return files.example('chargpt', options, 'WANE_THREADS=1') end

    it('goes on from a file with the same bits, and under a policy and a budget too', function()
        local saved = {}
        for k, way in ipairs {
            { '--size tiny --steps 20' }, { '--size tiny --steps 20 --stop 10', '--resume' },
            { '--size tiny --steps 20 --policy recompute_all' },
            { '--size tiny --steps 20 --stop 7 --budget 560000', '--resume --stop 8', '--resume --policy sqrt' },
        } do
            local to = folder()
            for _, options in ipairs(way) do tiny(options .. ' --sample 0 --out "' .. to .. '"') end
            saved[k] = files.read(to .. '/chargpt.safetensors')
            assert.is_true(saved[k] == saved[1], table.concat(way, ', '))
        end
        local to = folder()
        tiny('--size tiny --steps 20 --seed 2 --sample 0 --out "' .. to .. '"')
        assert.is_false(files.read(to .. '/chargpt.safetensors') == saved[1])
    end)

    it('saves at ^C, says how to go on, and goes on as if nothing had been', function()
        local to, whole = folder(), folder()
        local command = ('WANE_THREADS=1 TERM=xterm %s %s examples/chargpt.lua --out %s --sample 0 ')
            :format(native.terminal(), LUAJIT, to)
        -- Asks for steps enough that none of them is the last one before ^C, on any machine.
        local shown = helper.shell(command .. '--size tiny --steps 99999',
            'expect left  loss\nsend \\x03\nexpect this goes on\npause 100\n')
        assert.matches('pty: exit 130\n$', shown)
        local step = tonumber(shown:match 'stopped after step (%d+) of 99999')
        assert.is_true(step > 0 and step < 99999)
        assert.matches('\r\27%[K%d+/99999  %d[%d.]* a second, [%d.]+ %w+ left  loss %d', shown)
        local way_on, stop = shown:match 'this goes on: (.-)\r?\n', (' --sample 0 --stop %d'):format(step + 50)
        local out, code = helper.shell('WANE_THREADS=1 ' .. way_on:gsub('^luajit', LUAJIT) .. stop)
        assert.equal(0, code, out)
        tiny('--size tiny --steps 99999 --out "' .. whole .. '"' .. stop)
        assert.is_true(files.read(to .. '/chargpt.safetensors') == files.read(whole .. '/chargpt.safetensors'))
    end)

    it('refuses what it does not know, and what a checkpoint has decided', function()
        for options, words in pairs {
            ['--step 3'] = "unknown option '--step'; known: .*--steps", ['--steps 2.5'] = 'whole number, got 2.5',
            ['--resume --steps 3'] = 'keeps what it began with', ['--size big'] = 'tiny, small, medium',
            ['--temperature 0'] = 'above 0', ['--resume --out /nowhere'] = 'No such file',
        } do
            local text, code = helper.shell(LUAJIT .. ' examples/chargpt.lua ' .. options)
            assert.equal(options:find '/nowhere' and 1 or 2, code, text)
            assert.truthy(text:match((words:gsub('%-', '%%-'))), text)
        end
    end)
end)

describe('examples/techniques.lua', function()
    long_it('finds its claims, small', function()
        local out = example('techniques', '--small')
        assert.is_nil(out:match 'DOES NOT HOLD', out)
        assert.equal(11, select(2, out:gsub('\n  holds  ', '')))
        local function table_of(head)
            local rows = {}
            for _, cells in ipairs(rows_of(out, head)) do
                if cells[1] ~= '' then rows[#rows + 1] = cells end -- no claim
            end
            return rows
        end
        local calls, measured = table_of 'wane. ', table_of 'what '
        assert.same({ 6, 7, 4, 3 }, { #calls, #measured, #table_of 'step ', #table_of 'rule ' })
        for _, cells in ipairs(calls) do assert.equal(calls[1][#calls[1]], cells[#cells]) end
        for _, cells in ipairs(measured) do assert.equal(cells[2], cells[3]) end
    end)
end)

describe('examples/deepmlp.lua', function()
    local to, out

    it('runs small and finds its claims', function()
        to = folder()
        out = example('deepmlp', '--small --depth 20 --out "' .. to .. '"')
        assert.truthy(out:match 'bits of gradients %(where kept%), loss and updated parameters: equal in 7 arms')
        assert.truthy(out:match 'bytes measured and predicted: equal in 7 arms')
        assert.truthy(out:match '12 of 20 layers get no%s+gradient')
        assert.truthy(out:match 'L = 20: 55%.3 %%, not 77%.6 %%')
        for _, name in ipairs { 'memory', 'time', 'tradeoff' } do
            assert_picture(('%s/deepmlp_%s.svg'):format(to, name), 10)
        end
    end)

    it('shows where segments lower the peak', function()
        local peaks = {}
        for line in out:gmatch '[^\n]+' do
            local name, predicted, measured = line:match '^(%S.-)%s%s+.-%s([%d,]+,%d%d%d)%s%s+([%d,]+,%d%d%d)%s'
            if name then
                assert.equal(predicted, measured, name)
                peaks[name] = bytes(measured)
            end
        end
        assert.is_true(peaks['step(loss)'] < peaks.standard)
        assert.is_true(peaks['step(loss), 5 seg.'] < peaks['step(loss)'])
        -- With an update of its own, the update is the peak: parameters, gradients and two states, whatever the
        -- segments.
        for _, name in ipairs { '3 segments', '5 segments', 'sqrt', 'by hand' } do
            assert.equal(peaks.standard, peaks[name], name)
        end
    end)

    it("gives the text's numbers by accounting at the text's size", function()
        local text = example('deepmlp', '--meta-only') -- plans, and runs nothing
        assert.truthy(text:match '87%.74 MB with%s+322%.83 MB after the forward: a "saving" of %-235%.09 MB', text)
    end)
end)

-- Examples that print a row an arm: options, the first words of the table, its rows, and its two cells of bytes,
-- predicted and measured, which are equal. The last cell says that the bits are those of the first row. `pictures` are
-- drawn; `more` checks what else is claimed.
local ARMS = {
    offload = { '--small', head = 'plan  ', rows = 5, more = function(rows, out)
        assert.is_true(tonumber((rows[3][5]:match '%d+')) >= 30) -- a third of the activations is on disk
        assert.is_true(tonumber(rows[3][2]) < tonumber(rows[1][2]))
        assert.truthy(out:find('room for everything%s+[%d.]+%s+0%.0')) -- where saving fits, nothing moves
    end },
    budget = { '--small', head = 'budget  ', rows = 4, pictures = { 'budget' }, more = function(rows, out)
        assert.truthy(out:match '100 %% of it measured')
        for i = 2, 4 do
            assert.is_true(bytes(rows[i][2]) <= bytes(rows[i][1]) and bytes(rows[i][2]) < bytes(rows[i - 1][2]))
        end
        local hand = rows_of(out, 'by hand')
        assert.is_true(#hand >= 6)
        for _, cells in ipairs(hand) do assert.is_nil(cells[#cells]:match '^%-', cells[1]) end -- none beats the best
        local less, least = out:gsub('%s+', ' ')
            :match 'a budget of ([%d,]+) bytes cannot be kept: the least that would do is ([%d,]+) '
        assert.equal(bytes(least), bytes(less) + 1)
    end },
    gptstack = { '--small', head = 'what is recomputed', rows = 8, pictures = { 'gptstack_memory', 'gptstack_time' },
        more = function(rows)
            for i = 2, 8 do assert.is_true(bytes(rows[i][3]) < bytes(rows[1][3]), rows[i][1]) end
            assert.equal(rows[2][3], rows[3][3]) -- a region a block, said in two ways
        end },
    heavylayer = { '--width 64 --depth 8 --batch 4', head = 'arm, peak', rows = 4, first = 3, more = function(_, out)
        assert.truthy(out:match '26 of 26 numbers equal')
        assert.is_nil(out:match 'DIFFERENT')
    end },
}

describe('an example with arms runs small: bytes as predicted, equal bits, and what it claims:', function()
    for name, run in pairs(ARMS) do
        it(name, function()
            local to = folder()
            local out = example(name, run[1] .. (run.pictures and (' --out "%s"'):format(to) or ''))
            local rows, first = rows_of(out, run.head), run.first or 2
            assert.equal(run.rows, #rows)
            for i, cells in ipairs(rows) do
                if cells[1] == '' then table.remove(cells, 1) end -- what stands before numbers to the right
                assert.equal(cells[first], cells[first + 1], cells[1])
                assert.equal(i == 1 and '(reference)' or 'equal', cells[#cells])
            end
            run.more(rows, out)
            for _, picture in ipairs(run.pictures or {}) do assert_picture(('%s/%s.svg'):format(to, picture), 10) end
        end)
    end
end)

describe('examples/selective.lua', function()
    it('runs small: equal bits, and the planner never plans a slower step in the same bytes', function()
        local out = example('selective', '--small')
        local digests = {}
        for _, name in ipairs { 'composed', 'tiled' } do
            local part = out:match('\n(' .. name .. ' attention: .*)')
            local rows, hand = rows_of(part, 'what is kept'), nil
            local arms = {}
            for _, cells in ipairs(rows) do
                if cells[1] == '' then table.remove(cells, 1) end -- what is indented
                if #cells >= 10 then arms[#arms + 1] = cells end
            end
            assert.equal(7, #arms)
            for i, cells in ipairs(arms) do
                assert.equal(cells[2], cells[3])
                assert.equal(8, #cells[10])
                assert.equal(arms[1][10], cells[10])
                if cells[1] == 'planner within that' then
                    assert.is_true(bytes(cells[2]) <= bytes(hand[2]))
                    assert.is_true(tonumber(cells[6]) <= tonumber(hand[6]))
                elseif i > 1 then
                    hand = cells
                    assert.is_true(bytes(cells[2]) < bytes(arms[1][2]))
                end
            end
            digests[name] = arms[1][10]
        end
        assert.not_equal(digests.composed, digests.tiled) -- other kernels
    end)
end)

describe('examples/sweep.lua', function()
    it('runs small: twelve points, equal bits in each depth, fewer bytes where more is recomputed', function()
        local to = folder()
        local rows, peaks = rows_of(example('sweep', '--small --out "' .. to .. '"'), 'depth  policy'), {}
        table.remove(rows) -- the line that counts them
        assert.equal(12, #rows)
        for i, cells in ipairs(rows) do
            table.remove(cells, 1) -- what stands before numbers to the right
            assert.equal(i <= 6 and '4' or '9', cells[1])
            assert.equal(cells[3], cells[4])
            assert.equal(8, #cells[9])
            assert.equal(rows[i <= 6 and 1 or 7][9], cells[9])
            peaks[i] = bytes(cells[4])
        end
        for _, first in ipairs { 1, 7 } do
            for i = first + 1, first + 5 do assert.is_true(peaks[i] < peaks[first]) end
        end
        assert_picture(to .. '/sweep.svg', 20)
        assert.equal(0, os.execute(('test -s %s/sweep.csv -a -s %s/sweep.html'):format(to, to)))
    end)
end)

describe('examples/gpt2_774m.lua', function()
    it('meets the figures, and Wane needs less in every plan', function()
        local out = example('gpt2_774m', '')
        local rows = rows_of(out, 'GB ')
        assert.equal(4, #rows)
        for i, figure in ipairs { '38.19', '15.79', '26.11', '15.12' } do
            local cells = rows[i]
            local sum = cells[#cells - 5]
            assert.equal(figure, sum)
            assert.is_true(math.abs(tonumber(cells[#cells - 4]) / tonumber(sum) - 1) < 0.02, cells[1])
        end
        local ours = rows_of(out, 'attention and plan')
        assert.equal(4, #ours)
        for i, cells in ipairs(ours) do
            assert.equal(rows[i][#rows[i]], cells[2]) -- the peak by accounting
            assert.is_true(tonumber(cells[3]) < tonumber(cells[2]), cells[1])
            assert.is_true(tonumber(cells[7]) < tonumber(cells[6]), cells[1])
        end
    end)

    it('shows in its head what it prints', function() assert_shown 'gpt2_774m' end)
end)

describe('examples/zoo.lua', function()
    it('shows in its head what it prints', function() assert_shown 'zoo' end)

    it('runs from any folder, and recomputing takes fewer bytes in every model', function()
        local out, code = helper.shell('cd examples/zoo && ' .. LUAJIT .. ' ../zoo.lua --help')
        assert.equal(0, code, out)
        local rows = rows_of(example('zoo', ''), 'model ')
        assert.equal(6, #rows)
        for _, cells in ipairs(rows) do assert.is_true(tonumber(cells[5]) < tonumber(cells[4]), cells[1]) end
    end)
end)

describe('the examples', function()
    it('find the 16 points of the mechanism', function()
        assert.truthy(example('mechanism', ''):match '16 of 16 points equal')
    end)

    it('print their heads for --help, and refuse words that they do not know', function()
        for _, path in ipairs(helper.lines "ls examples/*.lua examples/projects/*.lua | grep -v /options.lua") do
            local text, code = helper.shell(LUAJIT .. ' ' .. path .. ' --help')
            assert.equal(0, code, path .. '\n' .. text)
            assert.truthy(text:find('luajit ' .. path, 1, true), text)
            assert.truthy(path:match 'first' or text:find(helper.read(path):match '^%-%- ([^\n]+)\n', 1, true), text)
            text, code = helper.shell(LUAJIT .. ' ' .. path .. ' --nonsense 3')
            assert.equal(path:match 'first' and 0 or 2, code, path .. '\n' .. text)
            assert.truthy(text:find("unknown option '--nonsense'; ", 1, true) or path:match 'first', text)
            assert.is_nil(text:find('traceback', 1, true), text)
        end
        local text = helper.shell(LUAJIT .. ' examples/budget.lua --blocks')
        assert.equal('examples/budget.lua: --blocks takes a number, got nil\n', text)
    end)
end)

describe('examples/finetune.lua', function()
    local function digest(to)
        return helper.lines("cksum < '" .. to .. "/finetune.safetensors'")[1]
    end

    it('finetunes all weights within a budget, with the bytes that it predicts', function()
        local to = folder()
        local out = example('finetune', '--pretrain 2 --steps 20 --batch 4 --budget 3600KiB --out "' .. to .. '"')
        local predicted, measured, reserved =
            out:match 'a step: ([%d,]+) bytes predicted at the peak, ([%d,]+) measured; ([%d,]+) reserved, within'
        assert.equal(predicted, measured)
        assert.is_true(bytes(reserved) <= 3600 * 1024)
        local before, after = out:match 'before: loss ([%d.]+)', out:match 'after step 20: loss ([%d.]+)'
        assert.is_true(tonumber(after) < tonumber(before) - 0.5, out)
    end)

    it('finetunes adapters alone, which a checkpoint of their size holds, and goes on with the same bits', function()
        local to, other = folder(), folder()
        local out = example('finetune', '--lora 4 --pretrain 1 --steps 8 --batch 2 --out "' .. to .. '"')
        assert.matches('trained: 12,288 of 182,848 parameters\n', out)
        local size = tonumber(helper.lines("wc -c < '" .. to .. "/finetune.safetensors'")[1])
        assert.is_true(size > 12 * 12288 and size < 12 * 12288 + 8192, size) -- values and two states
        example('finetune', '--lora 4 --pretrain 1 --steps 8 --batch 2 --stop 3 --out "' .. other .. '"')
        out = example('finetune', '--lora 4 --steps 8 --batch 2 --resume --budget 3MiB --out "' .. other .. '"')
        assert.matches('goes on after step 3\n', out)
        assert.equal(digest(to), digest(other))
    end)

    it('takes published weights and the ids of their tokenizer', function()
        local to = folder()
        local header = "{'descr': '|u1', 'fortran_order': False, 'shape': (260,), }"
        local file = assert(io.open(to .. '/ids.npy', 'wb'))
        file:write('\147NUMPY\1\0', string.char(#header, 0), header)
        for k = 1, 260 do file:write(string.char(k % 13)) end
        file:close()
        local out = example('finetune', ('--weights "%s/spec/fixtures/published/gpt2" --tokens "%s/ids.npy" --length 7 '
            .. '--batch 2 --steps 80 --lr 0.05 --out "%s"'):format(helper.lines('pwd')[1], to, to))
        assert.matches('trained: 1,928 of 1,928 parameters', out)
        assert.is_true(tonumber(out:match 'after step 80: loss ([%d.]+)') < 1, out)
    end)

    it('says what would do where a budget cannot be kept, and refuses what it does not know', function()
        local to = folder()
        for options, words in pairs {
            ['--budget 1MiB --pretrain 1'] = 'finetune: a budget of 1,048,576 bytes cannot be kept: the least ',
            ['--rank 2'] = "unknown option '%-%-rank'", ['--lora all'] = '%-%-lora takes a number, got all',
            ['--weights x'] = '%-%-weights and %-%-tokens go together', ['--resume --out /nowhere'] = 'No such file',
        } do
            local text, code = helper.shell(("%s examples/finetune.lua --out '%s' %s"):format(LUAJIT, to, options))
            assert.equal((options:find '/nowhere' or options:find 'budget') and 1 or 2, code, text)
            assert.matches(words, text)
        end
    end)
end)

describe('the projects', function()
    it('train a classifier in a budget, resume it to the bit, and sweep', function()
        local out = example('projects/classifier', '--out "' .. folder() .. '"')
        local free, tight = out:match 'a step reserves (%d+) bytes, (%d+) within a budget of 1.4 MiB'
        assert.is_true(tonumber(tight) <= 1.4 * 2 ^ 20 and tonumber(tight) < tonumber(free), out)
        assert.is_true(tonumber(out:match 'right: ([%d.]+) %%') > 95, out)
        assert.matches('the same loss, to the bit: true\n', out)
        local count = 0
        for predicted, measured in out:gmatch 'predicted +(%d+) measured +(%d+)' do
            assert.equal(predicted, measured)
            count = count + 1
        end
        assert.equal(6, count)
    end)

    it('train by a layer, an op, an optimizer and a data source of their own', function()
        local out = example('projects/custom', '')
        assert.matches('%[%-0.2500,  0.0000,  0.1250,  1.2500%]\nits gradient\ttensor %(2%) f32 %[1., 1.%]\n', out)
        assert.is_true(tonumber(out:match 'step 300  loss ([%d.]+)') < 0.02, out)
        assert.is_nil(out:match 'planned for the')
    end)

    it('find where the bytes of a step go', function()
        local out = example('projects/hunt', '')
        assert.matches('\n2%. Which ops keep it%? exp 2.00 MiB, ', out)
        assert.matches('\n   2 mistakes\n   %- reshape of .-detached', out)
        local before, after = out:match 'the peak goes from (%d+) to (%d+), with no mistakes: true'
        assert.is_true(tonumber(after) < 0.6 * tonumber(before), out)
        local measured, predicted = out:match 'measured: (%d+), predicted: (%d+)'
        assert.equal(predicted, measured)
    end)
end)

describe('spec/bench/rival.lua', function()
    it('runs without PyTorch and says what is absent', function()
        local out, code = helper.shell('PYTHON=/nonexistent ' .. LUAJIT .. ' spec/bench/rival.lua --small --turns 1')
        assert.equal(0, code, out)
        assert.truthy(out:match 'has no PyTorch: the columns PyTorch tuned')
        assert.equal(9, select(2, out:gsub('\n| [^\n]-batch %d', '')))
    end)
end)

-- examples/README.md shows what examples printed under "### `examples/NAME.lua`", and of chargpt in a section of its
-- own: pieces of their heads, and pictures.
describe('examples/README.md shows of the examples', function()
    local page, count = helper.read 'examples/README.md' .. '\n## ', 0
    local sections = page:match '\n## What the examples print\n(.-)\n## ' .. '\n### `examples/chargpt.lua`\n'
        .. page:match '\n## A character GPT\n(.-)\n## '
    for name, section in (sections .. '\n### '):gmatch '### `examples/(%w+)%.lua`\n(.-)\n%f[#]' do
        count = count + 1
        it(name .. ': what stands in its head, and its pictures', function()
            local head = '\n' .. helper.read('examples/' .. name .. '.lua'):match('^(.-)\nlocal root')
                :gsub('\n%-%- ? ? ?', '\n') .. '\n'
            local pieces = 0
            for block in section:gmatch '```text\n(.-)```' do
                assert.truthy(head:find('\n' .. block, 1, true), block)
                pieces = pieces + 1
            end
            assert.is_true(pieces > (name == 'chargpt' and 1 or 0))
            for picture in section:gmatch '%]%((%S-%.svg)%)' do
                assert_picture(helper.root .. '/examples/' .. picture, 10)
            end
        end)
    end
    it('budgets, selective choices, offloading, sweeps and a character GPT', function() assert.equal(5, count) end)
end)
