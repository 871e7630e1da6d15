/* The bytes of a program that the host writes and reads: numbers of the host, seeds and counters, reports of wrong data
 * (the allocation `scalars` of plan/lower/schedule.h), and results that are numbers. */
#ifndef WN_RUN_SCALARS_H
#define WN_RUN_SCALARS_H
#include "acquire.h"

/* Uploads the numbers of the host, and on an asynchronous device seeds, counters and empty reports. WN_OOM. */
int32_t wn__scalars_put(struct wn_program *p, const struct wn__bases *b);

/* Starts to read the 0-d result of a READ to b->number. */
int32_t wn__number_read(struct wn_program *p, const struct wn__bases *b, const struct wn__instr *n);
/* Gives every result that is a number what was read, once the device has been waited for. */
void wn__numbers_take(struct wn_program *p, const struct wn__bases *b);

/* Waits for the device and looks at the reports. WN_VALUE: an instruction met an index outside its table; the message
 * is that of the CPU's kernel. Does nothing where no instruction reports. */
int32_t wn__reports_check(struct wn_program *p, const struct wn__bases *b);
#endif
