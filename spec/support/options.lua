--- Reads the command line of a bench or of a check of a GPU, which takes --small and options with a value. Raises
-- errors that name the known ones.
-- @param kinds name = its default (a number), 'text', true (an option without a value), or a function that makes the
-- value of the text
-- @param known the options as they are shown
-- @param takes_words true: what is no option is no error
-- @return { small = true or nil, NAME = value or default }
-- @return list of the words that are no options
return function(kinds, known, takes_words)
    local out, words, i = {}, {}, 1
    for name, kind in pairs(kinds) do out[name] = type(kind) == 'number' and kind or nil end
    while arg[i] do
        local name, value = arg[i]:match '^%-%-(%l+)$', arg[i + 1]
        local kind = kinds[name or '']
        if name == 'small' or kind == true then
            out[name] = true
        elseif takes_words and arg[i]:sub(1, 2) ~= '--' then
            words[#words + 1] = arg[i]
        elseif not kind then
            error(("%s: unknown option '%s'; known: %s"):format(arg[0]:match '[^/]*$', arg[i], known), 0)
        else
            if type(kind) == 'number' then out[name] = tonumber(value) or error(('--%s takes a number'):format(name), 0)
            elseif kind == 'text' then out[name] = value or error(('--%s takes a value'):format(name), 0)
            else out[name] = kind(value or '') end
            i = i + 1
        end
        i = i + 1
    end
    return out, words
end
