-- Checks wane.plot: each point must be at its place in the chart, in characters and in the picture. A value that is no
-- number must be counted and never drawn.
local helper = require 'spec.helper'
local wane = helper.wane
local palette = require 'wane.report.palette'

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
        local file = assert(io.open(path))
        assert.equal(chart:svg(), file:read '*a')
        file:close()
        helper.lines('rm -r ' .. folder)
    end)
end)
