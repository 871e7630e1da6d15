/* The pending warning: one line for the user about a call that nevertheless succeeded. */
#ifndef WN_BASE_WARNING_H
#define WN_BASE_WARNING_H
#include "status.h"

/* Keeps the line until it is taken. Drops it if another line is pending: the first one is reported. */
void wn__warn(const char *format, ...) WN_PRINTF(1, 2);

/* Returns the pending line, "" if there is none, and forgets it. The text is valid until the next call. */
const char *wn__warning_take(void);
#endif
