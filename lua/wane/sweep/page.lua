--- The report of a sweep as one HTML file. It loads nothing, and shows everything without scripts, unsorted.
-- @internal wane.sweep.page
local plot = require 'wane.report.plot'

local escape = plot.escape

local page = {}

local STYLE = [[
body { font: 15px/1.5 sans-serif; color: #222; background: #fff; max-width: 75em; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.6em } h2 { font-size: 1.2em; margin-top: 2em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25em .8em; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap }
td.number { text-align: right }
th button { font: inherit; font-weight: bold; background: none; border: 0; padding: 0; cursor: pointer }
th[aria-sort=ascending] button::after { content: " \25B2" } th[aria-sort=descending] button::after { content: " \25BC" }
tr.front { background: #eef6ee } tr.failed { color: #a33 }
.wide { overflow-x: auto } pre { background: #f5f5f5; padding: .8em; overflow-x: auto }
svg { max-width: 100%; height: auto }
]]

-- Sorts the rows by the column whose title is clicked, the second time in descending order.
local SCRIPT = [[
for (const th of document.querySelectorAll('th')) th.querySelector('button').onclick = () => {
  const body = document.querySelector('tbody'), up = th.getAttribute('aria-sort') !== 'ascending';
  const value = row => { const cell = row.cells[th.cellIndex], text = cell.textContent;
    return text === '' ? [1, 0] : [0, cell.className === 'number' ? parseFloat(text.replace(/,/g, '')) : text]; };
  const rows = [...body.rows].map(row => [value(row), row]);
  rows.sort(([a], [b]) => a[0] - b[0] || (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0) * (up ? 1 : -1));
  for (const [, row] of rows) body.append(row);
  for (const other of document.querySelectorAll('th')) other.removeAttribute('aria-sort');
  th.setAttribute('aria-sort', up ? 'ascending' : 'descending');
};
]]

-- Returns a row of the table in HTML.
local function cells_of(row)
    local out = {}
    for i, cell in ipairs(row) do
        local is_number = cell:match '^%-?[%d,.]+$' or cell:match '^%-?[%d.]+e[+-]?%d+$'
        out[i] = ('<td%s>%s</td>'):format(is_number and ' class="number"' or '', escape(cell))
    end
    local note = row[#row]
    local class = note:match '^failed' and ' class="failed"' or note:match '^%*' and ' class="front"' or ''
    return ('<tr%s>%s</tr>'):format(class, table.concat(out))
end

-- Returns the table of points in HTML.
local function table_of(head, rows)
    local titles, lines = {}, {}
    for i, title in ipairs(head) do
        titles[i] = ('<th scope="col"><button type="button">%s</button></th>'):format(escape(title ~= '' and title
            or 'note'))
    end
    for i, row in ipairs(rows) do lines[i] = cells_of(row) end
    return ('<div class="wide"><table>\n<thead><tr>%s</tr></thead>\n<tbody>\n%s\n</tbody>\n</table></div>')
        :format(table.concat(titles), table.concat(lines, '\n'))
end

--- Returns the page.
-- @param r { title =, summary =, machine = lines, head = titles, rows = lists of cells, failures = lines, pictures =
-- list of SVG texts, command = text or nil, file = name or nil }
-- @return HTML text
function page.html(r)
    local out = { '<!DOCTYPE html>', '<html lang="en">', '<head>', '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">', '<link rel="icon" href="data:,">',
        ('<title>%s</title>'):format(escape(r.title)), '<style>\n' .. STYLE .. '</style>', '</head>', '<body>',
        ('<h1>%s</h1>'):format(escape(r.title)), ('<p>%s.</p>'):format(escape(r.summary)) }
    local function add(...)
        for i = 1, select('#', ...) do out[#out + 1] = (select(i, ...)) end
    end
    add('<h2>Points</h2>', table_of(r.head, r.rows))
    if #r.failures > 0 then add('<h2>Failures</h2>', '<ul>') end
    for _, line in ipairs(r.failures) do add(('<li>%s</li>'):format((escape(line):gsub('\n', '<br>')))) end
    if #r.failures > 0 then add '</ul>' end
    if #r.pictures > 0 then add '<h2>Pictures</h2>' end
    for _, svg in ipairs(r.pictures) do add('<div class="wide">' .. svg .. '</div>') end
    add('<h2>Machine</h2>', ('<pre>%s</pre>'):format(escape(table.concat(r.machine, '\n'))))
    if r.command then
        add('<h2>How to reproduce</h2>', ('<pre>%s</pre>'):format(escape(r.command)))
        if r.file then add(('<p>The rows, one JSON object a line: %s</p>'):format(escape(r.file))) end
    end
    add('<script>\n' .. SCRIPT .. '</script>', '</body>', '</html>')
    return table.concat(out, '\n') .. '\n'
end

return page
