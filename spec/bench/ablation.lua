-- Shows what each kind of proposal of the planner earns: frontiers of small random graphs and of larger models
-- (ablation_rows.lua), made without it, beside those made with all, under 50 budgets from the least bytes to those of
-- the fastest plan. Seconds of plans are predicted; those of planning are of the processor, one run each.
--
--   luajit spec/bench/ablation.lua [--against FOLDER] [--small]
--
-- FOLDER: a checkout of another commit, built, whose frontiers are compared with those of this one, in place of what is
-- left out. --small: small graphs alone, and every fifth of them.
local common = dofile((arg[0]:match '^(.*)/[^/]*$' or '.') .. '/common.lua')
local options = common.options({ against = 'text' }, '--against, --small')

local BUDGETS = 50
local LISTED = 16 -- graphs that are named beside another checkout
-- Proposals as enum wn__proposals of runtime/plan/search/frontier.h numbers them.
local PROPOSALS = { { 'nothing', 0 }, { 'chain solver', 1 }, { 'fine partition', 2 }, { 'portfolio by hand', 4 },
    { "the script's", 8 }, { 'evict', 16 }, { 'edit', 32 }, { 'one action for many', 64 } }
local ALLOWED = { 'recompute', 'offload', 'pack', 'offload, pack' }

-- Returns the frontiers of a checkout: a list of { size =, allowed =, name =, seconds =, points = { { bytes, seconds
-- }, fastest first } }.
local function frontiers_of(folder, left_out)
    local pipe = assert(io.popen(("LUA_PATH='%s/lua/?.lua;%s/lua/?/init.lua;%s/?.lua;;' WANE_LIB= WANE_THREADS=1 "
        .. "WANE_COSTS=off ${LUAJIT:-luajit} %s/spec/bench/ablation_rows.lua %d %s"):format(folder, folder, common.root,
        common.root, left_out, options.small and 5 or 1)))
    local list = {}
    for line in pipe:lines() do
        local size, allowed, name, seconds, text = line:match '^(%l+)\t(%d)\t([^\t]+)\t([%d.]+)\t(.*)$'
        local points = {}
        for bytes, s in text:gmatch '(%d+):(%S+)' do points[#points + 1] = { tonumber(bytes), tonumber(s) } end
        list[#list + 1] = { size = size, allowed = tonumber(allowed), name = name, seconds = tonumber(seconds),
            points = points }
        common.progress(('%s: %d frontiers'):format(folder, #list))
    end
    pipe:close()
    common.progress()
    return #list > 0 and list or error(folder .. ' has no Wane that plans', 0)
end

-- Returns the seconds of the fastest point within a budget, or nil.
local function within(points, budget)
    for _, p in ipairs(points) do
        if p[1] <= budget then return p[2] end
    end
end

local function new_sum()
    return { n = 0, slower = 0, worst = 0, best = 0, graphs = 0, higher = 0, highest = 0, lower = 0, seconds = 0,
        before = 0 }
end

-- Adds to `sum` how much slower `other` is than `full`, two frontiers of one graph, under each budget that both keep.
local function add_to(sum, full, other)
    local a, b = full.points, other.points
    local least, most, rise = a[#a][1], a[1][1], b[#b][1] / a[#a][1] - 1
    for k = 0, BUDGETS - 1 do
        local budget = math.floor(least + (most - least) * k / (BUDGETS - 1))
        local slower = within(b, budget)
        if slower then
            slower = slower / within(a, budget) - 1
            sum.n, sum.slower = sum.n + 1, sum.slower + slower
            sum.worst, sum.best = math.max(sum.worst, slower), math.min(sum.best, slower)
        end
    end
    sum.graphs, sum.seconds, sum.before = sum.graphs + 1, sum.seconds + other.seconds, sum.before + full.seconds
    if rise > 0 then sum.higher, sum.highest = sum.higher + 1, math.max(sum.highest, rise) end
    if rise < 0 then sum.lower = sum.lower + 1 end
end

local function percent(x)
    local text = ('%.3f %%'):format(100 * x)
    return text == '-0.000 %' and '0.000 %' or text
end

local function numbers_of(sum)
    return percent(sum.slower / math.max(sum.n, 1)), percent(sum.worst), percent(sum.best),
        ('%d of %d'):format(sum.higher, sum.graphs), percent(sum.highest), sum.lower, ('%.2f'):format(sum.seconds),
        ('%.2f'):format(sum.seconds / sum.before)
end
local NUMBERS = { 'slower, mean', 'worst', 'best', 'least bytes rise', 'by at most', 'fall', 'planning, s', 'ratio' }

-- Adds rows that compare two lists of frontiers of the same graphs: by size, and by whether actions are allowed.
local function add_rows(rows, name, full, other)
    local sums = {}
    for i, a in ipairs(full) do
        assert(other[i].name == a.name and other[i].allowed == a.allowed)
        local key = a.size .. (a.allowed > 1 and ', actions' or '')
        sums[key] = sums[key] or new_sum()
        add_to(sums[key], a, other[i])
    end
    for _, key in ipairs { 'small', 'small, actions', 'larger', 'larger, actions' } do
        if sums[key] then rows[#rows + 1] = { name, key, numbers_of(sums[key]) } end
    end
end

-- Returns rows of the graphs that differ most between two lists of frontiers: those whose least bytes rise first, then
-- by how much slower they are on average, up or down.
local function most_different(full, other)
    local list = {}
    for i, a in ipairs(full) do
        local sum = new_sum()
        add_to(sum, a, other[i])
        local mean = math.abs(sum.slower / math.max(sum.n, 1))
        if sum.highest > 0 or mean > 0 then
            list[#list + 1] = { rank = sum.highest > 0 and 1e3 + sum.highest or mean, row = { a.name,
                ALLOWED[a.allowed], numbers_of(sum) } }
        end
    end
    table.sort(list, function(x, y) return x.rank > y.rank end)
    local rows = {}
    for i = 1, math.min(LISTED, #list) do rows[i] = list[i].row end
    return rows
end

local rows = {}
if options.against then
    local full = frontiers_of(options.against, 0)
    local now = frontiers_of(common.root, 0)
    add_rows(rows, 'all', full, now)
    common.table({ 'beside that checkout', 'graphs', unpack(NUMBERS) }, rows)
    common.table({ 'differs most', 'allowed', unpack(NUMBERS) }, most_different(full, now))
else
    local full = frontiers_of(common.root, 0)
    for _, proposal in ipairs(PROPOSALS) do
        add_rows(rows, proposal[1], full, frontiers_of(common.root, proposal[2]))
    end
    common.table({ 'left out', 'graphs', unpack(NUMBERS) }, rows)
end
