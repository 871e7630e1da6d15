/* Reads the system's monotonic clock (CLOCK_MONOTONIC of POSIX). */
#include <time.h>
#include "clock.h"

double wn__now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
