-- Prints busted's result: a dot a spec (a letter for the rest), then every failure with its place, then the counts. The
-- very last line is always `N passed, N failed`, with `, N skipped` when some are pending; scripts look for it, so
-- nothing may be printed after it. An error counts as a failure. Where WANE_SPEC_RESULT names a file, it writes the
-- same there as a Lua table: { passed =, failed =, skipped =, seconds =, specs = { { seconds, name }, ... }, text = the
-- failures in words }.
return function(options)
    local busted = require 'busted'
    local handler = require 'busted.outputHandlers.base'()
    local quiet = options.deferPrint
    local column = 0
    local specs, said = {}, {}
    local suite_began, test_began = busted.monotime(), nil

    local function say(text)
        io.write(text)
        said[#said + 1] = text
    end

    local function mark(letter)
        if quiet then return end
        io.write(letter)
        column = column + 1
        if column % 100 == 0 then io.write('\n') end
        io.flush()
    end

    local letters = { success = '.', failure = 'F', error = 'E', pending = 'P' }

    handler.testStart = function()
        test_began = busted.monotime()
        return nil, true
    end

    handler.testEnd = function(element, _, status)
        mark(letters[status] or '?')
        specs[#specs + 1] = { busted.monotime() - test_began, handler.getFullName(element) }
        return nil, true
    end

    -- Marks an error outside a test (a file that does not load, a hook), which has no testEnd of its own.
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
            say(('\n%s %s  %s\n'):format(title, place(entry), entry.name or ''))
            if entry.message then say(text(entry.message):gsub('[^\n]+', '    %0') .. '\n') end
            local trace = entry.trace and entry.trace.traceback
            if verbose and trace then say(trace .. '\n') end
        end
    end

    handler.suiteEnd = function()
        io.write('\n')
        report('pending', handler.pendings, false)
        report('failed', handler.failures, options.verbose)
        report('error', handler.errors, options.verbose)
        return nil, true
    end

    -- Writes the result for the process that counts over all files.
    local function keep(path, failed)
        local file = assert(io.open(path, 'wb'))
        file:write(('return { passed = %d, failed = %d, skipped = %d, seconds = %.3f, text = %q, specs = {\n'):format(
            handler.successesCount, failed, #handler.pendings, busted.monotime() - suite_began, table.concat(said)))
        for _, spec in ipairs(specs) do file:write(('{ %.3f, %q },\n'):format(spec[1], spec[2])) end
        file:write('} }\n')
        file:close()
    end

    handler.exit = function()
        local failed = #handler.failures + #handler.errors
        local path = os.getenv 'WANE_SPEC_RESULT'
        if path then keep(path, failed) end
        io.write(('\n%d passed, %d failed'):format(handler.successesCount, failed))
        if #handler.pendings > 0 then io.write((', %d skipped'):format(#handler.pendings)) end
        io.write('\n')
        io.flush()
        return nil, true
    end

    busted.subscribe({ 'test', 'start' }, handler.testStart)
    busted.subscribe({ 'test', 'end' }, handler.testEnd, { predicate = handler.cancelOnPending })
    busted.subscribe({ 'error' }, handler.errorOutsideTest)
    busted.subscribe({ 'suite', 'end' }, handler.suiteEnd)
    busted.subscribe({ 'exit' }, handler.exit)
    return handler
end
