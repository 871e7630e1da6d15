--- Returns the function that plans a chain: it takes a table of stages (spec/support/chains.lua) and a budget in bytes,
-- and returns the fastest schedule that fits, { time =, peak =, schedule = }, or nil and the least budget.
return require('spec.support.chains').plan
