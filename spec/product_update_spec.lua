-- Compares PRODUCT_UPDATE with a product and an update one after the other, bit for bit: by the micro-kernels
-- of every class that this processor runs, with the cells plain and in panels. Its records in spec/cases check the
-- values.
local tiles = require 'spec.support.tiles'
local ffi = require 'ffi'
local id = require('wane.tensor.op').id

ffi.cdef [[
int64_t product_updates_wrong(int threads, int layout, int op, int n_cells, int64_t m, int64_t n, int64_t k, int flip_a,
                              int flip_b);
]]

local LEVEL = tiles.LEVEL
local LAYOUT = { [0] = 'plain', 'panels' }
local UPDATES = { { 'accumulate', 1 }, { 'sgd', 1 }, { 'momentum', 2 }, { 'adam', 3 } }

describe('a product that goes straight into an update', function()
    local C -- the library of the level at hand

    local function check(level, layout, update, m, n, k)
        for case = 0, 7 do
            local threads, flip_a, flip_b = case < 4 and 1 or 3, case % 2, math.floor(case / 2) % 2
            local wrong = tonumber(C.product_updates_wrong(threads, layout, id[update[1]], update[2], m, n, k, flip_a,
                flip_b))
            assert(wrong == 0, ('%s, %s of (%d, %d) over %d rows, %s, flags %d %d, %d threads: %d wrong')
                :format(LEVEL[level], update[1], m, n, k, LAYOUT[layout], flip_a, flip_b, threads, wrong))
        end
    end

    for level = 0, math.min(2, #LEVEL) do
        it('has the bits of both: ' .. LEVEL[level], function()
            C = tiles.at(level)
            if not C then
                pending(LEVEL[level] .. ' is not on this machine')
                return
            end
            for layout = 0, 1 do
                for u, update in ipairs(UPDATES) do
                    for _, m in ipairs { 16, 48, 80, 112 } do
                        for _, n in ipairs { 1, 7, 48, 131 } do
                            for _, k in ipairs { 1, 32, 128 } do
                                if (m / 16 + n + k) % 2 == u % 2 then check(level, layout, update, m, n, k) end
                            end
                        end
                    end
                    check(level, layout, update, 400, 531, 33)
                end
            end
        end)
    end
end)
