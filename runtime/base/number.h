/* Arithmetic of sizes and indices: minimum, maximum, rounding up. */
#ifndef WN_BASE_NUMBER_H
#define WN_BASE_NUMBER_H
#include <stdint.h>
#include "function.h"

WN_FN int64_t wn_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

WN_FN int64_t wn_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns the least multiple of `unit` that is n or more. Requires n >= 0 and unit >= 1. */
WN_FN int64_t wn_round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}
#endif
