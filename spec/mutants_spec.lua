-- The rows of `make mutants` break lines that are there: what a row replaces stands once in its file, and its specs are
-- files of this tree. Else a row rots unseen, since the run itself takes hours.
require 'spec.helper'

local function read(path)
    local file = io.open(path, 'rb')
    local text = file and file:read '*a'
    if file then file:close() end
    return text
end

local function count(text, part)
    local n, at = 0, 1
    while true do
        local _, last = text:find(part, at, true)
        if not last then return n end
        n, at = n + 1, last + 1
    end
end

describe('mutants', function()
    it('replace a text that stands once in its file, by another, and name specs that exist', function()
        local rows, wrong = assert(loadfile 'spec/mutants/rows.lua')('.'), {}
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
