--- Functions of the planner that rooms below it call; `wane.init` sets them.
--
-- * `load_costs()` is called before a program is opened: costs are known when it is planned.
-- * `look_for_launcher()` is called before the first run point: many ranks may have been meant to be one job.
-- * `bits()` returns the tunables on which bits of results depend, as text.
-- * `choose(program, limit, most)` chooses for an open program the fastest plan within a budget of `limit` bytes; with
--   `most`, within so many, or the one of the fewest bytes. It returns whether it is that one.
-- * `choose_least(program)` chooses the plan that reserves the fewest bytes.
-- * `too_large(program, e)` completes the error of a program that does not fit.
-- * `share(program, decide)` has all ranks plan it alike, where decide(program, most) chooses a plan on rank 0.
-- @internal wane.program.planner
return { load_costs = nil, bits = nil, look_for_launcher = nil, choose = nil, choose_least = nil,
    share = nil, too_large = nil }
