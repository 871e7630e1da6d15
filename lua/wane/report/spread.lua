--- Repeated measurements of one number: median, quartiles, and whether a difference of two of them is more than noise.
--
-- The quartiles are measured values, without interpolation: of n sorted values the lower one is number ceil(n / 4), the
-- upper one the value with as many above it. Of three values or fewer they are the least and the most. The spread is
-- their distance over the median. A measurement is noisy when its spread is more than NOISY, or when the machine's load
-- is more than CROWDED processes for each core, because then other work takes the cores in turns with it.
-- @internal wane.report.spread
local system = require 'wane.system'

local spread = {}

local NOISY = 0.10   -- most spread of a quiet measurement; 0.01 to 0.05 on a quiet machine
local CROWDED = 1.25 -- most load for each core; the measurement's own threads are one for each core
local ALIKE = 0.02   -- share below which a difference of medians is noise, however small the spreads are

--- Summarises measured values.
-- @param values list of numbers, at least one; it stays as it is
-- @return { median =, low =, high = (quartiles), least =, most =, count =, spread = (high - low) / median }
function spread.of(values)
    local sorted = {}
    for i, v in ipairs(values) do sorted[i] = v end
    table.sort(sorted)
    local n = #sorted
    local middle = (sorted[math.floor((n + 1) / 2)] + sorted[math.ceil((n + 1) / 2)]) / 2
    local quarter = math.ceil(n / 4)
    local low, high = sorted[quarter], sorted[n + 1 - quarter]
    return { median = middle, low = low, high = high, least = sorted[1], most = sorted[n], count = n,
        spread = middle > 0 and (high - low) / middle or 0 }
end

--- Returns the machine's load now, and its cores.
-- @return { load = processes that ran or waited over the last minute, or nil where the system does not say; cores = }
function spread.machine()
    return { load = system.load(), cores = system.cores() }
end

local function load_words(machine)
    if not machine.load then return '' end
    return (', load %.1f on %d %s'):format(machine.load, machine.cores, machine.cores == 1 and 'core' or 'cores')
end

--- Tells whether a measurement is noisy.
-- @param summary of spread.of
-- @param machine of spread.machine, from when the measurement began
-- @return 'noisy: spread 31 %, load 2.1 on 2 cores', or nil
function spread.noise(summary, machine)
    local is_crowded = machine.load and machine.load > CROWDED * machine.cores
    if summary.spread <= NOISY and not is_crowded then return nil end
    return ('noisy: spread %.0f %%%s'):format(100 * summary.spread, load_words(machine))
end

--- Describes the spread of seconds: 'quartiles 0.0113 to 0.0117 s, spread 3 %, load 0.4 on 2 cores', after 'noisy: '
-- where it is.
-- @param summary of spread.of
-- @param machine of spread.machine
function spread.text(summary, machine)
    return ('%squartiles %.4g to %.4g s, spread %.0f %%%s'):format(spread.noise(summary, machine) and 'noisy: ' or '',
        summary.low, summary.high, 100 * summary.spread, load_words(machine))
end

--- Tells whether a is less than b by more than noise: their quartiles do not overlap, and their medians differ by more
-- than ALIKE.
-- @param a of spread.of
-- @param b of spread.of
function spread.is_less(a, b)
    return a.high < b.low and b.median - a.median > ALIKE * b.median
end

return spread
