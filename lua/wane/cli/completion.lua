--- The completion of bash and zsh for the `wane` command, made from the table of commands.
-- @internal wane.cli.completion
local arguments = require 'wane.cli.arguments'
local commands = require 'wane.cli.commands'

local completion = {}

-- Returns the names of all commands.
local function names()
    local list = {}
    for i, command in ipairs(commands) do list[i] = command.name end
    return list
end

-- Returns the pattern of the files that an option takes, or nil.
local function pattern_of(row)
    return row.files or (row.kind == 'file' or row.kind == 'name') and '*' or nil
end

-- Returns the words that an operand of the command may be, or nil.
local function choices_of(command)
    return command.choices or command.name == 'help' and names() or nil
end

-- ---- bash -----------------------------------------------------------------------------------------------------------

-- The functions that offer words and files, and the head of the one that bash calls.
local BASH = [[
# Completes the words of the wane command in bash. `wane completion bash` prints this.
_wane_words() { # the words; in a list, what follows the last comma is completed
    local head= tail=$word
    case $word in *,*) head=${word%,*}, tail=${word##*,} ;; esac
    COMPREPLY=($(compgen -P "$head" -W "$1" -- "$tail"))
}
_wane_files() { # a pattern of files; folders too
    compopt -o filenames 2>/dev/null
    local IFS=$'\n'
    COMPREPLY=($([ "$1" = '*' ] || compgen -d -- "$word"; compgen -f -X "!$1" -- "$word"))
}
_wane_file_list() { # files between commas
    local IFS=$'\n' head= tail=$word
    case $word in *,*) head=${word%,*}, tail=${word##*,} ;; esac
    COMPREPLY=($(compgen -P "$head" -f -- "$tail"))
}
_wane() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    local joined= # whether the value follows its option behind =
    COMPREPLY=()
    if [ "$before" = = ]; then before=${COMP_WORDS[COMP_CWORD - 2]} joined=1; fi
    if [ "$word" = = ]; then word= joined=1; fi
    if [ "$COMP_CWORD" -eq 1 ]; then
        _wane_words 'COMMANDS'
        return
    fi
    case "$command $before" in]]

-- Returns the line of bash that offers words, files between commas, or files by their pattern.
local function bash_offer(words, pattern, is_list)
    if words then return ("_wane_words '%s'"):format(table.concat(words, ' ')) end
    if pattern and is_list then return '_wane_file_list' end
    return pattern and ("_wane_files '%s'"):format(pattern)
end

-- Adds the rows of the case for the values of a command's options.
local function bash_values(lines, command)
    for _, row in ipairs(command.options) do
        if row.value then
            local offer = bash_offer(row.choices, pattern_of(row), row.is_list)
            lines[#lines + 1] = ("        '%s %s') %sreturn ;;"):format(command.name, arguments.shown(row.name),
                offer and offer .. '; ' or '')
        elseif row.may then
            lines[#lines + 1] = ("        '%s %s') if [ \"$joined\" ]; then _wane_words '%s'; return; fi ;;"):format(
                command.name, arguments.shown(row.name), row.may)
        end
    end
end

