/* Layouts: the order of a value's elements in its bytes. Most values are plain, that is dense and row-major. A weight
 * of nn.Linear or nn.Conv2d has the layout that the products and convolutions of its device read and write without a
 * packed copy; its gradient and the optimizer's cells have the same one. An image that a convolution made has its
 * channels last. A layout but WN_ROWS orders the same elements in the same number of bytes, so a kernel that treats
 * every element alike need not know it.
 *
 * A matrix of 112 rows and c columns in WN_PANEL48, and the elements of its first panel in memory:
 *
 *   rows   0..47   +-----------+   panel 0   column 0: rows 0..47 | column 1: rows 0..47 | ... | column c-1: rows 0..47
 *   rows  48..95   +-----------+   panel 1   48 * c elements
 *   rows  96..111  +-----------+   panel 2   16 * c elements: the last panel is narrower
 */
#ifndef WN_BASE_LAYOUT_H
#define WN_BASE_LAYOUT_H
#include <stdint.h>
#include "number.h"

enum wn_layout {
    WN_PLAIN, /* dense, row-major */
    /* Of a matrix (rows, columns) with rows % WN_PANEL_UNIT == 0: panels of WN_PANEL rows one after the other, the last
     * panel with the rows that remain. A panel of w rows is dense: (columns, w) row-major. */
    WN_PANEL48,
    /* Puts an image (N, C, H, W) in the order of a plain (N, H, W, C). Where that is the order of a plain (N, C, H, W)
     * too, as with one channel or one pixel, the layout is WN_PLAIN (wn__layout_normal in memory_order.h). */
    WN_NHWC,
    /* Puts a convolution's weight (O, I, kh, kw) with O % WN_PANEL_UNIT == 0 in panels, as the matrix (O, kh kw I)
     * would lie in WN_PANEL48. */
    WN_CONV48,
    WN_LAYOUT_COUNT,
    /* Pads the rows of a value (..., columns) that no script sees (plan/ir/rows.c): each row begins at a multiple of
     * WN_ROW_UNIT elements. What lies between two rows is no number, and no kernel reads it as one. */
    WN_ROWS = WN_LAYOUT_COUNT
};
enum { WN_PANEL = 48, WN_PANEL_UNIT = 16, WN_ROW_UNIT = 64 };

/* Returns the index, in elements, of (row, column 0) in a matrix (rows, columns) of WN_PANEL48, and puts into *width
 * the rows of its panel. Element (row, c) has index result + c * *width. */
WN_FN int64_t wn__panel_row(int64_t rows, int64_t columns, int64_t row, int64_t *width)
{
    int64_t first = row / WN_PANEL * WN_PANEL;
    *width = rows - first;
    if (*width > WN_PANEL) *width = WN_PANEL;
    return first * columns + row - first;
}
#endif
