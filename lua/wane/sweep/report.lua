--- The outputs of a sweep: a table, comma separated values, pictures, and one HTML page with all of them.
--
-- All are made from the rows alone, so a sweep that was read from its file shows what the sweep that ran shows.
-- @internal wane.sweep.report
local bytes = require 'wane.report.bytes'
local iterate = require 'wane.iterate'
local json = require 'wane.report.json'
local page = require 'wane.sweep.page'
local palette = require 'wane.report.palette'
local plot = require 'wane.report.plot'
local provenance = require 'wane.sweep.provenance'
local table_ = require 'wane.report.table'
local utf8 = require 'wane.utf8'

local report = {}

local MiB = 2 ^ 20

-- Fields of a row that are bytes; pictures show them in MiB.
local in_bytes = { peak = true, predicted_peak = true, reserved = true, predicted_reserved = true, state = true,
    activations = true }
local words = { peak = 'peak', wall = 's/step', seconds = 's/step in its programs' }

-- Returns the text of a point's value on an axis.
local function cell_of(row, key)
    local value = row.point[key]
    return type(value) == 'number' and json.number(value) or tostring(value)
end

-- Returns the set of rows that no other row of their group beats in peak and seconds; a difference of seconds within
-- the noise of both rows is none.
local function on_front(self)
    local set = {}
    for _, front in ipairs(self:fronts('peak', 'wall')) do
        for _, row in ipairs(provenance.distinct(front)) do set[row] = true end
    end
    return set
end

