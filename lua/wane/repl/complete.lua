--- Completion: lists the words that the text before the cursor may become.
--
-- `wane.zer` becomes fields of `wane`, `t:su` methods of the tensor `t`, a bare word a name of the prompt, a global or
-- a keyword. Completion calls and computes nothing; a path without a value has no completions.
-- @internal wane.repl.complete

local errors = require 'wane.errors'
local names = require 'wane.repl.names'

local complete = {}

local KEYWORDS = {
    'and', 'break', 'do', 'else', 'elseif', 'end', 'false', 'for', 'function', 'if', 'in', 'local', 'nil', 'not',
    'or', 'repeat', 'return', 'then', 'true', 'until', 'while',
}

--- Characters that end a word to complete: all that cannot be part of a path such as `model.blocks:forward`.
complete.breaks = ' \t\n"\\\'`@$><=;|&{}()[]+-*/^%,#~?!'

-- Returns keywords, names of the prompt and globals, sorted, each once. The prompt's own names start with two
-- underscores and are left out.
local function bare_words(env)
    local found = {}
    for _, from in ipairs { KEYWORDS, names.of(env), names.of(_G) } do
        for _, name in ipairs(from) do found[name] = true end
    end
    return errors.names(found)
end

--- Returns the words that begin with a text, path included, sorted.
-- @param env names of the prompt
-- @param text what stands before the cursor, back to the last character of `complete.breaks`
-- @return list of words
function complete.words(env, text)
    local path, separator, start = text:match '^(.*)([.:])([%w_]*)$'
    local from, before
    if path == nil then
        from, before, start = bare_words(env), '', text
    else
        local value = path ~= '' and names.value(env, path) or nil
        from, before = names.of(value, separator), path .. separator
    end
    local list = {}
    for _, name in ipairs(from) do
        if name:sub(1, #start) == start then list[#list + 1] = before .. name end
    end
    return list
end

--- Returns the longest text that all words of a list begin with.
-- @param words list of words
function complete.common(words)
    local common = words[1] or ''
    for _, word in ipairs(words) do
        while word:sub(1, #common) ~= common do common = common:sub(1, -2) end
    end
    return common
end

return complete
