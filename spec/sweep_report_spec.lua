-- Checks what a sweep shows: table, comma separated values, pictures and the HTML page. The page is opened in Chromium
-- where that is installed: it must load nothing, complain of nothing, and sort.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local wane = helper.wane
local plot = require 'wane.report.plot'
local svg_ = require 'wane.report.svg'
local provenance = require 'wane.sweep.provenance'
local read = files.read
local nn = wane.nn

local HERE = debug.getinfo(1, 'S').source:sub(2)
local folder, done

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
        assert.matches('^depth  policy +peak predicted +measured +reserved +s/step +in programs +recomputed +digest',
            lines[1])
        assert.matches('^   10  save_all +[%d,]+ +[%d,]+ +[%d,]+ +[%d.e-]+ +[%d.e-]+ +0  %x+', lines[3])
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
        -- A marker for each row and one in the legend: circles for a depth, squares for the other.
        assert.equal(3, select(2, svg:gsub('<circle', '')))
        assert.equal(3, select(2, svg:gsub('<path transform', '')))
        assert.equal(2, select(2, svg:gsub('<path d="M[^"]*" class="s%d"', ''))) -- a staircase for each depth
        for _, words in ipairs { 'depth=10', 'depth=4', 'what no other policy beats', 'peak, MiB', 's/step' } do
            assert.is_truthy(svg:find('>' .. words .. '<', 1, true) or svg:find('>' .. words .. ' (begins', 1, true))
        end
        for _, row in ipairs(done:measured()) do -- its number beside the point, and with its name in the list
            local label = done.points[row.n].label
            assert.is_truthy(svg:find(('paint%%-order="stroke">%d</text>'):format(row.n)), label)
            assert.is_truthy(svg:find(('>%d  %s</text>'):format(row.n, label), 1, true), label)
        end
        assert_balanced(done:plot(folder .. '/y.svg', { x = 'recomputed', y = 'activation' }) and read(folder
            .. '/y.svg'), {})
        assert.has_error(function() done:plot(folder .. '/y.svg', { x = 'deep' }) end)
    end)

    it('is a picture whose names cover neither each other nor a point, or become numbers', function()
        local chart = { title = 'T', x = 'x', y = 'y', points = {}, groups = { 'few', 'many' } }
        for i = 1, 12 do chart.points[i] = { x = i, y = (i * 7) % 5, name = 'name of ' .. i, group = 1 } end
        for i = 13, 40 do chart.points[i] = { x = 6 + i / 1000, y = 2.5, name = 'crowded ' .. i, group = 2 } end
        chart.points[41] = { x = 0 / 0, y = 1, name = 'nowhere' }
        local svg = plot.scatter(chart)
        assert_balanced(svg, {})
        assert.matches('1 of 41 points are no numbers', svg)
        local boxes, names, numbers = {}, 0, 0
        local pattern = '<text x="([%d.]+)" y="([%d.]+)" text%-anchor="(%a+)" class="halo"[^>]*>(.-)<'
        for x, y, anchor, text in svg:gmatch(pattern) do
            local wide, left = svg_.width_of(text), tonumber(x)
            left = anchor == 'end' and left - wide or anchor == 'middle' and left - wide / 2 or left
            for _, box in ipairs(boxes) do
                assert.is_true(left >= box[1] + box[3] or left + wide <= box[1] or math.abs(y - box[2]) >= 12, text)
            end
            boxes[#boxes + 1] = { left, tonumber(y), wide }
            if text:match '^%d+$' then numbers = numbers + 1 else names = names + 1 end
        end
        assert.is_true(names >= 12 and numbers >= 1)
        for i = 1, 40 do -- each name is at its point or in the list
            assert.is_truthy(svg:find('>' .. chart.points[i].name .. '<', 1, true)
                or svg:find(('>%d  %s<'):format(i, chart.points[i].name), 1, true), i)
        end
    end)

    it('of many points is a small picture a value of the first key, with a colour and marker a policy', function()
        local grid = { depth = { 1, 2, 3, 4 }, policy = { 'save_all', 'recompute_all', 'every(1)' }, width = {} }
        for k = 1, 5 do grid.width[k] = 4 * k end
        local many = wane.sweep { grid = grid, order = { 'depth', 'width', 'policy' }, repeats = 1, warmup = 0,
            isolate = false, build = function(p)
                local layers = {}
                for i = 1, p.depth do layers[i] = nn.Sequential { nn.Linear(p.width, p.width), nn.GELU() } end
                local model, x = nn.Sequential(layers), wane.randn(8, p.width):retain()
                return function() return model(x):sum() end, model
            end }:run()
        local svg = read(many:plot(folder .. '/many.svg'))
        assert_balanced(svg, {})
        local marks, panels = {}, 0
        for path, slot in svg:gmatch '<path transform="[^"]*" d="([^"]*)" class="f(%d)"' do
            marks[path .. slot] = (marks[path .. slot] or 0) + 1
        end
        for slot in svg:gmatch '<circle [^>]*class="f(%d)"' do
            marks['circle' .. slot] = (marks['circle' .. slot] or 0) + 1
        end
        local kinds = 0
        for _, count in pairs(marks) do
            kinds = kinds + 1
            assert.equal(21, count) -- a policy's 20 points, and one in the legend
        end
        assert.equal(3, kinds)
        for depth = 1, 4 do
            panels = panels + select(2, svg:gsub('>depth=' .. depth .. '<', ''))
        end
        assert.equal(4, panels)
        for _, name in ipairs(grid.policy) do assert.is_truthy(svg:find('>' .. name .. '<', 1, true), name) end
        assert.matches('>s/step, logarithmic<', svg, 1, true)
        assert.is_nil(svg:find('begins at -', 1, true))
        assert.is_nil(svg:find('%d  depth=')) -- the table has what a number stands for
        -- A staircase for each depth and width.
        assert.equal(20, select(2, svg:gsub('<path d="M[^"]*" class="mark"', '')))
        local page = many:report()
        for n = 1, 60 do assert.is_truthy(page:find('<a href="#row-' .. n .. '">', 1, true), n) end
    end)

    it('gives no two groups one colour and marker', function()
        local chart, seen = { title = 'T', x = 'x', y = 'y', points = {}, groups = {} }, {}
        for i = 1, 81 do chart.points[i] = { x = i, y = i, group = i } end
        local count = 0
        for mark in plot.scatter(chart):gmatch '<(%a+ [^>]*class="f%d)"' do
            mark = mark:gsub('translate%b()', ''):gsub('c[xy]="[%d.]+"', '')
            assert.is_nil(seen[mark], mark)
            seen[mark] = true
            count = count + 1
        end
        assert.equal(81, count)
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

        -- Returns the page without the text of the script, which is this file.
        local function without_script()
            return (read(page):gsub('<h2>Script:.-</pre>', ''))
        end

        setup(function() page = done:report(folder .. '/x.html') end)

        it('well formed, and by itself', function()
            local html = read(page)
            assert.equal('<!DOCTYPE html>', html:sub(1, 15))
            local own = without_script()
            assert_balanced(own, void)
            own = own:gsub('xmlns="http://www.w3.org/2000/svg"', '')
            assert.is_nil(own:match '.?.?.?.?.?.?.?.?://.?.?.?.?.?.?')
            assert.is_nil(html:find '<[^>]*[ ]src=' or own:find '@import')
            assert.matches('<title>Sweep &lt;1&gt;</title>', html)
            assert.matches('wane %d', html)
            assert.matches('threads +%d', html)
            assert.matches('a &lt; b &amp; &quot;c&quot;<br>second line', html)
            assert.equal(2, select(2, html:gsub('<svg', '')))
            assert.matches('How to reproduce', html)
        end)

        it('in which points lead to rows of their number, and no two elements share a name', function()
            local html, ids = read(page), {}
            for id in html:gmatch ' id="([^"]+)"' do
                assert.is_nil(ids[id], id)
                ids[id] = true
            end
            local count = 0
            for target, label in html:gmatch '<a href="#(row%-%d+)">\n<[^>]*><title>(.-): ' do
                count = count + 1
                local n = tonumber(target:match '%d+')
                assert.is_true(ids[target])
                assert.equal(done.points[n].label, label)
                assert.matches(('<tr id="row%%-%d"[^>]*><td class="number">%d</td>'):format(n, n), html)
            end
            assert.equal(4, count)
        end)

        it('with the date, the seed, the spread and the text of the script', function()
            local html, row = read(page), done:measured()[1]
            assert.matches('^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%dZ$', row.date)
            assert.matches('<th scope="row">measured</th><td>' .. row.date:gsub('%-', '%%-'):sub(1, 20), html)
            for name, text in pairs { seed = '0', ['steps a point'] = '1 measured, 1 before them', device = 'cpu' } do
                assert.is_truthy(html:find(('<th scope="row">%s</th><td>%s</td>'):format(name, text), 1, true), name)
            end
            assert.matches('<th scope="col">s/step</th><th scope="col">spread</th><th scope="col">load</th>', html)
            assert.is_truthy(html:find('<h2>Script: ' .. HERE .. '</h2>', 1, true))
            assert.is_truthy(html:find(plot.escape(read(HERE)), 1, true))
            assert.equal('10 %', provenance.spread { spread = 0.1 })
            assert.equal('', provenance.spread { spread = 'x' })
        end)

        it('on dark paper for those who prefer it, and on white in print', function()
            local html = without_script()
            assert.matches('color%-scheme: light dark', html)
            assert.matches('@media screen and %(prefers%-color%-scheme: dark%)', html)
            assert.matches('@media print', html)
            assert.is_nil(html:find('$INK', 1, true) or html:find('$DARK', 1, true))
        end)

        local chromium = helper.shell 'command -v chromium':match '^(%S+)'

        -- Opens a page; returns what Chromium says, and with `options` what they bring.
        local function opened(path, options)
            return helper.shell(('timeout 100 %s --headless --no-sandbox --disable-gpu --enable-logging=stderr '
                .. '--user-data-dir=%s/profile %s file://%s 2>%s/said; cat %s/said >&2'):format(chromium, folder,
                options, path, folder, folder))
        end

        it('that is cut nowhere in a window of 1200 pixels', function()
            assert.matches('\npre {[^}]* white%-space: pre%-wrap; overflow%-wrap: anywhere }', read(page))
            assert.matches('\nthead th, td:last%-child { white%-space: normal; ', read(page))
            if not chromium then return pending 'chromium is not installed' end
            files.write(folder .. '/long.html', (read(page)
                :gsub('<td>failed', '<td>failed: a budget of 6,291,456 bytes cannot be kept', 1)
                :gsub('</h2>\n<pre>', '%0' .. ('--out /tmp/a_folder/of/this/sweep/rows.jsonl '):rep(9), 1)
                :gsub('</body>', [[<script>
document.title = [...document.querySelectorAll('html, .wide, pre')].map(e => e.scrollWidth - e.clientWidth).join(' ');
</script></body>]])))
            local dom = opened(folder .. '/long.html', '--window-size=1200,1400 --dump-dom')
            assert.matches('<title>[0 ]+</title>', dom)
        end)

        it('of which a browser has nothing to complain, and which sorts', function()
            if not chromium then return pending 'chromium is not installed' end
            local said = opened(page, '--screenshot=' .. folder .. '/x.png --window-size=1200,1400')
            assert.is_nil(said:find('CONSOLE', 1, true), said)
            assert.is_true(#read(folder .. '/x.png') > 20000, said)
            -- Writes the page again, with clicks and what they must show, and with a fault that must be seen.
            files.write(folder .. '/clicked.html', (read(page):gsub('</body>', [[<script>
const column = k => [...document.querySelector('#points tbody').rows].map(row => row.cells[k].textContent).join(' ');
const press = k => { document.querySelectorAll('#points th button')[k].click(); seen.push(column(k)); };
const seen = [column(1)]; press(1); press(1); press(3);
document.title = seen.join('|'); console.log('spoken');
</script></body>]])))
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
