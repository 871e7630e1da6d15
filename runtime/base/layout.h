/* How the elements of a value lie in its bytes. Nearly everything is plain: dense and row-major. A weight of nn.Linear
 * lives in the one form that the products of its device read and write without a second copy; its gradient and its
 * optimizer's cells share it. A layout is an order of the same elements, so it costs no byte, and what goes over
 * elements one by one need not know it. */
#ifndef WN_BASE_LAYOUT_H
#define WN_BASE_LAYOUT_H
#include <stdint.h>

enum wn_layout {
    WN_PLAIN,
    /* Of a matrix (rows, columns), rows a multiple of 16: rows go in panels of 48, the last one narrower. A panel is dense,
     * (columns, its rows): the rows of a panel lie side by side. */
    WN_PANEL48,
    WN_LAYOUT_COUNT
};
enum { WN_PANEL = 48, WN_PANEL_UNIT = 16 };

/* Where the elements of one row stand in a matrix of panels: column c at the result + c * *width. */
static inline int64_t wn__panel_row(int64_t rows, int64_t columns, int64_t row, int64_t *width)
{
    int64_t first = row / WN_PANEL * WN_PANEL;
    *width = rows - first < WN_PANEL ? rows - first : WN_PANEL;
    return first * columns + row - first;
}
#endif
