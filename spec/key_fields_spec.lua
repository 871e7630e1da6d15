-- Checks the keys by which plans are found against the table of fields, runtime/plan/ir/ir.def: a program in C,
-- spec/support/key_fields.c, changes every field alone, and exactly the keys that its row says must change. A field
-- that is in no row cannot be in a struct, and a field of a target without a row must not compile.
local helper = require 'spec.helper'
local native = require 'spec.support.native'

local BUILD = 'gcc -std=c11 -D_GNU_SOURCE -Wall -Werror -O1 -ffunction-sections -Wl,--gc-sections -o %s '
    .. 'spec/support/key_fields.c runtime/plan/ir/keys.c runtime/graph/encode.c runtime/base/alloc.c '
    .. 'runtime/base/status.c'

-- Returns the rows of the table: { of = 'NODE', class =, write =, name = }.
local function rows()
    local out = {}
    for line in io.lines 'runtime/plan/ir/ir.def' do
        local of, class, write, name = line:match '^(%u+)%((%u+),%s*([%u_]+),.-([%w_]+)%)'
        if of then out[#out + 1] = { of = of, class = class, write = write, name = name } end
    end
    return out
end

-- Returns whether the keys of a schedule, a frontier and a block's options change with a field, as a text like '0 1 1'.
local function said(row, of)
    local is_written = row.write ~= 'NONE' and row.class ~= 'RUN'
    if not is_written then return '0 0 0' end
    local in_schedule = row.class ~= 'TAG' and of ~= 'PROPOSAL'
    return ('%d 1 1'):format(in_schedule and 1 or 0)
end

describe('a key', function()
    it('changes with exactly the fields that the table says', function()
        local changed = {}
        for line in helper.shell("'" .. native.make('key_fields', BUILD) .. "'"):gmatch '[^\n]+' do
            local field, keys = line:match '^(%u+ [%w_]+) (.*)$'
            changed[field] = keys
        end
        local wrong, n = {}, 0
        for _, row in ipairs(rows()) do
            local in_both = row.of == 'MARKS' and row.name ~= 'proposal' -- a proposal has none itself
            local list = row.name == 'next' and { 'PROPOSAL' } or in_both and { 'MARKS', 'PROPOSAL' } or { row.of }
            for _, of in ipairs(list) do
                local field = of .. ' ' .. row.name
                if changed[field] ~= said(row, of) then
                    wrong[#wrong + 1] = ('%s: %s, expected %s'):format(field, changed[field], said(row, of))
                end
                n = n + 1
            end
        end
        assert.equal('', table.concat(wrong, '\n'))
        assert(n > 100, n)
    end)

    it('has every field of a target, as one without a row does not compile', function()
        local folder = os.tmpname()
        os.remove(folder)
        local text, code = helper.shell(([[mkdir %s && cp -r runtime kernels %s && cd %s &&
            sed -i 's/    struct wn__rates rates;/&\n    int32_t added;/' runtime/base/target.h &&
            gcc -std=c11 -D_GNU_SOURCE -fsyntax-only runtime/plan/ir/keys.c; code=$?; rm -rf %s; exit $code]])
            :format(folder, folder, folder, folder))
        assert.not_equal(0, code)
        assert.matches('every field of a target has a row in ir.def', text)
    end)
end)
