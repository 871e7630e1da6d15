--- The outputs of a sweep: a table, comma separated values, pictures, and one HTML page with all of them.
--
-- All are made from the rows alone, so a sweep that was read from its file shows what the sweep that ran shows.
-- @internal wane.sweep.report
local bytes = require 'wane.report.bytes'
local json = require 'wane.report.json'
local noise = require 'wane.sweep.noise'
local page = require 'wane.sweep.page'
local plot = require 'wane.report.plot'
local system = require 'wane.system'
local table_ = require 'wane.report.table'

local report = {}

local MiB = 2 ^ 20

-- Fields of a row that are bytes; pictures show them in MiB.
local in_bytes = { peak = true, predicted_peak = true, reserved = true, predicted_reserved = true, state = true,
    activations = true }
local words = { peak = 'peak', seconds = 's a step', wall = 's a step with recording' }

-- Returns the text of a point's value on an axis.
local function cell_of(row, key)
    local value = row.point[key]
    return type(value) == 'number' and json.number(value) or tostring(value)
end

-- Returns the set of rows that no other row of their group beats in peak and seconds; a difference of seconds within
-- the noise of both rows is none.
local function on_front(self)
    local set = {}
    for _, front in ipairs(self:fronts('peak', 'seconds')) do
        for _, row in ipairs(noise.distinct(front)) do set[row] = true end
    end
    return set
end

--- Returns the table of a sweep.
-- @param self Sweep
-- @return list of titles, list of rows of texts, list of lines that say why points failed
function report.table(self)
    local head, rows, failures, front = {}, {}, {}, on_front(self)
    for i, key in ipairs(self.axes) do head[i] = key end
    for _, title in ipairs { 'peak predicted', 'measured', 'reserved', 's a step', 'recomputed', 'digest', '' } do
        head[#head + 1] = title
    end
    for _, row in ipairs(self:rows()) do
        local cells = {}
        for i, key in ipairs(self.axes) do cells[i] = cell_of(row, key) end
        local more
        if row.status == 'ok' then
            more = { bytes.exact(row.predicted_peak), bytes.exact(row.peak), bytes.exact(row.reserved),
                ('%.4g'):format(row.seconds), tostring(row.recomputed), row.digest and row.digest:sub(1, 8) or '',
                (front[row] and '*' or '') .. (row.lossless and '' or ' lossy') .. noise.word(row) }
        else
            more = { '', '', '', '', '', '', 'failed: ' .. row.code }
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
    local text = ('%d points: %d measured'):format(#self.points, #measured)
    if #rows > #measured then text = text .. (', %d failed'):format(#rows - #measured) end
    if #rows < #self.points then text = text .. (', %d not run'):format(#self.points - #rows) end
    if #measured > 0 then
        text = text .. '; * marks what no other ' .. (rows[1].point.policy and 'policy' or 'point')
            .. ' beats in peak and seconds' .. noise.summary(measured)
    end
    return text
end

--- Returns the table, the summary and the failures as text.
-- @param self Sweep
function report.text(self)
    if #self:rows() == 0 then
        return ('a sweep of %d points over %s, not run yet'):format(#self.points, table.concat(self.axes, ', '))
    end
    local head, rows, failures = report.table(self)
    local out = { table_.text(head, rows), report.summary(self) }
    for _, line in ipairs(failures) do out[#out + 1] = 'failed: ' .. line:gsub('\n', '\n    ') end
    return table.concat(out, '\n')
end

local columns = { 'status', 'predicted_peak', 'peak', 'predicted_reserved', 'reserved', 'state', 'activations',
    'recomputed', 'seconds', 'low', 'high', 'spread', 'wall', 'loss', 'loss_bits', 'digest', 'lossless', 'threads',
    'load', 'cores', 'device', 'code', 'error' }

--- Returns comma separated values: the keys of the grid, then fields of the rows, with every bit of their numbers.
-- @param self Sweep
function report.csv(self)
    local head, rows = {}, {}
    for i, key in ipairs(self.axes) do head[i] = key end
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

-- Returns a chart for plot.scatter: one point a measured row, with the colour of its group.
local function chart_of(self, opts)
    local x, y = opts.x or 'peak', opts.y or 'seconds'
    local x_words, x_unit = axis_of(x)
    local y_words, y_unit = axis_of(y)
    local chart = { title = ('%s: %s'):format(self.title, self.axes[1] and table.concat(self.axes, ', ') or ''),
        x = x_words, y = y_words, points = {}, fronts = {} }
    local groups, count, number = {}, 0, {}
    for i, row in ipairs(self:measured()) do
        local q = self.points[row.n]
        if not groups[q.group] then
            count = count + 1
            groups[q.group] = count
        end
        number[row] = i
        chart.points[i] = { x = self.number(row, x) / x_unit, y = self.number(row, y) / y_unit, name = q.label,
            group = groups[q.group] }
    end
    for i, front in ipairs(self:fronts(x, y)) do
        chart.fronts[i] = {}
        for k, row in ipairs(front) do chart.fronts[i][k] = number[row] end
    end
    return chart
end

--- Draws the points and their staircase as SVG.
-- @param self Sweep
-- @param opts { x = 'peak', y = 'seconds' } (optional)
function report.picture(self, opts)
    return plot.scatter(chart_of(self, opts or {}))
end

--- Draws the points and their staircase with characters, in braille at a terminal that takes UTF-8.
-- @param self Sweep
-- @param opts { x = 'peak', y = 'seconds' } (optional)
function report.characters(self, opts)
    return plot.terminal_scatter(chart_of(self, opts or {}), { braille = system.is_rich(1) and system.is_utf8() })
end

--- Draws the bytes by kind at the peak as SVG, one bar a point.
-- @param self Sweep
function report.bars(self)
    local kinds, series, names = {}, {}, {}
    local rows = self:measured()
    for i, row in ipairs(rows) do
        names[i] = self.points[row.n].label
        for kind in pairs(row.kinds) do kinds[kind] = true end
    end
    for kind in pairs(kinds) do series[#series + 1] = { name = kind, values = {} } end
    table.sort(series, function(a, b) return a.name < b.name end)
    for _, s in ipairs(series) do
        for i, row in ipairs(rows) do s.values[i] = (row.kinds[s.name] or 0) / MiB end
    end
    return plot.stacks { title = 'bytes at the peak, by kind', unit = 'MiB', format = '%.4g', groups = names,
        series = series }
end

--- Returns the HTML page of a sweep.
-- @param self Sweep
function report.page(self)
    local head, rows, failures = report.table(self)
    local has_points = #self:measured() > 0
    local words_ = system.command_line()
    return page.html {
        title = self.title, summary = report.summary(self), machine = require('wane.cli').machine(), head = head,
        rows = rows, failures = failures, pictures = has_points and { report.picture(self), report.bars(self) } or {},
        command = words_ and system.quoted(words_) or nil, file = self.out,
    }
end

--- Writes a text to a file, whose folders are made where they are missing.
-- @param path name of the file, or nil
-- @param text its contents
-- @return path; text where path is nil
-- @raise 'io' where the file cannot be written
function report.write(path, text)
    if path == nil then return text end
    system.make_folders(path)
    return plot.write(path, text)
end

return report