--- Returns the table of a sweep. The last cell of a row is a note.
-- @param self Sweep
-- @return list of titles, list of rows of texts, list of lines that say why points failed
function report.table(self)
    local head, rows, failures, front = { unpack(self.axes) }, {}, {}, on_front(self)
    for _, title in ipairs { 'peak predicted', 'measured', 'reserved', 's/step', 'in programs', 'recomputed',
        'digest', '' } do
        head[#head + 1] = title
    end
    for _, row in ipairs(self:rows()) do
        local cells = {}
        for i, key in ipairs(self.axes) do cells[i] = cell_of(row, key) end
        local more
        if row.status == 'ok' then
            more = { bytes.exact(row.predicted_peak), bytes.exact(row.peak), bytes.exact(row.reserved),
                ('%.4g'):format(provenance.step(row)), ('%.4g'):format(row.seconds), tostring(row.recomputed),
                row.digest and row.digest:sub(1, 8) or '',
                (front[row] and '*' or '') .. (row.lossless and '' or ' lossy') .. provenance.word(row) }
        else
            more = { '', '', '', '', '', '', '', 'failed: ' .. row.code }
            failures[#failures + 1] = ('%s: %s'):format(self.points[row.n].label, row.error)
        end
        for _, cell in ipairs(more) do cells[#cells + 1] = cell end
        rows[#rows + 1] = cells
    end
    return head, rows, failures
end

--- Returns one line about a sweep: how many points were measured, failed, or not run, and what the mark * means.
-- @param self Sweep
function report.summary(self)
    local rows, measured = self:rows(), self:measured()
    local text = ('%d points: %d measured'):format(#self.assigned, #measured)
    if self.shard then text = ('shard %d/%d, '):format(self.shard.index, self.shard.count) .. text end
    if #rows > #measured then text = text .. (', %d failed'):format(#rows - #measured) end
    local missing = #self:missing()
    if missing > 0 then text = text .. (', %d not run'):format(missing) end
    if #measured > 0 then
        text = text .. '; * marks what no other ' .. (rows[1].point.policy and 'policy' or 'point')
            .. ' beats in peak and seconds' .. provenance.summary(measured)
    end
    return text
end

--- Returns the table, the summary and the failures as text.
-- @param self Sweep
function report.text(self)
    if #self:rows() == 0 then
        return ('a sweep of %d points over %s, not run yet'):format(#self.points,
            utf8.shown(table.concat(self.axes, ', ')))
    end
    local head, rows, failures = report.table(self)
    local out = { table_.text(head, rows), report.summary(self) }
    for _, line in ipairs(failures) do out[#out + 1] = 'failed: ' .. utf8.shown(line, '\n\t'):gsub('\n', '\n    ') end
    return table.concat(out, '\n')
end

local columns = { 'status', 'predicted_peak', 'peak', 'predicted_reserved', 'reserved', 'state', 'activations',
    'recomputed', 'seconds', 'low', 'high', 'spread', 'wall', 'loss', 'loss_bits', 'digest', 'lossless', 'threads',
    'load', 'cores', 'device', 'date', 'code', 'error' }

--- Returns comma separated values: the keys of the grid, then fields of the rows, with every bit of their numbers.
-- @param self Sweep
function report.csv(self)
    local head, rows = { unpack(self.axes) }, {}
    for _, name in ipairs(columns) do head[#head + 1] = name end
    for i, row in ipairs(self:rows()) do
        local cells = {}
        for k, key in ipairs(self.axes) do cells[k] = cell_of(row, key) end
        for k, name in ipairs(columns) do
            local value = row[name]
            cells[#self.axes + k] = type(value) == 'number' and json.number(value) or value ~= nil and tostring(value)
                or ''
        end
        rows[i] = cells
    end
    return table_.csv(head, rows)
end

-- ---- pictures -----------------------------------------------------------------------------------------------------
-- Returns the title of an axis, and the unit that its numbers are divided by.
local function axis_of(name)
    local text = words[name] or name:gsub('_', ' ')
    return in_bytes[name] and text .. ', MiB' or text, in_bytes[name] and MiB or 1
end

local MOST_PLAIN = 15 -- points in one picture; of more there is a small picture for each value of the first key

-- Returns a function that gives equal texts their number, in the order in which they come, and the list of the texts.
local function numbers()
    local of, list = {}, {}
    return function(text)
        if not of[text] then
            list[#list + 1] = text
            of[text] = #list
        end
        return of[text]
    end, list
end

-- Returns the values of a row for some keys in words; '' for none.
local function name_of(row, keys)
    local out = {}
    for i, key in ipairs(keys) do out[i] = ('%s=%s'):format(key, cell_of(row, key)) end
    return utf8.shown(table.concat(out, ' '))
end

-- Returns the keys of the grid without one.
local function without(self, name)
    local out = {}
    for _, key in ipairs(self.axes) do
        if key ~= name then out[#out + 1] = key end
    end
    return out
end

-- Returns the keys whose values decide a point's colour and marker, and those that decide its small picture, or nil. In
-- one picture the policies of a model have one colour, and a grid without policies is one group.
local function keys_of(self, count)
    local has_policy = self:measured()[1] and self:measured()[1].point.policy
    if count <= MOST_PLAIN or #self.axes < 2 then return has_policy and without(self, 'policy') or {} end
    local compared = has_policy and 'policy' or self.axes[#self.axes]
    return { compared }, { without(self, compared)[1] }
end

-- Returns a chart for plot.scatter: one point a measured row, with the number of its row. `links`: whether points lead
-- to rows of the page's table.
local function chart_of(self, opts, links)
    local x, y = opts.x or 'peak', opts.y or 'wall'
    local x_words, x_unit = axis_of(x)
    local y_words, y_unit = axis_of(y)
    local rows, number = self:measured(), {}
    local keys, facet_keys = keys_of(self, #rows)
    local group_of, groups = numbers()
    local facet_of, facets = numbers()
    local axes = self.axes[1] and table.concat(self.axes, ', ') or ''
    local chart = { title = utf8.shown(('%s: %s'):format(self.title, axes)), x = x_words, y = y_words, points = {},
        fronts = {}, groups = groups, numbered = true, facets = facet_keys and facets, log_y = facet_keys and y ==
        'wall', front_name = ('what no other %s beats'):format(rows[1] and rows[1].point.policy and 'policy'
            or 'point') }
    for i, row in ipairs(rows) do
        number[row] = i
        local name = name_of(row, keys)
        chart.points[i] = { x = self.number(row, x) / x_unit, y = self.number(row, y) / y_unit, number = row.n,
            name = self.points[row.n].label, group = group_of(facet_keys and name:gsub('^policy=', '') or name),
            facet = facet_keys and facet_of(name_of(row, facet_keys)), link = links and 'row-' .. row.n or nil }
    end
    if #groups < 2 then chart.groups = {} end
    for i, front in ipairs(self:fronts(x, y)) do
        chart.fronts[i] = {}
        for k, row in ipairs(front) do chart.fronts[i][k] = number[row] end
    end
    return chart
end

--- Draws the points and their staircase as SVG.
-- @param self Sweep
-- @param opts { x = 'peak', y = 'wall' } (optional)
function report.picture(self, opts)
    return plot.scatter(chart_of(self, opts or {}))
end

--- Draws the points and their staircase with characters, in braille at a terminal that takes UTF-8.
-- @param self Sweep
-- @param opts { x = 'peak', y = 'wall' } (optional)
function report.characters(self, opts)
    return plot.terminal_scatter(chart_of(self, opts or {}))
end

local MOST_BARS = 40

-- Returns the rows that bars are drawn of, and words that say which: all of them, else those of the staircases.
local function rows_of_bars(self)
    local rows = self:measured()
    if #rows <= MOST_BARS then return rows, '' end
    local set, list = on_front(self), {}
    for _, row in ipairs(rows) do
        if set[row] and #list < MOST_BARS then list[#list + 1] = row end
    end
    return list, (', %d of %d points'):format(#list, #rows)
end

-- Returns the kinds that rows have, in the order of their colours.
local function kinds_of(rows)
    local seen, list = {}, {}
    for _, row in ipairs(rows) do
        for kind in iterate(row.kinds) do
            if not seen[kind] then
                seen[kind] = true
                list[#list + 1] = kind
            end
        end
    end
    table.sort(list, function(a, b)
        local left, right = palette.of_kind(a) or math.huge, palette.of_kind(b) or math.huge
        if left ~= right then return left < right end
        return a < b
    end)
    return list
end

--- Draws the bytes by kind at the peak as SVG, one bar a point.
-- @param self Sweep
function report.bars(self)
    local series, names = {}, {}
    local rows, which = rows_of_bars(self)
    for s, kind in ipairs(kinds_of(rows)) do
        series[s] = { name = kind, values = {} }
        for i, row in ipairs(rows) do series[s].values[i] = (row.kinds[kind] or 0) / MiB end
    end
    for i, row in ipairs(rows) do names[i] = ('%d  %s'):format(row.n, self.points[row.n].label) end
    return plot.stacks { title = 'bytes at the peak, by kind' .. which, unit = 'MiB', format = '%.4g', groups = names,
        series = series }
end

-- Returns the titles and rows of report.table with the number of each row before, and the spread of its seconds and the
-- load of the machine after the seconds.
local function numbered(self, head, rows)
    local at = #self.axes + 5 -- after the axes: predicted, measured, reserved, seconds of a step
    local titles, out = { '#', unpack(head) }, {}
    table.insert(titles, at + 1, 'spread')
    table.insert(titles, at + 2, 'load')
    for i, row in ipairs(self:rows()) do
        local cells = { tostring(row.n), unpack(rows[i]) }
        table.insert(cells, at + 1, row.status == 'ok' and provenance.spread(row) or '')
        table.insert(cells, at + 2, row.status == 'ok' and provenance.load(row) or '')
        out[i] = cells
    end
    return titles, out
end

--- Returns the HTML page of a sweep.
-- @param self Sweep
function report.page(self)
    local head, rows, failures = report.table(self)
    head, rows = numbered(self, head, rows)
    local pictures = {}
    if #self:measured() > 0 then
        pictures = { { svg = plot.scatter(chart_of(self, {}, true)), words = 'Each number is that of a row of the '
            .. 'table, to which its point leads.' }, { svg = report.bars(self), words = 'The number before a point is '
            .. 'that of its row.' } }
    end
    return page.html { title = self.title, summary = report.summary(self), facts = provenance.facts(self),
        machine = require('wane.cli').machine(), head = head, rows = rows, failures = failures, pictures = pictures,
        command = provenance.command(), file = self.out, sources = self.settings.sources or {},
        is_mixed = provenance.is_mixed(self) }
end

return report
