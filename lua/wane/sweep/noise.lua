--- Noise of a sweep's rows: which differences of seconds are more than noise, and the words about noisy rows.
--
-- Rows may come from a file that an earlier version wrote or a user edited, so nothing but `seconds` must be there: a
-- row without quartiles counts as measured exactly.
-- @internal wane.sweep.noise
local spread = require 'wane.report.spread'

local noise = {}

--- Returns the seconds of a row's step, recording included; those of its programs where the row says no more.
function noise.step(row)
    return row.wall or row.seconds
end

-- Returns the seconds of a row as spread.of returns them.
local function seconds_of(row)
    local median = noise.step(row)
    return { median = median, low = math.min(row.low or median, median), high = math.max(row.high or median, median) }
end

--- Returns the rows of a front that are faster, by more than noise, than every row before them that is returned.
-- @param front rows that no other beats, by ascending peak
-- @return list of rows: the first one, and those that buy seconds for their bytes
function noise.distinct(front)
    local out = {}
    for _, row in ipairs(front) do
        local is_faster = true
        for _, before in ipairs(out) do
            is_faster = is_faster and (row.peak == before.peak or spread.is_less(seconds_of(row), seconds_of(before)))
        end
        if is_faster then out[#out + 1] = row end
    end
    return out
end

--- Returns ' noisy' for a row that was measured amid other work, else ''.
-- @param row of a sweep
function noise.word(row)
    return row.noisy and ' noisy' or ''
end

--- Returns words for the summary of a sweep: how many rows are noisy, and the worst of them; '' when none is.
-- @param rows measured rows of a sweep
function noise.summary(rows)
    local count, worst = 0, nil
    for _, row in ipairs(rows) do
        if row.noisy then
            count = count + 1
            if not worst or (row.spread or 0) > (worst.spread or 0) then worst = row end
        end
    end
    if count == 0 then return '' end
    return ('; %d of %d noisy (%s): measure again on a quiet machine, or with more repeats'):format(count, #rows,
        count == 1 and worst.noisy:gsub('^noisy: ', '') or 'the worst: ' .. worst.noisy:gsub('^noisy: ', ''))
end

return noise
