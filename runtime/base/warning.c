/* Keeps the one pending warning. Only the thread that owns the library calls these functions, so they need no lock. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "warning.h"

static char warning[512]; /* the pending line, cut at 511 bytes; "": none */

void wn__warn(const char *format, ...)
{
    if (warning[0] != 0) return;
    va_list args;
    va_start(args, format);
    vsnprintf(warning, sizeof warning, format, args);
    va_end(args);
}

const char *wn__warning_take(void)
{
    static char taken[sizeof warning];
    memcpy(taken, warning, sizeof taken);
    warning[0] = 0;
    return taken;
}
