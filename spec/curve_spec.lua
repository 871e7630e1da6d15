-- Checks wane.plot: each point must be at its place in the chart, in characters and in the picture. A value that is no
-- number must be counted and never drawn.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local wane = helper.wane
local palette = require 'wane.report.palette'
local native = require 'spec.support.native'
local provenance = require 'wane.sweep.provenance'
local spread = require 'wane.report.spread'
local system = require 'wane.system'

-- Returns the inside of a chart: its rows of characters, without the axis.
local function rows_of(chart)
    local rows = {}
    for line in (tostring(chart) .. '\n'):gmatch '(.-)\n' do
        local inside = line:match '^[ %d.e+-]* |(.*)$'
        if inside then rows[#rows + 1] = inside end
    end
    return rows
end

local function corners_of(svg)
    local paths = {}
    for d in svg:gmatch '<path d="M([^"]*)" class="s%d" fill="none"' do
        local list = {}
        for x, y in d:gmatch '([%d.-]+) ([%d.-]+)' do list[#list + 1] = { tonumber(x), tonumber(y) } end
        paths[#paths + 1] = list
    end
    return paths
end

describe('wane.plot in characters', function()
    it('falls from the left to the right with its numbers', function()
        local rows = rows_of(wane.plot({ 5, 4, 3, 2, 1, 0 }, { rows = 5, columns = 20, braille = false }))
        assert.equal(5, #rows)
        local last = -1
        for _, row in ipairs(rows) do
            local first = row:find('.', 1, true)
            if first then
                assert.is_true(first > last, table.concat(rows, '\n'))
                last = first
            end
            assert.is_true(#row <= 20)
        end
        assert.is_truthy(last >= 15)
    end)

    it('puts the axis at the first and the last step, and the highest number below its top', function()
        local text = tostring(wane.plot({ x = { 100, 250, 400 }, y = { 9, 3, 1 } }, { x = 'batches', y = 'nats',
            title = 'so it went', braille = false }))
        assert.matches('^so it went\nnats\n +9.72 |', text)
        assert.matches('\n' .. (' '):rep(10) .. '100  batches +400$', text) -- beside 400 it would be wider than 80
    end)

    it('draws the line with most points, and marks at the others', function()
        local losses, at = {}, { x = { 1, 40 }, y = { 2, 1 } }
        for k = 1, 40 do losses[k] = 2 - k / 40 end
        local chart = wane.plot({ train = losses, held = at }, { braille = false, rows = 8 })
        assert.matches('\n  %.  train\n  o  held$', tostring(chart))
        local marks = {}
        for row, line in ipairs(rows_of(chart)) do
            for column in line:gmatch '()o' do marks[#marks + 1] = { row, column } end
        end
        assert.equal(2, #marks)
        assert.equal(1, marks[1][2])
        assert.equal(64, marks[2][2])
        assert.is_true(marks[1][1] < marks[2][1])
    end)

    it('draws levels across, with their names and numbers', function()
        local text = tostring(wane.plot({ 1, 2, 3 }, { levels = { { y = 2, name = 'goal' }, 2.5 }, columns = 30,
            rows = 9, braille = false }))
        assert.equal(2, select(2, text:gsub('|[-]+\n', '')))
        assert.matches('\n  %-  goal: 2\n  %-  2.5$', text)
    end)

    it('counts what is no number, and draws the rest', function()
        local text = tostring(wane.plot({ 3, 0 / 0, 2, 1 / 0, 1 }, { braille = false }))
        assert.matches('\n  2 of 5 values are no numbers$', text)
        assert.is_nil(text:find 'nan' or text:find 'inf')
        helper.refused('value', function() wane.plot { 0 / 0, 1 / 0 } end, 'no number to draw')
    end)

    it('takes tensors of one number, and a single or a constant number', function()
        local a = tostring(wane.plot({ wane.tensor(2) * 2, wane.tensor(1) }, { braille = false }))
        assert.equal(tostring(wane.plot({ 4, 1 }, { braille = false })), a)
        assert.equal(1, select(2, table.concat(rows_of(wane.plot({ 7 }, { braille = false }))):gsub('%.', '')))
        assert.equal(64, select(2, table.concat(rows_of(wane.plot({ 7, 7 }, { braille = false }))):gsub('%.', '')))
    end)

    it('is made of finer dots when asked to', function()
        local text = tostring(wane.plot({ 3, 2, 1 }, { braille = true }))
        assert.is_truthy(text:find('\226[\160-\163]'))
        assert.is_nil(text:find('%.%.'))
        assert.is_nil(tostring(wane.plot { 3, 2, 1 }):find '\226') -- no terminal here
    end)

    it('says what is wrong', function()
        helper.refused('value', function() wane.plot(3) end, 'a list of numbers', 'got 3')
        helper.refused('value', function() wane.plot {} end, 'no number to draw')
        helper.refused('value', function() wane.plot { 1, 'x' } end, 'entry 2 of the list', "'x'")
        helper.refused('value', function() wane.plot { a = { 1 }, b = 4 } end, "'b' must be a list", 'got 4')
        helper.refused('value', function() wane.plot { x = { 1 }, y = { 1, 2 } } end, 'as many x as y')
        helper.refused('value', function() wane.plot({ 1 }, { colour = 'red' }) end, "'colour'")
        helper.refused('value', function() wane.plot({ 1 }, { levels = { 'high' } }) end, 'level 1')
    end)
end)

describe('wane.plot as a picture', function()
    it('has a path a line through its points, and words for its levels', function()
        local svg = wane.plot({ a = { 4, 2, 1 }, b = { 3, 3 } }, { title = 't & t',
            levels = { { y = 2, name = '<goal>' } } }):svg()
        assert.is_truthy(svg:match '^<svg ' and svg:match '</svg>%s*$')
        assert.is_truthy(svg:find('t &amp; t', 1, true) and svg:find('&lt;goal&gt;', 1, true))
        local paths = corners_of(svg)
        assert.same({ 3, 2 }, { #paths[1], #paths[2] })
        assert.is_true(paths[1][1][2] < paths[1][2][2] and paths[1][2][2] < paths[1][3][2])
        assert.equal(paths[2][1][2], paths[2][2][2])
        assert.is_true(paths[1][1][1] == paths[2][1][1] and paths[2][2][1] < paths[1][3][1])
    end)

    it('keeps what sticks out of a long list, in few points', function()
        local list = {}
        for k = 1, 50000 do list[k] = 1 end
        list[33333] = 9
        local path = corners_of(wane.plot(list):svg())[1]
        assert.is_true(#path <= 1300, #path)
        local high, at = math.huge, nil
        for _, p in ipairs(path) do
            if p[2] < high then high, at = p[2], p[1] end
        end
        assert.is_true(high < path[1][2] - 100)
        assert.is_true(math.abs((at - path[1][1]) / (path[#path][1] - path[1][1]) - 33333 / 50000) < 0.01)
    end)

    it('has a dash for each line beside its colour, and a legend of both', function()
        local svg = wane.plot({ a = { 4, 2, 1 }, b = { 3, 3 }, c = { 1, 2 } }):svg()
        for name, slot in pairs { a = 1, b = 2, c = 3 } do
            local dash = palette.dashes[slot] ~= '' and (' stroke-dasharray="%s"'):format(palette.dashes[slot]) or ''
            local look = ('class="s%d" fill="none" stroke="%s" stroke-width="%%s"%s/>'):format(slot,
                palette.light[slot], dash)
            assert.is_truthy(svg:find(look:format '1.8', 1, true), name)
            local _, stop = svg:find(look:format '2', 1, true)
            assert.equal(name, svg:sub(stop + 1):match '^%s*<text[^>]*>(%w)</text>')
        end
    end)

    it('says where its axes begin, unless that is at 0', function()
        local svg = wane.plot({ x = { 100, 200 }, y = { 9.1, 9.3 } }, { x = 'batches', y = 'nats' }):svg()
        assert.is_truthy(svg:find('>batches (begins at 100)<', 1, true))
        local low = tonumber(svg:match '>nats %(begins at ([%d.]+)%)<')
        assert.is_true(low > 8.9 and low < 9.1)
        assert.is_nil(wane.plot({ x = { 0, 1 }, y = { 1, 9 } }):svg():find 'begins')
    end)

    it('has colours of its own for dark paper, and a name for those who cannot see it', function()
        local svg = wane.plot({ 1, 2 }, { title = 'a "b"' }):svg()
        local dark = svg:match '<style>@media screen and %(prefers%-color%-scheme:dark%)(%b{})</style>'
        for k, colour in ipairs(palette.dark) do
            assert.is_truthy(dark:find(('.wane .s%d{stroke:%s}'):format(k, colour), 1, true))
        end
        assert.is_truthy(svg:find('role="img" aria-label="a &quot;b&quot;"', 1, true))
    end)

    it('is valid whatever bytes its texts hold', function()
        local svg = wane.plot({ ['a\1\255'] = { 1, 2 } }, { title = 'é\0\200<', y = '\27[1m' }):svg()
        assert.is_truthy(svg:find('<title>é\\000?&lt;</title>', 1, true))
        assert.is_truthy(svg:find('>a\\001?<', 1, true) and svg:find('>\\027[1m', 1, true))
        assert.is_nil(svg:find '[%z\1-\8\11-\31\127]')
    end)

    it('has an end for numbers that hardly differ, are tiny or huge', function()
        for _, list in ipairs { { 1, 1 + 2e-16 }, { 1e16, 1e16 + 2 }, { 5e-324, 1e-323 }, { 1e300, -1e300 },
            { 1e-300, 2e-300 }, { 1.7e308, 1, -1.7e308 } } do
            local svg = wane.plot(list):svg()
            assert.is_nil(svg:find('nan', 1, true) or svg:find('inf', 1, true))
            assert.is_true(#svg < 10000)
        end
    end)

    it('goes to a file in a folder that is made', function()
        local folder = os.tmpname()
        os.remove(folder)
        local path = folder .. '/deep/loss.svg'
        local chart = wane.plot { 2, 1 }
        assert.equal(path, chart:svg(path))
        assert.equal(chart:svg(), files.read(path))
        helper.lines('rm -r ' .. folder)
    end)
end)

-- ---- colours -------------------------------------------------------------------------------------------------------
-- Checks the colours of reports: whoever sees colours as most people do, or lacks one of the three kinds of cones, must
-- tell every two of them apart, on white and on dark paper; and each has a cue beside hue that no other has.
-- SEEN holds matrices that turn linear RGB into what is seen with full colour vision, and without one kind of cones:
-- those of Machado, Oliveira and Fernandes (2009) for a severity of 1.
local SEEN = {
    full = { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } },
    protanopia = { { 0.152286, 1.052583, -0.204868 }, { 0.114503, 0.786281, 0.099216 },
        { -0.003882, -0.048116, 1.051998 } },
    deuteranopia = { { 0.367322, 0.860646, -0.227968 }, { 0.280085, 0.672501, 0.047413 },
        { -0.011820, 0.042940, 0.968881 } },
    tritanopia = { { 1.255528, -0.076749, -0.178779 }, { -0.078411, 0.930809, 0.147602 },
        { 0.004733, 0.691367, 0.303900 } },
}

-- Returns the linear RGB of a colour such as '#2c22b0'.
local function linear(text)
    local out = {}
    for hex in text:sub(2):gmatch '%x%x' do
        local c = tonumber(hex, 16) / 255
        out[#out + 1] = c <= 0.04045 and c / 12.92 or ((c + 0.055) / 1.055) ^ 2.4
    end
    return out
end

local function times(matrix, v)
    local out = {}
    for i, row in ipairs(matrix) do out[i] = row[1] * v[1] + row[2] * v[2] + row[3] * v[3] end
    return out
end

-- Returns a linear RGB in OKLab.
local function oklab(rgb)
    local cones = times({ { 0.4122214708, 0.5363325363, 0.0514459929 }, { 0.2119034982, 0.6806995451, 0.1073969566 },
        { 0.0883024619, 0.2817188376, 0.6299787005 } }, rgb)
    for i = 1, 3 do cones[i] = cones[i] ^ (1 / 3) end
    return times({ { 0.2104542553, 0.7936177850, -0.0040720468 }, { 1.9779984951, -2.4285922050, 0.4505937099 },
        { 0.0259040371, 0.7827717662, -0.8086757660 } }, cones)
end

local function seen_as(matrix, text)
    local rgb = times(matrix, linear(text))
    for i = 1, 3 do rgb[i] = math.min(1, math.max(0, rgb[i])) end
    return oklab(rgb)
end

local function distance(a, b)
    return math.sqrt((a[1] - b[1]) ^ 2 + (a[2] - b[2]) ^ 2 + (a[3] - b[3]) ^ 2)
end

-- Returns the contrast of two colours by the rule of WCAG 2.
local function contrast(a, b)
    local function light(text)
        local rgb = linear(text)
        return 0.2126 * rgb[1] + 0.7152 * rgb[2] + 0.0722 * rgb[3] + 0.05
    end
    local x, y = light(a), light(b)
    return math.max(x, y) / math.min(x, y)
end

describe('the colours of reports', function()
    it('are measured rightly', function()
        assert.is_true(math.abs(contrast('#ffffff', '#000000') - 21) < 1e-9)
        assert.is_true(math.abs(distance(oklab { 1, 1, 1 }, oklab { 0, 0, 0 }) - 1) < 1e-3)
        local red, green = seen_as(SEEN.deuteranopia, '#c06000'), seen_as(SEEN.deuteranopia, '#808000')
        assert.is_true(distance(red, green) < 0.09) -- two that look alike without the middle cones
    end)

    for _, theme in ipairs { 'light', 'dark' } do
        it(('on %s paper can be told apart by every reader'):format(theme), function()
            local colours = palette[theme]
            assert.equal(palette.COUNT, #colours)
            for name, matrix in pairs(SEEN) do
                for i = 1, #colours do
                    for k = i + 1, #colours do
                        local d = distance(seen_as(matrix, colours[i]), seen_as(matrix, colours[k]))
                        assert.is_true(d >= 0.09, ('%s: %s and %s, %.3f'):format(name, colours[i], colours[k], d))
                    end
                end
            end
        end)

        it(('on %s paper stand out from it, as words and marks do'):format(theme), function()
            for _, colour in ipairs(palette[theme]) do
                assert.is_true(contrast(colour, palette.paper[theme]) >= 3, colour)
            end
            assert.is_true(contrast(palette.ink[theme], palette.paper[theme]) >= 7)
            assert.is_true(contrast(palette.mark[theme], palette.paper[theme]) >= 4.5)
        end)
    end

    it('come with cues beside hue: a hatch, a marker, a dash and a letter', function()
        for _, list in ipairs { palette.hatches, palette.markers, palette.dashes } do
            local seen = {}
            assert.equal(palette.COUNT, #list)
            for _, cue in ipairs(list) do
                assert.is_nil(seen[cue], cue)
                seen[cue] = true
            end
        end
    end)

    it('belong to kinds: every kind of bytes has a colour and a letter of its own', function()
        local slots, letters, program = {}, {}, require 'wane.program'
        for kind = 0, #program.kinds do
            local name = program.kinds[kind]
            local slot, letter = palette.of_kind(name), palette.letter(name, 1)
            assert.is_truthy(slot and not slots[slot], name)
            assert.is_truthy(letter:match '^%u$' and not letters[letter], name)
            slots[slot], letters[letter] = true, true
        end
    end)

    it('are the same in every picture of a plan: a colour, a hatch and a letter for each kind', function()
        local model = wane.nn.Linear(16, 16)
        local opt = wane.optim.AdamW(model:parameters(), { lr = 1e-3 })
        local plan = wane.plan(function() opt:step((model(wane.ones(4, 16)) ^ 2):mean()) end)
        local svg, text = plan:timeline(), tostring(plan:plot())
        local count = 0
        for kind, size in pairs(plan.kinds) do
            if size > 0 then
                count = count + 1
                local slot = palette.of_kind(kind)
                local fill = slot == 1 and 'class="f1" fill="' or ('fill="url(#wane-hatch-%d) '):format(slot)
                assert.is_truthy(svg:find(('Z" %s%s"><title>%s</title>'):format(fill, palette.light[slot], kind), 1,
                    true), kind)
                assert.is_truthy(svg:find(('height="12" %s%s"/>\n<text [^>]*>%s</text>'):format(fill:gsub('[%(%)-]',
                    '%%%0'), palette.light[slot], kind)), kind)
                assert.is_truthy(text:find(palette.letter(kind, 1) .. ' ' .. kind, 1, true), kind)
            end
        end
        assert.is_true(count >= 3)
    end)

    it('are those of a memory report, which is as long as its bytes say', function()
        local kept = wane.nn.Linear(64, 64)
        wane.eval(kept(wane.ones(4, 64)):sum())
        local r = wane.memory()
        local text, svg = r:plot(), r:plot(os.tmpname())
        local now, peak = text:match '\n +now |(%u*) [^\n]*\nat the peak |(%u*) '
        local room = #text:match '\n(at the peak [^\n]*)'
        assert.is_true(room > 76 and room <= 80, text)
        assert.is_true(math.abs(#peak * r.allocated / r.peak - #now) <= 0.5)
        assert.is_true(math.abs(#peak * r.kinds.parameter / r.peak - #now:gsub('[^P]', '')) <= 1)
        local picture = files.read(svg)
        os.remove(svg)
        for kind, size in pairs(r.peak_kinds) do
            if size > 0 then
                assert.is_truthy(picture:find(palette.light[palette.of_kind(kind)] .. '"><title>' .. kind .. ': ', 1,
                    true), kind)
            end
        end
        assert.is_truthy(picture:find('.wane text,.wane .ink{fill:' .. palette.ink.dark, 1, true))
        assert.is_true(kept ~= nil)
    end)

    it('stay out of what is no terminal', function()
        assert.equal('x', palette.paint('x', 1))
        local code = "package.path='lua/?.lua;'..package.path local p = require'wane.report.palette' "
            .. "io.write(p.paint('x', 1), p.paint('y'), '.')"
        for variables, text in pairs { ['TERM=xterm'] = '\27[38;5;63mx\27[39my.', ['TERM=dumb'] = 'xy.',
            ['TERM=xterm NO_COLOR=1'] = 'xy.' } do
            local shown = helper.shell(('%s %s ${LUAJIT:-luajit} -e "%s"'):format(variables, native.terminal(), code))
            assert.equal(text, shown:match '^[^\n]*%.', variables)
        end
    end)
end)

-- ---- spreads of measurements ---------------------------------------------------------------------------------------
-- Checks what is said of measured seconds: median and quartiles against plain definitions, the word for noise, and that
-- no star of a sweep rests on a difference within the noise.
local quiet = { load = 0.5, cores = 2 }

describe('a spread', function()
    it('has values that were measured as quartiles, with as many below as above', function()
        for n = 1, 40 do
            local values = {}
            for i = 1, n do values[i] = (i * 7919) % 101 + i / 100 end
            local before = table.concat(values, ' ')
            local s = spread.of(values)
            assert.equal(before, table.concat(values, ' '))
            local below, above, inside, is_low, is_high = 0, 0, 0, false, false
            for _, v in ipairs(values) do
                below, above = below + (v < s.low and 1 or 0), above + (v > s.high and 1 or 0)
                inside = inside + (v >= s.low and v <= s.high and 1 or 0)
                is_low, is_high = is_low or v == s.low, is_high or v == s.high
            end
            assert.is_true(is_low and is_high)
            assert.equal(below, above)
            assert.is_true(inside >= n / 2 and below <= n / 4, n)
            assert.is_true(s.least <= s.low and s.low <= s.median and s.median <= s.high and s.high <= s.most)
            assert.equal(n, s.count)
        end
        assert.same({ 1, 3 }, { spread.of({ 3, 1, 2 }).low, spread.of({ 3, 1, 2 }).high })
        assert.equal(2.5, spread.of({ 4, 1, 2, 3 }).median)
        assert.equal(0, spread.of({ 0, 0 }).spread)
    end)

    it('is noisy above 10 %, or where the load is above 1.25 a core', function()
        local calm, wild = spread.of { 1, 1.01, 1.02, 1.03 }, spread.of { 1, 1.3, 1, 1.31 }
        assert.is_nil(spread.noise(calm, quiet))
        assert.equal('noisy: spread 27 %, load 2.1 on 2 cores', spread.noise(wild, { load = 2.1, cores = 2 }))
        assert.equal('noisy: spread 3 %, load 2.6 on 2 cores', spread.noise(calm, { load = 2.6, cores = 2 }))
        assert.is_nil(spread.noise(calm, { load = 2.5, cores = 2 }))
        assert.equal('noisy: spread 27 %', spread.noise(wild, { cores = 1 }))
        assert.equal('quartiles 1 to 1.03 s, spread 3 %, load 1.0 on 1 core',
            spread.text(calm, { load = 1, cores = 1 }))
        assert.equal('noisy: quartiles 1 to 1.31 s, spread 27 %, load 0.5 on 2 cores', spread.text(wild, quiet))
    end)

    it('is what a measurement has', function()
        local model, x = wane.nn.Linear(8, 8), wane.eval(wane.randn(4, 8))
        local m = wane.measure(function() return model(x):sum() end, { steps = 9 })
        local s = spread.of(m.walls)
        assert.same({ s.median, s.low, s.high, s.spread }, { m.wall, m.low, m.high, m.spread })
        assert.equal(spread.of(m.times).median, m.seconds)
        assert.equal(spread.noise(s, m), m.noisy)
        assert.equal(system.cores(), m.cores)
        assert.is_true(m.load == nil or m.load >= 0)
        assert.matches('\n' .. (m.noisy and 'noisy: ' or '') .. 'quartiles [%d.e-]+ to [%d.e-]+ s, spread %d+ %%',
            tostring(m))
    end)
end)

describe('the machine', function()
    it('has the cores that nproc counts, and a load', function()
        local count = helper.shell 'nproc --all 2>/dev/null':match '%d+'
        if count then assert.is_true(system.cores() <= tonumber(count) and system.cores() >= 1) end
        if io.open '/proc/loadavg' then assert.is_true(system.load() >= 0) end
    end)
end)

-- Returns a row of a sweep.
local function row(peak, low, seconds, high)
    return { peak = peak, low = low, seconds = seconds, high = high }
end

describe('a star', function()
    local function starred(front)
        local set, out = {}, {}
        for i, r in ipairs(front) do set[r] = i end
        for i, r in ipairs(provenance.distinct(front)) do out[i] = set[r] end
        return out
    end

    it('rests on no difference within the noise', function()
        assert.same({ 1, 3 }, starred { row(1, 9, 10, 11), row(2, 8.9, 9.5, 10), row(3, 4, 5, 6) })
        assert.same({ 1, 2, 3 }, starred { row(1, 9, 10, 11), row(2, 8, 8.5, 8.9), row(3, 4, 5, 6) })
    end)

    it('is given to a row that is faster than the last one with a star, not the last one', function()
        assert.same({ 1, 3 }, starred { row(1, 9.5, 10, 10.5), row(2, 9.2, 9.6, 10), row(3, 8.8, 9.2, 9.4) })
    end)

    it('needs 2 % where quartiles are equal or missing, as in rows of one repeat', function()
        assert.same({ 1 }, starred { row(1, 10, 10, 10), row(2, 9.9, 9.9, 9.9) })
        assert.same({ 1, 2 }, starred { { peak = 1, seconds = 10 }, { peak = 2, seconds = 9 } })
        assert.same({ 1 }, starred { { peak = 1, seconds = 10 }, { peak = 2, seconds = 9.9 } })
    end)

    it('is in the table, which says what is noisy', function()
        local slow = 1
        local sweep = wane.sweep { build = function() error 'not run' end, isolate = false,
            grid = { policy = { 'save_all', 'sqrt', 'every(1)' } } }
        for i, q in ipairs(sweep.points) do
            local r = row(100 - 10 * i, slow - 0.05, slow, slow + 0.05)
            slow = slow + (i == 1 and 0.01 or 1)
            for name, value in pairs { n = q.number, point = q.description, status = 'ok', predicted_peak = r.peak,
                reserved = 1, predicted_reserved = 1, recomputed = 0, lossless = true, exact = true, kinds = {} } do
                r[name] = value
            end
            r.noisy, r.spread = i == 2 and 'noisy: spread 31 %, load 2.1 on 2 cores' or nil, 0.31
            sweep.found[q.key] = r
        end
        local text = tostring(sweep)
        assert.is_nil(text:match '\nsave_all[^\n]*%*')
        assert.matches('\nsqrt [^\n]*%* noisy\n', text)
        assert.matches('\nevery%(1%) [^\n]*%*\n', text)
        assert.matches('; 1 of 3 noisy %(spread 31 %%, load 2.1 on 2 cores%): measure again', text)
    end)
end)
