-- Checks the rows of `make mutants` without running them: the text that a row replaces must occur once in its file, and
-- its specs must be files of this tree. Without this a row would become wrong unnoticed, since the run itself takes
-- hours.
require 'spec.helper'

local function read(path)
    local file = io.open(path, 'rb')
    local text = file and file:read '*a'
    if file then file:close() end
    return text
end

describe('mutants', function()
    it('replace a text that stands once in its file, by another, and name specs that exist', function()
        local rows, count = assert(loadfile 'spec/mutants/rows.lua')('.')
        local wrong = {}
        assert.is_true(#rows > 100)
        for _, row in ipairs(rows) do
            local text = read(row.file)
            local n = text and count(text, row.old)
            if n ~= 1 then wrong[#wrong + 1] = ('%s: %s times in %s'):format(row.name, n or 'no file;', row.file) end
            if row.new == row.old then wrong[#wrong + 1] = row.name .. ': changes nothing' end
            for _, spec in ipairs(type(row.spec) == 'table' and row.spec or { row.spec }) do
                if not read(spec) then wrong[#wrong + 1] = row.name .. ': no ' .. spec end
            end
        end
        assert.equal('', table.concat(wrong, '\n'))
    end)
end)
