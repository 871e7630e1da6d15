-- How busted's result is printed: a dot a spec (a letter for the rest), then every failure with its place, then
-- the counts. The very last line is always `N passed, N failed`, with `, N skipped` when some are pending;
-- scripts look for it, so nothing may be printed after it. An error counts as a failure.
return function(options)
    local busted = require 'busted'
    local handler = require 'busted.outputHandlers.base'()
    local quiet = options.deferPrint
    local column = 0

    local function mark(letter)
        if quiet then return end
        io.write(letter)
        column = column + 1
        if column % 100 == 0 then io.write('\n') end
        io.flush()
    end

    local letters = { success = '.', failure = 'F', error = 'E', pending = 'P' }

    handler.testEnd = function(_, _, status)
        mark(letters[status] or '?')
        return nil, true
    end

    -- An error outside a test (a file that does not load, a hook) has no testEnd of its own.
    handler.errorOutsideTest = function(element)
        if element.descriptor ~= 'it' then mark('E') end
        return nil, true
    end

    local function place(entry)
        local trace = entry.trace or entry.element.trace or {}
        return (trace.short_src or '?') .. ':' .. tostring(trace.currentline or '?')
    end

    local function text(message)
        if type(message) == 'string' then return message end
        if type(message) == 'table' then return tostring(message.message or message) end
        return tostring(message)
    end

    local function report(title, list, verbose)
        for _, entry in ipairs(list) do
            io.write('\n', title, ' ', place(entry), '  ', entry.name or '', '\n')
            if entry.message then io.write((text(entry.message):gsub('[^\n]+', '    %0')), '\n') end
            local trace = entry.trace and entry.trace.traceback
            if verbose and trace then io.write(trace, '\n') end
        end
    end

    handler.suiteEnd = function()
        io.write('\n')
        report('pending', handler.pendings, false)
        report('failed', handler.failures, options.verbose)
        report('error', handler.errors, options.verbose)
        return nil, true
    end

    handler.exit = function()
        local failed = #handler.failures + #handler.errors
        io.write(('\n%d passed, %d failed'):format(handler.successesCount, failed))
        if #handler.pendings > 0 then io.write((', %d skipped'):format(#handler.pendings)) end
        io.write('\n')
        io.flush()
        return nil, true
    end

    busted.subscribe({ 'test', 'end' }, handler.testEnd, { predicate = handler.cancelOnPending })
    busted.subscribe({ 'error' }, handler.errorOutsideTest)
    busted.subscribe({ 'suite', 'end' }, handler.suiteEnd)
    busted.subscribe({ 'exit' }, handler.exit)
    return handler
end
