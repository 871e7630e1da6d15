--- The report of a sweep as one HTML file. It loads nothing. Without scripts it shows everything, unsorted; it follows
-- the reader's choice of light or dark paper, and prints on white.
-- @internal wane.sweep.page
local palette = require 'wane.report.palette'
local plot = require 'wane.report.plot'

local escape = plot.escape

local page = {}

-- The style sheet; $NAME stands for a colour.
local STYLE = [[
:root { color-scheme: light dark; --ink: $INK; --paper: $PAPER; --rule: #ddd; --soft: #f4f4f4; --front: #e8f1ea;
  --failed: #a32222; --link: #1a4fa0 }
@media screen and (prefers-color-scheme: dark) { :root { --ink: $DARKINK; --paper: $DARKPAPER; --rule: #3b414a;
  --soft: #20252c; --front: #1d3327; --failed: #ff9d94; --link: #9ec1ff } }
body { font: 15px/1.5 sans-serif; color: var(--ink); background: var(--paper); max-width: 80em; margin: 2em auto;
  padding: 0 1em }
h1 { font-size: 1.6em } h2 { font-size: 1.2em; margin-top: 2em } a { color: var(--link) }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25em .8em; border-bottom: 1px solid var(--rule); text-align: left; white-space: nowrap;
  vertical-align: top }
thead th, td:last-child { white-space: normal; overflow-wrap: anywhere } #points td:last-child { min-width: 8em }
td.number { text-align: right } table.facts th { font-weight: normal; padding-left: 0 }
th button { font: inherit; font-weight: bold; color: inherit; background: none; border: 0; padding: 0; cursor: pointer }
th[aria-sort=ascending] button::after { content: " \25B2" } th[aria-sort=descending] button::after { content: " \25BC" }
tr.front { background: var(--front) } tr.failed { color: var(--failed) }
tr:target { outline: 2px solid var(--link); outline-offset: -2px }
.wide { overflow-x: auto }
pre { background: var(--soft); padding: .8em; white-space: pre-wrap; overflow-wrap: anywhere }
figure { margin: 1em 0 } svg { max-width: 100%; height: auto }
@media print { body { max-width: none; margin: 0; padding: 0; font-size: 9pt } th, td { padding: .15em .4em }
  .wide { overflow: visible } pre { border: 1px solid var(--rule) }
  thead { display: table-header-group } tr, figure { break-inside: avoid } h2 { break-after: avoid }
  a { color: inherit; text-decoration: none } }
]]

-- Makes the titles of the table of points buttons, which sort the rows by their column, the second time in descending
-- order.
local SCRIPT = [[
const points = document.getElementById('points'), titles = [...points.tHead.rows[0].cells];
for (const th of titles) {
  const button = document.createElement('button');
  button.type = 'button';
  button.append(...th.childNodes);
  th.append(button);
  button.onclick = () => {
    const body = points.tBodies[0], up = th.getAttribute('aria-sort') !== 'ascending';
    const value = row => { const cell = row.cells[th.cellIndex], text = cell.textContent;
      return text === '' ? [1, 0] : [0, cell.className === 'number' ? parseFloat(text.replace(/,/g, '')) : text]; };
    const rows = [...body.rows].map(row => [value(row), row]);
    rows.sort(([a], [b]) => a[0] - b[0] || (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0) * (up ? 1 : -1));
    for (const [, row] of rows) body.append(row);
    for (const other of titles) other.removeAttribute('aria-sort');
    th.setAttribute('aria-sort', up ? 'ascending' : 'descending');
  };
}
]]

-- Returns a row of the table in HTML; its first cell is its number.
local function cells_of(row)
    local out = {}
    for i, cell in ipairs(row) do
        local is_number = cell:match '^%-?[%d,.]+ ?%%?$' or cell:match '^%-?[%d.]+e[+-]?%d+$'
        out[i] = ('<td%s>%s</td>'):format(is_number and ' class="number"' or '', escape(cell))
    end
    local note = row[#row]
    local class = note:match '^failed' and ' class="failed"' or note:match '^%*' and ' class="front"' or ''
    return ('<tr id="row-%s"%s>%s</tr>'):format(escape(row[1]), class, table.concat(out))
end

-- Returns the table of points in HTML.
local function table_of(head, rows)
    local titles, lines = {}, {}
    for i, title in ipairs(head) do
        titles[i] = ('<th scope="col">%s</th>'):format(escape(title ~= '' and title or 'note'))
    end
    for i, row in ipairs(rows) do lines[i] = cells_of(row) end
    return ('<div class="wide"><table id="points">\n<thead><tr>%s</tr></thead>\n<tbody>\n%s\n</tbody>\n</table></div>')
        :format(table.concat(titles), table.concat(lines, '\n'))
end

-- Returns the table of facts in HTML.
local function facts_of(facts)
    local lines = {}
    for i, fact in ipairs(facts) do
        lines[i] = ('<tr><th scope="row">%s</th><td>%s</td></tr>'):format(escape(fact[1]), escape(fact[2]))
    end
    return ('<table class="facts">\n<tbody>\n%s\n</tbody>\n</table>'):format(table.concat(lines, '\n'))
end

-- Adds the parts that tell how to repeat the sweep: the command, the file of rows and the text of the script.
local function add_repeating(add, r)
    if r.command then add('<h2>How to reproduce</h2>', ('<pre>%s</pre>'):format(escape(r.command))) end
    if r.file then
        add(('<p>The rows, one JSON object a line, are in %s; a sweep that begins anew needs another name for '
            .. 'them.</p>'):format(escape(r.file)))
    end
    if r.is_mixed then
        add '<p>Some rows come from another text of the script than the one below, or from other settings.</p>'
    end
    for _, source in ipairs(r.sources) do
        add(('<h2>Script: %s</h2>'):format(escape(source.name)), ('<pre>%s</pre>'):format(escape(source.text)))
    end
end

-- Returns the style sheet with its colours.
local function style()
    return (STYLE:gsub('%$(%u+)', { INK = palette.ink.light, PAPER = palette.paper.light, DARKINK = palette.ink.dark,
        DARKPAPER = palette.paper.dark }))
end

--- Returns the page.
-- @param r { title =, summary =, facts = list of { name, text }, machine = lines, head = titles, rows = lists of cells
-- (the first is the number of the row, the last a note), failures = lines, pictures = list of { svg =, words = },
-- command = text or nil, file = name or nil, sources = list of { name =, text = }, is_mixed = (whether rows come from
-- another script) }
-- @return HTML text
function page.html(r)
    local out = { '<!DOCTYPE html>', '<html lang="en">', '<head>', '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">', '<link rel="icon" href="data:,">',
        ('<title>%s</title>'):format(escape(r.title)), '<style>\n' .. style() .. '</style>', '</head>', '<body>',
        ('<h1>%s</h1>'):format(escape(r.title)), ('<p>%s.</p>'):format(escape(r.summary)) }
    local function add(...)
        for i = 1, select('#', ...) do out[#out + 1] = (select(i, ...)) end
    end
    add('<h2>Points</h2>', table_of(r.head, r.rows), '<p>s/step is the median of the measured steps, '
        .. 'recording included; in programs is what their programs took; spread is the distance of the quartiles of '
        .. 'steps over the median; load counts the processes that ran or waited for a core, on average over the minute '
        .. 'before.</p>')
    if #r.failures > 0 then add('<h2>Failures</h2>', '<ul>') end
    for _, line in ipairs(r.failures) do add(('<li>%s</li>'):format((escape(line):gsub('\n', '<br>')))) end
    if #r.failures > 0 then add '</ul>' end
    if #r.pictures > 0 then add '<h2>Pictures</h2>' end
    for _, picture in ipairs(r.pictures) do
        add(('<figure>\n<div class="wide">%s</div>\n<figcaption>%s</figcaption>\n</figure>'):format(picture.svg,
            escape(picture.words)))
    end
    add('<h2>Measurement</h2>', facts_of(r.facts), '<h2>Machine</h2>', ('<pre>%s</pre>'):format(escape(
        table.concat(r.machine, '\n'))))
    add_repeating(add, r)
    add('<script>\n' .. SCRIPT .. '</script>', '</body>', '</html>')
    return table.concat(out, '\n') .. '\n'
end

return page
