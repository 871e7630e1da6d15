--- The promises of Wane that the rows of a sweep break: predicted bytes are measured bytes, and points that differ in a
-- lossless policy alone have the same bits of gradients and loss.
-- @internal wane.sweep.problems
local problems = {}

-- Returns the row whose bits the other rows of its group must have: that of save_all, else the first.
local function reference_of(rows)
    for _, row in ipairs(rows) do
        if row.point.policy == 'save_all' then return row end
    end
    return rows[1]
end

-- Returns what is wrong with the bytes of a row, or nil.
local function bytes_of(row, name)
    if row.exact and row.peak == row.predicted_peak and row.reserved == row.predicted_reserved then return nil end
    return ('%s: predicted peak %.0f bytes (reserved %.0f), measured %.0f (%.0f); this is a defect of Wane')
        :format(name, row.predicted_peak, row.predicted_reserved, row.peak, row.reserved)
end

-- Returns how the bits of two rows of a group differ, or nil.
local function bits_of(first, row, name_of)
    local what = row.digest ~= first.digest and (row.digest_of or 'digests')
        or row.loss_bits ~= first.loss_bits and 'losses'
    if not what then return nil end
    local field = what == 'losses' and 'loss_bits' or 'digest'
    return ('the %s of (%s) and (%s) differ: %s and %s; build must make the same model from the same numbers for every '
        .. 'policy'):format(what, name_of(first), name_of(row), tostring(first[field]), tostring(row[field]))
end

--- Lists the promises that rows break.
-- @param points of the sweep
-- @param found rows by key of their point
-- @param name_of function(row) that returns the name of its point
-- @return list of sentences
function problems.of(points, found, name_of)
    local groups, order, out = {}, {}, {}
    for _, q in ipairs(points) do
        local row = found[q.key]
        if row and row.status == 'ok' then
            out[#out + 1] = bytes_of(row, q.label)
            if groups[q.group] == nil then
                groups[q.group] = {}
                order[#order + 1] = groups[q.group]
            end
            if row.lossless then table.insert(groups[q.group], row) end
        end
    end
    for _, rows in ipairs(order) do
        local first = reference_of(rows)
        for _, row in ipairs(rows) do out[#out + 1] = bits_of(first, row, name_of) end
    end
    return out
end

return problems
