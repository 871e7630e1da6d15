--- A picture as SVG text: its elements one by one, then the frame around them.
--
-- A picture is one self-contained <svg> element that loads no fonts, scripts or files. Attributes hold its colours on
-- white paper; a style sheet replaces them where the reader prefers dark paper, and not in print. Each colour comes
-- with a hatch, a marker or a dash (report/palette.lua), and a legend says what they mean.
-- @internal wane.report.svg
local palette = require 'wane.report.palette'
local utf8 = require 'wane.utf8'

local svg = {}

local ENTITIES = { ['&'] = '&amp;', ['<'] = '&lt;', ['>'] = '&gt;', ['"'] = '&quot;' }

--- Escapes a text for XML and HTML; control characters are shown as utf8.shown shows them.
-- @param text any value, converted by tostring
function svg.escape(text)
    return (utf8.shown(tostring(text), '\n\t'):gsub('[&<>"]', ENTITIES))
end

--- Returns the pixels that a text takes, about: fonts differ.
-- @param text any value, converted by tostring
-- @param size of the font, default 12
function svg.width_of(text, size)
    local count = 0
    for byte in tostring(text):gmatch '[^\128-\191]' do
        count = count + (byte:find '[ilj.,:;!|\'()%[%]]' and 0.32 or byte:find '[mwMWA-Z]' and 0.72 or 0.56)
    end
    return count * (size or 12)
end

-- Attributes of a text that keeps lines away from its letters.
svg.HALO = ('class="halo" stroke="%s" stroke-width="3" stroke-linejoin="round" paint-order="stroke"'):format(
    palette.paper.light)

-- ---- elements ------------------------------------------------------------------------------------------------------
local Picture = {}
Picture.__index = Picture

--- Begins a picture.
function svg.new()
    return setmetatable({ list = {}, hatched = {} }, Picture)
end

