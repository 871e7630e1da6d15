/* The order of sums that every device keeps, so that their bits are equal: a sum is a tree that depends on its length
 * alone. Reductions down columns have parts of their own (row_parts.h), reductions of any dims pieces (reduction.h).
 *
 *   a row          WN_LANES lanes in double: lane j adds the elements j, j + 16, j + 32 and so on; then the lanes are
 *                  added in order, from 0
 *   a softmax      stretches of WN_STRETCH terms, each summed as a row; their sums are added in order, from 0
 *   a loss         is one number a row: of smoothed labels, the classes of a row are summed as a row. Every form, mean,
 *                  sum or none, sums these numbers as SUM sums any value (reduction.h)
 *   a count        parts of the labels, their weights summed as a row; the sums are added in order, from 0 */
#ifndef WN_SUMS_H
#define WN_SUMS_H
#include <stdint.h>
#include "../runtime/base/number.h"

enum { WN_LANES = 16, WN_STRETCH = 256 };

/* Most parts of the labels of a count, and the least labels of a part. */
enum { WN_COUNT_PARTS = 64, WN_COUNT_PART_LEAST = 512 };

/* Returns the number of parts of n labels, 1 to WN_COUNT_PARTS. Part c has labels [n c / parts, n (c + 1) / parts). */
WN_FN int64_t wn__count_parts(int64_t n)
{
    int64_t parts = n / WN_COUNT_PART_LEAST, most = WN_COUNT_PARTS;
    return parts < 1 ? 1 : parts > most ? most : parts;
}

/* Returns the term of a row: factor logp + each all. factor: of the log-probability of the label; all: the weighted sum
 * of those of all classes. */
WN_FN double wn__loss_term(double factor, double logp, double each, double all)
{
    return factor * logp + each * all;
}

/* Returns the gradient of the log-probability of a class. share: that of the row; factor: of the class. */
WN_FN double wn__loss_slope(double share, double weight, double factor)
{
    return share * (weight * factor);
}
#endif
