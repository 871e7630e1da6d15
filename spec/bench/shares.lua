--- Shares of the machine's peak, of all repetitions and of those that had the cores to themselves.
--
-- Where the cores are hardware threads of somebody's machine, others run on the same cores, in stretches from
-- milliseconds to minutes: they halve the caches and the window of instructions but not the peak, and what computes
-- takes 1.05 to 1.25 times as long. So a repetition is a short probe of the peak, a look at the first caches, the work,
-- and the look again; and there are two shares, of all repetitions and of those in which the first caches were ours
-- alone (and how many they are): equal code gives equal numbers in the second.
local ROUNDS = 2e5 -- of the probe: about 14 ms
local SHARED = 1.4 -- a load from the first cache over the fastest seen, from which the core is shared
local LEAST = 10   -- undisturbed repetitions, for a share of them

local Shares = {}
Shares.__index = Shares

--- Makes an object that watches the cores.
-- @param common spec/bench/common.lua
-- @param probe its probe
-- @param threads how many of them work
-- @param peak_of one of probe.gflops_of, probe.gflops_bf16_of (or nil: Shares:repetition is not asked)
function Shares.new(common, probe, threads, peak_of)
    local self = setmetatable({ common = common, probe = probe, threads = threads, peak_of = peak_of,
        fastest = math.huge }, Shares)
    for _ = 1, 20 do self:look() end
    return self
end

--- Measures the nanoseconds of a load from the first cache, of the slowest core, and keeps the fastest seen.
function Shares:look()
    local ns = self.probe.near(self.threads)
    self.fastest = math.min(self.fastest, ns)
    return ns
end

--- Runs one repetition: a probe of the peak, a look at the first caches, the work, and the look again.
-- @param flops of the work
-- @param work function() that returns its seconds
-- @return { seconds, rate, peak (GFLOP/s), near }
function Shares:repetition(flops, work)
    local peak = self.peak_of(self.threads, ROUNDS)
    local before = self:look()
    local seconds = work()
    return { seconds = seconds, rate = flops / seconds * 1e-9, peak = peak, near = math.max(before, self:look()) }
end

--- Returns the medians of repetitions, and the best rate over the best peak, which says what is reached in the moments
-- in which nobody else runs.
-- @return { seconds, rate, peak = numbers, best = '88 %', share = '85 %', own = '87 % (12 of 40)', '' when too few were
-- undisturbed }
function Shares:summary(repetitions)
    local seconds, rates, peaks, all, own = {}, {}, {}, {}, {}
    for i, r in ipairs(repetitions) do
        seconds[i], rates[i], peaks[i], all[i] = r.seconds, r.rate, r.peak, r.rate / r.peak
        if self:is_alone(r.near) then own[#own + 1] = all[i] end
    end
    local median = self.common.median
    local best = math.max(unpack(rates)) / math.max(unpack(peaks))
    return { seconds = median(seconds), rate = median(rates), peak = median(peaks),
        best = ('%.0f %%'):format(100 * best), share = ('%.0f %%'):format(100 * median(all)),
        own = self:text(own, #all) }
end

--- Returns whether the cores were ours alone when a load from the first cache took `near` nanoseconds.
function Shares:is_alone(near)
    return near < SHARED * self.fastest
end

--- Returns what a table says of shares: `own` of `all` repetitions were undisturbed.
function Shares:text(own, all)
    return #own >= LEAST and ('%.0f %% (%d of %d)'):format(100 * self.common.median(own), #own, all) or ''
end

return Shares
