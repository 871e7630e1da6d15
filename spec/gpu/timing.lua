--- Measures the seconds of one application of a kernel by programs of one and of many applications, so that launch,
-- planning and the wait at the end cancel out. Knows no device: the function that runs such a program is given.
--
-- The first program of a kind is slow (libraries load kernels, the clock rises), and so the first pair is not counted;
-- the later ones tell how many applications a difference needs. Where turns differ by more than NOISY, the result says
-- so.
local spread = require 'wane.report.spread'

local timing = {}

local NOISY = 0.1 -- most distance of the quartiles of the differences over their median that is not told
local MOST = 1024 -- applications of a program

--- Returns how many applications make a difference of `least` seconds, from a difference of `seconds` for `count`.
-- Results of all applications are held at once, so their bytes bound it.
-- @param count applications of the difference, at least 1
-- @param seconds difference of two programs, of any sign
-- @param bytes moved by one application
-- @param options { least = seconds, room = bytes }
function timing.grow(count, seconds, bytes, options)
    local most = math.min(MOST, math.floor(options.room / math.max(bytes, 1)))
    -- A difference that is lost in noise says only that the kernel is short.
    local wanted = seconds > 0 and math.ceil(count * options.least / seconds) or 8 * count
    return math.max(count, math.min(wanted, most, 64 * count))
end

-- Runs programs of one and of count + 1 applications. Returns the seconds of both and the bytes of one application.
local function pair(run, count)
    local one, bytes_one = run(1)
    local all, bytes_all = run(count + 1)
    return one, all, (bytes_all - bytes_one) / count
end

--- Measures one application: the median seconds of programs of many less the median of programs of one.
-- @param run function(n) that runs a program of n applications; returns its seconds, and the bytes that it moves
-- @param count applications more in the longer program, at least
-- @param options { turns = pairs that count, least = seconds of a difference, room = most bytes of the results of a
-- program; no_clock = true: seconds are not judged }
-- @return { seconds =, bytes = moved by one, count = applications more, noise = nil or words for its row }
-- @raise where many applications take no more than one
function timing.measure(run, count, options)
    local _, _, bytes = pair(run, count) -- both forms are warm after this
    if not options.no_clock then
        for _ = 1, 2 do
            local one, all = pair(run, count)
            count = timing.grow(count, all - one, bytes, options)
        end
    end
    local ones, alls, differences = {}, {}, {}
    for turn = 1, options.turns do
        ones[turn], alls[turn], bytes = pair(run, count)
        differences[turn] = alls[turn] - ones[turn]
    end
    local one, all = spread.of(ones), spread.of(alls)
    local total = all.median - one.median
    if options.no_clock then total = math.max(total, 1e-9) end
    if total <= 0 then
        error(('%d applications took %g s, one took %g s, medians of %d turns: nothing to measure'):format(count + 1,
            all.median, one.median, options.turns), 0)
    end
    local found = spread.of(differences)
    local share = (found.high - found.low) / total
    return { seconds = total / count, bytes = bytes, count = count, noise = not options.no_clock and share > NOISY
        and ('noisy: quartiles of %d turns %.0f %% apart'):format(options.turns, 100 * share) or nil }
end

return timing