-- Adds the row of the case for the options of a command, and for those of its operands.
local function bash_command(options, operands, command)
    local known = arguments.names(command)
    known[#known + 1] = '--help'
    options[#options + 1] = ("            %s) _wane_words '%s' ;;"):format(command.name, table.concat(known, ' '))
    local offer = bash_offer(choices_of(command), command.files)
    if not offer then return end
    operands[#operands + 1] = ('        %s) %s ;;'):format(command.name, command.is_open
        and ("if [ \"$COMP_CWORD\" -eq 2 ]; then %s; else _wane_files '*'; fi"):format(offer) or offer)
end

--- Returns the completion for bash.
function completion.bash()
    local lines, options, operands = { (BASH:gsub('COMMANDS', table.concat(names(), ' '))) }, {}, {}
    for _, command in ipairs(commands) do
        bash_values(lines, command)
        bash_command(options, operands, command)
    end
    for _, part in ipairs { { '    esac', '    if [[ $word == -* ]]; then', '        case $command in' }, options,
        { '        esac', '        return', '    fi', '    case $command in' }, operands,
        { '    esac', '}', 'complete -F _wane wane' } } do
        for _, line in ipairs(part) do lines[#lines + 1] = line end
    end
    return table.concat(lines, '\n')
end

-- ---- zsh ------------------------------------------------------------------------------------------------------------

-- Returns a text between single quotes, as a shell reads it.
local function quoted(text)
    return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- Returns a text as a description of _arguments, where brackets, colons and backslashes mean something.
local function plain(text)
    return (text:gsub('[%[%]:\\]', '\\%0'))
end

-- Returns the action of _arguments that offers values.
local function zsh_action(row)
    if row.choices and row.is_list then return ('_values -s , value %s'):format(table.concat(row.choices, ' ')) end
    if row.choices then return ('(%s)'):format(table.concat(row.choices, ' ')) end
    if pattern_of(row) and row.is_list then return '_sequence _files' end
    return pattern_of(row) and ('_files -g "%s"'):format(pattern_of(row)) or ' '
end

-- Returns the specification of an option.
local function zsh_option(row)
    local shown = arguments.shown(row.name)
    local text = ('[%s]'):format(plain(row.text))
    if row.may then return quoted(('%s=-%s::%s:(%s)'):format(shown, text, row.name, row.may)) end
    if not row.value then return quoted(shown .. text) end
    return quoted(('%s%s%s:%s:%s'):format(shown, #row.name > 1 and '=' or '', text, plain(row.value:lower()),
        zsh_action(row)))
end

-- Returns the lines of the case for a command.
local function zsh_command(command)
    local words = { '_arguments' }
    for _, row in ipairs(command.options) do words[#words + 1] = zsh_option(row) end
    words[#words + 1] = quoted '--help[says what the command does]'
    if choices_of(command) then
        words[#words + 1] = quoted(('1:word:(%s)'):format(table.concat(choices_of(command), ' ')))
    elseif command.files then
        words[#words + 1] = quoted(('1:file:_files -g "%s"'):format(command.files))
    end
    if command.is_open then words[#words + 1] = quoted '*:argument:_files' end
    return ('        (%s) %s ;;'):format(command.name, table.concat(words, ' \\\n            '))
end

--- Returns the completion for zsh: a file `_wane` of its functions, which may also be sourced.
function completion.zsh()
    local lines = {
        '#compdef wane',
        '# Completes the words of the wane command in zsh. `wane completion zsh` prints this.',
        '_wane() {',
        '    local context state state_descr line',
        '    typeset -A opt_args',
        "    _arguments -C '1:command:->command' '*::argument:->argument'",
        '    case $state in',
        '    (command)',
        '        local -a known',
        '        known=(',
    }
    for _, command in ipairs(commands) do
        lines[#lines + 1] = ('            %s'):format(quoted(command.name .. ':' .. plain(command.brief)))
    end
    lines[#lines + 1] = '        )'
    lines[#lines + 1] = '        _describe command known ;;'
    lines[#lines + 1] = '    (argument)'
    lines[#lines + 1] = '        case $words[1] in'
    for _, command in ipairs(commands) do lines[#lines + 1] = zsh_command(command) end
    lines[#lines + 1] = '        esac ;;'
    lines[#lines + 1] = '    esac'
    lines[#lines + 1] = '}'
    for _, line in ipairs {
        'if [ "$funcstack[1]" = _wane ]; then _wane "$@"',
        'elif (( $+functions[compdef] )); then compdef _wane wane',
        "else print -u2 'wane: completion is not loaded; write before this line: autoload -Uz compinit && compinit'",
        'fi',
    } do lines[#lines + 1] = line end
    return table.concat(lines, '\n')
end

return completion