--- Adds an element by a format.
-- @param fmt format of string.format
function Picture:add(fmt, ...)
    self.list[#self.list + 1] = fmt:format(...)
end

--- Adds a text.
-- @param x pixels
-- @param y pixels of its base line
-- @param text any value
-- @param extra further attributes (optional)
function Picture:text(x, y, text, extra)
    self:add('<text x="%.1f" y="%.1f"%s>%s</text>', x, y, extra and ' ' .. extra or '', svg.escape(text))
end

--- Adds a thin line.
-- @param from { x, y }
-- @param to { x, y }
-- @param class 'rule' (of a scale) or 'mark' (marks a place)
-- @param extra further attributes (optional)
function Picture:line(from, to, class, extra)
    self:add('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s" stroke="%s"%s/>', from[1], from[2], to[1], to[2],
        class, palette[class].light, extra and ' ' .. extra or '')
end

--- Returns the attributes of an area in the colour and hatch of a slot.
-- @param slot number
function Picture:area(slot)
    self.hatched[slot] = palette.hatches[slot] ~= '' or nil
    if not self.hatched[slot] then return ('class="f%d" fill="%s"'):format(slot, palette.light[slot]) end
    return ('fill="url(#wane-hatch-%d) %s"'):format(slot, palette.light[slot])
end

--- Returns the attributes of a line in the colour and dash of a slot.
-- @param slot number
-- @param width pixels
function Picture:stroke(slot, width)
    local dash = palette.dashes[slot]
    return ('class="s%d" fill="none" stroke="%s" stroke-width="%g"%s'):format(slot, palette.light[slot], width,
        dash ~= '' and (' stroke-dasharray="%s"'):format(dash) or '')
end

-- Corners of markers, in units of the radius; a circle has none.
local SHAPES = {
    square = 'M-.9 -.9 H.9 V.9 H-.9 Z', triangle = 'M0 -1.15 L1.1 .85 H-1.1 Z',
    diamond = 'M0 -1.3 L1.3 0 L0 1.3 L-1.3 0 Z',
    wedge = 'M0 1.15 L1.1 -.85 H-1.1 Z', hexagon = 'M-1.1 0 L-.55 -1 H.55 L1.1 0 L.55 1 H-.55 Z',
    cross = 'M-1 -.5 L-.5 -1 L0 -.5 L.5 -1 L1 -.5 L.5 0 L1 .5 L.5 1 L0 .5 L-.5 1 L-1 .5 L-.5 0 Z',
    plus = 'M-.4 -1.1 H.4 V-.4 H1.1 V.4 H.4 V1.1 H-.4 V.4 H-1.1 V-.4 H-.4 Z', bar = 'M-.45 -1.2 H.45 V1.2 H-.45 Z',
}

--- Adds the marker of a group: of 81 groups no two have the same colour and shape.
-- @param x pixels of its centre
-- @param y pixels of its centre
-- @param radius pixels
-- @param group number from 1; its slot is its colour's
-- @param title text shown under the pointer (optional)
function Picture:marker(x, y, radius, group, title)
    local slot, turn = palette.slot(group), math.floor((group - 1) / palette.COUNT)
    local inside = title and ('<title>%s</title>'):format(svg.escape(title)) or ''
    local path, colour = SHAPES[palette.markers[palette.slot(group + turn)]], palette.light[slot]
    if path then
        self:add('<path transform="translate(%.1f %.1f) scale(%g)" d="%s" class="f%d" fill="%s">%s</path>', x, y,
            radius, path, slot, colour, inside)
    else
        self:add('<circle cx="%.1f" cy="%.1f" r="%g" class="f%d" fill="%s">%s</circle>', x, y, radius, slot, colour,
            inside)
    end
end

-- ---- legend --------------------------------------------------------------------------------------------------------
local ROW = 18 -- pixels of a row of a legend

-- Returns the places of the entries of a legend, { x, row }, and the number of its rows.
local function places_of(items, left, right)
    local places, x, row = {}, left, 0
    for i, item in ipairs(items) do
        local wide = 44 + svg.width_of(item.name)
        if x > left and x + wide > right then x, row = left, row + 1 end
        places[i], x = { x, row }, x + wide
    end
    return places, #items > 0 and row + 1 or 0
end

-- Draws the sample of an entry.
local function sample(picture, item, x, y)
    if item.form == 'marker' then
        picture:marker(x + 10, y, 5, item.slot)
    elseif item.form == 'line' then
        picture:add('<path d="M%.1f %.1f h22" %s/>', x, y, picture:stroke(item.slot, item.width or 2))
    elseif item.form == 'mark' then
        picture:line({ x, y }, { x + 22, y }, 'mark', item.extra)
    else
        picture:add('<rect x="%.1f" y="%.1f" width="22" height="12" %s/>', x, y - 6, picture:area(item.slot))
    end
end

--- Draws a legend and returns the pixels that it takes down.
-- @param items list of { name =, slot =, form = 'area' (default), 'line', 'marker' or 'mark' (a thin line, with extra =
-- attributes) }
-- @param box { left =, right =, y = (its top) }
function Picture:legend(items, box)
    local places, rows = places_of(items, box.left, box.right)
    for i, item in ipairs(items) do
        local x, y = places[i][1], box.y + ROW * places[i][2] + 9
        sample(self, item, x, y)
        self:text(x + 28, y + 4, item.name)
    end
    return rows * ROW
end

--- Returns the pixels that the legend takes down.
-- @param items as for picture:legend
-- @param left pixels
-- @param right pixels
function svg.legend_height(items, left, right)
    return select(2, places_of(items, left, right)) * ROW
end

-- ---- the frame -----------------------------------------------------------------------------------------------------
local TITLE = 15 -- size of the title's font

--- Returns the lines of a title, none longer than the picture is wide.
-- @param title text or nil
-- @param width pixels
function svg.title_lines(title, width)
    local lines = {}
    for word in tostring(title or ''):gmatch '%S+' do
        local longer = lines[1] and lines[#lines] .. ' ' .. word
        if longer and svg.width_of(longer, TITLE) <= width - 24 then
            lines[#lines] = longer
        else
            lines[#lines + 1] = word
        end
    end
    return lines
end

--- Returns the pixels from the top of a picture to the end of its title.
-- @param title text or nil
-- @param width pixels
function svg.title_height(title, width)
    return 10 + 20 * math.max(1, #svg.title_lines(title, width))
end

-- Returns the style sheet of dark paper.
local function dark_style()
    local out = { ('.wane text,.wane .ink{fill:%s}.wane .paper{fill:%s}.wane .halo{stroke:%s}.wane .rule{stroke:%s}'
        .. '.wane .mark{stroke:%s}.wane .hatch{stroke:%s}'):format(palette.ink.dark, palette.paper.dark,
        palette.paper.dark, palette.rule.dark, palette.mark.dark, palette.paper.dark) }
    for k = 1, palette.COUNT do
        out[k + 1] = ('.wane .f%d{fill:%s}.wane .s%d{stroke:%s}'):format(k, palette.dark[k], k, palette.dark[k])
    end
    return ('<style>@media screen and (prefers-color-scheme:dark){%s}</style>'):format(table.concat(out))
end

-- Returns the definitions of the hatches that the picture uses.
local function hatches_of(picture)
    local out = {}
    for slot = 1, palette.COUNT do
        if picture.hatched[slot] then
            out[#out + 1] = ('<pattern id="wane-hatch-%d" width="8" height="8" patternUnits="userSpaceOnUse">'
                .. '<rect width="8" height="8" class="f%d" fill="%s"/><path d="%s" class="hatch" fill="none" '
                .. 'stroke="%s" stroke-width="1.2" stroke-opacity="0.6"/></pattern>'):format(slot, slot,
                palette.light[slot], palette.hatches[slot], palette.paper.light)
        end
    end
    return #out > 0 and '<defs>\n' .. table.concat(out, '\n') .. '\n</defs>' or nil
end

--- Returns the picture as SVG text.
-- @param width pixels
-- @param height pixels
-- @param title text or nil
function Picture:done(width, height, title)
    local name = svg.escape(title or 'a chart')
    local out = { ('<svg xmlns="http://www.w3.org/2000/svg" class="wane" role="img" aria-label="%s" width="%d" '
        .. 'height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="%s">'):format(name, width,
        height, width, height, palette.ink.light), '<title>' .. name .. '</title>', dark_style() }
    out[#out + 1] = hatches_of(self)
    out[#out + 1] = ('<rect width="%d" height="%d" class="paper" fill="%s"/>'):format(width, height,
        palette.paper.light)
    for i, line in ipairs(svg.title_lines(title, width)) do
        out[#out + 1] = ('<text x="%.1f" y="%d" text-anchor="middle" font-size="%d">%s</text>'):format(width / 2,
            2 + 20 * i, TITLE, svg.escape(line))
    end
    out[#out + 1] = table.concat(self.list, '\n')
    out[#out + 1] = '</svg>\n'
    return table.concat(out, '\n')
end

return svg
