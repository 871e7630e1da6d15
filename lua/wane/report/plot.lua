--- Pictures of reports, in plain Lua: bars, stacked bars, areas over instructions, points. Areas and points also as
-- lines of characters, for a terminal.
--
-- This file is the door of the room: the functions are made in files beside it, and all pictures share colours and cues
-- (report/palette.lua) and one frame (report/svg.lua).
-- @internal wane.report.plot
local areas = require 'wane.report.areas'
local bars = require 'wane.report.bars'
local errors = require 'wane.errors'
local scatter = require 'wane.report.scatter'
local svg = require 'wane.report.svg'
local system = require 'wane.system'

local plot = {
    bars = bars.bars, stacks = bars.stacks, areas = areas.svg, scatter = scatter.svg,
    terminal_stacks = bars.terminal, terminal_areas = areas.terminal, terminal_scatter = scatter.terminal,
    escape = svg.escape,
}

--- Stands for the name of a file where the text itself is wanted.
plot.TEXT = {}

--- Writes a text to a file, whose folders are made where they are missing.
-- @param path name of the file; nil or plot.TEXT for none
-- @param text its contents
-- @return path; the text where there is no file
-- @raise 'io' where the file cannot be written, 'value' for a path that is not a text
function plot.write(path, text)
    if path == nil or path == plot.TEXT then return text end
    system.make_folders(path)
    local fine, why = system.write(path, text)
    if not fine then
        local code = type(path) == 'string' and 'io' or 'value'
        errors.raise(nil, code, '%s cannot be written (%s)', errors.describe(path), why)
    end
    return path
end

return plot
