-- Checks what a sweep shows: table, comma separated values, pictures and the HTML page. The page is opened in Chromium
-- where that is installed: it must load nothing, complain of nothing, and sort.
local helper = require 'spec.helper'
local wane = helper.wane
local plot = require 'wane.report.plot'
local nn = wane.nn

local folder, done

local function read(path)
    local file = assert(io.open(path, 'rb'))
    local text = file:read '*a'
    file:close()
    return text
end

-- Checks that every tag that is opened is closed, in order, and that texts hold no bare '<', no nan and no inf. `void`:
-- elements without an end.
local function assert_balanced(text, void)
    local open = {}
    text = text:gsub('<!DOCTYPE html>', ''):gsub('(<style>).-(</style>)', '%1%2')
        :gsub('(<script>).-(</script>)', '%1%2')
    for slash, name, rest in text:gmatch '<(/?)([%w]*)([^<>]*)>' do
        assert.is_true(name ~= '', rest)
        assert.equal(0, select(2, rest:gsub('"', '')) % 2, rest)
        if slash == '/' then
            assert.equal(name, table.remove(open))
        elseif not rest:match '/$' and not void[name] then
            open[#open + 1] = name
        end
    end
    assert.same({}, open)
    assert.is_nil(text:gsub('<[^<>]*>', ''):find('[<>]'))
    assert.is_nil(text:find('&[^%w#]'))
    assert.is_nil(text:find('%f[%w]nan%f[%W]') or text:find('%f[%w]inf%f[%W]'))
end

local void = { meta = true, link = true, br = true }

describe('a sweep', function()
    setup(function()
        folder = os.tmpname()
        os.remove(folder)
        done = wane.sweep {
            build = function(p)
                if p.depth == 3 then error 'a < b & "c"\nsecond line' end
                local layers = {}
                for i = 1, p.depth do layers[i] = nn.Sequential { nn.Linear(16, 16), nn.GELU() } end
                local model = nn.Sequential(layers)
                local x = wane.randn(64, 16):retain()
                return function() return model(x):sum() end, model
            end,
            grid = { depth = { 10, 3, 4 }, policy = { 'save_all', 'sqrt' } }, repeats = 1, isolate = false,
            title = 'Sweep <1>',
        }:run()
    end)
    teardown(function() os.execute('rm -rf ' .. folder) end)

    it('is a table', function()
        local text = tostring(done)
        local lines = {}
        for line in text:gmatch '[^\n]+' do lines[#lines + 1] = line end
        assert.matches('^depth  policy +peak predicted +measured +reserved +s a step +recomputed +digest', lines[1])
        assert.matches('^   10  save_all +[%d,]+ +[%d,]+ +[%d,]+ +[%d.e-]+ +0  %x+', lines[3])
        assert.matches('^    3  sqrt +failed: error$', lines[6])
        assert.equal('6 points: 4 measured, 2 failed; * marks what no other policy beats in peak and seconds',
            (lines[9]:gsub('; %d of 4 noisy .*', '')))
        assert.matches('^failed: depth=3 policy=save_all: .-a < b & "c"$', lines[10])
        assert.matches('%*', text)
        assert.matches('a sweep of 2 points over a, not run', tostring(wane.sweep {
            build = function() end, grid = { a = { 1, 2 } } }))
    end)

    it('is comma separated values, to the last bit', function()
        local name = done:csv(folder .. '/made/x.csv') -- its folder is made
        assert.equal(folder .. '/made/x.csv', name)
        local text = read(name)
        assert.equal(done:csv(), text)
        local head, first = text:match '^([^\n]*)\n([^\n]*)\n'
        local at = {}
        for title in head:gmatch '[^,]+' do
            at[#at + 1] = title
            at[title] = #at
        end
        local cells = {}
        for cell in (first .. ','):gmatch '(.-),' do cells[#cells + 1] = cell end
        local row = done:rows()[1]
        for _, field in ipairs { 'peak', 'predicted_peak', 'seconds', 'loss', 'recomputed' } do
            assert.equal(row[field], tonumber(cells[at[field]]), field)
        end
        assert.equal(row.digest, cells[at.digest])
        assert.equal('10', cells[at.depth])
        assert.equal(1, select(2, text:gsub('\n3,save_all,failed,[^"]*"[^"]*""c""\nsecond line"\n', '')))
    end)

    it('is a picture of points and staircases', function()
        local svg = read(done:plot(folder .. '/x.svg'))
        assert_balanced(svg, {})
        assert.equal(4, select(2, svg:gsub('<circle', '')))
        assert.equal(2, select(2, svg:gsub('<path', ''))) -- a staircase for each depth
        assert.matches('1  depth=10 policy=save_all', svg)
        assert.matches('peak, MiB', svg)
        assert_balanced(done:plot(folder .. '/y.svg', { x = 'recomputed', y = 'activation' }) and read(folder
            .. '/y.svg'), {})
        assert.has_error(function() done:plot(folder .. '/y.svg', { x = 'deep' }) end)
    end)

    it('is a picture of characters', function()
        local text = done:plot()
        assert.matches('\n  1  depth=10 policy=save_all\n', text)
        assert.is_nil(text:find '[\128-\255]') -- no terminal here
        local points = { { x = 1, y = 4, name = 'a' }, { x = 3, y = 1, name = 'b' }, { x = 3, y = 1, name = 'c' } }
        local chart = { title = 'T', x = 'x', y = 'y', points = points, fronts = { { 1, 2 } } }
        local plain = plot.terminal_scatter(chart, { columns = 20, rows = 5 })
        assert.equal(table.concat({ 'T', 'y', '    4.32 |      1............', '         |                  .',
            '         |                  .', '         |                  *.', '       0 |',
            '         +--------------------', '          0               3.24  x', '  1  a', '  2  b', '  3  c' },
            '\n'), plain)
        local braille = plot.terminal_scatter(chart, { columns = 20, rows = 5, braille = true })
        assert.is_true(#braille > #plain and braille:find('\226[\160-\163][\128-\191]') ~= nil)
    end)

    describe('is a page', function()
        local page

        setup(function() page = done:report(folder .. '/x.html') end)

        it('well formed, and by itself', function()
            local html = read(page)
            assert.equal('<!DOCTYPE html>', html:sub(1, 15))
            assert_balanced(html, void)
            assert.is_nil(html:gsub('xmlns="http://www.w3.org/2000/svg"', ''):find '://')
            assert.is_nil(html:find '<[^>]*[ ]src=' or html:find '@import')
            assert.matches('<title>Sweep &lt;1&gt;</title>', html)
            assert.matches('wane %d', html)
            assert.matches('threads +%d', html)
            assert.matches('a &lt; b &amp; &quot;c&quot;<br>second line', html)
            assert.equal(2, select(2, html:gsub('<svg', '')))
            assert.matches('How to reproduce', html)
        end)

        local chromium = helper.shell 'command -v chromium':match '^(%S+)'

        -- Opens a page; returns what Chromium says, and with `options` what they bring.
        local function opened(path, options)
            return helper.shell(('timeout 100 %s --headless --no-sandbox --disable-gpu --enable-logging=stderr '
                .. '--user-data-dir=%s/profile %s file://%s 2>%s/said; cat %s/said >&2'):format(chromium, folder,
                options, path, folder, folder))
        end

        it('of which a browser has nothing to complain, and which sorts', function()
            if not chromium then return pending 'chromium is not installed' end
            local said = opened(page, '--screenshot=' .. folder .. '/x.png --window-size=1200,1400')
            assert.is_nil(said:find('CONSOLE', 1, true), said)
            assert.is_true(#read(folder .. '/x.png') > 20000, said)
            -- Writes the page again, with clicks and what they must show, and with a fault that must be seen.
            local file = assert(io.open(folder .. '/clicked.html', 'wb'))
            file:write((read(page):gsub('</body>', [[<script>
const column = k => [...document.querySelector('tbody').rows].map(row => row.cells[k].textContent).join(' ');
const press = k => { document.querySelectorAll('th button')[k].click(); seen.push(column(k)); };
const seen = [column(0)]; press(0); press(0); press(2);
document.title = seen.join('|'); console.log('spoken');
</script></body>]])))
            file:close()
            local dom = opened(folder .. '/clicked.html', '--dump-dom')
            assert.matches('CONSOLE[^\n]*spoken', dom)
            local before, up, down, peaks = dom:match '<title>(.-)|(.-)|(.-)|(.-)</title>'
            assert.equal('10 10 3 3 4 4', before)
            assert.equal('3 3 4 4 10 10', up)
            assert.equal('10 10 4 4 3 3', down)
            local last = 0
            for peak in peaks:gmatch '[%d,]+' do
                local n = tonumber((peak:gsub(',', '')))
                assert.is_true(n >= last)
                last = n
            end
            assert.is_true(last > 0 and peaks:match '%d  $' ~= nil) -- those without a number come last
        end)
    end)
end)
