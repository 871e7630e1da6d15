-- Checks the rows of `make mutants` without running them: the text that a row replaces must occur once in its file, and
-- its specs must be files of this tree. Without this a row would become wrong unnoticed, since the run itself takes
-- hours. And every spec file has a reason to be here: a mutant that it must catch, or a promise of a page
-- (spec/promises.lua) that it checks.
local helper = require 'spec.helper'
local files = require 'spec.support.files'
local promises = require 'spec.promises'

local rows, count = assert(loadfile 'spec/mutants/rows.lua')('.')

local read = files.read

-- Returns the specs of a row, as a list.
local function specs_of(row)
    return type(row.spec) == 'table' and row.spec or { row.spec }
end

-- Returns a text with each stretch of blanks and ends of lines as one blank.
local function flat(text) return (text:gsub('%s+', ' ')) end

describe('mutants', function()
    it('replace a text that stands once in its file, by another, and name specs that exist', function()
        local wrong = {}
        assert.is_true(#rows > 100)
        for _, row in ipairs(rows) do
            local text = read(row.file)
            local n = text and count(text, row.old)
            if n ~= 1 then wrong[#wrong + 1] = ('%s: %s times in %s'):format(row.name, n or 'no file;', row.file) end
            if row.new == row.old then wrong[#wrong + 1] = row.name .. ': changes nothing' end
            for _, spec in ipairs(specs_of(row)) do
                if not read(spec) then wrong[#wrong + 1] = row.name .. ': no ' .. spec end
            end
        end
        assert.equal('', table.concat(wrong, '\n'))
    end)
end)

describe('a spec file', function()
    local named = {}
    for _, row in ipairs(rows) do
        for _, spec in ipairs(specs_of(row)) do named[spec] = true end
    end

    it('catches a mutant, or checks a promise of a page', function()
        local missing = {}
        for _, file in ipairs(helper.lines 'ls spec/*_spec.lua') do
            if not named[file] and not promises[file] then missing[#missing + 1] = file end
        end
        assert.equal('', table.concat(missing, '\n'))
    end)

    it('has words that stand on their page, and one reason alone', function()
        local wrong, pages = {}, helper.lines "find . -name '*.md' -not -path './build/*'"
        for file, promise in pairs(promises) do
            local function tell(what) wrong[#wrong + 1] = ('%s: %s'):format(file, what) end
            if not read(file) then tell 'is no file' end
            if named[file] then tell 'is named by a mutant already' end
            if not flat(read(promise.page) or ''):find(flat(promise.says), 1, true) then
                local elsewhere = {}
                for _, page in ipairs(pages) do
                    if flat(read(page)):find(flat(promise.says), 1, true) then elsewhere[#elsewhere + 1] = page end
                end
                tell(("%s does not say '%s'; %s"):format(promise.page, promise.says,
                    #elsewhere > 0 and 'it stands in ' .. table.concat(elsewhere, ', ') or 'no page says it'))
            end
        end
        table.sort(wrong)
        assert.equal('', table.concat(wrong, '\n'))
    end)
end)
