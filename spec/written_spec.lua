-- Checks that what is written is read: for numbers, names and sizes of every kind, each reader gives back to the bit
-- what its writer wrote, or the writer refuses in words and leaves the file that was there. No name becomes code, and
-- no text of a file reaches a terminal with a control character.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local errors = require 'wane.errors'
local json = require 'wane.report.json'
local store = require 'wane.sweep.store'
local wane = helper.wane
local read, write = files.read, files.write

local nn, policy = wane.nn, wane.policy
local LONG = helper.is_long
local FOLDER = helper.lines('mktemp -d')[1]
local PATH = FOLDER .. '/a'
local LUA_PATH = "LUA_PATH='lua/?.lua;lua/?/init.lua;;'"
teardown(function() helper.shell(("rm -r '%s'"):format(FOLDER)) end)

-- Fails for controls and turns of a line's direction, which no text of a file or a name may show.
local function assert_plain(text, kept)
    local bare = kept and text:gsub('[\n\t]', '') or text
    assert.is_nil(bare:find '[%c\127]', text)
    assert.is_nil(bare:find '\194[\128-\159]', text)
    assert.is_nil(bare:find '\226\128[\168-\174]', text)
end

local NUMBERS = { 0, -0, 1, -1, 0.1, 1 / 3, 2 ^ 31, 2 ^ 53 - 1, 2 ^ 53, 2 ^ 53 + 2, -(2 ^ 53 + 2), 2 ^ 63, 1e15,
    1e16 + 2, 1e22, 1e300, -1e300, 5e-324, 2.5e-310, 1.7976931348623157e308, math.huge, -math.huge, 0 / 0 }
local NAMES = { 'a', '0', '1', '01', 'inf', 'nan', 'true', '', ' ', 'a b', 'a.b', '.', '..', '"', "'", '\\', ']]',
    ']=]', ']==]', '[[', 'w[x[1]]', '--', '--[[', '\n', 'a\nB 1', '\r\n', '\t', '\0', '\27]0;title\7\27[2J', '\127',
    '\194\155', 'e\226\128\174txt', '<script>', '&amp;', '%s%d', '%', '$(id)', '`id`', ';', ',', 'null', '{}',
    'gr\195\188n', '\240\159\152\128', ('x'):rep(4085), ('n'):rep(10000),
    "]] os.execute('touch %s/pwned') --[[" }
