--- The manual page of the `wane` command in the language of man, made from the table of commands.
-- @internal wane.cli.manual
local commands = require 'wane.cli.commands'
local help = require 'wane.cli.help'

local manual = {}

-- Names of the environment that a user of the command sets most; the guide lists all of them.
local ENVIRONMENT = {
    { 'WANE_DEVICE', 'the device of new tensors: auto, cpu, cuda or meta' },
    { 'WANE_THREADS', "the threads of the CPU's kernels" },
    { 'WANE_LIB', 'the folder of libwane.so' },
    { 'WANE_COSTS', 'the file of measured seconds' },
    { 'LUAJIT', 'another luajit than the one on the path' },
}

-- Returns a text as roff prints it: backslashes and hyphens as they are, no line taken for a request.
local function plain(text)
    return (text:gsub('\\', '\\e'):gsub('%-', '\\-'):gsub("^([.'])", '\\&%1'):gsub("'", '\\(aq'):gsub('`', '\\(ga'))
end

-- Adds a term and what it means.
local function term(lines, name, text)
    lines[#lines + 1] = '.TP'
    lines[#lines + 1] = '.B ' .. plain(name)
    lines[#lines + 1] = plain(text)
end

-- Adds the section of a command.
local function section(lines, command)
    lines[#lines + 1] = ('.SS "%s"'):format(plain(help.synopsis(command)))
    lines[#lines + 1] = plain((command.brief:gsub('^.', string.upper)) .. '.')
    for _, paragraph in ipairs(command.text) do
        lines[#lines + 1] = '.PP'
        lines[#lines + 1] = plain(paragraph)
    end
    for _, row in ipairs(command.options) do term(lines, help.option(row), row.text) end
    lines[#lines + 1] = '.PP'
    lines[#lines + 1] = #command.examples == 1 and 'Example:' or 'Examples:'
    for _, example in ipairs(command.examples) do term(lines, example[1], example[2]) end
end

--- Returns the page.
function manual.text()
    local lines = {
        '.TH WANE 1 "" "Wane" "User Commands"',
        '.SH NAME',
        plain 'wane - plans, measures and runs the training steps of LuaJIT scripts',
        '.SH SYNOPSIS', '.B wane', '.I COMMAND', '[\\fIargument\\fR ...]',
        '.SH DESCRIPTION',
        plain('Wane is a training runtime in C and CUDA, scripted from LuaJIT. A script says which activations of a '
            .. 'step are saved, recomputed, offloaded or compressed, or takes a budget in bytes; the predicted peak is '
            .. 'the measured peak. Each command does what a script could do itself.'),
        '.SH COMMANDS',
    }
    for _, command in ipairs(commands) do section(lines, command) end
    lines[#lines + 1] = '.SH EXIT STATUS'
    for _, row in ipairs(help.statuses) do term(lines, tostring(row[1]), row[2]) end
    lines[#lines + 1] = '.SH ENVIRONMENT'
    for _, row in ipairs(ENVIRONMENT) do term(lines, row[1], row[2]) end
    lines[#lines + 1] = '.SH SEE ALSO'
    lines[#lines + 1] = '.BR luajit (1)'
    return table.concat(lines, '\n')
end

return manual
