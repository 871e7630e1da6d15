--- Cases of the op that changes layouts: whatever the layout, the value read on the host is the same.
local array = require 'spec.cases.array'
local record = array.record

local PLAIN, PANELS = 0, 1
-- The stressed collector walks every element of a table again and again: there the first cache is enough.
local MANY = os.getenv 'WANE_SPEC_STRESS' and 262 or 1030

-- Makes a case that takes an input through each layout of `way` in turn; every element is doubled in each of them.
local function through(name, input, way)
    local function call(_, x)
        for _, layout in ipairs(way) do x = record('relayout', { x }, { layout = layout }) * 2 end
        return x
    end
    local function ref(x)
        return array.build(x.shape, function(_, k) return x[k] * 2 ^ #way end)
    end
    return { name = name, inputs = { input }, grad = true, exact = true, call = call, ref = ref }
end

return {
    relayout = {
        cases = {
            through('into panels', { 48, 5 }, { PANELS }),
            through('and back', { 96, 3 }, { PANELS, PLAIN }),
            through('a last panel of 16', { 112, 7 }, { PANELS, PLAIN, PANELS }),
            through('a last panel of 32', { 80, 33 }, { PANELS, PLAIN }),
            through('one narrow panel', { 16, 1 }, { PANELS, PANELS }),
            through('without columns', { 32, 0 }, { PANELS, PLAIN }),
            through('without rows', { 0, 3 }, { PANELS, PLAIN }),
            through('past the caches', { 496, MANY }, { PANELS, PLAIN }),
        },
        bad = {
            { inputs = { { 15, 4 } }, error = 'relayout: %(15, 4%) cannot lie in panels; .* multiple of 16 rows',
                call = function(_, x) return record('relayout', { x }, { layout = PANELS }) end },
            { inputs = { { 16, 4, 2 } }, error = 'relayout: %(16, 4, 2%) cannot lie in panels',
                call = function(_, x) return record('relayout', { x }, { layout = PANELS }) end },
            { inputs = { { 16, 4 } }, error = 'relayout: layout 7 is unknown',
                call = function(_, x) return record('relayout', { x }, { layout = 7 }) end },
        },
    },
}
