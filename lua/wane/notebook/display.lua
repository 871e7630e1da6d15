--- Values as a notebook shows them: text, and pictures of what has one.
-- @internal wane.notebook.display

local objects = require 'wane.repl.objects'
local plot = require 'wane.report.plot'
local show = require 'wane.repl.show'

local display = {}

local COLUMNS = 100 -- of text in a notebook

-- Kind of object -> function(value) that returns its picture.
local PICTURES = {
    curve = function(value) return value:svg() end,
    plan = function(value) return value:timeline() end,
    frontier = function(value) return value:plot(plot.TEXT) end,
    sweep = function(value) return value:plot(plot.TEXT) end,
    memory = function(value) return value:plot(plot.TEXT) end,
}

-- Returns the type of a text that is a picture or a page already, as plan:timeline() returns one; nil for other texts.
local function type_of_text(value)
    if type(value) ~= 'string' then return nil end
    if value:match '^%s*<svg[%s>]' and value:match '</svg>%s*$' then return 'image/svg+xml' end
    if value:lower():match '^%s*<!doctype html' then return 'text/html' end
end

--- Returns a value as data of Jupyter's messages, by their type.
-- @param value any value
-- @return { ['text/plain'] = text, ... }; and data of a picture to show beside it, or nil
function display.of(value)
    local of_text = type_of_text(value)
    if of_text then
        local what = of_text == 'text/html' and 'a page' or 'a picture'
        return { [of_text] = value, ['text/plain'] = ('%s of %d bytes'):format(what, #value) }
    end
    local kind = objects.kind(value)
    local data = { ['text/plain'] = show.text(value, COLUMNS) }
    local draw = PICTURES[kind]
    if not draw then return data end
    local fine, svg = pcall(draw, value)
    if not fine then return data end -- a sweep without rows has no picture
    if kind == 'curve' then
        data['image/svg+xml'] = svg -- in place of the same curve in characters
        return data
    end
    return data, { ['image/svg+xml'] = svg, ['text/plain'] = 'a picture of this ' .. kind }
end

--- Returns several values as data: one as `display.of` does, more as texts between tabs.
-- @param values list
-- @param n how many
function display.all(values, n)
    if n == 1 then return display.of(values[1]) end
    local parts = {}
    for i = 1, n do parts[i] = show.text(values[i], COLUMNS) end
    return { ['text/plain'] = table.concat(parts, '\t') }
end

return display
