/* The clock that durations are measured with. */
#ifndef WN_BASE_CLOCK_H
#define WN_BASE_CLOCK_H

/* Returns the seconds of a clock that never goes back; only differences of two readings mean anything. */
double wn__now(void);
#endif