NAMES[#NAMES] = NAMES[#NAMES]:format(FOLDER)

local roll = helper.dice(32)
local function random_name()
    local parts = {}
    for i = 1, roll(6) do parts[i] = NAMES[roll(#NAMES - 2)] .. string.char(roll(94) + 31) end
    return table.concat(parts)
end
for _ = 1, LONG and 400 or 40 do
    NAMES[#NAMES + 1] = random_name()
    NUMBERS[#NUMBERS + 1] = (roll(2 ^ 30) / 2 ^ 30 - 0.5) * 10 ^ (roll(600) - 300)
end

-- Tells whether two values are equal to the bit, all NaNs being one; 0 and -0 differ.
local function is_same(a, b)
    if type(a) ~= type(b) then return false end
    if type(a) == 'number' then return a ~= a and b ~= b or a == b and 1 / a == 1 / b end
    return a == b
end

-- Calls `save`, which replaces PATH, and `check`; where `save` refuses, the words are Wane's, name why, and the file
-- is as it was. Returns whether it was written.
local function round(save, check, what)
    local before = read(PATH)
    local fine, e = pcall(save)
    if fine then
        check()
        return true
    end
    assert.is_true(errors.is(e), what .. ': ' .. tostring(e))
    assert_plain(e.message, true)
    assert.is_true(before == read(PATH), what)
    return false
end

describe('a number', function()
    it('is what it was: in JSON, in the metadata of a file, as a step, in a row and in a grid', function()
        for _, x in ipairs(NUMBERS) do
            local what = ('%.17g'):format(x)
            local text = json.encode { x = x }
            assert.is_true(is_same(x == x and x or nil, (json.decode(text)).x), what)

            wane.save(PATH, { t = wane.ones(2) }, { meta = { x = x } })
            assert.is_true(is_same(x, select(2, wane.load(PATH)).meta.x), what)

            local is_step = round(function() wane.save(PATH, { t = wane.ones(2) }, { step = x }) end,
                function() assert.is_true(is_same(x, select(2, wane.load(PATH)).step), what) end, what)
            assert.equal(x % 1 == 0 and x >= 0 and x < 2 ^ 53, is_step, what)

            local is_point, points = pcall(function()
                return wane.sweep { build = print, grid = { x = { x } } }.points
            end)
            assert.equal(x == x, is_point, what)
            if is_point then
                os.remove(PATH)
                store.append(PATH, { status = 'failed', error = '', code = 'x', point = points[1].description })
                local row = store.read(PATH)[1]
                assert.equal(points[1].key, json.encode(row.point))
                assert.is_true(is_same(x, row.point.x), what)
            end
        end
    end)

    it('that no file of a step has is refused by the reader', function()
        for _, step in ipairs { 'nan', 'inf', '1e400', '-1', '0.5', 'x', '9007199254740992', '' } do
            local header = ('{"__metadata__":{"wane.step":"%s"},"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}')
                :format(step)
            write(PATH, string.char(#header, 0, 0, 0, 0, 0, 0, 0), header, ('\0'):rep(4))
            for _, model in ipairs { false, nn.Linear(1, 1) } do
                local e = helper.refused(nil, function() wane.load(PATH, model or nil, { strict = false }) end)
                assert.matches('wane.step: expected an integer from 0 to below 2^53', e.message, 1, true)
            end
        end
    end)
end)

describe('a name', function()
    local function check_saved(save, load, what)
        return round(save, function() assert.is_true(load() == 7, what) end, what)
    end

    it('of a tensor and of metadata comes back, or is refused before the file is touched', function()
        local written, short = 0, 0
        for _, name in ipairs(NAMES) do
            short = short + (#name <= 4096 and 1 or 0)
            for _, text in ipairs { name, 'x\255' .. name } do
                local t = { [text] = wane.full({ 1 }, 7) }
                if check_saved(function() wane.save(PATH, t) end,
                    function() return wane.load(PATH)[text]:item() end, text) then written = written + 1 end
                check_saved(function() wane.save(PATH, { t = t[text] }, { meta = { [text] = 7 } }) end,
                    function() return select(2, wane.load(PATH)).meta[text] end, text)
                check_saved(function() wane.save(PATH, { t = t[text] }, { meta = { t = text } }) end,
                    function() return select(2, wane.load(PATH)).meta.t == text and 7 end, text)
            end
        end
        assert.equal(short, written)
        local given = {} -- in one file, in which no name stands for another
        for k, name in ipairs(NAMES) do given[name] = #name <= 4096 and wane.full({ 2 }, k) or nil end
        for _, name in ipairs { '00', 'a.0', 'a.00', 'a.1', '99999999999999999999', '1e3', '-1', 'a..b' } do
            given[name] = wane.full({ 2 }, -#name)
        end
        wane.save(PATH, given)
        local got = wane.load(PATH)
        for name, t in pairs(given) do assert.same(t:totable(), got[name]:totable(), name) end
    end)

    it('of a tensor that counts from 0 in the file comes back, or is refused', function()
        local refused = 0
        for _, name in ipairs { '0', '1', '01', 'a.0', 'a.1', '10', 'a.0.b', '0.0', '1.0', '999999999999999', '-1',
            '1e3', '9999999999999999', '00', 'a..1' } do
            local t = { [name] = wane.ones(1) }
            if not round(function() wane.save(PATH, t, { names = 'torch' }) end, function()
                local dict = wane.load(PATH, { names = 'torch' })
                assert.equal(name, (next(dict)))
            end, name) then refused = refused + 1 end
        end
        assert.equal(5, refused)
    end)

    -- Checks the recipe and source of a plan whose model has a module of this name.
    local function check_place(name)
        local net = nn.Sequential { nn.Linear(4, 4) }
        net[name] = nn.Linear(4, 4)
        local x = wane.ones(2, 4):retain()
        net.forward = function() return (net[name](net[1](x)):tanh() * 2):sum() end
        local plan = wane.plan(function() return net(x) end, { policy = 'every(1)' })
        local text, source = tostring(plan:recipe()), plan:lua()
        assert_plain(text, true)
        assert_plain(source, true)
        assert.equal(plan:recipe(), policy.recipe(text).recipe, name)
        local chunk = assert(loadstring('local wane = ...; return ' .. source))
        setfenv(chunk, {})
        assert.equal(plan:as_policy(), chunk(wane), name)
    end

    it('of a module is a place in a recipe and in source, and no code', function()
        for _, name in ipairs(NAMES) do
            if #name <= 400 then check_place(name) end -- a longer name is refused where the module gets it
        end
        assert.is_nil(read(FOLDER .. '/pwned'))
    end)

    it('of a grid\'s key and value, and of a reason, comes back in a row', function()
        for _, name in ipairs(NAMES) do
            os.remove(PATH)
            local function sweep()
                return wane.sweep { grid = { [name] = { name, 1 } }, out = PATH, resume = true, isolate = false,
                    build = function() error(name) end }
            end
            if name ~= 'policy' and name ~= 'budget' then
                local first = sweep():run()
                local text = read(PATH)
                local again = sweep():run()
                assert.is_true(text == read(PATH), name)
                assert.equal(2, #again:failed())
                assert.is_true(first:failed()[2].error == again:failed()[2].error)
                assert_plain(tostring(again), true)
                local merged = wane.sweep { grid = { [name] = { name, 1 } }, isolate = false,
                    build = function() error(name) end }
                assert.equal(2, #merged:merge(PATH):rows())
            end
        end
        assert.has_error(function() wane.sweep { build = print, grid = { x = { 'a\255' } } } end)
        assert.has_error(function() wane.sweep { build = print, grid = { ['a\255'] = { 1 } } } end)
    end)
end)

describe('seconds', function()
    it('of two profiles at once are both in the file', function()
        local path, costs = FOLDER .. '/both.lua', FOLDER .. '/new/both.txt'
        write(path, [[
            local wane = require 'wane'
            local n = tonumber(arg[1])
            local m = wane.nn.Linear(n, n)
            for _ = 1, 3 do
                wane.profile(function() return m(wane.ones(4, n)):sum() end, { steps = 1, policy = 'save_all',
                    anyway = true })
            end]])
        local run = ("%s WANE_COSTS='%s' luajit '%s' %%d 2>&1 &"):format(LUA_PATH, costs, path)
        local all = ''
        for n = 3, 6 do all = all .. run:format(n) .. ' ' end
        assert.equal('', helper.shell(all .. 'wait'))
        local text = read(costs)
        for n = 3, 6 do assert.matches(('linear f32 4x%d <'):format(n), text, 1, true) end
        assert.equal('both.txt\n', helper.shell(("ls -A '%s/new'"):format(FOLDER)))
    end)
end)

describe('a text of a file', function()
    it('reaches no terminal with a control character', function()
        for _, name in ipairs { '\27]0;title\7\27[2J', 'a\nb', '\r', '\8\8', '\127', '\194\155', 'e\226\128\174txt' } do
            wane.save(PATH, { [name] = wane.ones(3) })
            assert_plain(tostring(wane.inspect(PATH)), true)
            assert.is_nil(tostring(wane.inspect(PATH)):find('\n[^\n]*\n[^\n]*\n[^\n]*\n'), 'a name is one line')
            local _, e = pcall(wane.load, PATH, nn.Linear(2, 2))
            assert_plain(e.message, true)
            local s = wane.sweep { grid = { [name] = { name } }, isolate = false, build = function() error(name) end }
            local shown = tostring(s:run())
            assert_plain(shown, true)
            assert_plain(s:plot(), true)
            assert.is_nil(s:report():find '[%z\1-\8\11-\31\127]')
            write(PATH .. '.json', '{"weight_map":{"x":"',
                (name:gsub('%c', function(c) return ('\\u%04x'):format(c:byte()) end)),
                '"}}')
            _, e = pcall(wane.load, PATH .. '.json')
            assert_plain(e.message, true)
        end
        assert.equal('a\\nb\\027[2J\\u{9b}\\127?', require('wane.utf8').shown 'a\nb\27[2J\194\155\127\255')
        assert.equal('a\nb\tgr\195\188n', require('wane.utf8').shown('a\nb\tgr\195\188n', '\n\t'))
        assert.equal('\\t', require('wane.utf8').shown '\t')
        assert.equal('no file\\027', errors.new('io', 'no file\27').message)
    end)
end)

describe('a file', function()
    local function list(folder)
        return helper.shell(("ls -A '%s'"):format(folder))
    end

    -- Returns a folder with a script whose sweep has three points, in which a text is run first.
    local function sweep_folder(name, body)
        local folder = FOLDER .. '/' .. name
        helper.shell(("mkdir -p '%s/tmp'"):format(folder))
        write(folder .. '/x.lua', ([[
            local wane = require 'wane'
            return wane.main { grid = { k = { 1, 2, 3 } }, build = function(p)
                %s
                local w = wane.ones(4, p.k, { requires_grad = true })
                return function() return (w * 2):sum() end
            end }]]):format(body or ''))
        return folder
    end

    it('that a name of Wane\'s own leads to is not touched', function()
        local folder = sweep_folder 'links'
        local script = folder .. '/profile.lua'
        write(script, "local wane = require 'wane'; wane.profile(function() return wane.ones(4):exp():sum() end, "
            .. '{ steps = 1, anyway = true })')
        for _, name in ipairs { 'costs.txt.new', 'costs.txt.lock', 'costs.txt' } do
            write(folder .. '/thesis', 'chapter 1')
            helper.shell(("cd '%s' && rm -f costs.txt* && ln -s thesis %s"):format(folder, name))
            helper.shell(("%s WANE_COSTS='%s/costs.txt' luajit '%s' 2>&1"):format(LUA_PATH, folder, script))
            if name ~= 'costs.txt' then assert.equal('chapter 1', read(folder .. '/thesis'), name) end
            assert.equal('symbolic link\n', helper.shell(("stat -c %%F '%s/%s'"):format(folder, name)))
        end
    end)

    it('of a report stays as it was where the sweep is refused, and nothing is said to be written', function()
        local folder = sweep_folder 'refused'
        local command = ("cd '%s' && %s/build/wane sweep x.lua --out rows --report r.html --csv c.csv --svg s.svg")
            :format(folder, helper.lines('pwd -P')[1])
        assert.equal(0, select(2, helper.shell(command .. ' --repeats 1')))
        local before = {}
        local function assert_kept(words, more)
            local text, code = helper.shell(command .. (more or '') .. ' 2>&1')
            assert.is_true(code ~= 0)
            assert.matches(words, text)
            assert.is_nil(text:find 'wrote', text)
            for _, name in ipairs { 'rows', 'r.html', 'c.csv', 's.svg' } do
                assert.is_true(before[name] == read(folder .. '/' .. name), name)
            end
        end
        for _, name in ipairs { 'rows', 'r.html', 'c.csv', 's.svg' } do before[name] = read(folder .. '/' .. name) end
        assert_kept('is there already', ' --repeats 1')
        assert_kept('of another text of the script, or of other settings', ' --resume --repeats 2')
        local release = assert(require('wane.system').lock(folder .. '/rows'))
        assert_kept('is in use', ' --resume --repeats 1')
        release()
        write(folder .. '/other', 'x\n')
        assert_kept('line 1 of other is no row', ' --repeats 1 --merge other')
        assert_kept('there is no file', ' --repeats 1 --merge none')
        write(folder .. '/rows.lock', 'notes')
        assert_kept("is no lock of Wane's", ' --resume --repeats 1')
        assert.equal('notes', read(folder .. '/rows.lock'))
    end)

    it('of a point has no name, so that a kill leaves none behind', function()
        local folder = sweep_folder('killed', "if p.k == 2 then io.open('here', 'w'):close() while true do end end")
        helper.shell(([[
            cd '%s' && TMPDIR="$PWD/tmp" setsid %s/build/wane sweep x.lua --out rows --repeats 1 >said 2>&1 &
            n=0; while [ ! -e '%s/here' ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
            ls -l /proc/$!/fd >'%s/open'; kill -9 $!; wait]]):format(folder, helper.lines('pwd -P')[1], folder, folder))
        assert.equal(1, #store.read(folder .. '/rows'))
        assert.equal('', list(folder .. '/tmp'))
        assert.equal(2, select(2, read(folder .. '/open'):gsub('/killed/tmp/wane%-%w+ %(deleted%)', '')))
    end)
end)

describe('a link', function()
    it('to nothing is followed: the file it names is written', function()
        helper.lines(("cd '%s' && mkdir deep && ln -s deep/real one && ln -s one two && ln -s '%s/far' three")
            :format(FOLDER, FOLDER))
        for link, real in pairs { two = 'deep/real', three = 'far' } do
            wane.save(FOLDER .. '/' .. link, { a = wane.ones(2) })
            local out = helper.lines(("cd '%s' && stat -c %%F %s %s"):format(FOLDER, link, real))
            assert.are.same({ 'symbolic link', 'regular file' }, out)
            assert.are.same({ 1, 1 }, wane.load(FOLDER .. '/' .. real).a:totable())
        end
    end)

    it('that leads to itself, or into a folder that is not there, is told', function()
        helper.lines(("cd '%s' && ln -s y x && ln -s x y && ln -s none/z w"):format(FOLDER))
        for name, word in pairs { x = 'oo many levels', w = 'No such file' } do
            local e = helper.refused('io', function() wane.save(FOLDER .. '/' .. name, { a = wane.ones(2) }) end)
            assert.is_truthy(e.message:find(word, 1, true), e.message)
        end
    end)
end)

describe('a pipe, a socket, a device or a folder', function()
    local names = { FOLDER .. '/pipe', '/dev/zero', FOLDER }
    setup(function() helper.lines(("mkfifo '%s/pipe'"):format(FOLDER)) end)

    local HEAD = "local wane = require 'wane' local path = '%s' local function refused(fn, ...) "
        .. 'local ok, e = pcall(fn, ...) print(ok, type(e) == "table" and e.code, tostring(e)) end '

    it('is refused by every reader and writer, and waited for by none', function()
        for _, path in ipairs(names) do
            local calls = {
                'wane.load, path', 'wane.load, path, wane.nn.Linear(1, 1)', 'wane.data.npy, path',
                'wane.data.idx, path', 'wane.data.tokens, path', 'wane.save, path, { a = wane.ones(1) }',
                "require('wane.report.plot').write, path, 'x'",
                "require('wane.sweep.store').append, path, { point = {}, status = 'failed', error = 'x', code = 'x' }",
                'function() local s = wane.sweep { build = function() end, grid = { a = { 1 } }, out = path, '
                    .. 'isolate = false } s:run() end',
            }
            local text = HEAD:format(path)
            for _, call in ipairs(calls) do text = text .. ('refused(%s) '):format(call) end
            local out, code = files.lua(text)
            assert.equal(0, code, out)
            local lines = 0
            for line in out:gmatch '[^\n]+' do
                lines = lines + 1
                assert.is_truthy(line:find '^false\tio\t', calls[lines] .. ': ' .. line)
                assert.is_truthy(line:find('not a regular file', 1, true), line)
            end
            assert.equal(#calls, lines, out)
        end
    end)

    it('as the file of costs is a notice, and the step runs', function()
        local run = "local wane = require 'wane' print(wane.ones(2, { requires_grad = true }):sum():item())"
        for _, path in ipairs(names) do
            local out = files.lua(run, ("WANE_COSTS='%s' "):format(path))
            assert.is_truthy(out:find('wane: the file of costs ' .. path .. ' cannot be read', 1, true), out)
            assert.is_truthy(out:find('\n2\n?$'), out)
        end
        local garbage = FOLDER .. '/garbage'
        write(garbage, 'hello\nworld\n')
        assert.is_truthy(files.lua(run, ("WANE_COSTS='%s' "):format(garbage)):find('cannot be read', 1, true))
        assert.equal('2\n', files.lua(run, ("WANE_COSTS='%s/none' "):format(FOLDER)))
        local processor = require('wane.plan.costs.file').processor()
        write(garbage, '# Seconds measured\nprocessor\t' .. processor .. '\n1e-6\tadd\n')
        assert.equal('2\n', files.lua(run, ("WANE_COSTS='%s' "):format(garbage)))
    end)

    it('as a script is refused', function()
        local out, code = helper.shell(("timeout 20 build/wane run '%s/pipe'"):format(FOLDER))
        assert.is_true(code ~= 0 and code ~= 124, code)
        assert.is_truthy(out:find('it is a pipe', 1, true), out)
    end)
end)
